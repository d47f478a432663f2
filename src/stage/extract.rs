//! What a choice of a reply holds, before any gate looks at it.

use crate::api::reply::Choice;
use crate::api::reply::Finish;
use crate::contract::Contract;
use crate::dialect::table::ReasoningTag;
use crate::extraction;
use crate::extraction::Extracted;
use crate::extraction::NotExtracted;
use crate::extraction::Reason;
use crate::extraction::Wanted;

/// What was found in one choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extraction {
    /// JSON, as a slice of the content.
    Json(Extracted),
    /// The choice calls tools and has no data in its text: there is no content to judge.
    ToolCalls,
    /// Nothing is demanded of the content.
    Unbound,
    /// The model declined.
    Refusal,
    /// The provider's filter cut the answer.
    ContentFilter,
    /// A limit cut the answer, whatever came of it.
    Truncated,
    /// The backend returned nothing.
    Empty,
    /// The backend failed while answering.
    Failed,
    /// The backend stopped for a reason that is not known, or gave none: nothing tells that the answer is whole.
    Unfinished,
    /// The text holds no single JSON value.
    Not(NotExtracted),
}

/// Looks at one choice. The order is fixed: refusal, filter, truncation, emptiness, then the text.
pub fn extract(choice: &Choice, contract: &Contract, reasoning: &[ReasoningTag]) -> Extraction {
    if choice.refusal.as_ref().is_some_and(|refusal| !refusal.is_empty()) {
        return Extraction::Refusal;
    }
    let calls = !choice.tool_calls.is_empty();
    let Some(content) = contract.content.as_ref() else {
        return unbound(choice, calls || contract.forced.is_some());
    };
    if let Some(stopped) = stopped(choice) {
        return stopped;
    }
    let text = choice.content.as_deref().unwrap_or_default();
    let found = extraction::extract(text, Wanted { admits: content.admits(), mode: contract.extraction, reasoning });
    match found {
        Ok(found) => Extraction::Json(found),
        // Words beside a tool call hold no data, so nothing in them can be taken for the answer.
        Err(not) if calls && matches!(not.reason, Reason::Empty | Reason::NoJson) => Extraction::ToolCalls,
        Err(not) if not.reason == Reason::Empty => Extraction::Empty,
        Err(not) => Extraction::Not(not),
    }
}

/// What the finish reason says, where it says that the answer is not whole.
fn stopped(choice: &Choice) -> Option<Extraction> {
    match &choice.finish {
        Some(Finish::ContentFilter) => Some(Extraction::ContentFilter),
        Some(Finish::Length) => Some(Extraction::Truncated),
        Some(Finish::Error) => Some(Extraction::Failed),
        Some(Finish::Unknown(_)) | None => Some(Extraction::Unfinished),
        Some(Finish::Stop | Finish::ToolCalls) => None,
    }
}

/// A choice whose text is bound by nothing. Where no tool is called or forced, the contract does not concern
/// it, and a cut or filtered text goes on as it is.
fn unbound(choice: &Choice, concerned: bool) -> Extraction {
    let text = choice.content.as_deref().unwrap_or_default();
    match stopped(choice) {
        Some(stopped) if concerned || stopped == Extraction::Failed => stopped,
        None if !concerned && text.trim().is_empty() => Extraction::Empty,
        Some(_) | None => Extraction::Unbound,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::api::reply::ToolCall;
    use crate::contract::ContentContract;

    fn object() -> Contract {
        Contract { content: Some(ContentContract::object()), ..Contract::default() }
    }

    fn choice(content: &str, finish: &str) -> Choice {
        Choice { content: Some(content.to_owned()), finish: Some(Finish::read(finish)), ..Choice::default() }
    }

    /// The cases of `extract.jsonl` that have a finish reason, which is looked at before the text.
    #[test]
    fn the_cases_with_a_finish_reason() {
        let mut seen = 0;
        for line in include_str!("../../tests/cases/extract.jsonl").lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let Some(finish) = case["given"]["finish_reason"].as_str() else { continue };
            assert_eq!(case["expect"]["reason"], "truncated");
            let found = extract(&choice(case["given"]["text"].as_str().unwrap(), finish), &object(), &[]);
            assert_eq!(found, Extraction::Truncated, "{}", case["id"]);
            seen += 1;
        }
        assert_eq!(seen, 2);
    }

    #[test]
    fn what_comes_first_decides() {
        let refused = Choice { refusal: Some("No.".into()), ..choice("{}", "length") };
        assert_eq!(extract(&refused, &object(), &[]), Extraction::Refusal);
        for (content, finish, expected) in [
            ("{}", "content_filter", Extraction::ContentFilter),
            ("", "length", Extraction::Truncated),
            ("", "stop", Extraction::Empty),
            ("{}", "error", Extraction::Failed),
            ("{}", "who_knows", Extraction::Unfinished),
        ] {
            assert_eq!(extract(&choice(content, finish), &object(), &[]), expected, "{content} {finish}");
        }
        let unfinished = Choice { finish: None, ..choice("{}", "stop") };
        assert_eq!(extract(&unfinished, &object(), &[]), Extraction::Unfinished);
    }

    #[test]
    fn words_beside_a_tool_call_are_no_answer_and_data_beside_one_is() {
        let with_call = |content| Choice { tool_calls: vec![ToolCall::default()], ..choice(content, "tool_calls") };
        assert_eq!(extract(&with_call(""), &object(), &[]), Extraction::ToolCalls);
        assert_eq!(extract(&with_call("Let me look."), &object(), &[]), Extraction::ToolCalls);
        assert!(matches!(extract(&with_call("{\"a\":1}"), &object(), &[]), Extraction::Json(_)));
        assert!(matches!(extract(&with_call("{\"a\":1,}"), &object(), &[]), Extraction::Not(_)));
    }

    #[test]
    fn without_a_contract_on_the_content_any_text_will_do() {
        assert_eq!(extract(&choice("hello", "stop"), &Contract::default(), &[]), Extraction::Unbound);
        assert_eq!(extract(&choice(" ", "stop"), &Contract::default(), &[]), Extraction::Empty);
        for finish in ["length", "content_filter", "who_knows"] {
            assert_eq!(extract(&choice("hel", finish), &Contract::default(), &[]), Extraction::Unbound, "{finish}");
        }
        assert_eq!(extract(&choice("hel", "error"), &Contract::default(), &[]), Extraction::Failed);
        let cut = Choice { tool_calls: vec![ToolCall::default()], ..choice("", "length") };
        assert_eq!(extract(&cut, &Contract::default(), &[]), Extraction::Truncated);
    }
}
