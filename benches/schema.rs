//! Schemas: compiled once, then found by their digest.
#![allow(clippy::unwrap_used)] // a benchmark that cannot be set up must not run

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use criterion::Criterion;
use criterion::criterion_group;
use criterion::criterion_main;
use portcullis::contract::schema::CompiledSchema;
use portcullis::digest::Digest;
use portcullis::exchange::schemas::SchemaCache;
use portcullis::settings::SchemaLimits;

const SMALL: &[u8] = include_bytes!("data/schema.json");
const LARGE: &[u8] = include_bytes!("../tests/schemas/statement.schema.json");

fn benches(c: &mut Criterion) {
    let limits = SchemaLimits::default();
    let mut group = c.benchmark_group("schema");
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    for (name, text) in [("850_bytes", SMALL), ("statement", LARGE)] {
        let text = Bytes::from_static(text);
        group.bench_function(format!("compile/{name}"), |b| {
            b.iter(|| CompiledSchema::compile(black_box(text.clone()), limits));
        });
        group.bench_function(format!("digest/{name}"), |b| b.iter(|| Digest::of(black_box(&text))));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let cache = SchemaCache::new(limits);
        group.bench_function(format!("cache_hit/{name}"), |b| {
            b.iter(|| runtime.block_on(cache.compiled(black_box(text.clone()))));
        });
    }
}

criterion_group!(all, benches);
criterion_main!(all);
