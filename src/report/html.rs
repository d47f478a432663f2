//! The report of a golden set as one HTML file: it loads nothing, runs nothing, and reads well in the light, in the dark
//! and on a phone. What models and documents say in it is hostile until it is escaped, which the engine does to all of it.

use std::sync::Arc;

use minijinja::Environment;
use minijinja::Value;
use minijinja::value::Serde;
use serde::Serialize;

use crate::contract::verdict::Violation;
use crate::report::count;
use crate::report::golden::Cause;
use crate::report::golden::Golden;
use crate::report::golden::Unexpected;
use crate::report::golden::percent;
use crate::report::marks;
use crate::report::marks::Mark;
use crate::report::marks::Piece;
use crate::report::outcome::Ended;
use crate::report::shown;

/// Records that are shown in full.
pub const RECORDS_MAX: usize = 500;
/// Pages of a source that are shown although nothing is marked on them.
const PLAIN_PAGES_MAX: usize = 12;
/// The template of the page: the name ends in `.html`, by which the engine knows to escape.
const PAGE: &str = "golden.html";

/// The report of this set.
///
/// # Errors
/// Where the template fails, which is a fault of this program.
pub fn golden(golden: &Golden) -> Result<String, minijinja::Error> {
    let mut engine = Environment::new();
    engine.add_template(PAGE, include_str!("page/golden.html"))?;
    engine.get_template(PAGE)?.render(Value::from(Serde(View::of(golden))))
}

#[derive(Serialize)]
struct View {
    style: Value,
    policy: String,
    records: String,
    as_expected: String,
    not_as_expected: String,
    not_accepted: String,
    share: String,
    is_good: bool,
    own: Vec<Share>,
    gates: Vec<GateRow>,
    shares: [Shares; 3],
    has_causes: bool,
    unexpected: Vec<RecordView>,
    unlisted: bool,
}

#[derive(Serialize)]
struct Shares {
    title: &'static str,
    head: &'static str,
    whole: String,
    rows: Vec<Share>,
}

#[derive(Serialize)]
struct Share {
    name: String,
    count: String,
    share: String,
}

#[derive(Serialize)]
struct GateRow {
    name: String,
    kind: &'static str,
    declared: String,
    ran: String,
    fired: String,
    share: String,
    fired_unexpectedly: String,
    not_checked: String,
    hint: &'static str,
}

#[derive(Serialize)]
struct RecordView {
    name: String,
    line: u64,
    expected: String,
    found: String,
    tone: &'static str,
    cause: Option<&'static str>,
    note: &'static str,
    violations: Vec<ViolationRow>,
    violations_total: String,
    unlisted: usize,
    questions: Vec<String>,
    asks: bool,
    not_checked: String,
    texts: Vec<TextView>,
    pages_left_out: usize,
}

#[derive(Serialize)]
struct ViolationRow {
    path: String,
    message: String,
    gate: String,
    kind: &'static str,
    action: &'static str,
    declared: Option<String>,
    page: Option<usize>,
}

#[derive(Serialize)]
struct TextView {
    title: String,
    is_open: bool,
    pieces: Vec<Piece>,
}

