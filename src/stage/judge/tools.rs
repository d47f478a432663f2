//! The calls of one choice: each must name a tool that was offered, and a bound tool's arguments must satisfy its contract.

use crate::api::reply::Choice;
use crate::api::reply::ToolCall;
use crate::contract::Subject;
use crate::contract::ToolContract;
use crate::contract::gate;
use crate::contract::scene::Answer;
use crate::contract::verdict::Violation;
use crate::contract::verdict::Violations;
use crate::extraction::Reason;
use crate::extraction::Rung;
use crate::json::check;
use crate::json::fault::shown;
use crate::json::path::Path;
use crate::record::Stage;
use crate::stage::judge::Gates;
use crate::stage::judge::Judging;
use crate::stage::judge::Offset;
use crate::stage::judge::Stopped;
use crate::stage::judge::container::plain;
use crate::stage::judge::not_object;
use crate::stage::judge::read;
use crate::stage::judge::reject;
use crate::stage::judge::schemas;
use crate::wire::fault::Code;

impl Judging<'_> {
    /// Judges the calls of one choice. Calls to unbound tools are counted and passed on.
    pub(super) fn tools(&mut self, choice: &Choice) -> Result<(), Stopped> {
        let mut found = Vec::new();
        let mut gates = Gates::default();
        let mut first = None;
        for (index, call) in choice.tool_calls.iter().enumerate() {
            let place = Path::root().key("tool_calls").index(index);
            let Some(tool) = self.contract.tool(&call.name) else {
                let message = match call.name.as_str() {
                    "" => "a call that names no function cannot be judged".to_owned(),
                    name => format!("the tool `{}` was not offered in the request", shown(name)),
                };
                found.push(Violation::own("tools", "unknown_tool", place, message, None));
                continue;
            };
            let wrong = arguments(tool, call);
            if !tool.bound {
                self.seen.loose += u32::from(!wrong.is_empty());
                continue;
            }
            if wrong.is_empty() {
                let text = if call.arguments.is_empty() { "{}" } else { &call.arguments };
                let more = self.gates(&Subject::Tool(call.name.as_str().into()), &read(text.trim_ascii())?);
                if more.found.is_some() {
                    first.get_or_insert_with(|| text.to_owned());
                }
                gates.action = gates.action.max(more.action);
                gates.questions.extend(more.questions);
                gates.reasons.extend(more.reasons);
                gates.truncated |= more.truncated;
                gates.add(more.found.map(|violations| violations.inside(&call.name, &place.clone().key("arguments"))));
            }
            found.extend(wrong.into_iter().map(|violation| Violation {
                message: format!("`{}` {}: {}", shown(&call.name), violation.path, violation.message),
                path: place.clone().key("arguments"),
                gate: "tools".into(),
                ..violation
            }));
        }
        if let Some(forced) = self.contract.forced.and_then(|index| self.contract.tools.get(index))
            && !choice.tool_calls.iter().any(|call| call.name == forced.name)
        {
            let message = format!("the tool `{}` must be called and was not", shown(&forced.name));
            found.push(Violation::own("tools", "not_called", Path::root(), message, None));
        }
        if let Some(violations) = Violations::of(found) {
            return Err(reject(Code::ToolViolation, Stage::Tools, "tool_violation", violations));
        }
        // The arguments have their places within themselves; of the content nothing is meant.
        let nowhere = Offset { start: 0, before: usize::MAX, length: 0 };
        self.decided(gates, &nowhere, Rung::Whole, &first.unwrap_or_default())
    }
}

/// What is wrong with a call's arguments: they must be exactly one JSON object that satisfies the parameters.
pub(super) fn arguments(tool: &ToolContract, call: &ToolCall) -> Vec<Violation> {
    let text = match call.arguments.as_str() {
        "" if !requires(tool) => "{}",
        other => other,
    };
    if text.is_empty() {
        return vec![plain(Reason::Empty.as_str(), "the arguments are empty, and some are required".to_owned())];
    }
    // The text goes on whole, so it is judged whole: nothing but JSON's own white space may stand around it.
    if let Err(fault) = check::strict(text) {
        let (line, column) = fault.position(text.as_bytes());
        return vec![plain(Reason::of(&fault).as_str(), format!("line {line}, column {column}: {fault}"))];
    }
    let slice = text.trim_ascii();
    if let Some(mut violation) = not_object(slice) {
        violation.message = "the arguments must be an object".to_owned();
        return vec![violation];
    }
    let answer = match Answer::read(slice) {
        Ok(answer) => answer,
        Err(fault) => return vec![plain(Reason::of(&fault).as_str(), fault.to_string())],
    };
    let broken = tool.parameters.as_ref().and_then(|schema| gate::schema::check_tape(schema, answer.tape()));
    let also = schemas(&tool.also, &answer);
    broken.iter().chain(&also).flat_map(Violations::iter).cloned().collect()
}

/// Whether a tool's parameters have a required property, so that empty arguments cannot mean none.
fn requires(tool: &ToolContract) -> bool {
    let required = tool.parameters.as_ref().and_then(|schema| schema.value().get("required"));
    required.and_then(|list| list.as_array()).is_some_and(|list| !list.is_empty())
}
