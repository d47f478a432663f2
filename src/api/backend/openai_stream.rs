//! Streamed answers in OpenAI's chat format, collected until they can be judged.

use crate::api::backend::openai;
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
use crate::json::string::Pending;
use crate::wire::fault::Reported;

/// Collects the chunks of one stream.
#[derive(Debug, Default)]
pub struct Collector {
    choices: Vec<Gathered>,
    envelope: Envelope,
    usage: Option<Usage>,
    usage_text: Option<String>,
    done: bool,
}

/// What every chunk repeats: the backend's own ids, model and fingerprint, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope(Vec<(&'static str, String)>);

/// The members that chunks repeat.
const REPEATED: [&str; 6] = ["id", "created", "model", "system_fingerprint", "service_tier", "provider"];
/// Bytes of one of them: it is written into every chunk.
const REPEATED_MAX: usize = 256;

impl Envelope {
    /// Takes a top-level member, if it is one that chunks repeat and is a scalar of a sane size.
    pub fn take(&mut self, key: &str, text: &[u8]) {
        let Some(key) = REPEATED.iter().find(|repeated| **repeated == key) else { return };
        let scalar = !matches!(text.first(), Some(b'{' | b'['));
        if scalar && text.len() <= REPEATED_MAX && !self.0.iter().any(|(taken, _)| taken == key) {
            self.0.push((key, String::from_utf8_lossy(text).into_owned()));
        }
    }

    /// The members, in the order in which they came.
    pub fn members(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(key, text)| (*key, text.as_str()))
    }
}

#[derive(Debug, Default)]
struct Gathered {
    choice: Choice,
    content: Text,
    refusal: Text,
    calls: Vec<Call>,
}

/// A text that comes in pieces.
#[derive(Debug, Default)]
struct Text {
    said: String,
    pending: Pending,
    /// Something other than null came, if only an empty piece.
    came: bool,
}

#[derive(Debug, Default)]
struct Call {
    index: u64,
    call: ToolCall,
    pending: Pending,
}

/// A stream that ended well: what it said, and what its chunks repeat.
#[derive(Debug)]
pub struct Collected {
    /// What it said.
    pub reply: Reply,
    /// What its chunks repeat.
    pub envelope: Envelope,
    /// The text of `usage`, where a chunk had one.
    pub usage: Option<String>,
}

impl Collector {
    /// Takes the data of the next event. What follows `[DONE]` is not part of the stream.
    pub fn take(&mut self, data: &[u8]) -> Result<(), ReplyError> {
        if self.done {
            return Ok(());
        }
        if data.trim_ascii() == b"[DONE]" {
            self.done = true;
            return Ok(());
        }
        let said = std::str::from_utf8(data)
            .map_err(|error| JsonFault::new(JsonFaultKind::Expected("UTF-8"), error.valid_up_to()))?;
        let first = self.envelope.0.is_empty();
        let mut reported = false;
        let mut cursor = Cursor::of(said);
        cursor.object(|cursor, member| match &*member.key {
            "choices" if cursor.begins() == Begins::Array => {
                cursor.array(|cursor| self.chunk_choice(cursor)).map(|_| ())
            }
            "usage" => {
                let range = openai::usage(cursor, &mut self.usage)?;
                let text = data.get(range).unwrap_or_default();
                if text != b"null" {
                    self.usage_text = Some(String::from_utf8_lossy(text).into_owned());
                }
                Ok(())
            }
            "error" => {
                reported |= cursor.begins() != Begins::Null;
                cursor.skip().map(|_| ()).map_err(ReplyError::from)
            }
            key => {
                let range = cursor.skip()?;
                if first {
                    self.envelope.take(key, data.get(range).unwrap_or_default());
                }
                Ok(())
            }
        })?;
        cursor.end()?;
        if reported { Err(ReplyError::Reported(Reported::read(data))) } else { Ok(()) }
    }

    /// The content and the refusal of every choice so far, by its index.
    pub fn texts(&self) -> impl Iterator<Item = (u64, [&str; 2])> {
        let choices = self.choices.iter();
        choices.map(|gathered| (gathered.choice.index, [&*gathered.content.said, &*gathered.refusal.said]))
    }