impl View {
    fn of(golden: &Golden) -> Self {
        let tally = &golden.tally;
        let share = |name: &str, number, whole| Share {
            name: shown(name),
            count: count(number),
            share: percent(number, whole),
        };
        let not_accepted = tally.not_accepted();
        let outcomes = Ended::ALL.into_iter().zip(tally.outcomes).filter(|(_, number)| *number > 0);
        let classified: u64 = tally.by_cause.iter().sum();
        let causes = Cause::ALL.into_iter().map(Cause::as_str).zip(tally.by_cause);
        let causes = causes.chain([("not classified", not_accepted - classified.min(not_accepted))]);
        let causes = if classified == 0 {
            Vec::new()
        } else {
            causes.map(|(cause, number)| share(cause, number, not_accepted)).collect()
        };
        let rows = |title, head, whole, rows| Shares { title, head, whole: count(whole), rows };
        let outcomes = outcomes.map(|(ended, number)| share(ended.as_str(), number, tally.records)).collect();
        let classes = tally.by_class.iter().map(|(class, number)| share(class, *number, not_accepted)).collect();
        Self {
            style: Value::from_safe_string(include_str!("page/style.css").to_owned()),
            policy: shown(&golden.policy),
            records: count(tally.records),
            as_expected: count(tally.as_expected),
            not_as_expected: count(tally.records - tally.as_expected),
            not_accepted: count(not_accepted),
            share: percent(tally.as_expected, tally.records),
            is_good: tally.records == tally.as_expected,
            own: tally.own.iter().map(|(name, fired)| share(name, *fired, tally.records)).collect(),
            gates: (tally.gates.iter())
                .map(|gate| GateRow {
                    name: shown(&gate.name),
                    kind: gate.kind,
                    declared: shown(&gate.declared),
                    ran: count(gate.ran),
                    fired: count(gate.fired),
                    share: if gate.fired > 0 { percent(gate.fired, gate.ran) } else { String::new() },
                    fired_unexpectedly: count(gate.fired_unexpectedly),
                    not_checked: count(gate.not_checked),
                    hint: gate.hint(),
                })
                .collect(),
            shares: [
                rows("Outcomes", "outcome", tally.records, outcomes),
                rows("Not accepted, by class", "class", not_accepted, classes),
                rows("Not accepted, by cause", "cause", not_accepted, causes),
            ],
            has_causes: classified > 0,
            unexpected: golden.unexpected.iter().take(RECORDS_MAX).map(RecordView::of).collect(),
            unlisted: tally.records - tally.as_expected > golden.unexpected.len().min(RECORDS_MAX) as u64,
        }
    }
}

impl RecordView {
    fn of(record: &Unexpected) -> Self {
        let judged = &record.judged;
        let (mut texts, mut pages_left_out) = (Vec::new(), 0);
        if let Some((text, pages)) = &record.shown {
            let pieces = marks::pieces(text, &in_text(&judged.violations));
            texts.push(TextView { title: "What the model wrote".to_owned(), is_open: true, pieces });
            pages_left_out = page_views(&mut texts, pages, &judged.violations);
        }
        Self {
            name: shown(&record.name),
            line: record.line,
            expected: shown(&record.expected.to_string()),
            found: judged.told(),
            tone: match judged.outcome {
                Ended::Accepted => "good",
                Ended::Clarified | Ended::Refused => "ask",
                Ended::Rejected | Ended::Failed => "bad",
            },
            cause: record.cause.map(Cause::as_str),
            note: judged.note,
            violations: judged.violations.iter().map(ViolationRow::of).collect(),
            violations_total: count(judged.violations_total as u64),
            unlisted: judged.violations_total.saturating_sub(judged.violations.len()),
            questions: judged.questions.iter().map(|question| shown(question)).collect(),
            asks: judged.outcome == Ended::Clarified,
            not_checked: shown(&judged.not_checked.join(", ")),
            texts,
            pages_left_out,
        }
    }
}

impl ViolationRow {
    fn of(violation: &Violation) -> Self {
        Self {
            path: shown(&violation.path.to_string()),
            message: shown(&violation.message),
            gate: shown(&violation.gate),
            kind: violation.kind,
            action: violation.action.as_str(),
            declared: violation.declared.as_deref().map(shown),
            page: violation.source_at.as_ref().map(|at| at.page),
        }
    }
}

/// The marks of violations in the model's text, numbered as they are listed.
fn in_text(violations: &[Violation]) -> Vec<Mark> {
    let at = |(index, violation): (usize, &Violation)| {
        let range = violation.at.clone()?;
        Some(Mark { number: index + 1, range, label: violation.message.clone() })
    };
    violations.iter().enumerate().filter_map(at).collect()
}

