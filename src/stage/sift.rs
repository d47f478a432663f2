//! A stream whose text is bound by nothing while its tool calls are: text goes on as it comes, every tool
//! call is held until it is whole and judged.

use crate::api::backend::openai_stream::Collected;
use crate::api::backend::openai_stream::Collector;
use crate::api::ingress::chat_answer;
use crate::api::ingress::chat_answer::Instead;
use crate::api::reply::Reply;
use crate::api::reply::ReplyError;
use crate::api::reply::Usage;
use crate::contract::Contract;
use crate::dialect::table::ReasoningTag;
use crate::stage::judge;
use crate::stage::judge::Judgement;
use crate::stage::judge::Known;
use crate::wire::sse::EventReader;

/// A stream under way.
#[derive(Debug)]
pub struct Sift {
    reader: EventReader,
    collector: Collector,
    released: Vec<Released>,
    include_usage: bool,
}

/// What has gone on of one choice.
#[derive(Debug)]
struct Released {
    index: u64,
    /// Bytes of its content, and of its refusal.
    bytes: [usize; 2],
}

/// How a stream ended: what its calls came to, and the events that end it.
#[derive(Debug)]
pub struct Ended {
    /// The verdict on the whole reply, and what was seen on the way to it.
    pub judgement: Judgement,
    /// What policies that only watch would have made of it, where there are any.
    pub watched: Option<Judgement>,
    /// The reply, and what of it has gone on.
    pub collected: Sieved,
    /// The events to send where the verdict lets them go: calls, finish, usage, `[DONE]`.
    pub events: Vec<u8>,
    /// The same without the calls, for a refusal.
    pub without_calls: Vec<u8>,
}

/// What the reply is judged by when its stream has ended.
#[derive(Clone, Debug, Default)]
pub struct Judges {
    /// What it must satisfy.
    pub contract: Contract,
    /// What policies that only watch would have demanded.
    pub watch: Option<Contract>,
    /// Which tags the backend puts around reasoning.
    pub tags: Vec<ReasoningTag>,
}

/// A reply that has ended, with what of it has gone on.
#[derive(Debug)]
pub struct Sieved {
    collected: Collected,
    released: Vec<Released>,
    include_usage: bool,
}

impl Sieved {
    /// The reply.
    pub fn reply(&self) -> &Reply {
        &self.collected.reply
    }

    /// The events that end the stream where its calls do not go on.
    pub fn instead(&self, by: Instead<'_>) -> Vec<u8> {
        let started = |index: u64| self.released.iter().any(|choice| choice.index == index);
        chat_answer::closing_instead(&self.collected, started, by, self.include_usage)
    }
}

impl Sift {
    /// A stream at its start.
    pub fn new(include_usage: bool) -> Self {
        Self { reader: EventReader::new(), collector: Collector::default(), released: Vec::new(), include_usage }
    }

    /// Takes the next piece of the stream and appends to `out` what may go on.
    pub fn feed(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), ReplyError> {
        let (collector, released) = (&mut self.collector, &mut self.released);
        self.reader.feed(piece, |data| event(collector, released, data, out))
    }

    /// Whether `[DONE]` has come.
    pub fn is_done(&self) -> bool {
        self.collector.is_done()
    }

    /// The stream has ended: judges its calls. Text that was still held goes to `out`.
    pub fn finish(
        self,
        judges: &Judges,
        known: impl FnOnce(Option<Usage>) -> Known,
        out: &mut Vec<u8>,
    ) -> Result<Ended, ReplyError> {
        let (mut collector, mut released) = (self.collector, self.released);
        self.reader.finish(|data| event(&mut collector, &mut released, data, out))?;
        let collected = collector.finish()?;
        let (reply, known) = (&collected.reply, known(collected.reply.usage));
        let judgement = judge::judge(&judges.contract, reply, &judges.tags, &known);
        let watched = judges.watch.as_ref().map(|watch| judge::judge(watch, reply, &judges.tags, &known));
        let started = |index: u64| released.iter().any(|choice| choice.index == index);
        let events = chat_answer::closing_events(&collected, started, true, self.include_usage);
        let without_calls = chat_answer::closing_events(&collected, started, false, self.include_usage);
        let collected = Sieved { collected, released, include_usage: self.include_usage };
        Ok(Ended { judgement, watched, collected, events, without_calls })
    }
}

