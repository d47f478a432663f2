//! Whole answers in OpenAI's chat format, with the place of everything that may have to be edited.

use std::ops::Range;

use crate::api::reply::CALLS_MAX;
use crate::api::reply::CHOICES_MAX;
use crate::api::reply::Choice;
use crate::api::reply::Finish;
use crate::api::reply::Reply;
use crate::api::reply::ReplyError;
use crate::api::reply::ToolCall;
use crate::api::reply::Usage;
use crate::json::JsonFault;
use crate::json::JsonFaultKind;
use crate::json::cursor::Begins;
use crate::json::cursor::Cursor;
use crate::json::string;
use crate::json::string::Spot;
use crate::wire::fault::Reported;

/// A whole answer: what it says, and where in its bytes it says it.
#[derive(Debug)]
pub struct WholeReply {
    /// What it says.
    pub reply: Reply,
    /// Where each choice stands, in the order of `reply.choices`.
    pub places: Vec<ChoicePlace>,
}

/// Where the parts of one choice stand in the body.
#[derive(Debug, Default)]
pub struct ChoicePlace {
    /// Members of the choice.
    pub members: Vec<MemberPlace>,
    /// Members of its message.
    pub message: Vec<MemberPlace>,
    /// The message: an object or `null`; none where the choice has none.
    pub message_at: Option<Range<usize>>,
    /// The content, where it is a string.
    pub content: Option<Spot>,
    /// The whole choice.
    pub at: Range<usize>,
}

/// Where a member stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberPlace {
    /// What it is.
    pub key: Key,
    /// From the key's quote to the end of the value.
    pub whole: Range<usize>,
    /// The value.
    pub value: Range<usize>,
}

/// The members of a choice and of its message that are told apart when an answer is edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// `index`, `message` or `role`: the frame, which always stays.
    Frame,
    /// `finish_reason`
    FinishReason,
    /// `content`
    Content,
    /// `refusal`
    Refusal,
    /// `logprobs`
    Logprobs,
    /// A member that consumers take for an answer or a part of one, in whatever letters, where no gate looked
    /// at it: `audio`, the legacy `function_call`, `parsed`, a `tool_calls` beside the message.
    Unjudged,
    /// Any other member, which goes on as it is.
    Other,
}

/// Names under which consumers look for an answer. Some of them mind no case.
const ANSWERS: [&str; 12] = [
    "message",
    "delta",
    "text",
    "role",
    "content",
    "refusal",
    "tool_calls",
    "function_call",
    "audio",
    "parsed",
    "arguments",
    "output",
];

impl Key {
    fn of_choice(key: &str) -> Self {
        match key {
            "index" | "message" => Self::Frame,
            "finish_reason" => Self::FinishReason,
            "logprobs" => Self::Logprobs,
            other => Self::beside(other),
        }
    }

    fn of_message(key: &str) -> Self {
        match key {
            "role" => Self::Frame,
            "content" => Self::Content,
            "refusal" => Self::Refusal,
            "tool_calls" => Self::Other, // read and judged
            other => Self::beside(other),
        }
    }

    fn beside(key: &str) -> Self {
        if ANSWERS.iter().any(|name| name.eq_ignore_ascii_case(key)) { Self::Unjudged } else { Self::Other }
    }
}

/// Reads a whole answer.
///
/// Unknown members are passed over. A key that stands twice in an object that is read is an error:
/// the caller's parser might take the other value.
pub fn read(body: &[u8]) -> Result<WholeReply, ReplyError> {
    let mut whole = WholeReply { reply: Reply::default(), places: Vec::new() };
    let mut reported = false;
    let mut cursor = Cursor::new(body);
    cursor.object(|cursor, member| {
        match &*member.key {
            // A reader that minds no case would take it for the answer.
            twin if twin != "choices" && twin.eq_ignore_ascii_case("choices") => {
                return Err(JsonFault::new(JsonFaultKind::DuplicateKey(twin.to_owned()), member.key_at).into());
            }
            "choices" if cursor.begins() == Begins::Array => {
                cursor.array(|cursor| choice(cursor, &mut whole)).map(|_| ())?
            }
            "usage" => usage(cursor, &mut whole.reply.usage).map(|_| ())?,
            "error" => {
                reported |= cursor.begins() != Begins::Null;
                cursor.skip()?;
            }
            _ => {
                cursor.skip()?;
            }
        }
        Ok::<(), ReplyError>(())
    })?;
    cursor.end()?;
    if reported {
        return Err(ReplyError::Reported(Reported::read(body)));
    }
    if whole.reply.choices.is_empty() {
        return Err(ReplyError::NoChoices);
    }
    Ok(whole)
}