/// Adds the pages with their marks, and tells how many are left out: those without a mark after the first few.
fn page_views(views: &mut Vec<TextView>, pages: &[Arc<str>], violations: &[Violation]) -> usize {
    let (mut plain, mut left_out) = (0, 0);
    for (index, page) in pages.iter().enumerate() {
        let number = index + 1;
        let on_page = |(index, violation): (usize, &Violation)| {
            let at = violation.source_at.as_ref().filter(|at| at.page == number)?;
            Some(Mark { number: index + 1, range: at.range.clone(), label: violation.message.clone() })
        };
        let marks: Vec<Mark> = violations.iter().enumerate().filter_map(on_page).collect();
        if marks.is_empty() {
            plain += 1;
            if plain > PLAIN_PAGES_MAX {
                left_out += 1;
                continue;
            }
        }
        let (title, is_open) = (format!("Source, page {number}"), !marks.is_empty());
        views.push(TextView { title, is_open, pieces: marks::pieces(page, &marks) });
    }
    left_out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::verdict::SourceAt;
    use crate::json::path::Path;
    use crate::report::golden::testing;

    const HOSTILE: &str = "</script></title></style></pre><img src=x onerror=alert(1)>\" onmouseover='x' {{ 7 * 7 }}{% raw %}&lt;\u{0}\u{1b}\u{202e}";

    /// Whatever stands between `<` and `>` in a page, tag by tag.
    fn tags(page: &str) -> Vec<&str> {
        page.split('<').skip(1).map(|after| after.split_once('>').unwrap_or_else(|| panic!("{after}")).0).collect()
    }

    #[test]
    fn nothing_that_a_model_or_a_document_says_becomes_markup() {
        let page = golden(&testing::golden(HOSTILE)).unwrap();
        for tag in tags(&page) {
            let name: String = tag.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect();
            let known = [
                "", "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "p", "ul", "li", "ol",
                "b", "br", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "div", "span", "code",
                "pre", "mark",
            ];
            assert!(known.contains(&name.as_str()) || tag == "!DOCTYPE html", "<{tag}>");
            // Outside of quoted values no attribute stands that this page does not use.
            for attribute in
                tag.split('"').step_by(2).flat_map(str::split_whitespace).skip(1).filter(|part| part.contains('='))
            {
                let known = [
                    "lang=",
                    "charset=",
                    "name=",
                    "content=",
                    "http-equiv=",
                    "class=",
                    "scope=",
                    "title=",
                    "data-n=",
                    "data-label=",
                ];
                assert!(known.contains(&attribute), "{attribute} in <{tag}>");
            }
        }
        assert!(!page.chars().any(|c| c != '\n' && (c.is_control() || c == '\u{202e}')));
        assert!(!page.contains("49"), "a template was run that came with an answer");
        assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;"));
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere() {
        let page = golden(&testing::golden("plain")).unwrap();
        for word in ["http://", "https://", "src=", "href=", "url(", "@import", "<script", "<link"] {
            assert!(!page.contains(word), "{word}");
        }
    }

    #[test]
    fn violations_are_marked_where_they_are() {
        let mut set = testing::golden("plain");
        let text = "{\"total\": 12, \"items\": [1, 2]}";
        let (total, items) = (Path::root().key("total"), Path::root().key("items"));
        let at = |path: &Path| path.locate(text.as_bytes());
        let one = |path: Path, message: &str, page: Option<usize>| {
            let (range, kind) = (at(&path), "math");
            let source_at = page.map(|page| SourceAt { page, range: 6..8 });
            Violation { source_at, ..Violation::own("sum", kind, path, message.to_owned(), range) }
        };
        let first = set.unexpected.first_mut().unwrap();
        first.shown = Some((text.to_owned(), vec!["no mark".into(), "total 13".into()]));
        first.judged.violations = vec![
            one(total, "it is 13", Some(2)),
            one(items.clone(), "too few", None),
            one(items.index(1), "not a \"2\"", None),
        ];
        set.unexpected.truncate(1);
        let page = golden(&set).unwrap();
        let marked: Vec<&str> =
            page.split("<mark ").skip(1).map(|rest| rest.split_once("</mark>").unwrap().0).collect();
        insta::assert_snapshot!(marked.join("\n"));
    }

    #[test]
    fn a_report_is_bounded() {
        let mut set = testing::golden("plain");
        let mut one = set.unexpected.first().unwrap().clone();
        one.shown = Some(("x".repeat(100_000), vec!["y".repeat(10_000).into(); 100]));
        set.unexpected = vec![one; RECORDS_MAX + 1];
        set.tally.records += 1_000;
        let page = golden(&set).unwrap();
        assert!(page.len() < RECORDS_MAX * 80_000, "{}", page.len());
        assert!(page.contains("The first 500 of"));
    }

    #[test]
    fn a_set_without_a_fault_is_a_short_report() {
        let mut set = testing::golden("plain");
        set.unexpected.clear();
        set.tally.as_expected = set.tally.records;
        let page = golden(&set).unwrap();
        assert!(page.contains("Every record came to what it should.") && page.contains("100.0 %"));
    }
}
