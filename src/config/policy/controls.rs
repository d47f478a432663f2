//! Controls: recorded answers of which it is known what must become of them. Until each fails the check that it was
//! written to fail, the checker itself is untested.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::LazyLock;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::config::check;
use crate::config::check::Checked;
use crate::config::policy::bundle::CONTROLS;
use crate::config::policy::bundle::FileError;
use crate::config::policy::bundle::Files;
use crate::config::problem::ConfigError;
use crate::config::problem::ConfigErrors;
use crate::config::problem::Problems;
use crate::config::resolve::Notes;
use crate::config::schema::Format;
use crate::config::source::Shown;
use crate::config::source::Source;
use crate::config::tree::Content;
use crate::config::tree::Entry;
use crate::config::tree::Node;
use crate::config::unit::PRICE;
use crate::config::unit::Span;
use crate::contract::verdict::Action;
use crate::json::JsonFault;
use crate::json::cursor::Begins;
use crate::json::cursor::Cursor;
use crate::json::decimal::Decimal;
use crate::json::tree;
use crate::nearest::did_you_mean;
use crate::policy::Policy;
use crate::wire::fault::Code;

/// One line of `controls.jsonl`.
pub(super) static CONTROL_FORMAT: LazyLock<Format> =
    LazyLock::new(|| Format::of::<ControlFile>("the control", "`name`, `output` and `expect`"));

/// Names that are no gate of the policy and yet can fire: what is checked before any gate.
const BEFORE_GATES: [&str; 3] = ["extraction", "schema", "assign"];

/// One recorded answer, and what must become of it.
#[derive(Clone, Debug)]
pub struct Control {
    /// Its name, which no other control of the policy has.
    pub name: String,
    /// Its line in the file, from 1.
    pub line: usize,
    /// What the answer was given to.
    pub given: Given,
    /// The model's raw text.
    pub output: String,
    /// Tokens, where they matter.
    pub usage: Option<Value>,
    /// What the calls cost in US dollars, where it matters.
    pub cost_usd: Option<Decimal>,
    /// How long they took, where it matters.
    pub latency: Option<Duration>,
    /// Why the model stopped; `stop` where nothing is said.
    pub finish_reason: Option<String>,
    /// What must become of it.
    pub expect: Expect,
    /// The gate that must fire.
    pub gate: Option<String>,
    /// The code that the caller must get.
    pub code: Option<Code>,
}

/// What a recorded answer was given to.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// Nothing that matters.
    Nothing,
    /// A chat request, as a client sends it.
    Request(Value),
    /// The source, page by page, in one message of a user's.
    Source(Vec<String>),
}

/// What must become of a recorded answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// It goes on.
    Accepted,
    /// The caller is asked back.
    Clarified,
    /// It is stopped.
    Rejected,
    /// The model declined.
    Refused,
}

impl Expect {
    /// The name as controls have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Clarified => "clarified",
            Self::Rejected => "rejected",
            Self::Refused => "refused",
        }
    }
}

/// One recorded answer, and what must become of it.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Portcullis control")]
struct ControlFile {
    /// Its name, which no other control of the policy has.
    #[schemars(required, length(min = 1))]
    name: Option<String>,
    /// The chat request that the answer was given to, as a client sends it.
    request: Option<serde_json::Map<String, Value>>,
    /// In its place: the source, page by page.
    source: Option<Vec<String>>,
    /// The model's raw text.
    #[schemars(required)]
    output: Option<String>,
    /// Tokens, as the backend reports them.
    usage: Option<serde_json::Map<String, Value>>,
    /// What the calls cost in US dollars: a decimal in quotes.
    #[schemars(regex(pattern = PRICE))]
    cost_usd: Option<String>,
    /// How long they took.
    latency: Option<Span>,
    /// Why the model stopped.
    #[schemars(length(min = 1), extend("default" = "stop"))]
    finish_reason: Option<String>,
    /// What must become of it.
    #[schemars(required)]
    expect: Option<Expect>,
    /// The gate that must fire, or `schema`, `assign` or `extraction`, which come before the gates.
    #[schemars(length(min = 1))]
    gate: Option<String>,
    /// The code that the caller must get, such as `output_truncated`.
    code: Option<String>,
}

