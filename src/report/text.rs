//! A verdict as compilers print errors: the violation, its path, the slice that is meant, in the model's text and in
//! the source, and where the gate is written.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use crate::contract::verdict::Action;
use crate::contract::verdict::Violation;
use crate::report::outcome::Ended;
use crate::report::outcome::Judged;
use crate::report::shown;
use crate::report::visible;

/// Columns of a line that are shown.
const WIDTH: usize = 100;

/// What a verdict was reached on.
#[derive(Clone, Copy, Debug)]
pub struct Given<'g> {
    /// What the model's text is called.
    pub name: &'g str,
    /// The model's text.
    pub text: &'g str,
    /// The source, page by page.
    pub pages: &'g [Arc<str>],
}

/// The verdict. Nothing in it steers a terminal, whatever the model wrote.
pub fn verdict(judged: &Judged, given: Given<'_>, colour: bool) -> String {
    let paint = Paint { colour };
    let mut out = heading(judged, &paint);
    if judged.outcome == Ended::Accepted
        && let Some(found) = &judged.extraction
    {
        let answer = match &judged.delivered {
            Some(delivered) => delivered,
            None => given.text.get(found.range.clone()).unwrap_or_default(),
        };
        let _ = writeln!(out, "{}", shown(answer));
    }
    for violation in &judged.violations {
        out.push_str(&one(violation, given, &paint));
    }
    let unlisted = judged.violations_total.saturating_sub(judged.violations.len());
    if unlisted > 0 {
        let _ = writeln!(out, "\nand {unlisted} more");
    }
    let instead = judged.delivered.as_ref().filter(|_| judged.outcome != Ended::Accepted);
    if !judged.questions.is_empty() || !judged.not_checked.is_empty() || instead.is_some() {
        out.push('\n');
    }
    let words = if judged.outcome == Ended::Clarified { "question" } else { "says" };
    for question in &judged.questions {
        let _ = writeln!(out, "{} {words}: {}", paint.dim("="), shown(question));
    }
    if !judged.not_checked.is_empty() {
        let _ = writeln!(out, "{} not checked: {}", paint.dim("="), judged.not_checked.join(", "));
    }
    if let Some(object) = instead {
        let _ = writeln!(out, "{} the caller gets: {}", paint.dim("="), shown(object));
    }
    out
}

fn heading(judged: &Judged, paint: &Paint) -> String {
    let name = judged.outcome.as_str();
    let name = match judged.outcome {
        Ended::Accepted => paint.good(name),
        Ended::Clarified | Ended::Refused => paint.warn(name),
        Ended::Rejected | Ended::Failed => paint.bad(name),
    };
    let mut out = name;
    if let Some(code) = judged.code {
        let _ = write!(out, ": {}", code.as_str());
    }
    if !judged.note.is_empty() {
        let _ = write!(out, ": {}", judged.note);
    }
    let mut told = Vec::new();
    if judged.outcome == Ended::Accepted
        && let Some(found) = &judged.extraction
    {
        told.push(format!("{}, bytes {}..{}", found.rung.as_str(), found.range.start, found.range.end));
    }
    match judged.violations_total {
        0 => {}
        1 => told.push("1 violation".to_owned()),
        total => told.push(format!("{total} violations")),
    }
    if !told.is_empty() {
        let _ = write!(out, " ({})", told.join(", "));
    }
    out.push('\n');
    out
}

