//! A rule over twenty items: `items.all(i, i.sku in data.menu)`, from the answer's tape on. The tables are converted when
//! the policy is loaded, so they are not part of it.
#![allow(clippy::unwrap_used)] // a benchmark that cannot be set up must not run

use std::hint::black_box;

use criterion::Criterion;
use criterion::criterion_group;
use criterion::criterion_main;
use portcullis::contract::rule::Bindings;
use portcullis::contract::rule::Known;
use portcullis::contract::rule::Rule;
use portcullis::contract::rule::RuleValue;
use portcullis::contract::rule::Variable;
use portcullis::json::tape::Tape;
use serde_json::Value;
use serde_json::json;

fn rules(criterion: &mut Criterion) {
    let items: Vec<Value> =
        (0..20).map(|i| json!({"sku": format!("SKU-{i}"), "size": "M", "count": i, "price": 9.5})).collect();
    let menu = (0..1000).map(|i| (format!("SKU-{i}"), json!({"sizes": ["S", "M"], "price": 9.5})));
    let answer = json!({"items": items, "total": 190.00}).to_string();
    let data = RuleValue::from_json(&json!({"menu": menu.collect::<serde_json::Map<_, _>>()}));
    let known = Known::new(Vec::<String>::new(), vec!["menu".to_owned()]);
    let tape = Tape::of(&answer).unwrap();
    for (name, source) in [
        ("member", "output.items.all(i, i.sku in data.menu)"),
        ("lookup", "output.items.all(i, i.size in data.menu[i.sku].sizes)"),
        ("sum", "output.items.map(i, i.price).sum() == output.total"),
        ("compare", "output.total == 190"),
    ] {
        let rule = Rule::compile(source, &known).unwrap();
        let held = |tape: &Tape<'_>| {
            let output = RuleValue::from_place(tape.root());
            let bindings = Bindings::new().with(Variable::Output, output).with(Variable::Data, data.clone());
            rule.holds(&bindings).unwrap()
        };
        assert!(held(&tape), "{source}");
        criterion.bench_function(&format!("rule/{name}"), |bencher| bencher.iter(|| held(black_box(&tape))));
    }
    criterion.bench_function("rule/load", |bencher| {
        bencher.iter(|| Rule::compile(black_box("output.items.all(i, i.sku in data.menu)"), &known));
    });
}

criterion_group!(benches, rules);
criterion_main!(benches);
