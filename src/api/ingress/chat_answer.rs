//! `POST /v1/chat/completions`: the answer. A whole one is the backend's bytes, edited in place; a stream
//! is written anew from what was judged, with the backend's own ids, model and fingerprint.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use crate::api::backend::openai::ChoicePlace;
use crate::api::backend::openai::Key;
use crate::api::backend::openai::MemberPlace;
use crate::api::backend::openai::WholeReply;
use crate::api::backend::openai_stream::Collected;
use crate::api::backend::openai_stream::Envelope;
use crate::api::reply::Around;
use crate::api::reply::Choice;
use crate::api::reply::Passed;
use crate::api::reply::ToolCall;
use crate::json::JsonFault;
use crate::json::cursor::Cursor;
use crate::json::splice::Splice;
use crate::json::splice::SpliceError;
use crate::json::string;
use crate::json::string::Spot;
use crate::wire::sse;

/// The body of an accepted answer. `parts` has, for each choice, what passed of it; `total` is what all attempts took,
/// where there were several.
pub fn accepted(
    body: &Bytes,
    whole: &WholeReply,
    parts: &[Passed],
    total: Option<&str>,
) -> Result<Vec<Bytes>, SpliceError> {
    let mut splice = Splice::new();
    let elements: Vec<Range<usize>> = whole.places.iter().map(|place| place.at.clone()).collect();
    let dropped = |index: usize| parts.get(index).is_some_and(|part| part.dropped);
    splice.remove_members(&elements, dropped);
    let choices = whole.places.iter().zip(&whole.reply.choices).zip(parts);
    for ((place, choice), part) in choices.filter(|(_, part)| !part.dropped) {
        let text = choice.content.as_deref().unwrap_or_default();
        let cut = part.slice.as_ref().filter(|slice| **slice != (0..text.len()));
        if let (Some(slice), Some(spot)) = (cut, place.content) {
            let raw = string::raw_range(body, spot, slice.clone());
            splice.delete(spot.inside().start..raw.start);
            splice.delete(raw.end..spot.inside().end);
        }
        if let (Some(around), Some(slice), Some(spot)) = (&part.around, &part.slice, place.content) {
            put_around(&mut splice, body, spot, (text, slice), around);
        }
        for member in &place.message {
            if member.key == Key::Unjudged {
                blank_unless_scalar(&mut splice, body, member);
            }
        }
        for member in place.members.iter().filter(|member| member.key == Key::Unjudged) {
            blank_unless_scalar(&mut splice, body, member);
        }
        let edited = cut.is_some() || part.around.is_some();
        for member in place.members.iter().filter(|member| edited && member.key == Key::Logprobs) {
            blank(&mut splice, body, member); // they would spell out what was cut off
        }
    }
    told(&mut splice, body, total);
    splice.apply(body)
}

/// Puts what code adds around a slice of the content, inside the string that the content is.
fn put_around(splice: &mut Splice, body: &Bytes, spot: Spot, (text, slice): (&str, &Range<usize>), around: &Around) {
    let escaped = |text: &str| {
        let mut out = Vec::new();
        string::escape_onto(text, &mut out);
        out
    };
    let raw = string::raw_range(body, spot, slice.clone());
    splice.insert(raw.start, escaped(&around.before));
    let fields = around.fields_after(text.get(slice.clone()).unwrap_or_default());
    if around.after.is_empty() {
        let last = string::raw_range(body, spot, slice.end.saturating_sub(1)..slice.end);
        splice.insert(last.start, escaped(&fields));
    } else {
        splice.insert(raw.end, escaped(&format!("{fields}{}", around.after)));
    }
}

/// Adds the gateway's own member to the answer: JSON, where there is something to tell.
fn told(splice: &mut Splice, body: &Bytes, total: Option<&str>) {
    let close = body.iter().rposition(|byte| *byte == b'}');
    if let (Some(total), Some(close)) = (total, close) {
        splice.insert(close, format!(",\"portcullis\":{{\"usage_total\":{total}}}"));
    }
}

/// What goes on in the place of an answer that does not.
#[derive(Clone, Copy, Debug)]
pub enum Instead<'a> {
    /// The model's own refusal, with its words.
    Said(&'a str),
    /// The cut of the provider's filter.
    Filtered,
    /// A refusal of the gateway's: a question or a reason, and what `portcullis` tells of it, as JSON.
    Asked(&'a str, &'a str),
    /// An object of the policy's, as JSON, and what `portcullis` tells of it, as JSON.
    Object(&'a str, &'a str),
}