/// Reads the controls of a bundle; none where it has no such file. `policy` tells which gates there are, where it
/// could be read.
///
/// # Errors
/// Every error of the file, with its line.
pub(super) fn read(files: &Files, policy: Option<&Policy>) -> Result<Vec<Control>, ConfigErrors> {
    let shown = files.shown(CONTROLS);
    let unplaced = |message: String| ConfigErrors::one(ConfigError { name: shown.clone(), message, place: None });
    let bytes = match files.read(CONTROLS) {
        Ok(bytes) => bytes,
        Err(FileError::Missing) => return Ok(Vec::new()),
        Err(error) => return Err(unplaced(error.to_string())),
    };
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        unplaced(format!("is not UTF-8: byte {} (on line {line}) starts no character", error.valid_up_to() + 1))
    })?;
    let source = Source::new(&shown, text);
    let mut problems = Problems::default();
    let mut names = BTreeSet::new();
    let (mut controls, mut start) = (Vec::new(), 0);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if !line.trim().is_empty() {
            let control = one(&source, start..start + line.len(), index + 1, policy, &mut problems);
            if let Some(control) = control {
                if !names.insert(control.name.clone()) {
                    problems.add(&(start..start), format!("two controls are called `{}`", control.name));
                }
                controls.push(control);
            }
        }
        start += line.len();
    }
    match source.report(problems, &Shown::All) {
        Some(errors) => Err(errors),
        None => Ok(controls),
    }
}

fn one(
    source: &Source<'_>,
    at: Range<usize>,
    line: usize,
    policy: Option<&Policy>,
    problems: &mut Problems,
) -> Option<Control> {
    let text = source.text().get(at.clone())?;
    if let Err(fault) = tree::parse(text.trim_end()) {
        let place = at.start + fault.at.min(text.trim_end().len());
        problems.add(&(place..place), format!("the control is not strict JSON: {}", fault.kind));
        return None;
    }
    let mut root = node(source.text(), at.start).ok()?;
    let mut shown = Shown::All;
    check::check(&CONTROL_FORMAT, source, &mut root, &mut shown, problems);
    let file: ControlFile = serde_json::from_value(root.to_json()?).ok()?;
    let checked = Checked { source, root: &root };
    resolve(file, line, policy, &mut Notes::new(&checked, &shown, problems))
}

fn resolve(file: ControlFile, line: usize, policy: Option<&Policy>, notes: &mut Notes<'_>) -> Option<Control> {
    let ControlFile { name, request, source, output, usage, cost_usd, latency, finish_reason, expect, gate, code } =
        file;
    let given = match (request, source) {
        (Some(_), Some(_)) => {
            notes.error_at_name(&["source"], "a control has a `request` or a `source`, not both");
            return None;
        }
        (Some(request), None) => Given::Request(Value::Object(request)),
        (None, Some(pages)) => Given::Source(pages),
        (None, None) => Given::Nothing,
    };
    if let (Some(gate), Some(policy)) = (&gate, policy) {
        gate_can_fire(gate, expect, policy, notes);
    }
    let code = code.and_then(|text| {
        let found = Code::ALL.iter().find(|code| code.as_str() == text).copied();
        if found.is_none() {
            let near = did_you_mean(&text, Code::ALL.iter().map(|code| code.as_str()));
            notes.error(
                &["code"],
                format!("`code` is no code of the gateway's; found {}{near}", notes.quoted(&["code"])),
            );
        }
        found
    });
    Some(Control {
        name: name?,
        line,
        given,
        output: output?,
        usage: usage.map(Value::Object),
        cost_usd: cost_usd.and_then(|text| Decimal::read(&text).ok()),
        latency: latency.map(|Span(span)| span),
        finish_reason,
        expect: expect?,
        gate,
        code,
    })
}

/// Says so where the gate that must fire is none, or cannot do what is expected.
fn gate_can_fire(gate: &str, expect: Option<Expect>, policy: &Policy, notes: &mut Notes<'_>) {
    let path = ["gate"];
    if BEFORE_GATES.contains(&gate) {
        if matches!(expect, Some(Expect::Accepted | Expect::Clarified)) {
            notes.error(&path, format!("`{gate}` fires only where the answer is rejected"));
        }
        return;
    }
    let Some(entry) = policy.contract.gates.iter().find(|entry| *entry.name == *gate) else {
        let names = policy.contract.gates.iter().map(|entry| &*entry.name);
        let near = did_you_mean(gate, names.chain(BEFORE_GATES));
        notes.error(&path, format!("`gate` names `{gate}`, which is no gate of policy `{}`{near}", policy.name));
        return;
    };
    let fits = match (expect, entry.action) {
        (Some(Expect::Accepted), action) => action == Action::Monitor,
        // Another gate may reject beside one that asks back.
        (Some(Expect::Rejected), _) | (None, _) => true,
        (Some(Expect::Clarified), action) => action != Action::Reject,
        (Some(Expect::Refused), _) => false,
    };
    if !fits {
        let message = format!(
            "gate `{gate}` says `on_violation: {}`, so where it fires the answer is not what `expect` says",
            entry.action.as_str()
        );
        notes.error(&path, message);
    }
}

