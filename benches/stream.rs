//! A held stream: parsing and collecting 63 events of 250 B, per event. At most 0.6 us are wanted.
#![allow(clippy::indexing_slicing)] // a benchmark of nonsense must not run

use std::hint::black_box;
use std::time::Duration;

use criterion::Criterion;
use criterion::Throughput;
use criterion::criterion_group;
use criterion::criterion_main;
use portcullis::api::backend::openai_stream::Collected;
use portcullis::api::backend::openai_stream::Collector;
use portcullis::api::reply::ReplyError;
use portcullis::wire::sse::EventReader;

const ANSWER: &str = include_str!("data/answer.json");
const CONTENT_EVENTS: usize = 60;

/// The stream of the mock upstream: a role event, 60 content events, the stop event and `[DONE]`.
fn events() -> Vec<Vec<u8>> {
    let event = |delta: &str, finish: &str| {
        format!(
            "data: {{\"id\":\"chatcmpl-mock00000000000000000000\",\"object\":\"chat.completion.chunk\",\"created\":1764500000,\
             \"model\":\"mock-model\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_mock\",\
             \"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\"finish_reason\":{finish}}}]}}\n\n"
        )
        .into_bytes()
    };
    let content = (0..CONTENT_EVENTS).map(|i| {
        let piece = &ANSWER[ANSWER.len() * i / CONTENT_EVENTS..ANSWER.len() * (i + 1) / CONTENT_EVENTS];
        event(&format!("{{\"content\":\"{}\"}}", piece.replace('"', "\\\"")), "null")
    });
    let first = event(r#"{"role":"assistant","content":"","refusal":null}"#, "null");
    let last = [event("{}", "\"stop\""), b"data: [DONE]\n\n".to_vec()];
    std::iter::once(first).chain(content).chain(last).collect()
}

fn collect(pieces: &[impl AsRef<[u8]>]) -> Result<Collected, ReplyError> {
    let (mut reader, mut collector) = (EventReader::new(), Collector::default());
    for piece in pieces {
        reader.feed(piece.as_ref(), |data| collector.take(data))?;
    }
    reader.finish(|data| collector.take(data))?;
    collector.finish()
}

fn benches(c: &mut Criterion) {
    let events = events();
    let whole = events.concat();
    let bytes: Vec<&[u8]> = whole.chunks(97).collect();
    assert!(collect(&events).is_ok_and(|collected| collected.reply.choices[0].content.as_deref() == Some(ANSWER)));

    // The figure per element is the one per event.
    let mut group = c.benchmark_group("stream");
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    group.throughput(Throughput::Elements(events.len() as u64));
    group.bench_function("an_event_a_read", |b| b.iter(|| collect(black_box(&events))));
    group.bench_function("all_in_one_read", |b| b.iter(|| collect(black_box(&[&whole]))));
    group.bench_function("reads_of_97_bytes", |b| b.iter(|| collect(black_box(&bytes))));
    group.bench_function("parse_alone", |b| {
        b.iter(|| {
            let (mut reader, mut seen) = (EventReader::new(), 0);
            for piece in black_box(&events) {
                let _ = reader.feed(piece, |data| {
                    seen += data.len();
                    Ok::<(), ()>(())
                });
            }
            seen
        });
    });
}

criterion_group!(all, benches);
criterion_main!(all);