/// The body of an answer that does not go on: in every choice, everything that could hold it is blanked.
pub fn instead(
    body: &Bytes,
    whole: &WholeReply,
    instead: Instead<'_>,
    total: Option<&str>,
) -> Result<Vec<Bytes>, SpliceError> {
    let mut splice = Splice::new();
    for (place, choice) in whole.places.iter().zip(&whole.reply.choices) {
        let own = matches!(instead, Instead::Asked(..) | Instead::Object(..));
        for member in &place.message {
            if !matches!(member.key, Key::Frame) && (own || member.key != Key::Refusal) {
                let written = match (instead, member.key) {
                    (Instead::Asked(words, _), Key::Refusal) => Some(string::quoted(words)),
                    (Instead::Object(object, _), Key::Content) => Some(string::quoted(object)),
                    _ => None,
                };
                match written {
                    Some(written) => splice.replace(member.value.clone(), written),
                    None => blank(&mut splice, body, member),
                }
            }
        }
        for member in &place.members {
            if !matches!(member.key, Key::Frame | Key::FinishReason) {
                blank(&mut splice, body, member);
            }
        }
        let mut added = Vec::new();
        if let Instead::Asked(_, told) | Instead::Object(_, told) = instead {
            added.push(format!("\"portcullis\":{told}").into_bytes());
        }
        let mut add = |key: Key, name: &str, words: &str| added.extend(set(&mut splice, place, key, name, words));
        match instead {
            Instead::Said(words) if choice.refusal.is_none() => add(Key::Refusal, "refusal", words),
            Instead::Said(_) | Instead::Filtered => {}
            Instead::Asked(words, _) => {
                add(Key::Refusal, "refusal", words);
                add(Key::Content, "content", "");
            }
            Instead::Object(object, _) => add(Key::Content, "content", object),
        }
        let word = if matches!(instead, Instead::Filtered) { "content_filter" } else { "stop" };
        let mut beside = put(&mut splice, place, &added);
        match place.members.iter().find(|member| member.key == Key::FinishReason) {
            Some(member) => splice.replace(member.value.clone(), string::quoted(word)),
            None => beside.push(member("finish_reason", &string::quoted(word))),
        }
        put_into(&mut splice, &place.members, &place.at, &beside);
    }
    told(&mut splice, body, total);
    splice.apply(body)
}

fn blank(splice: &mut Splice, body: &Bytes, member: &MemberPlace) {
    if body.get(member.value.clone()) != Some(b"null") {
        splice.replace(member.value.clone(), "null");
    }
}

/// Blanks what could hold an answer of its own: all but numbers and flags.
fn blank_unless_scalar(splice: &mut Splice, body: &Bytes, member: &MemberPlace) {
    if matches!(body.get(member.value.start), Some(b'{' | b'[' | b'"')) {
        blank(splice, body, member);
    }
}

/// Sets a member of a message to these words, or to null where there are none; gives it back as it is to be added where the
/// message lacks it. One that is there has been written already, but for a refusal that is null.
fn set(splice: &mut Splice, place: &ChoicePlace, key: Key, name: &str, words: &str) -> Option<Vec<u8>> {
    let value = if words.is_empty() { b"null".to_vec() } else { string::quoted(words) };
    let Some(there) = place.message.iter().find(|member| member.key == key) else { return Some(member(name, &value)) };
    if splice.leaves(&there.value) {
        splice.replace(there.value.clone(), value);
    }
    None
}

fn member(name: &str, value: &[u8]) -> Vec<u8> {
    [&string::quoted(name), &b":"[..], value].concat()
}

