//! A verdict as compilers print errors: the violation, its path, and the slice that is meant.

use std::fmt::Write as _;
use std::ops::Range;

use crate::stage::judge::Failed;
use crate::stage::judge::Refused;
use crate::stage::judge::Rejection;
use crate::stage::judge::Verdict;

/// Columns of a source line that are shown.
const WIDTH: usize = 100;

/// The verdict on `text`, which is called `name`.
pub fn verdict(verdict: &Verdict, name: &str, text: &str, colour: bool) -> String {
    let paint = Paint { colour };
    match verdict {
        Verdict::Accept(accepted) => {
            let found = accepted.choices().first().and_then(|choice| choice.slice.clone().zip(choice.rung));
            match found {
                Some((slice, rung)) => {
                    let (start, end) = (slice.start, slice.end);
                    let answer = text.get(slice).unwrap_or_default();
                    format!("{} ({}, bytes {start}..{end})\n{answer}\n", paint.good("accepted"), rung.as_str())
                }
                None => format!("{}\n", paint.good("accepted")),
            }
        }
        Verdict::Clarify(asked) => format!("{}: {}\n", paint.warn("clarified"), asked.questions.join(" ")),
        Verdict::Reject(rejection) => rejected(rejection, name, text, &paint),
        Verdict::Refuse(Refused::Model) => format!("{}: the model refused\n", paint.warn("refused")),
        Verdict::Refuse(Refused::Filter) => {
            format!("{}: the provider's filter cut the answer\n", paint.warn("refused"))
        }
        Verdict::Fail(Failed::Empty) => {
            format!("{}: output_empty: the backend returned nothing\n", paint.bad("failed"))
        }
        Verdict::Fail(Failed::Reported) => {
            format!("{}: upstream_error: the finish reason reports a failure\n", paint.bad("failed"))
        }
        Verdict::Fail(Failed::Unfinished) => {
            format!("{}: upstream_protocol: the finish reason is not known\n", paint.bad("failed"))
        }
    }
}

fn rejected(rejection: &Rejection, name: &str, text: &str, paint: &Paint) -> String {
    let total = rejection.violations.total();
    let plural = if total == 1 { "" } else { "s" };
    let mut out = format!("{}: {} ({total} violation{plural})\n", paint.bad("rejected"), rejection.code.as_str());
    for violation in rejection.violations.iter() {
        let _ =
            writeln!(out, "\n{}: {}", paint.bad(&format!("{} {}", violation.kind, violation.path)), violation.message);
        if let Some(at) = &violation.at {
            out.push_str(&excerpt(name, text, at, paint));
        }
    }
    let unlisted = total - rejection.violations.iter().count();
    if unlisted > 0 {
        let _ = writeln!(out, "\nand {unlisted} more");
    }
    out
}

/// The line where `at` begins, with carets under what is meant.
fn excerpt(name: &str, text: &str, at: &Range<usize>, paint: &Paint) -> String {
    let before = text.get(..at.start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line_number = before.matches('\n').count() + 1;
    let line = text.get(line_start..).unwrap_or_default().lines().next().unwrap_or_default();
    let column = before.get(line_start..).unwrap_or_default().chars().count();
    let marked = text.get(at.clone()).unwrap_or_default().lines().next().unwrap_or_default().chars().count().max(1);
    // A long line is shown from a little before what is meant.
    let skipped = column.saturating_sub(WIDTH / 2);
    let skipped = if line.chars().count() <= WIDTH { 0 } else { skipped };
    let shown: String = line.chars().skip(skipped).take(WIDTH).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let carets = "^".repeat(marked.min(WIDTH.saturating_sub(column - skipped)).max(1));
    let gutter = " ".repeat(line_number.to_string().len());
    let mut out = format!("{gutter} {} {name}:{line_number}:{}\n", paint.dim("-->"), column + 1);
    let _ = writeln!(out, "{gutter} {}", paint.dim("|"));
    let _ = writeln!(out, "{} {} {shown}", paint.dim(&line_number.to_string()), paint.dim("|"));
    let _ = writeln!(out, "{gutter} {} {}{}", paint.dim("|"), " ".repeat(column - skipped), paint.bad(&carets));
    out
}

/// Colours, where there is a terminal to show them.
pub struct Paint {
    /// Whether there is.
    pub colour: bool,
}

impl Paint {
    fn with(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// What is well.
    pub fn good(&self, text: &str) -> String {
        self.with("1;32", text)
    }

    /// What is not.
    pub fn bad(&self, text: &str) -> String {
        self.with("1;31", text)
    }

    /// What is in between.
    pub fn warn(&self, text: &str) -> String {
        self.with("1;33", text)
    }

    /// What matters less.
    pub fn dim(&self, text: &str) -> String {
        self.with("2", text)
    }

    /// A heading.
    pub fn bold(&self, text: &str) -> String {
        self.with("1", text)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::reply::Choice;
    use crate::api::reply::Finish;
    use crate::api::reply::Reply;
    use crate::contract::ContentContract;
    use crate::contract::Contract;
    use crate::contract::schema::CompiledSchema;
    use crate::settings::SchemaLimits;
    use crate::stage::judge::Known;
    use crate::stage::judge::judge;

    fn printed(text: &str, finish: &str) -> String {
        let schema = r#"{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"age":{"type":"integer"},"tags":{"items":{"type":"string"}}},"additionalProperties":false}"#;
        let schema = CompiledSchema::compile(schema.into(), SchemaLimits::default()).unwrap();
        let contract = Contract { content: Some(ContentContract::schema(Arc::new(schema))), ..Contract::default() };
        let choice = Choice { content: Some(text.into()), finish: Some(Finish::read(finish)), ..Choice::default() };
        let reply = Reply { choices: vec![choice], ..Reply::default() };
        let found = judge(&contract, &reply, &[], &Known::nothing());
        verdict(&found.verdict, "answer", text, false)
    }

    #[test]
    fn verdicts_are_worth_reading() {
        let long = format!("{{\"name\":\"{}\",\"age\":\"é\"}}", "x".repeat(300));
        let texts = [
            "{\"name\":\"Ada\"}",
            "Sure:\n```json\n{\"name\":\"Ada\",\n \"age\":\"17\", \"tags\":[\"é\", 7]}\n```",
            "{\"age\":1.5,\"extra\":[1,\n2]}",
            "{\"name\":\"Ada\",}",
            "Here {\"name\":\"Ada\",\"name\":\"Bob\"}",
            "{\"name\":\"a\"} {\"name\":\"b\"}",
            "no data",
            long.as_str(),
        ];
        let all: Vec<String> = texts
            .iter()
            .map(|text| printed(text, "stop"))
            .chain([printed("{}", "length"), printed("", "stop")])
            .collect();
        insta::assert_snapshot!(all.join("\n----\n"));
    }
}
