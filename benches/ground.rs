//! A grounded answer: an invoice of 4 KB with 40 quotes against a source of 100 KB. Preparing the source runs while the
//! upstream call does; what follows the last byte, provenance and sums together, may take 60 us.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // a benchmark that cannot be set up must not run

use std::fmt::Write as _;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use criterion::Criterion;
use criterion::criterion_group;
use criterion::criterion_main;
use portcullis::contract::PolicyContract;
use portcullis::contract::fold::Folds;
use portcullis::contract::gate;
use portcullis::contract::gate::Build;
use portcullis::contract::gate::GateEntry;
use portcullis::contract::gate::Presence;
use portcullis::contract::ground::Ground;
use portcullis::contract::scene::Answer;
use portcullis::contract::scene::Call;
use portcullis::contract::scene::Evidence;
use portcullis::contract::scene::Scene;
use portcullis::contract::source::Region;
use portcullis::contract::source::Searches;
use portcullis::contract::source::Source;
use portcullis::contract::verdict::Action;
use portcullis::json::decimal::Decimal;
use portcullis::json::query::Query;
use portcullis::json::tree;

const LINES: usize = 19;

/// Pages of correspondence around one bill, as an extractor leaves them.
fn pages() -> Vec<Arc<str>> {
    let prose = "Office supplies, \u{201c}as agreed\u{201d}, were de-\nlivered to the fourth \u{fb02}oor on 3 April 2025 for EUR 1,204.50 or less,   \
        and order 4711-22 was returned (12.00) without any deduction.\n";
    let mut bill =
        "Invoice no INV-7\nInvoice date            4 April 2025\nDue date                4 May 2025\n".to_owned();
    for line in 0..LINES {
        writeln!(bill, "Item number {line}, of the \u{fb01}rst kind          {}.{:02}", 1_000 + 37 * line, line)
            .unwrap();
    }
    let total: usize = (0..LINES).map(|line| (1_000 + 37 * line) * 100 + line).sum();
    writeln!(
        bill,
        "Subtotal     {}.{:02}\nAmount due     {}.{:02}",
        total / 100,
        total % 100,
        total / 100,
        total % 100
    )
    .unwrap();
    let filler = prose.repeat(16_000 / prose.len());
    [&filler, &filler, &filler, &bill, &filler, &filler, &filler].map(|page| Arc::from(page.as_str())).into()
}

fn answer() -> String {
    let evidence =
        |value: &str, text: &str| format!(r#"{{"value": {value}, "source_span": {{"page": 4, "text": "{text}"}}}}"#);
    let lines = (0..LINES).map(|line| {
        let amount = format!("{}.{line:02}", 1_000 + 37 * line);
        let name = format!("Item number {line}, of the first kind");
        format!(
            r#"{{"description": {}, "amount": {}}}"#,
            evidence(&format!("\"{name}\""), &name),
            evidence(&amount, &amount)
        )
    });
    let lines: Vec<String> = lines.collect();
    let total: usize = (0..LINES).map(|line| (1_000 + 37 * line) * 100 + line).sum();
    let total = format!("{}.{:02}", total / 100, total % 100);
    format!(
        r#"{{"due_date": {}, "lines": [{}], "subtotal": {}}}"#,
        evidence("\"2025-05-04\"", "Due date 4 May 2025"),
        lines.join(","),
        evidence(&total, &format!("Subtotal {total}"))
    )
}

fn contract() -> PolicyContract {
    let path = |text: &str| Query::read(text).unwrap();
    let evidence =
        Evidence { value: path("$.value"), quote: path("$.source_span.text"), page: path("$.source_span.page") };
    let bill = Region::read("(?i)^invoice no", "(?i)^amount due", NonZeroUsize::new(1)).unwrap();
    let mut contract = PolicyContract {
        evidence: Some(evidence),
        folds: Folds::named(["whitespace", "typography"]).unwrap(),
        regions: [(Arc::from("bill"), bill)].into(),
        ..PolicyContract::default()
    };
    for (kind, settings) in [
        (
            "provenance",
            r#"{"provenance": ["$.subtotal", "$.due_date", "$.lines[*].amount", "$.lines[*].description"], "within": "bill",
                "numbers_match_quotes": {"locale": "en", "dates": "day_first"}}"#,
        ),
        ("math", r#"{"sum": "$.lines[*].amount", "equals": "$.subtotal", "tolerance": "printed"}"#),
    ] {
        let kind = gate::KINDS.iter().find(|known| known.name == kind).unwrap();
        let build = Build { contract: &contract, presence: Presence::default(), each: None };
        let gate = (kind.build)(&tree::parse(settings).unwrap(), &build).unwrap();
        let (name, declared, needs) = (kind.name.into(), "policy.yaml:1".into(), Vec::new());
        contract.gates.push(GateEntry {
            name,
            kind: kind.name,
            declared,
            action: Action::Reject,
            needs,
            when: None,
            say: None,
            gate,
        });
    }
    contract
}

fn ground(criterion: &mut Criterion) {
    let (contract, pages, text, call) = (contract(), pages(), answer(), Call::default());
    let needs = contract.needs();
    let ground = Ground { source: Source::new(pages.clone(), needs), ..Ground::default() };
    let answer = Answer::read(&text).unwrap();
    let scene = Scene { answer: &answer, contract: &contract, ground: &ground, call: &call, schemas: &[] };
    assert_eq!(gate::run(&scene).violations, []);

    let mut group = criterion.benchmark_group("ground");
    group.bench_function("prepare 100 KB", |bencher| bencher.iter(|| Source::new(black_box(pages.clone()), needs)));
    // What one answer may have searched is bounded, so each run reads it anew.
    group.bench_function("judge 40 quotes", |bencher| {
        bencher.iter(|| {
            let answer = Answer::read(black_box(&text)).unwrap();
            gate::run(&Scene { answer: &answer, ..scene }).total
        });
    });
    let folds = contract.folds;
    group.bench_function("find a quote", |bencher| {
        bencher.iter(|| {
            ground
                .source
                .find(folds, Some(4), black_box("Item number 7, of the first kind"), &Searches::default())
                .is_some()
        });
    });
    group.bench_function("find none", |bencher| {
        bencher.iter(|| {
            ground
                .source
                .find(folds, Some(4), black_box("Office number 7, of the first kind"), &Searches::default())
                .is_none()
        });
    });
    group.bench_function("read a decimal", |bencher| bencher.iter(|| Decimal::read(black_box("1204.50")).is_ok()));
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(50).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = ground
}
criterion_main!(benches);