fn choice(cursor: &mut Cursor<'_>, whole: &mut WholeReply) -> Result<(), ReplyError> {
    if whole.reply.choices.len() >= CHOICES_MAX {
        return Err(ReplyError::TooMany);
    }
    let (mut choice, mut place) = (Choice::default(), ChoicePlace::default());
    place.at = cursor.object(|cursor, member| {
        let value = match &*member.key {
            "index" => {
                let value = cursor.clone().skip()?;
                choice.index = cursor.count_or_null()?.unwrap_or_default();
                value
            }
            "message" if cursor.begins() != Begins::Null => {
                cursor.object(|cursor, member| message(cursor, &member.key, member.key_at, &mut choice, &mut place))?
            }
            "finish_reason" => {
                let value = cursor.clone().skip()?;
                if let Some(spot) = cursor.string_or_null()? {
                    choice.finish = Some(Finish::read(&string::decode(cursor.text(), spot)?));
                }
                value
            }
            _ => cursor.skip()?,
        };
        if member.key == "message" {
            place.message_at = Some(value.clone());
        }
        place.members.push(MemberPlace { key: Key::of_choice(&member.key), whole: member.key_at..value.end, value });
        Ok::<(), ReplyError>(())
    })?;
    whole.reply.choices.push(choice);
    whole.places.push(place);
    Ok(())
}

fn message(
    cursor: &mut Cursor<'_>,
    key: &str,
    key_at: usize,
    choice: &mut Choice,
    place: &mut ChoicePlace,
) -> Result<(), ReplyError> {
    let start = cursor.offset();
    let value = match key {
        "content" => match cursor.begins() {
            Begins::Null => cursor.skip()?,
            _ => {
                let (spot, said) = cursor.said()?;
                choice.content = Some(said.into_owned());
                place.content = Some(spot);
                start..spot.after()
            }
        },
        "refusal" if cursor.begins() != Begins::Null => {
            let (spot, said) = cursor.said()?;
            choice.refusal = Some(said.into_owned());
            start..spot.after()
        }
        "tool_calls" if cursor.begins() != Begins::Null => cursor.array(|cursor| {
            if choice.tool_calls.len() >= CALLS_MAX {
                return Err(ReplyError::TooMany);
            }
            choice.tool_calls.push(tool_call(cursor)?);
            Ok(())
        })?,
        "role" if cursor.begins() != Begins::Null => {
            let spot = cursor.string()?;
            start..spot.after()
        }
        "reasoning_content" | "reasoning" => {
            choice.reasoned |= cursor.begins() != Begins::Null;
            cursor.skip()?
        }
        _ => cursor.skip()?,
    };
    place.message.push(MemberPlace { key: Key::of_message(key), whole: key_at..value.end, value });
    Ok(())
}

fn tool_call(cursor: &mut Cursor<'_>) -> Result<ToolCall, JsonFault> {
    let mut call = ToolCall::default();
    let mut custom = false;
    let text = cursor.text();
    let said = |cursor: &mut Cursor<'_>, into: &mut String| {
        if let Some(spot) = cursor.string_or_null()? {
            *into = string::decode(text, spot)?.into_owned();
        }
        Ok::<(), JsonFault>(())
    };
    cursor.object(|cursor, member| match &*member.key {
        "id" => said(cursor, &mut call.id),
        "function" => cursor
            .object(|cursor, member| match &*member.key {
                "name" => said(cursor, &mut call.name),
                "arguments" => said(cursor, &mut call.arguments),
                _ => cursor.skip().map(|_| ()),
            })
            .map(|_| ()),
        "custom" => {
            custom |= cursor.begins() != Begins::Null;
            cursor.skip().map(|_| ())
        }
        _ => cursor.skip().map(|_| ()),
    })?;
    if custom {
        call.name.clear(); // not a function's call, whatever stands beside it
    }
    Ok(call)
}

