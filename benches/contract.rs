//! What follows the last byte under a whole policy: extraction, schema and every gate of `invoices`, on an answer of 4 KB
//! with 39 quotes against a source of 100 KB that was prepared while the upstream call ran. It may take 60 us. And the
//! work of `golden` a record, for `tickets`: 60,000 a second on one core.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // a benchmark that cannot be set up must not run

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use criterion::Criterion;
use criterion::Throughput;
use criterion::criterion_group;
use criterion::criterion_main;
use portcullis::api::ingress::chat::ChatRequest;
use portcullis::api::reply::Choice;
use portcullis::api::reply::Finish;
use portcullis::api::reply::Reply;
use portcullis::config::policy::bundle::Files;
use portcullis::config::policy::load;
use portcullis::contract::Contract;
use portcullis::contract::Subject;
use portcullis::contract::ground::LazyGround;
use portcullis::exchange::recorded::Judge;
use portcullis::exchange::recorded::Recorded;
use portcullis::policy::Policy;
use portcullis::settings::SchemaLimits;
use portcullis::stage::bind::Bound;
use portcullis::stage::judge;
use portcullis::stage::judge::Known;
use portcullis::stage::judge::Verdict;
use portcullis::stage::plan;
use portcullis::stage::plan::Schemas;
use serde_json::json;

const LINES: usize = 8;

fn policy(name: &str) -> Arc<Policy> {
    let files = Files::folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("policies").join(name)).unwrap();
    load(&files, SchemaLimits::default()).map_err(|errors| errors.to_string()).unwrap().policy.into()
}

fn amount(line: usize) -> usize {
    (line + 1) * (1_200 + 37 * line)
}

fn money(cents: usize) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

fn bill() -> String {
    let mut bill =
        "Invoice no INV-7\nInvoice date     4 April 2025\nDue date     04/05/2025\nAll amounts in EUR\n\n".to_owned();
    for line in 0..LINES {
        let (price, amount) = (money(1_200 + 37 * line), money(amount(line)));
        writeln!(bill, "Item {line}, of the \u{fb01}rst kind     {}     {price}     {amount}", line + 1).unwrap();
    }
    let sum = (0..LINES).map(amount).sum::<usize>();
    let tax = sum / 5;
    let (subtotal, total) = (money(sum), money(sum + tax));
    writeln!(bill, "\nSubtotal     {subtotal}\nVAT 20%     {}\nTotal     {total}\nAmount due     {total}", money(tax))
        .unwrap();
    bill
}

/// Correspondence around the bill, as an extractor leaves it: on pages of its own, or all on one.
fn pages(is_one: bool) -> Vec<Arc<str>> {
    let prose = "Office supplies, \u{201c}as agreed\u{201d}, were de-\nlivered to the fourth \u{fb02}oor on 3 April 2025 for EUR 1,204.50 or less,   \
        and 1 order, 4711-22, of 2 was returned (12.00) without any deduction.\n";
    let (filler, bill) = (prose.repeat(16_000 / prose.len()), bill());
    let pages = [&filler, &filler, &filler, &bill, &filler, &filler, &filler].map(String::as_str);
    if is_one { vec![pages.concat().into()] } else { pages.map(Arc::from).into() }
}

fn answer(page: usize) -> String {
    let quoted = |value: &str, text: &str| {
        format!(r#"{{"value": {value}, "source_span": {{"page": {page}, "text": "{text}"}}}}"#)
    };
    let text = |value: &str, text: &str| quoted(&format!("\"{value}\""), text);
    let same = |value: &str| quoted(value, value);
    let lines = (0..LINES).map(|line| {
        let name = format!("Item {line}, of the first kind");
        let (count, price) = (same(&(line + 1).to_string()), same(&money(1_200 + 37 * line)));
        let (name, amount) = (text(&name, &name), same(&money(amount(line))));
        format!(r#"{{"description": {name}, "quantity": {count}, "unit_price": {price}, "amount": {amount}}}"#)
    });
    let lines: Vec<String> = lines.collect();
    let sum = (0..LINES).map(amount).sum::<usize>();
    let (subtotal, tax, total) = (money(sum), money(sum / 5), money(sum + sum / 5));
    format!(
        r#"{{"invoice_number": {}, "invoice_date": {}, "due_date": {}, "currency": {}, "lines": [{}], "subtotal": {}, "tax": {}, "total": {}}}"#,
        text("INV-7", "Invoice no INV-7"),
        text("2025-04-04", "4 April 2025"),
        text("2025-05-04", "Due date 04/05/2025"),
        text("EUR", "EUR"),
        lines.join(", "),
        quoted(&subtotal, &format!("Subtotal {subtotal}")),
        same(&tax),
        quoted(&total, &format!("Total {total}")),
    )
}

/// The contract of a request that brings these pages.
fn contract(policy: &Arc<Policy>, pages: &[Arc<str>]) -> Contract {
    let request = json!({"model": "invoice-m", "messages": [], "portcullis": {"source": pages.iter().map(|p| &**p).collect::<Vec<_>>()}});
    let request = ChatRequest::read(request.to_string().into()).unwrap();
    let bound = [Bound { policy: Arc::clone(policy), subject: Subject::Content }];
    plan::contract(&request, Schemas::default(), &bound).unwrap()
}

/// The answers of the controls, as records of a set.
fn records(name: &str) -> Vec<Recorded> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies").join(name).join("controls.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let records = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let records = records.filter(|record| record["source"].is_array()).map(|record| {
        let pages = record["source"].as_array().unwrap().iter().map(|page| Arc::from(page.as_str().unwrap()));
        Recorded { source: Some(pages.collect()), ..Recorded::text(record["output"].as_str().unwrap()) }
    });
    records.collect()
}

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("contract");
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(3));
    let invoices = policy("invoices");
    for (name, is_one, page) in [("invoice of 4 KB, 7 pages", false, 4), ("invoice of 4 KB, 1 page", true, 1)] {
        let (pages, answer) = (pages(is_one), answer(page));
        let choice = Choice { content: Some(answer), finish: Some(Finish::Stop), ..Choice::default() };
        let (contract, reply) = (contract(&invoices, &pages), Reply { choices: vec![choice], usage: None });
        let known = Known::nothing();
        let judged = judge::judge(&contract, &reply, &[], &known);
        assert!(matches!(judged.verdict, Verdict::Accept(_)), "{:?}", judged.verdict);
        group.bench_function(name, |b| {
            b.iter(|| judge::judge(black_box(&contract), &reply, &[], &known).gates.len());
        });
        group.bench_function(format!("{name}: prepare"), |b| {
            let ground = || LazyGround::new(Arc::clone(&invoices.contract), pages.clone(), pages.clone());
            b.iter(|| ground().get().source.pages().len());
        });
    }

    let records = records("tickets");
    let judge = Judge::by_policy(policy("tickets"), SchemaLimits::default()).unwrap();
    group.throughput(Throughput::Elements(records.len() as u64));
    group.bench_function("tickets", |b| {
        b.iter(|| records.iter().map(|record| judge.judge(record.clone()).is_ok()).filter(|judged| *judged).count());
    });
}

criterion_group!(all, benches);
criterion_main!(all);