    /// What the chunks so far repeat.
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// Whether `[DONE]` has come.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// The stream has ended. Fails where a choice has no finish reason, or half a surrogate pair is left.
    pub fn finish(self) -> Result<Collected, ReplyError> {
        if self.choices.is_empty() || self.choices.iter().any(|gathered| gathered.choice.finish.is_none()) {
            return Err(ReplyError::Unfinished);
        }
        let mut choices = Vec::with_capacity(self.choices.len());
        for gathered in self.choices {
            let mut choice = gathered.choice;
            choice.content = gathered.content.whole()?;
            choice.refusal = gathered.refusal.whole()?.filter(|refusal| !refusal.is_empty());
            for call in gathered.calls {
                if call.pending.is_waiting() {
                    return Err(JsonFault::new(JsonFaultKind::LoneSurrogate, 0).into());
                }
                choice.tool_calls.push(call.call);
            }
            choices.push(choice);
        }
        let reply = Reply { choices, usage: self.usage };
        Ok(Collected { reply, envelope: self.envelope, usage: self.usage_text })
    }

    fn chunk_choice(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ReplyError> {
        // `index` may follow `delta`, so it is looked for first; it nearly always stands first.
        let index = index_of(cursor)?.unwrap_or_default();
        let gathered = self.gathered(index, cursor.offset())?;
        cursor.object(|cursor, member| match &*member.key {
            "delta" if cursor.begins() == Begins::Object => {
                cursor.object(|cursor, member| gathered.delta(cursor, &member.key)).map(|_| ())
            }
            "finish_reason" => {
                if let Some(spot) = cursor.string_or_null()? {
                    let finish = Finish::read(&string::decode(cursor.text(), spot)?);
                    if gathered.choice.finish.as_ref().is_some_and(|before| *before != finish) {
                        return Err(ReplyError::TwoFinishes);
                    }
                    gathered.choice.finish = Some(finish);
                }
                Ok(())
            }
            _ => cursor.skip().map(|_| ()).map_err(ReplyError::from),
        })?;
        Ok(())
    }

    fn gathered(&mut self, index: u64, at: usize) -> Result<&mut Gathered, ReplyError> {
        let place = match self.choices.iter().position(|gathered| gathered.choice.index == index) {
            Some(place) => place,
            None if self.choices.len() < CHOICES_MAX => {
                let choice = Choice { index, ..Choice::default() };
                self.choices.push(Gathered { choice, ..Gathered::default() });
                self.choices.sort_by_key(|gathered| gathered.choice.index);
                self.choices.iter().position(|gathered| gathered.choice.index == index).unwrap_or_default()
            }
            None => return Err(ReplyError::TooMany),
        };
        self.choices.get_mut(place).ok_or_else(|| JsonFault::new(JsonFaultKind::Expected("a choice"), at).into())
    }
}

/// The `index` of the object that begins at the cursor, which stays where it is.
fn index_of(cursor: &Cursor<'_>) -> Result<Option<u64>, JsonFault> {
    let text = cursor.text();
    if text.get(cursor.offset()..).is_some_and(|rest| rest.starts_with(b"{\"index\":0,")) {
        return Ok(Some(0));
    }
    let mut index = None;
    cursor.clone().object(|cursor, member| match &*member.key {
        "index" => cursor.count_or_null().map(|count| index = count),
        _ => cursor.skip().map(|_| ()),
    })?;
    Ok(index)
}

impl Gathered {
    fn delta(&mut self, cursor: &mut Cursor<'_>, key: &str) -> Result<(), ReplyError> {
        match key {
            "content" => Ok(self.content.add(cursor)?),
            "refusal" => Ok(self.refusal.add(cursor)?),
            "tool_calls" if cursor.begins() == Begins::Array => {
                cursor.array(|cursor| self.fragment(cursor)).map(|_| ())
            }
            "reasoning_content" | "reasoning" => {
                self.choice.reasoned |= cursor.begins() != Begins::Null;
                Ok(cursor.skip().map(|_| ())?)
            }
            _ => Ok(cursor.skip().map(|_| ())?),
        }
    }

