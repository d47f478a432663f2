//! `POST /v1/chat/completions`: the answer. A whole one is the backend's bytes, edited in place; a stream
//! is written anew from what was judged, with the backend's own ids, model and fingerprint.

use std::ops::Range;

use bytes::Bytes;

use crate::api::backend::openai::ChoicePlace;
use crate::api::backend::openai::Key;
use crate::api::backend::openai::MemberPlace;
use crate::api::backend::openai::WholeReply;
use crate::api::backend::openai_stream::Collected;
use crate::api::backend::openai_stream::Envelope;
use crate::api::reply::Choice;
use crate::api::reply::ToolCall;
use crate::json::JsonFault;
use crate::json::cursor::Cursor;
use crate::json::splice::Splice;
use crate::json::splice::SpliceError;
use crate::json::string;
use crate::wire::sse;

/// The body of an accepted answer. `slices` has, for each choice, the part of its content that was
/// accepted, or none where the content goes on as it is.
pub fn accepted(body: &Bytes, whole: &WholeReply, slices: &[Option<Range<usize>>]) -> Result<Vec<Bytes>, SpliceError> {
    let mut splice = Splice::new();
    let choices = whole.places.iter().zip(&whole.reply.choices).zip(slices);
    for ((place, choice), slice) in choices {
        let text = choice.content.as_deref().unwrap_or_default();
        let cut = slice.as_ref().filter(|slice| **slice != (0..text.len()));
        if let (Some(slice), Some(spot)) = (cut, place.content) {
            let raw = string::raw_range(body, spot, slice.clone());
            splice.delete(spot.inside().start..raw.start);
            splice.delete(raw.end..spot.inside().end);
        }
        for member in &place.message {
            if member.key == Key::Unjudged {
                blank_unless_scalar(&mut splice, body, member);
            }
        }
        for member in place.members.iter().filter(|member| member.key == Key::Unjudged) {
            blank_unless_scalar(&mut splice, body, member);
        }
        for member in place.members.iter().filter(|member| cut.is_some() && member.key == Key::Logprobs) {
            blank(&mut splice, body, member); // they would spell out what was cut off
        }
    }
    splice.apply(body)
}

/// How a refused answer goes on.
#[derive(Clone, Copy, Debug)]
pub enum Refusal<'a> {
    /// With the model's words.
    Said(&'a str),
    /// As cut by the provider's filter.
    Filtered,
}