/// Adds members to the message of a choice; gives the whole message back, as a member, where the choice has none.
fn put(splice: &mut Splice, place: &ChoicePlace, added: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let whole = || [br#"{"role":"assistant","#, added.join(&b","[..]).as_slice(), b"}"].concat();
    match &place.message_at {
        _ if added.is_empty() => {}
        Some(at) if !place.message.is_empty() => put_into(splice, &place.message, at, added),
        Some(at) => splice.replace(at.clone(), whole()),
        None => return vec![member("message", &whole())],
    }
    Vec::new()
}

/// Adds members to an object that has these, and stands there.
fn put_into(splice: &mut Splice, members: &[MemberPlace], at: &Range<usize>, added: &[Vec<u8>]) {
    let text = added.join(&b","[..]);
    match members.first() {
        _ if added.is_empty() => {}
        Some(first) => splice.insert(first.whole.start, [&text, &b","[..]].concat()),
        None => splice.replace(at.clone(), [b"{", text.as_slice(), b"}"].concat()),
    }
}

/// A whole answer as if it had been streamed: for backends that do not stream although asked to.
pub fn as_collected(body: &Bytes, whole: WholeReply) -> Collected {
    let mut envelope = Envelope::default();
    let mut usage = None;
    // The body was read once already, so nothing in it can be a fault now.
    let _ = Cursor::new(body).object(|cursor, member| {
        let range = cursor.skip()?;
        let text = body.get(range).unwrap_or_default();
        match &*member.key {
            "usage" if text != b"null" => usage = Some(String::from_utf8_lossy(text).into_owned()),
            key => envelope.take(key, text),
        }
        Ok::<(), JsonFault>(())
    });
    Collected { reply: whole.reply, envelope, usage }
}

/// The events of an accepted answer: for each choice a role chunk, one content chunk, one chunk a tool
/// call and the finish chunk; then the usage chunk where it was asked for, and `[DONE]`.
pub fn accepted_events(collected: &Collected, parts: &[Passed], usage: bool, total: Option<&str>) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    let mut chunks = Chunks::new(&collected.envelope);
    for (choice, part) in collected.reply.choices.iter().zip(parts).filter(|(_, part)| !part.dropped) {
        let content = choice.content.as_deref().map(|text| match &part.slice {
            Some(slice) => text.get(slice.clone()).unwrap_or_default(),
            None => text,
        });
        let content = content.map(|slice| match &part.around {
            Some(around) => Cow::Owned(around.around(slice)),
            None => Cow::Borrowed(slice),
        });
        chunks.role(&mut out, choice.index, content.is_some());
        if let Some(content) = content.filter(|content| !content.is_empty()) {
            chunks.text(&mut out, choice.index, "content", &content);
        }
        for (index, call) in choice.tool_calls.iter().enumerate() {
            chunks.tool_call(&mut out, choice.index, index, call);
        }
        chunks.finish(&mut out, choice.index, word(choice));
    }
    end(&mut out, &chunks, collected, usage, total);
    out
}

/// One event with a piece of the member `key` of a message; `first` says that nothing of the choice has gone out yet.
pub fn text_event(envelope: &Envelope, index: u64, first: bool, key: &str, text: &str, out: &mut Vec<u8>) {
    let mut chunks = Chunks::new(envelope);
    if first {
        chunks.role(out, index, true);
    }
    chunks.text(out, index, key, text);
}

/// The events that end a stream whose text has gone out already: each choice's calls and finish reason,
/// then usage and `[DONE]`. `started` tells of which choices something has gone out; without `calls`, none
/// go out.
pub fn closing_events(collected: &Collected, started: impl Fn(u64) -> bool, calls: bool, usage: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let mut chunks = Chunks::new(&collected.envelope);
    for choice in &collected.reply.choices {
        if !started(choice.index) {
            chunks.role(&mut out, choice.index, false);
        }
        for (index, call) in choice.tool_calls.iter().enumerate().filter(|_| calls) {
            chunks.tool_call(&mut out, choice.index, index, call);
        }
        chunks.finish(&mut out, choice.index, word(choice));
    }
    end(&mut out, &chunks, collected, usage, None);
    out
}

/// The events of an answer that does not go on.
pub fn instead_events(collected: &Collected, instead: Instead<'_>, usage: bool, total: Option<&str>) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let mut chunks = Chunks::new(&collected.envelope);
    for choice in &collected.reply.choices {
        chunks.role(&mut out, choice.index, matches!(instead, Instead::Object(..)));
        match instead {
            Instead::Said(words) => {
                chunks.text(&mut out, choice.index, "refusal", choice.refusal.as_deref().unwrap_or(words));
            }
            Instead::Filtered => {}
            Instead::Asked(words, told) => chunks.told(&mut out, choice.index, "refusal", words, told),
            Instead::Object(object, told) => chunks.told(&mut out, choice.index, "content", object, told),
        }
        let word = if matches!(instead, Instead::Filtered) { "content_filter" } else { "stop" };
        chunks.finish(&mut out, choice.index, word);
    }
    end(&mut out, &chunks, collected, usage, total);
    out
}