/// The JSON value that starts at `at` as a tree that knows its places. The text is strict JSON, so it nests at most 127
/// deep.
fn node(text: &str, at: usize) -> Result<Node, JsonFault> {
    let mut cursor = Cursor::at(text.as_bytes(), at);
    let start = cursor.offset();
    match cursor.begins() {
        Begins::Object => {
            let mut entries = Vec::new();
            let range = cursor.object::<JsonFault>(|cursor, member| {
                let value = node(text, cursor.offset())?;
                cursor.skip()?;
                let key_span = member.key_at..member.key_at;
                entries.push(Entry { key: member.key.into_owned(), key_span, node: value });
                Ok(())
            })?;
            Ok(Node::of(range, Content::Map(entries)))
        }
        Begins::Array => {
            let mut items = Vec::new();
            let range = cursor.array::<JsonFault>(|cursor| {
                items.push(node(text, cursor.offset())?);
                cursor.skip().map(|_| ())
            })?;
            Ok(Node::of(range, Content::List(items)))
        }
        Begins::String | Begins::Null | Begins::Other => {
            let range = cursor.skip()?;
            let content = match tree::built(text.get(range.clone()).unwrap_or_default())? {
                Value::Bool(flag) => Content::Bool(flag),
                Value::Number(number) => Content::Number(number),
                Value::String(value) => Content::Text { value, expanded: false },
                Value::Null | Value::Array(_) | Value::Object(_) => Content::Nothing,
            };
            Ok(Node::of(start..range.end, content))
        }
    }
}

/// What a policy's controls leave untested: what is missing, in words.
pub fn untested(policy: &Policy, controls: &[Control]) -> Vec<String> {
    let mut missing = Vec::new();
    let fires = |control: &Control, gate: &str| control.gate.as_deref() == Some(gate);
    if !controls.iter().any(|control| control.expect == Expect::Accepted) {
        missing.push("no control must be accepted".to_owned());
    }
    for gate in &policy.contract.gates {
        if !controls.iter().any(|control| fires(control, &gate.name)) {
            missing.push(format!("no control must fail at gate `{}`", gate.name));
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("p")).unwrap();
        std::fs::write(folder.path().join("p").join(CONTROLS), text).unwrap();
        let files = Files::folder(&folder.path().join("p")).unwrap();
        match read(&files, None) {
            Ok(controls) => format!("{controls:#?}"),
            Err(errors) => errors.to_string().replace(&folder.path().display().to_string(), ""),
        }
    }

    #[test]
    fn every_error_has_its_line() {
        let text = concat!(
            "{\"name\":\"a\",\"output\":\"{}\",\"expect\":\"accepted\"}\n",
            "\n",
            "{\"name\":\"a\",\"output\":\"{}\",\"expect\":\"accepted\"}\n",
            "{\"name\":\"b\",\"output\":{},\"expect\":\"acepted\",\"gates\":\"x\"}\r\n",
            "{\"name\":\"c\",\"name\":\"d\"}\n",
            "{\"name\":\"e\",\"output\":\"\\ud83d\\ude00\",\"expect\":\"rejected\",\"code\":\"output_trunkated\",\"source\":[1]}\n",
            "[1]\n",
            "{\"name\":\"f\",\"output\":\"\",\"expect\":\"refused\",\"source\":[],\"request\":{}}\n",
            "{\"name\":\"g\"",
        );
        insta::with_settings!({omit_expression => true}, { insta::assert_snapshot!(told(text)) });
    }

    #[test]
    fn a_control_is_read_whole() {
        let text = r#"{"name":"n","request":{"model":"m","n":1.50},"output":"x","usage":{"prompt_tokens":3},"finish_reason":"length","expect":"rejected","gate":"extraction","code":"output_truncated"}"#;
        insta::with_settings!({omit_expression => true}, { insta::assert_snapshot!(told(text)) });
    }
}