/// The body of a refused answer: the refusal goes on, everything beside it is blanked in every choice.
pub fn refused(body: &Bytes, whole: &WholeReply, refusal: Refusal<'_>) -> Result<Vec<Bytes>, SpliceError> {
    let mut splice = Splice::new();
    for (place, choice) in whole.places.iter().zip(&whole.reply.choices) {
        for member in &place.message {
            if !matches!(member.key, Key::Frame | Key::Refusal) {
                blank(&mut splice, body, member);
            }
        }
        for member in &place.members {
            if !matches!(member.key, Key::Frame | Key::FinishReason) {
                blank(&mut splice, body, member);
            }
        }
        match refusal {
            Refusal::Said(words) if choice.refusal.is_none() => say(&mut splice, place, words),
            Refusal::Said(_) => {}
            Refusal::Filtered => finish(&mut splice, place, "content_filter"),
        }
        if let Refusal::Said(_) = refusal {
            finish(&mut splice, place, "stop");
        }
    }
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

fn say(splice: &mut Splice, place: &ChoicePlace, words: &str) {
    if let Some(member) = place.message.iter().find(|member| member.key == Key::Refusal) {
        splice.replace(member.value.clone(), string::quoted(words));
    } else if let Some(first) = place.message.first() {
        let mut member = b"\"refusal\":".to_vec();
        member.extend_from_slice(&string::quoted(words));
        member.push(b',');
        splice.insert(first.whole.start, member);
    }
}

fn finish(splice: &mut Splice, place: &ChoicePlace, word: &str) {
    if let Some(member) = place.members.iter().find(|member| member.key == Key::FinishReason) {
        splice.replace(member.value.clone(), string::quoted(word));
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
pub fn accepted_events(collected: &Collected, slices: &[Option<Range<usize>>], usage: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    let mut chunks = Chunks::new(&collected.envelope);
    for (choice, slice) in collected.reply.choices.iter().zip(slices) {
        let content = choice.content.as_deref().map(|text| match slice {
            Some(slice) => text.get(slice.clone()).unwrap_or_default(),
            None => text,
        });
        chunks.role(&mut out, choice.index, content.is_some());
        if let Some(content) = content.filter(|content| !content.is_empty()) {
            chunks.text(&mut out, choice.index, "content", content);
        }
        for (index, call) in choice.tool_calls.iter().enumerate() {
            chunks.tool_call(&mut out, choice.index, index, call);
        }
        chunks.finish(&mut out, choice.index, word(choice));
    }
    end(&mut out, &chunks, collected, usage);
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
    end(&mut out, &chunks, collected, usage);
    out
}

/// The events of a refused answer.
pub fn refused_events(collected: &Collected, refusal: Refusal<'_>, usage: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let mut chunks = Chunks::new(&collected.envelope);
    for choice in &collected.reply.choices {
        chunks.role(&mut out, choice.index, false);
        match refusal {
            Refusal::Said(words) => {
                chunks.text(&mut out, choice.index, "refusal", choice.refusal.as_deref().unwrap_or(words));
                chunks.finish(&mut out, choice.index, "stop");
            }
            Refusal::Filtered => chunks.finish(&mut out, choice.index, "content_filter"),
        }
    }
    end(&mut out, &chunks, collected, usage);
    out
}

fn end(out: &mut Vec<u8>, chunks: &Chunks<'_>, collected: &Collected, usage: bool) {
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
        let out = String::from_utf8(accepted(&body, &whole, &[Some(slice)]).unwrap().concat()).unwrap();
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
        let pieces = accepted(&body, &whole, &[Some(0..length)]).unwrap();
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
        let out = String::from_utf8(accepted(&body, &whole, &[Some(0..2)]).unwrap().concat()).unwrap();
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
        let out = String::from_utf8(refused(&body, &whole, Refusal::Said("No.")).unwrap().concat()).unwrap();
        let expected = r#"{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":null,"refusal":"No.","audio":null,"reasoning_content":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"total_tokens":7},"x":1.0}"#;
        assert_eq!(out, expected);
        let filtered = String::from_utf8(refused(&body, &whole, Refusal::Filtered).unwrap().concat()).unwrap();
        assert_eq!(filtered, expected.replace("\"No.\"", "null").replace("\"stop\"", "\"content_filter\""));
        let bare =
            Bytes::from_static(br#"{"choices":[{"message":{"content":"x","tool_calls":[]},"finish_reason":"stop"}]}"#);
        let read = openai::read(&bare).unwrap();
        let out = String::from_utf8(refused(&bare, &read, Refusal::Said("No.")).unwrap().concat()).unwrap();
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
        let events = accepted_events(&collected, &[Some(slice.clone())], true);
        insta::assert_snapshot!(String::from_utf8(events.clone()).unwrap());
        let back = read_back(&events);
        assert_eq!(back.reply.choices[0].content.as_deref(), Some(&text[slice]));
        assert_eq!(back.reply.choices[0].tool_calls, collected.reply.choices[0].tool_calls);
        assert_eq!(back.usage.as_deref(), Some(r#"{"total_tokens":7}"#));
        assert_eq!(read_back(&accepted_events(&collected, &[None], false)).usage, None);
    }

    #[test]
    fn a_refusal_streams() {
        let (body, whole) = whole();
        let collected = as_collected(&body, whole);
        let back = read_back(&refused_events(&collected, Refusal::Said("No."), false));
        assert_eq!(back.reply.choices[0].refusal.as_deref(), Some("No."));
        assert_eq!(back.reply.choices[0].content, None);
        let filtered = read_back(&refused_events(&collected, Refusal::Filtered, false));
        assert_eq!(filtered.reply.choices[0].finish.as_ref().unwrap().as_str(), "content_filter");
    }
}