/// The events that end a stream whose text has gone out already, and whose calls do not go on: in each choice a refusal.
pub fn closing_instead(
    collected: &Collected,
    started: impl Fn(u64) -> bool,
    instead: Instead<'_>,
    usage: bool,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let mut chunks = Chunks::new(&collected.envelope);
    for choice in &collected.reply.choices {
        if !started(choice.index) {
            chunks.role(&mut out, choice.index, false);
        }
        if let Instead::Asked(words, told) = instead {
            chunks.told(&mut out, choice.index, "refusal", words, told);
        }
        chunks.finish(&mut out, choice.index, "stop");
    }
    end(&mut out, &chunks, collected, usage, None);
    out
}

fn end(out: &mut Vec<u8>, chunks: &Chunks<'_>, collected: &Collected, usage: bool, total: Option<&str>) {
    if let Some(total) = total {
        chunks.total(out, total);
    }
    if let Some(text) = collected.usage.as_ref().filter(|_| usage) {
        chunks.usage(out, text);
    }
    sse::event_onto(b"[DONE]", out);
}

fn word(choice: &Choice) -> &str {
    choice.finish.as_ref().map_or("stop", |finish| finish.as_str())
}

/// Writes chunks that all begin alike.
struct Chunks<'a> {
    envelope: &'a Envelope,
    delta: Vec<u8>,
}

impl<'a> Chunks<'a> {
    fn new(envelope: &'a Envelope) -> Self {
        Self { envelope, delta: Vec::new() }
    }