fn one(violation: &Violation, given: Given<'_>, paint: &Paint) -> String {
    let what = shown(&format!("{} {}", violation.kind, violation.path));
    let what = match violation.action {
        Action::Monitor => paint.bold(&what),
        Action::Clarify => paint.warn(&what),
        Action::Reject => paint.bad(&what),
    };
    let mut out = format!("\n{what}: {}\n", shown(&violation.message));
    if let Some(at) = &violation.at {
        let place = Place { arrow: "-->", name: given.name, text: given.text, at };
        out.push_str(&place.excerpt(paint));
    }
    let page = violation.source_at.as_ref().and_then(|at| Some((at, given.pages.get(at.page.checked_sub(1)?)?)));
    if let Some((at, text)) = page {
        let name = format!("source, page {}", at.page);
        let place = Place { arrow: ":::", name: &name, text, at: &at.range };
        out.push_str(&place.excerpt(paint));
    }
    if let Some(declared) = &violation.declared {
        let (gate, kind) = (&violation.gate, violation.kind);
        let _ = writeln!(out, "  {} gate: {gate} ({kind}) at {declared}", paint.dim("="));
    }
    match violation.action {
        Action::Reject => {}
        Action::Clarify => _ = writeln!(out, "  {} action: the caller is asked back", paint.dim("=")),
        Action::Monitor => _ = writeln!(out, "  {} action: it is recorded, the answer goes on", paint.dim("=")),
    }
    out
}

/// Bytes of a text that are meant.
struct Place<'p> {
    arrow: &'static str,
    name: &'p str,
    text: &'p str,
    at: &'p Range<usize>,
}

