//! A judged answer: the 850 B schema and the 616 B answer of the side-by-side benchmark. Extraction and schema gate
//! together may take 8 us; `exchange` is the whole way of a request but for the sockets.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // a benchmark that cannot be set up must not run

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use bytes::Bytes;
use criterion::Criterion;
use criterion::criterion_group;
use criterion::criterion_main;
use http::HeaderMap;
use http::HeaderValue;
use http::StatusCode;
use http::header;
use http_body_util::BodyExt as _;
use http_body_util::Full;
use portcullis::api::backend::openai;
use portcullis::api::ingress::chat::ChatRequest;
use portcullis::config;
use portcullis::contract::gate;
use portcullis::contract::schema::CompiledSchema;
use portcullis::exchange;
use portcullis::exchange::Gateway;
use portcullis::exchange::Incoming;
use portcullis::exchange::Out;
use portcullis::extraction;
use portcullis::extraction::Mode;
use portcullis::extraction::Wanted;
use portcullis::json::string;
use portcullis::policy::Policies;
use portcullis::record::Record;
use portcullis::settings::SchemaLimits;
use portcullis::stage::answer;
use portcullis::stage::answer::Came;
use portcullis::stage::authenticate::Caller;
use portcullis::stage::bind::Binding;
use portcullis::stage::judge;
use portcullis::stage::judge::Known;
use portcullis::stage::judge::Verdict;
use portcullis::stage::plan;
use portcullis::stage::plan::Schemas;
use portcullis::stage::send::Call;
use portcullis::stage::send::Upstream;
use portcullis::stage::send::UpstreamError;
use portcullis::stage::send::UpstreamReply;
use portcullis::stage::shape;
use tokio::runtime::Runtime;

const ANSWER: &str = include_str!("data/answer.json");
const SCHEMA: &str = include_str!("data/schema.json");

fn request() -> Bytes {
    let text = format!(
        r#"{{"model": "mock-model", "messages": [{{"role": "system", "content": "You are a careful financial analyst. Answer with JSON only."}}, {{"role": "user", "content": "Review the quarter and answer in JSON. "}}], "temperature": 0.2, "response_format": {{"type": "json_schema", "json_schema": {{"name": "review", "strict": true, "schema": {SCHEMA}}}}}}}"#
    );
    text.into()
}

/// The mock upstream's answer.
fn reply() -> Bytes {
    let content = String::from_utf8(string::quoted(ANSWER)).unwrap();
    let text = format!(
        r#"{{"id":"chatcmpl-mock00000000000000000000","object":"chat.completion","created":1764500000,"model":"mock-model","choices":[{{"index":0,"message":{{"role":"assistant","content":{content},"refusal":null,"annotations":[]}},"logprobs":null,"finish_reason":"stop"}}],"usage":{{"prompt_tokens":42,"completion_tokens":160,"total_tokens":202,"prompt_tokens_details":{{"cached_tokens":0,"audio_tokens":0}},"completion_tokens_details":{{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}},"service_tier":"default","system_fingerprint":"fp_mock"}}"#
    );
    text.into()
}

/// An upstream that answers at once.
struct Instantly(Bytes);

impl Upstream for Instantly {
    async fn send(&self, _: Call) -> Result<UpstreamReply, UpstreamError> {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let body = Box::pin(Full::new(self.0.clone()).map_err(|never| match never {}));
        Ok(UpstreamReply { status: StatusCode::OK, headers, body })
    }
}

fn gateway() -> Gateway<Instantly> {
    let text = "version: 1\nauth: {mode: none}\nbackends:\n  mock: {kind: openai, base_url: 'http://127.0.0.1:9100/v1', api_key: \"${env:KEY}\"}\nmodels:\n  '*': {targets: [{backend: mock}]}\n";
    let configuration = config::load_text("bench", text, Path::new(""), &|_| Some("sk-bench".into())).unwrap();
    Gateway::new(configuration.settings, configuration.catalog, Policies::default(), Instantly(reply()))
}

/// One request on its whole way, as the server takes it.
async fn exchanged(gateway: &Gateway<Instantly>, body: Bytes) -> usize {
    let mut record: Record = exchange::record("0".into(), "/v1/chat/completions");
    let incoming = Incoming {
        caller: Caller::Anyone,
        headers: HeaderMap::new(),
        held: gateway.held.take(body.len()).unwrap(),
        body,
        arrived: Instant::now(),
        time: jiff::Timestamp::UNIX_EPOCH,
    };
    let prepared = exchange::prepare(gateway, incoming, &mut record).await.map_err(|fault| fault.message).unwrap();
    match exchange::carry(gateway, &prepared, &mut record).await {
        Out::Held(answer) => answer.body.iter().map(Bytes::len).sum(),
        _ => 0,
    }
}

fn benches(c: &mut Criterion) {
    let (body, answer) = (request(), reply());
    let schema = Arc::new(CompiledSchema::compile(SCHEMA.into(), SchemaLimits::default()).unwrap());
    let mut group = c.benchmark_group("judge");
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));

    let extract = |text: &str| {
        let wanted = Wanted { admits: schema.admits(), mode: Mode::Ladder, reasoning: &[] };
        extraction::extract(text, wanted).unwrap().range
    };
    group.bench_function("extract_and_gate", |b| {
        b.iter(|| {
            let range = extract(black_box(ANSWER));
            gate::schema::check(&schema, &ANSWER[range])
        });
    });
    group.bench_function("extract", |b| b.iter(|| extract(black_box(ANSWER))));
    group.bench_function("gate", |b| b.iter(|| gate::schema::check(&schema, black_box(ANSWER))));
    group.bench_function("tape", |b| b.iter(|| portcullis::json::tape::Tape::of(black_box(ANSWER)).is_ok()));

    group.bench_function("read_request", |b| b.iter(|| ChatRequest::read(black_box(body.clone()))));
    let gateway = gateway();
    let chat = ChatRequest::read(body.clone()).unwrap();
    let contract = plan::contract(&chat, Schemas { content: Some(schema.clone()), tools: Vec::new() }, &[]).unwrap();
    let plan =
        plan::plan(plan::alias(&gateway.catalog, &chat.model).unwrap(), contract, None, Binding::default(), &chat)
            .unwrap();
    group.bench_function("shape", |b| {
        b.iter(|| shape::shape(black_box(&chat), &plan.contract, &plan.terms, &plan.targets[0], None))
    });
    group.bench_function("read_reply", |b| b.iter(|| openai::read(black_box(&answer))));
    let came = Came::Whole(answer.clone(), openai::read(&answer).unwrap());
    let known = Known::nothing();
    group.bench_function("judge_and_answer", |b| {
        b.iter(|| match judge::judge(&plan.contract, black_box(&came).reply(), &[], &known).verdict {
            Verdict::Accept(accepted) => {
                answer::accepted(&came, &accepted, false, None).map(|answer| answer.body).unwrap()
            }
            _ => Vec::new(),
        });
    });

    let runtime: Runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    assert_eq!(runtime.block_on(exchanged(&gateway, body.clone())), answer.len());
    group.bench_function("exchange", |b| b.iter(|| runtime.block_on(exchanged(&gateway, black_box(body.clone())))));
}

criterion_group!(all, benches);
criterion_main!(all);
