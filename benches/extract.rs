//! Cutting JSON out of text: bytes a second. At least 1 GB/s is wanted on prose around one object and 250 MB/s on dense
//! JSON; the rest are inputs made to be slow, which must stay linear.

use std::hint::black_box;
use std::time::Duration;

use criterion::Criterion;
use criterion::Throughput;
use criterion::criterion_group;
use criterion::criterion_main;
use portcullis::extraction::Admits;
use portcullis::extraction::Mode;
use portcullis::extraction::Wanted;
use portcullis::extraction::extract;

const SIZE: usize = 1 << 20;
const ANSWER: &str = include_str!("data/answer.json");

fn inputs() -> Vec<(&'static str, String)> {
    let filled = |with: &str| with.repeat(SIZE / with.len());
    let prose =
        "The quarter went well, as the board will see below; growth was driven by renewals (and a little luck).\n";
    let half = prose.repeat(SIZE / 2 / prose.len());
    let list = |item: &str| format!("[{}{item}]", format!("{item},").repeat(SIZE / (item.len() + 1)));
    vec![
        ("prose_around_one_object", format!("{half}{ANSWER}\n{half}")),
        ("fenced_in_prose", format!("{half}```json\n{ANSWER}\n```\n{half}")),
        ("dense_answers", list(ANSWER)),
        ("dense_numbers", list(r#"{"a":1.5,"b":[1,23,456],"c":-7e2}"#)),
        ("dense_short_strings", list(r#"{"k":"v","x":["a","b","c"],"y":true}"#)),
        ("long_strings", list(&format!("\"{}\"", prose.trim_end().repeat(10)))),
        ("escapes", list(r#""\n\u00e9\"\\\ud83d\ude80 x""#)),
        (
            "distinct_keys",
            format!("{{{}\"z\":1}}", (0..SIZE / 14).map(|i| format!("\"{i:09}\":1,")).collect::<String>()),
        ),
        ("open_brackets", filled("[")),
        ("open_objects", filled("{\"a\":")),
        ("braces_that_are_prose", filled("{x ")),
        ("openers_and_white_space", filled("[   ")),
        ("unbalanced_quotes", filled("{\"")),
        ("backslashes", format!("{{\"{}", filled("\\"))),
        ("backticks", filled("`")),
        ("fence_lines", filled("```\n")),
        ("tilde_and_backtick_fences", filled("```json\n~~~\n")),
        ("small_equal_regions", filled("{\"a\":1} ")),
        ("bare_words", format!("{{{}", filled("a"))),
        ("digits", format!("[{}", filled("1"))),
        ("think_openers", filled("<think>")),
    ]
}

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("extract");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1)).sample_size(20);
    for (name, text) in inputs() {
        group.throughput(Throughput::Bytes(text.len() as u64));
        let wanted = Wanted { admits: Admits::OBJECT, mode: Mode::Ladder, reasoning: &[] };
        group.bench_function(name, |b| b.iter(|| extract(black_box(&text), wanted)));
    }
}

criterion_group!(all, benches);
criterion_main!(all);