impl Place<'_> {
    /// The line where they begin, with carets under them.
    fn excerpt(&self, paint: &Paint) -> String {
        let Self { arrow, name, text, at } = self;
        let before = text.get(..at.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line_number = before.matches('\n').count() + 1;
        let line = text.get(line_start..).unwrap_or_default().lines().next().unwrap_or_default();
        let column = before.get(line_start..).unwrap_or_default().chars().count();
        let meant = text.get((*at).clone()).unwrap_or_default();
        let marked = meant.lines().next().unwrap_or_default().chars().count().max(1);
        // A long line is shown from a little before what is meant.
        let skipped = column.saturating_sub(WIDTH / 2);
        let skipped = if line.chars().count() <= WIDTH { 0 } else { skipped };
        let safe = |c| if c == '\t' { ' ' } else { visible(c) };
        let line: String = line.chars().skip(skipped).take(WIDTH).map(safe).collect();
        let carets = "^".repeat(marked.min(WIDTH.saturating_sub(column - skipped)).max(1));
        let gutter = " ".repeat(line_number.to_string().len());
        let mut out = format!("{gutter} {} {}:{line_number}:{}\n", paint.dim(arrow), shown(name), column + 1);
        let _ = writeln!(out, "{gutter} {}", paint.dim("|"));
        let _ = writeln!(out, "{} {} {line}", paint.dim(&line_number.to_string()), paint.dim("|"));
        let _ = writeln!(out, "{gutter} {} {}{}", paint.dim("|"), " ".repeat(column - skipped), paint.bad(&carets));
        out
    }
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

    /// What is in between, where there is anything.
    pub fn warn_unless_empty(&self, text: &str) -> String {
        if text.is_empty() { String::new() } else { self.warn(text) }
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
    use super::*;
    use crate::api::reply::Finish;
    use crate::contract::schema::CompiledSchema;
    use crate::contract::verdict::SourceAt;
    use crate::exchange::recorded::Judge;
    use crate::exchange::recorded::Recorded;
    use crate::extraction::Extracted;
    use crate::extraction::Rung;
    use crate::json::path::Path;
    use crate::record::Stage;
    use crate::settings::SchemaLimits;

    fn printed(text: &str, finish: &str) -> String {
        let schema = r#"{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"age":{"type":"integer"},"tags":{"items":{"type":"string"}}},"additionalProperties":false}"#;
        let schema = CompiledSchema::compile(schema.into(), SchemaLimits::default()).unwrap();
        let judge = Judge::by_schema(Arc::new(schema));
        let heard = judge.judge(Recorded { finish: Finish::read(finish), ..Recorded::text(text) }).unwrap();
        verdict(&Judged::of(&heard, &judge), Given { name: "answer", text, pages: &[] }, false)
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

    const TEXT: &str = "{\n  \"subtotal\": 100.00,\n  \"due\": \"2026-01-02\"\n}";

    fn of_policy(gate: &str, kind: &'static str, action: Action, member: &str, message: &str) -> Violation {
        let path = Path::root().key(member);
        let at = path.locate(TEXT.as_bytes());
        Violation {
            policy: Some("invoices".into()),
            action,
            declared: Some("policies/invoices/policy.yaml:21".into()),
            ..Violation::own(gate, kind, path, message.to_owned(), at)
        }
    }

    fn contract(outcome: Ended, violations: Vec<Violation>) -> Judged {
        Judged {
            outcome,
            code: None,
            stage: Stage::Judge,
            policy: vec!["invoices".into()],
            extraction: Some(Extracted { range: 0..TEXT.len(), rung: Rung::Whole }),
            violations_total: violations.len(),
            violations,
            not_checked: Vec::new(),
            questions: Vec::new(),
            answer: None,
            delivered: None,
            note: "",
        }
    }

    #[test]
    fn what_gates_say_is_shown_in_the_answer_and_in_the_source() {
        let message = "the sum of `$.lines[*].amount` is 74.50, found 100.00";
        let sum = of_policy("lines-add-up", "math", Action::Reject, "subtotal", message);
        let message = "expected the date that the quote prints, `2026-02-01`, found `2026-01-02`";
        let source_at = Some(SourceAt { page: 2, range: 18..28 });
        let due = Violation { source_at, ..of_policy("grounded", "provenance", Action::Clarify, "due", message) };
        let noted = of_policy("clean", "text", Action::Monitor, "due", "expected nothing of the kind");
        let pages: [Arc<str>; 2] = ["page one".into(), "Invoice 7\nDue by\t2026-02-01 at noon\n".into()];
        let given = Given { name: "answer.txt", text: TEXT, pages: &pages };
        let mut both = contract(Ended::Rejected, vec![sum, due.clone(), noted.clone()]);
        both.code = Some(crate::wire::fault::Code::SchemaViolation);
        both.violations_total = 120;
        both.questions = vec!["When is it due?".to_owned(), "What is the total?".to_owned()];
        both.not_checked = vec!["total-adds-up".into(), "affordable".into()];
        let asked = Judged {
            questions: both.questions.clone(),
            delivered: Some("{\"due\":null}".to_owned()),
            ..contract(Ended::Clarified, vec![due])
        };
        let accepted = contract(Ended::Accepted, vec![noted]);
        let all = [both, asked, accepted].map(|judged| verdict(&judged, given, false));
        insta::assert_snapshot!(all.join("\n----\n"));
    }

    #[test]
    fn a_hostile_answer_does_not_steer_the_terminal() {
        let text = "{\"a\u{9b}31m\": \"\u{7f}\u{202e}evil\"}";
        let path = Path::root().key("a\u{9b}31m");
        let at = path.locate(text.as_bytes());
        assert!(at.is_some());
        let mut broken = contract(Ended::Rejected, vec![Violation::own("g", "k", path, "\u{1b}[2J".into(), at)]);
        broken.questions = vec!["\u{1b}]0;title\u{7}".to_owned()];
        let given = Given { name: "a\u{1b}[1m", text, pages: &[] };
        let accepted = Judged {
            extraction: Some(Extracted { range: 0..text.len(), rung: Rung::Whole }),
            ..contract(Ended::Accepted, Vec::new())
        };
        for judged in [broken, accepted] {
            let told = verdict(&judged, given, false);
            assert!(!told.chars().any(|c| c != '\n' && (c.is_control() || c == '\u{202e}')), "{told:?}");
        }
    }

    #[test]
    fn places_that_are_not_there_are_no_fault() {
        let at = SourceAt { page: 3, range: 5..900 };
        let far = Violation {
            source_at: Some(at.clone()),
            ..Violation::own("g", "k", Path::root(), "m".into(), Some(7..900))
        };
        let zero = Violation { source_at: Some(SourceAt { page: 0, ..at }), ..far.clone() };
        let pages: [Arc<str>; 1] = ["é".into()];
        let given = Given { name: "answer", text: "é\né", pages: &pages };
        assert!(verdict(&contract(Ended::Rejected, vec![far, zero]), given, false).contains("k $: m"));
    }
}
