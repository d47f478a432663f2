//! Any bytes as a backend's whole answer: edited for each outcome it stays JSON that says what was judged, and
//! streamed it says the same.
#![no_main]

use std::ops::Range;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use portcullis::api::backend::openai;
use portcullis::api::backend::openai_stream::Collector;
use portcullis::api::ingress::chat_answer::{self, Instead};
use portcullis::api::reply::Passed;
use portcullis::wire::sse::EventReader;
use serde::de::IgnoredAny;

fuzz_target!(|body: &[u8]| {
    let body = Bytes::copy_from_slice(body);
    let Ok(whole) = openai::read(&body) else { return };
    serde_json::from_slice::<IgnoredAny>(&body).expect("another parser agrees on the grammar");

    // Cuts that differ from choice to choice, on character borders.
    let cut = |(index, content): (usize, &Option<String>)| -> Option<Range<usize>> {
        let content = content.as_ref()?;
        let border = |at: usize| (0..=at).rev().find(|at| content.is_char_boundary(*at)).unwrap_or(0);
        let (start, end) = (border(content.len() * (index % 3) / 4), border(content.len() * (4 - index % 2) / 4));
        (index % 5 != 4).then(|| start.min(end)..end)
    };
    for slices in [
        whole.reply.choices.iter().map(|choice| &choice.content).enumerate().map(cut).collect(),
        whole
            .reply
            .choices
            .iter()
            .map(|choice| &choice.content)
            .enumerate()
            .map(|(index, content)| cut((index + 1, content)))
            .collect(),
        vec![None; whole.reply.choices.len()],
    ] {
        let slices: Vec<Option<Range<usize>>> = slices;
        let parts: Vec<Passed> =
            slices.iter().map(|slice| Passed { slice: slice.clone(), ..Passed::default() }).collect();
        let out = chat_answer::accepted(&body, &whole, &parts, None).expect("edits never overlap").concat();
        serde_json::from_slice::<IgnoredAny>(&out).expect("the result is JSON");
        let again = openai::read(&out).expect("the result is an answer");
        let mut expected = whole.reply.clone();
        for (choice, slice) in expected.choices.iter_mut().zip(&slices) {
            if let (Some(content), Some(slice)) = (&mut choice.content, slice) {
                *content = content[slice.clone()].to_owned();
            }
        }
        assert_eq!(again.reply, expected, "only the content is cut");

        let collected = chat_answer::as_collected(&body, openai::read(&body).expect("it was read before"));
        let stream = chat_answer::accepted_events(&collected, &parts, true, None);
        let streamed = collect(&stream);
        let mut indices: Vec<u64> = expected.choices.iter().map(|choice| choice.index).collect();
        let calls = expected.choices.iter().map(|choice| choice.tool_calls.len()).max();
        if indices.len() > 128 || calls > Some(256) || !indices.is_sorted() {
            continue; // beyond the bounds of a stream, or in another order
        }
        indices.dedup();
        if indices.len() == expected.choices.len() {
            for (streamed, expected) in streamed.expect("a stream of our own is sound").iter().zip(&expected.choices) {
                assert_eq!(
                    streamed.content.as_deref().unwrap_or_default(),
                    expected.content.as_deref().unwrap_or_default()
                );
                assert_eq!(streamed.tool_calls, expected.tool_calls);
            }
        }
    }
    let told = r#"{"outcome":"clarified"}"#;
    for instead in [
        Instead::Said("I \"won't\""),
        Instead::Filtered,
        Instead::Asked("Which \"size\"?", told),
        Instead::Object(r#"{"status":"needs_clarification"}"#, told),
    ] {
        let out = chat_answer::instead(&body, &whole, instead, Some("{}")).expect("edits never overlap").concat();
        serde_json::from_slice::<IgnoredAny>(&out).expect("the result is JSON");
        let again = openai::read(&out).expect("the result is an answer");
        for choice in &again.reply.choices {
            let content = match instead {
                Instead::Object(object, _) => Some(object),
                _ => None,
            };
            assert_eq!(choice.content.as_deref(), content, "no text of the model's is left");
            assert!(choice.tool_calls.is_empty() && !choice.reasoned, "nothing of the model's is left beside it");
            if let Instead::Asked(words, _) = instead {
                assert_eq!(choice.refusal.as_deref(), Some(words), "the question is there");
            }
        }
        let collected = chat_answer::as_collected(&body, openai::read(&body).expect("it was read before"));
        let _ = collect(&chat_answer::instead_events(&collected, instead, true, None));
    }
});

fn collect(stream: &[u8]) -> Result<Vec<portcullis::api::reply::Choice>, portcullis::api::reply::ReplyError> {
    let (mut reader, mut collector) = (EventReader::new(), Collector::default());
    reader.feed(stream, |data| {
        assert!(data == b"[DONE]" || serde_json::from_slice::<IgnoredAny>(data).is_ok(), "an event is JSON");
        collector.take(data)
    })?;
    reader.finish(|data| collector.take(data))?;
    assert!(collector.is_done());
    collector.finish().map(|collected| collected.reply.choices)
}