/// Reads `usage`; returns where it stands.
pub fn usage(cursor: &mut Cursor<'_>, into: &mut Option<Usage>) -> Result<Range<usize>, JsonFault> {
    if cursor.begins() != Begins::Object {
        return cursor.skip();
    }
    let mut usage = Usage::default();
    let range = cursor.object(|cursor, member| match &*member.key {
        "prompt_tokens" => cursor.count_or_null().map(|count| usage.input_tokens = count),
        "completion_tokens" => cursor.count_or_null().map(|count| usage.output_tokens = count),
        "prompt_tokens_details" => detail(cursor, "cached_tokens", &mut usage.cached_tokens),
        "completion_tokens_details" => detail(cursor, "reasoning_tokens", &mut usage.reasoning_tokens),
        _ => cursor.skip().map(|_| ()),
    })?;
    *into = Some(usage);
    Ok(range)
}

/// One count of the details; what else stands there, or in their place, is left alone.
fn detail(cursor: &mut Cursor<'_>, name: &str, into: &mut Option<u64>) -> Result<(), JsonFault> {
    if cursor.begins() != Begins::Object {
        return cursor.skip().map(|_| ());
    }
    let read = cursor.object(|cursor, member| match &*member.key {
        key if key == name => cursor.count_or_null().map(|count| *into = count),
        _ => cursor.skip().map(|_| ()),
    });
    read.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_details_of_usage_are_read() {
        let read = |usage: &str| {
            let body = format!(r#"{{"choices":[{{"message":{{"content":"x"}}}}],"usage":{usage}}}"#);
            read(body.as_bytes()).unwrap().reply.usage
        };
        let whole = r#"{"prompt_tokens":9,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":7,"audio":[1]},
            "completion_tokens_details":{"reasoning_tokens":6}}"#;
        let (input_tokens, output_tokens, cached_tokens, reasoning_tokens) = (Some(9), Some(8), Some(7), Some(6));
        assert_eq!(read(whole), Some(Usage { input_tokens, output_tokens, reasoning_tokens, cached_tokens }));
        for none in [
            "{}",
            r#"{"prompt_tokens_details":null,"completion_tokens_details":[]}"#,
            r#"{"completion_tokens_details":{"reasoning_tokens":null}}"#,
        ] {
            assert_eq!(read(none), Some(Usage::default()), "{none}");
        }
    }

    #[test]
    fn a_whole_answer_is_read_with_its_places() {
        let body = br#"{"id":"c","model":"m","choices":[{"index":1,"message":{"role":"assistant","content":"{\"a\":1}","refusal":null,
            "tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{}"}}],"reasoning_content":"hm"},
            "logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":null},"x":1}"#;
        let whole = read(body).unwrap();
        let choice = &whole.reply.choices[0];
        assert_eq!((choice.index, choice.content.as_deref(), choice.reasoned), (1, Some("{\"a\":1}"), true));
        assert_eq!(choice.tool_calls[0].name, "f");
        assert_eq!(choice.finish, Some(Finish::Stop));
        assert_eq!(whole.reply.usage, Some(Usage { input_tokens: Some(3), ..Usage::default() }));
        let content = whole.places[0].message.iter().find(|member| member.key == Key::Content).unwrap();
        assert_eq!(&body[content.value.clone()], br#""{\"a\":1}""#);
        let finish = whole.places[0].members.iter().find(|member| member.key == Key::FinishReason).unwrap();
        assert_eq!(&body[finish.value.clone()], br#""stop""#);
    }

    #[test]
    fn an_error_in_a_200_is_an_error() {
        for body in [r#"{"error":{"message":"busy","code":503}}"#, r#"{"code":"c","error":"busy"}"#] {
            assert!(matches!(read(body.as_bytes()), Err(ReplyError::Reported(reported)) if reported.message == "busy"));
        }
        assert!(read(br#"{"error":null,"choices":[{"message":{"content":"x"}}]}"#).is_ok());
    }

    #[test]
    fn what_another_parser_could_read_otherwise_is_refused() {
        for body in [
            r#"{"choices":[{"message":{"content":"a","content":"b"}}]}"#,
            r#"{"choices":[{"message":{"content":"a"},"message":{"content":"b"}}]}"#,
            r#"{"choices":[{"message":{"content":["a"]}}]}"#,
            r#"{"choices":[],"choices":[]}"#,
            r#"{"choices":[{"message":{"content":"\ud83d"}}]}"#,
            "{} {}",
            "[]",
            "<html>",
            "",
        ] {
            assert!(matches!(read(body.as_bytes()), Err(ReplyError::Json(_))), "{body}");
        }
        for body in [r#"{"choices":[]}"#, r#"{"choices":null}"#, "{}"] {
            assert_eq!(read(body.as_bytes()).unwrap_err(), ReplyError::NoChoices, "{body}");
        }
    }
}