    /// Takes one fragment of a tool call. Fragments go by index; one without an index is unambiguous
    /// only while there is a single call.
    fn fragment(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ReplyError> {
        let index = index_of(cursor)?;
        let mut id = String::new();
        let mut name = String::new();
        let text = cursor.text();
        let mut arguments = None;
        let said = |cursor: &mut Cursor<'_>, into: &mut String| {
            if let Some(spot) = cursor.string_or_null()? {
                *into = string::decode(text, spot)?.into_owned();
            }
            Ok::<(), JsonFault>(())
        };
        cursor.object(|cursor, member| match &*member.key {
            "id" => said(cursor, &mut id),
            "function" if cursor.begins() == Begins::Object => cursor
                .object(|cursor, member| match &*member.key {
                    "name" => said(cursor, &mut name),
                    "arguments" => cursor.string_or_null().map(|spot| arguments = spot),
                    _ => cursor.skip().map(|_| ()),
                })
                .map(|_| ()),
            _ => cursor.skip().map(|_| ()),
        })?;
        let call = self.call(index, &id)?;
        if call.call.name.is_empty() {
            call.call.name = name;
        } else if !name.is_empty() && call.call.name != name {
            return Err(ReplyError::ToolIndexConflict(call.index));
        }
        if let Some(spot) = arguments {
            string::decode_onto(text, spot, &mut call.call.arguments, &mut call.pending)?;
        }
        Ok(())
    }

    fn call(&mut self, index: Option<u64>, id: &str) -> Result<&mut Call, ReplyError> {
        let wanted = index.unwrap_or_default();
        if index.is_none() && self.calls.len() > 1 {
            return Err(ReplyError::ToolIndexConflict(wanted));
        }
        let place = match self.calls.iter().position(|call| call.index == wanted) {
            Some(place) => place,
            None if self.calls.len() < CALLS_MAX => {
                self.calls.push(Call { index: wanted, ..Call::default() });
                self.calls.len() - 1
            }
            None => return Err(ReplyError::TooMany),
        };
        let call = self.calls.get_mut(place).ok_or(ReplyError::ToolIndexConflict(wanted))?;
        if call.call.id.is_empty() {
            call.call.id = id.to_owned();
        } else if !id.is_empty() && call.call.id != id {
            return Err(ReplyError::ToolIndexConflict(wanted));
        }
        Ok(call)
    }
}

impl Text {
    fn add(&mut self, cursor: &mut Cursor<'_>) -> Result<(), JsonFault> {
        let Some(spot) = cursor.string_or_null()? else { return Ok(()) };
        self.came = true;
        string::decode_onto(cursor.text(), spot, &mut self.said, &mut self.pending)
    }

    fn whole(self) -> Result<Option<String>, JsonFault> {
        if self.pending.is_waiting() {
            return Err(JsonFault::new(JsonFaultKind::LoneSurrogate, 0));
        }
        Ok(self.came.then_some(self.said))
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use serde_json::Value;

    use super::*;
    use crate::wire::sse::EventReader;

    fn collect(pieces: &[&[u8]]) -> Result<Collected, ReplyError> {
        let (mut reader, mut collector) = (EventReader::new(), Collector::default());
        for piece in pieces {
            reader.feed(piece, |data| collector.take(data))?;
        }
        reader.finish(|data| collector.take(data))?;
        collector.finish()
    }

    fn split<'a>(bytes: &'a [u8], given: &Value) -> Vec<&'a [u8]> {
        if given.get("every_byte").is_some() {
            return bytes.chunks(1).collect();
        }
        let cuts = given.get("split_at").and_then(Value::as_array);
        let mut cuts: Vec<usize> = cuts.into_iter().flatten().map(|cut| cut.as_u64().unwrap() as usize).collect();
        cuts.insert(0, 0);
        cuts.push(bytes.len());
        cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
    }