    fn role(&mut self, out: &mut Vec<u8>, index: u64, content: bool) {
        let content = if content { "\"\"" } else { "null" };
        self.delta = format!(r#"{{"role":"assistant","content":{content}}}"#).into_bytes();
        self.chunk(out, index, "null");
    }

    fn text(&mut self, out: &mut Vec<u8>, index: u64, key: &str, text: &str) {
        self.delta = format!("{{\"{key}\":\"").into_bytes();
        string::escape_onto(text, &mut self.delta);
        self.delta.extend_from_slice(b"\"}");
        self.chunk(out, index, "null");
    }

    /// Text with what the gateway tells of it, as JSON.
    fn told(&mut self, out: &mut Vec<u8>, index: u64, key: &str, text: &str, told: &str) {
        self.delta = format!("{{\"{key}\":\"").into_bytes();
        string::escape_onto(text, &mut self.delta);
        self.delta.extend_from_slice(format!("\",\"portcullis\":{told}}}").as_bytes());
        self.chunk(out, index, "null");
    }

    fn total(&self, out: &mut Vec<u8>, total: &str) {
        self.open(out);
        out.extend_from_slice(format!("\"choices\":[],\"portcullis\":{{\"usage_total\":{total}}}}}\n\n").as_bytes());
    }

    fn tool_call(&mut self, out: &mut Vec<u8>, index: u64, place: usize, call: &ToolCall) {
        self.delta = format!(r#"{{"tool_calls":[{{"index":{place},"id":""#).into_bytes();
        string::escape_onto(&call.id, &mut self.delta);
        self.delta.extend_from_slice(br#"","type":"function","function":{"name":""#);
        string::escape_onto(&call.name, &mut self.delta);
        self.delta.extend_from_slice(br#"","arguments":""#);
        string::escape_onto(&call.arguments, &mut self.delta);
        self.delta.extend_from_slice(br#""}}]}"#);
        self.chunk(out, index, "null");
    }

    fn finish(&mut self, out: &mut Vec<u8>, index: u64, word: &str) {
        self.delta = b"{}".to_vec();
        let word = String::from_utf8(string::quoted(word)).unwrap_or_default();
        self.chunk(out, index, &word);
    }

    fn chunk(&self, out: &mut Vec<u8>, index: u64, finish: &str) {
        self.open(out);
        out.extend_from_slice(format!(r#""choices":[{{"index":{index},"delta":"#).as_bytes());
        out.extend_from_slice(&self.delta);
        out.extend_from_slice(format!(r#","finish_reason":{finish}}}]}}"#).as_bytes());
        out.extend_from_slice(b"\n\n");
    }

    fn usage(&self, out: &mut Vec<u8>, usage: &str) {
        self.open(out);
        // The text may hold line ends, which would end the event.
        let usage = usage.replace(['\r', '\n'], " ");
        out.extend_from_slice(format!("\"choices\":[],\"usage\":{usage}}}\n\n").as_bytes());
    }

    fn open(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"data: {");
        let mut object = false;
        for (key, value) in self.envelope.members() {
            out.extend_from_slice(&string::quoted(key));
            out.push(b':');
            out.extend_from_slice(value.replace(['\r', '\n'], " ").as_bytes());
            out.push(b',');
            if !object {
                out.extend_from_slice(br#""object":"chat.completion.chunk","#);
                object = true;
            }
        }
        if !object {
            out.extend_from_slice(br#""object":"chat.completion.chunk","#);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::backend::openai;
    use crate::api::backend::openai_stream::Collector;
    use crate::wire::sse::EventReader;

    const BODY: &str = r#"{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Sure: {\"a\":\"é\\n\"} ok","refusal":null,"audio":{"transcript":"x"},"reasoning_content":"hm"},"logprobs":{"content":[1]},"finish_reason":"stop"}],"usage":{"total_tokens":7},"x":1.0}"#;

    fn part(slice: Option<Range<usize>>) -> Passed {
        Passed { slice, ..Passed::default() }
    }

    fn whole() -> (Bytes, WholeReply) {
        let body = Bytes::from_static(BODY.as_bytes());
        let whole = openai::read(&body).unwrap();
        (body, whole)
    }

    #[test]
    fn the_accepted_slice_is_left_and_the_rest_of_the_text_is_taken_away() {
        let (body, whole) = whole();
        let text = whole.reply.choices[0].content.clone().unwrap();
        let slice = text.find('{').unwrap()..text.rfind('}').unwrap() + 1;
        let out = String::from_utf8(accepted(&body, &whole, &[part(Some(slice))], None).unwrap().concat()).unwrap();
        let expected = BODY
            .replace("Sure: ", "")
            .replace(" ok\"", "\"")
            .replace(r#"{"transcript":"x"}"#, "null")
            .replace(r#"{"content":[1]}"#, "null");
        assert_eq!(out, expected);
    }

    #[test]
    fn a_whole_answer_is_not_touched() {
        let body = Bytes::from(
            BODY.replace(r#","audio":{"transcript":"x"}"#, "").replace("Sure: ", "").replace(" ok\"", "\""),
        );
        let whole = openai::read(&body).unwrap();
        let length = whole.reply.choices[0].content.as_ref().unwrap().len();
        let pieces = accepted(&body, &whole, &[part(Some(0..length))], None).unwrap();
        assert_eq!((pieces.len(), pieces[0].as_ptr()), (1, body.as_ptr()));
    }

    #[test]
    fn what_a_consumer_could_take_for_the_answer_is_blanked() {
        let bad = r#"{"item":"EVIL"}"#;
        let body = format!(
            r#"{{"choices":[{{"message":{{"content":"{{}}","parsed":{bad},"Content":"EVIL","function_call":{bad},"x":[1]}},"text":"EVIL","delta":{bad},"tool_calls":[{bad}],"Message":{bad},"finish_reason":"stop","y":2}}]}}"#
        );
        let body = Bytes::from(body);
        let whole = openai::read(&body).unwrap();
        let out = String::from_utf8(accepted(&body, &whole, &[part(Some(0..2))], None).unwrap().concat()).unwrap();
        assert!(!out.contains("EVIL") && out.contains(r#""x":[1]"#) && out.contains(r#""y":2"#), "{out}");
        for body in [
            r#"{"choices":[{"message":{"content":"{}","tool_calls":{"a":1}},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"message":{"content":"{}","refusal":{"a":1}},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"message":{"content":"{}","role":{"a":1}},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"message":"{}","finish_reason":"stop"}]}"#,
            r#"{"choices":[{"message":{"content":"{}"},"finish_reason":"stop"}],"Choices":[]}"#,
        ] {
            assert!(openai::read(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn a_refusal_goes_on_alone() {
        let (body, whole) = whole();
        let out = String::from_utf8(instead(&body, &whole, Instead::Said("No."), None).unwrap().concat()).unwrap();
        let expected = r#"{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":null,"refusal":"No.","audio":null,"reasoning_content":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"total_tokens":7},"x":1.0}"#;
        assert_eq!(out, expected);
        let filtered = String::from_utf8(instead(&body, &whole, Instead::Filtered, None).unwrap().concat()).unwrap();
        assert_eq!(filtered, expected.replace("\"No.\"", "null").replace("\"stop\"", "\"content_filter\""));
        let bare =
            Bytes::from_static(br#"{"choices":[{"message":{"content":"x","tool_calls":[]},"finish_reason":"stop"}]}"#);
        let read = openai::read(&bare).unwrap();
        let out = String::from_utf8(instead(&bare, &read, Instead::Said("No."), None).unwrap().concat()).unwrap();
        assert_eq!(
            out,
            r#"{"choices":[{"message":{"refusal":"No.","content":null,"tool_calls":null},"finish_reason":"stop"}]}"#
        );
    }

    fn read_back(events: &[u8]) -> Collected {
        let (mut reader, mut collector) = (EventReader::new(), Collector::default());
        reader.feed(events, |data| collector.take(data)).unwrap();
        reader.finish(|data| collector.take(data)).unwrap();
        collector.finish().unwrap()
    }

    #[test]
    fn a_choice_that_lacks_what_is_written_gets_it() {
        let told = r#"{"outcome":"clarified"}"#;
        for choice in ["{}", r#"{"message":null}"#, r#"{"message":{}}"#, r#"{"index":0,"message":{"content":null}}"#] {
            let body = Bytes::from(format!(r#"{{"choices":[{choice}]}}"#));
            let whole = openai::read(&body).unwrap();
            let replaced = instead(&body, &whole, Instead::Asked("Which?", told), None).unwrap().concat();
            let replaced = openai::read(&replaced).unwrap_or_else(|error| panic!("{choice}: {error}")).reply;
            assert_eq!(replaced.choices[0].refusal.as_deref(), Some("Which?"), "{choice}");
            assert_eq!(replaced.choices[0].finish.as_ref().map(|finish| finish.as_str()), Some("stop"), "{choice}");
            let replaced = instead(&body, &whole, Instead::Object("{}", told), None).unwrap().concat();
            let replaced = openai::read(&replaced).unwrap().reply;
            assert_eq!(replaced.choices[0].content.as_deref(), Some("{}"), "{choice}");
        }
    }

    #[test]
    fn a_whole_answer_streams_as_what_was_judged() {
        let (body, whole) = whole();
        let text = whole.reply.choices[0].content.clone().unwrap();
        let slice = text.find('{').unwrap()..text.rfind('}').unwrap() + 1;
        let mut collected = as_collected(&body, whole);
        collected.reply.choices[0].tool_calls.push(ToolCall {
            id: "t".into(),
            name: "f".into(),
            arguments: "{\"q\":\"\\n\"}".into(),
        });
        let events = accepted_events(&collected, &[part(Some(slice.clone()))], true, None);
        insta::assert_snapshot!(String::from_utf8(events.clone()).unwrap());
        let back = read_back(&events);
        assert_eq!(back.reply.choices[0].content.as_deref(), Some(&text[slice]));
        assert_eq!(back.reply.choices[0].tool_calls, collected.reply.choices[0].tool_calls);
        assert_eq!(back.usage.as_deref(), Some(r#"{"total_tokens":7}"#));
        assert_eq!(read_back(&accepted_events(&collected, &[part(None)], false, None)).usage, None);
    }

    #[test]
    fn a_refusal_streams() {
        let (body, whole) = whole();
        let collected = as_collected(&body, whole);
        let back = read_back(&instead_events(&collected, Instead::Said("No."), false, None));
        assert_eq!(back.reply.choices[0].refusal.as_deref(), Some("No."));
        assert_eq!(back.reply.choices[0].content, None);
        let filtered = read_back(&instead_events(&collected, Instead::Filtered, false, None));
        assert_eq!(filtered.reply.choices[0].finish.as_ref().unwrap().as_str(), "content_filter");
    }
}