/// Takes one event. What is text goes on, in a chunk of the gateway's own: of a chunk that the backend wrote,
/// nothing can be passed on that was not understood. The rest is held.
fn event(
    collector: &mut Collector,
    released: &mut Vec<Released>,
    data: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), ReplyError> {
    collector.take(data)?;
    for (index, texts) in collector.texts() {
        let place = released.iter().position(|choice| choice.index == index);
        let before = place.and_then(|place| released.get(place)).map_or([0, 0], |choice| choice.bytes);
        let mut first = place.is_none();
        for ((key, text), before) in ["content", "refusal"].into_iter().zip(texts).zip(before) {
            let more = text.get(before..).unwrap_or_default();
            if !more.is_empty() {
                chat_answer::text_event(collector.envelope(), index, first, key, more, out);
                first = false;
            }
        }
        let bytes = texts.map(str::len);
        match place.and_then(|place| released.get_mut(place)) {
            Some(choice) => choice.bytes = bytes,
            None if bytes != [0, 0] => released.push(Released { index, bytes }),
            None => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::contract::ToolContract;
    use crate::stage::judge::Verdict;

    fn judges() -> Judges {
        let tools = vec![ToolContract { name: "f".into(), parameters: None, also: Vec::new(), bound: true }];
        Judges { contract: Contract { tools, ..Contract::default() }, ..Judges::default() }
    }

    fn chunk(delta: &str, finish: &str) -> String {
        format!(
            "data: {{\"id\":\"c\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
        )
    }

    fn stream(arguments: &str) -> String {
        [
            chunk(r#"{"role":"assistant","content":""}"#, "null"),
            chunk(r#"{"content":"Let me "}"#, "null"),
            chunk(r#"{"content":"look.","tool_calls":[{"index":0,"id":"t","type":"function","function":{"name":"f","arguments":""}}]}"#, "null"),
            chunk(&format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":"{arguments}"}}}}]}}"#), "null"),
            chunk("{}", "\"tool_calls\""),
            "data: [DONE]\n\n".to_owned(),
        ]
        .concat()
    }

    fn sifted(pieces: &[&[u8]]) -> (String, Ended) {
        let mut sift = Sift::new(false);
        let mut out = Vec::new();
        for piece in pieces {
            sift.feed(piece, &mut out).unwrap();
        }
        let ended = sift.finish(&judges(), |_| Known::nothing(), &mut out).unwrap();
        (String::from_utf8(out).unwrap(), ended)
    }

    fn read_back(events: &[u8]) -> Reply {
        let (mut reader, mut collector) = (EventReader::new(), Collector::default());
        reader.feed(events, |data| collector.take(data)).unwrap();
        reader.finish(|data| collector.take(data)).unwrap();
        collector.finish().unwrap().reply
    }

    #[test]
    fn text_goes_on_and_a_good_call_follows_whole() {
        let whole = stream(r#"{\"x\":1}"#);
        let (text, ended) = sifted(&[whole.as_bytes()]);
        assert!(text.contains("Let me ") && text.contains("look.") && !text.contains("tool_calls"), "{text}");
        assert!(matches!(ended.judgement.verdict, Verdict::Accept(_)));
        let all = [text.as_bytes(), &ended.events].concat();
        assert_eq!(read_back(&all), *ended.collected.reply());
        assert_eq!(*ended.collected.reply(), read_back(whole.as_bytes()));
    }

    #[test]
    fn a_bad_call_is_rejected_and_nothing_of_it_has_gone_on() {
        let (text, ended) = sifted(&[stream(r#"{\"x\":"#).as_bytes()]);
        assert!(matches!(ended.judgement.verdict, Verdict::Reject(_)));
        assert!(!text.contains("tool_calls") && text.contains("look."));
    }

    #[test]
    fn a_choice_that_only_calls_gets_its_role_with_the_call() {
        let whole = [
            chunk(r#"{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"t","function":{"name":"f","arguments":"{}"}}]}"#, "null"),
            chunk("{}", "\"tool_calls\""),
        ]
        .concat();
        let (text, ended) = sifted(&[whole.as_bytes()]);
        assert_eq!(text, "");
        assert!(String::from_utf8(ended.events).unwrap().contains(r#""role":"assistant""#));
    }

    proptest! {
        #[test]
        fn any_split_into_reads_gives_the_same(cuts in prop::collection::vec(0usize..700, 0..6)) {
            let whole = stream(r#"{\"x\":\"é\"}"#);
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= whole.len()).collect();
            cuts.extend([0, whole.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &whole.as_bytes()[pair[0]..pair[1]]).collect();
            let (text, ended) = sifted(&pieces);
            let (expected, whole_ended) = sifted(&[whole.as_bytes()]);
            prop_assert_eq!(text, expected);
            prop_assert_eq!(ended.events, whole_ended.events);
        }
    }
}