    /// Every case of `tests/cases/stream.jsonl`, as far as reading the stream goes; what is then judged
    /// is tested with the judge.
    #[test]
    fn every_case_of_the_stream_file() {
        for line in include_str!("../../../tests/cases/stream.jsonl").lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let (given, expect) = (&case["given"], &case["expect"]);
            let bytes = match given["sse"].as_str() {
                Some(text) => text.as_bytes().to_vec(),
                None => base64::engine::general_purpose::STANDARD.decode(given["sse_b64"].as_str().unwrap()).unwrap(),
            };
            for pieces in [split(&bytes, given), bytes.chunks(1).collect(), vec![&bytes[..]]] {
                let collected = collect(&pieces);
                if expect.get("error").is_some() {
                    assert!(collected.is_err(), "{}", case["id"]);
                    continue;
                }
                let collected = collected.unwrap_or_else(|error| panic!("{}: {error}", case["id"]));
                let choice = &collected.reply.choices[0];
                assert_eq!(
                    choice.content.as_deref().unwrap_or_default(),
                    expect["content"].as_str().unwrap(),
                    "{}",
                    case["id"]
                );
                let finish = choice.finish.as_ref().unwrap().as_str();
                assert_eq!(finish, expect["finish_reason"].as_str().unwrap(), "{}", case["id"]);
                assert_eq!(choice.refusal.as_deref(), expect.get("refusal").and_then(Value::as_str), "{}", case["id"]);
                assert_eq!(choice.reasoned, expect.get("reasoning").is_some(), "{}", case["id"]);
                let calls: Vec<Value> = (choice.tool_calls.iter())
                    .map(|call| serde_json::json!({"id": call.id, "name": call.name, "arguments": call.arguments}))
                    .collect();
                let expected = expect.get("tool_calls").and_then(Value::as_array).cloned().unwrap_or_default();
                assert_eq!(calls, expected, "{}", case["id"]);
                for (index, wanted) in expect.get("choices").and_then(Value::as_object).into_iter().flatten() {
                    let choice = &collected.reply.choices[index.parse::<usize>().unwrap()];
                    assert_eq!(choice.content.as_deref(), wanted["content"].as_str(), "{}", case["id"]);
                }
                if let Some(usage) = expect.get("usage") {
                    let read: Value = serde_json::from_str(collected.usage.as_deref().unwrap()).unwrap();
                    assert_eq!(&read, usage, "{}", case["id"]);
                }
            }
        }
    }

    #[test]
    fn a_stream_without_a_finish_reason_is_unfinished() {
        let cut = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"{}\"}}]}\n\ndata: [DONE]\n\n";
        assert_eq!(collect(&[cut]).unwrap_err(), ReplyError::Unfinished);
        assert_eq!(collect(&[b"data: [DONE]\n\n"]).unwrap_err(), ReplyError::Unfinished);
        assert_eq!(collect(&[b""]).unwrap_err(), ReplyError::Unfinished);
    }

    #[test]
    fn a_second_finish_reason_takes_nothing_back() {
        let chunk = |finish: &str| {
            format!(
                "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"1\"}},\"finish_reason\":\"{finish}\"}}]}}\n\n"
            )
        };
        let stream = format!("{}{}", chunk("length"), chunk("stop"));
        assert_eq!(collect(&[stream.as_bytes()]).unwrap_err(), ReplyError::TwoFinishes);
        let twice = format!("{}{}", chunk("stop"), chunk("stop"));
        assert!(collect(&[twice.as_bytes()]).is_ok());
    }

    #[test]
    fn what_chunks_repeat_is_small() {
        let long = "z".repeat(10_000);
        let stream = format!(
            "data: {{\"id\":\"{long}\",\"model\":\"m\",\"created\":{{}},\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}\n\n"
        );
        let collected = collect(&[stream.as_bytes()]).unwrap();
        assert_eq!(collected.envelope.members().collect::<Vec<_>>(), [("model", "\"m\"")]);
    }

    #[test]
    fn two_calls_without_an_index_are_a_conflict() {
        let chunk = |id: &str| {
            format!(
                "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"id\":\"{id}\",\"function\":{{\"name\":\"f\"}}}}]}}}}]}}\n\n"
            )
        };
        let stream = format!("{}{}", chunk("a"), chunk("b"));
        assert_eq!(collect(&[stream.as_bytes()]).unwrap_err(), ReplyError::ToolIndexConflict(0));
    }

    #[test]
    fn the_envelope_is_that_of_the_first_chunk() {
        let stream = b"data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"x\":[1],\"usage\":null,\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
        let collected = collect(&[stream]).unwrap();
        let keys: Vec<_> = collected.envelope.members().map(|(key, text)| format!("{key}={text}")).collect();
        assert_eq!(keys, ["id=\"c\"", "created=1", "model=\"m\""]);
        assert_eq!(collected.usage, None);
    }
}
