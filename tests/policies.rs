//! Policies as a black box: what binds a request, what a caller gets whose answer does not meet it, and that no option of a
//! policy is read and ignored.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use serde_json::Value;
use serde_json::json;
use support::*;

/// A little sum: `a` and `b` make `total`, which must not be more than 100.
const SUM_SCHEMA: &str = r#"{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"},"total":{"type":"number"}},"required":["a","b","total"],"additionalProperties":false}"#;
const GOOD_SUM: &str = r#"{"a":0.1,"b":0.2,"total":0.3}"#;
/// The sum does not hold: the caller is asked.
const WRONG_SUM: &str = r#"{"a":1,"b":2,"total":4}"#;
/// The total is beyond what is allowed: it is rejected.
const HIGH: &str = r#"{"a":100,"b":2,"total":102}"#;
/// Both.
const BOTH: &str = r#"{"a":100,"b":2,"total":103}"#;

const GATES: &str = r#"
gates:
  - name: adds-up
    math: {sum: ["$.a", "$.b"], equals: "$.total"}
    on_violation: clarify
    say: "Is it {{ output.a }} and {{ output.b }}?"
  - {name: not-too-much, math: {compare: ["$.total", "<=", 100]}}
"#;

fn sum(more: &str) -> String {
    format!("match: [{{model: \"sum-*\"}}]\nschema: sum.schema.json\n{more}{GATES}")
}

/// A gateway with the policy `sum`, in front of `upstream`.
fn summing(upstream: &Upstream, more: &str) -> Gateway {
    setup(upstream, more).start()
}

fn setup(upstream: &Upstream, more: &str) -> Setup {
    Setup::of(upstream).policy("sum", &sum(more)).policy_file("sum", "sum.schema.json", SUM_SCHEMA).audited()
}

fn ask(model: &str, rest: &str) -> String {
    let comma = if rest.is_empty() { "" } else { "," };
    format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"What is it?"}}]{comma}{rest}}}"#)
}

fn sent(upstream: &Upstream) -> Value {
    let calls = upstream.calls();
    serde_json::from_slice(&calls.last().expect("a call").body).unwrap()
}

/// What a stream says.
fn streamed(answer: &Answer) -> String {
    let events = answer.events();
    let chunks = events.iter().filter_map(|event| serde_json::from_str::<Value>(event).ok());
    chunks.filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).collect()
}

fn message(answer: &Answer) -> Value {
    answer.json()["choices"][0]["message"].clone()
}

fn gates(answer: &Answer) -> Vec<String> {
    let listed = answer.json()["error"]["portcullis"]["violations"].clone();
    let all = listed.as_array().cloned().unwrap_or_default();
    all.iter().map(|one| one["gate"].as_str().unwrap().to_owned()).collect()
}

// -------------------------------------------------------------------------------------------- what binds a request

#[test]
fn a_policy_binds_what_it_matches_and_what_names_it() {
    let upstream = Upstream::that(Script::says(HIGH));
    let gateway = summing(&upstream, "");
    for (what, model, headers, rest, bound) in [
        ("the alias", "sum-1", vec![], "", true),
        ("another alias", "chat", vec![], "", false),
        ("the header", "chat", vec![("x-portcullis-policy", "sum")], "", true),
        ("the header, twice", "chat", vec![("x-portcullis-policy", " sum ,sum")], "", true),
        ("the body", "chat", vec![], r#""portcullis":{"policy":["sum"]}"#, true),
        ("an empty header takes nothing away", "sum-1", vec![("x-portcullis-policy", "")], "", true),
        ("an empty list takes nothing away", "sum-1", vec![], r#""portcullis":{"policy":[]}"#, true),
    ] {
        let answer = gateway.chat_with(&headers, &ask(model, rest));
        if bound {
            answer.assert_error(422, "contract_violation", "contract_rejected");
            assert_eq!(answer.header("x-portcullis-policy"), Some("sum"), "{what}");
            assert_eq!(answer.json()["error"]["portcullis"]["policy"], json!(["sum"]), "{what}");
            assert_eq!(gates(&answer), ["not-too-much"], "{what}");
            assert!(sent(&upstream).get("portcullis").is_none(), "{what}");
        } else {
            assert_eq!((answer.status(), answer.header("x-portcullis-policy")), (200, None), "{what}: {answer}");
        }
    }
    let unknown = gateway.chat_with(&[("x-portcullis-policy", "summ")], &ask("chat", ""));
    unknown.assert_error(404, "invalid_request_error", "policy_not_found");
    let unknown = gateway.chat(&ask("chat", r#""portcullis":{"policy":["nothing"]}"#));
    unknown.assert_error(404, "invalid_request_error", "policy_not_found");
    let line = &gateway.audit(9)[0];
    assert_eq!((&line["policies"][0]["name"], &line["policies"][0]["mode"]), (&json!("sum"), &json!("enforce")));
    assert!(line["policies"][0]["digest"].as_str().unwrap().starts_with("sha256:"), "{line}");
    assert_eq!(line["violations"][0]["policy"], "sum");
    let metrics = gateway.metrics();
    assert!(
        metrics.contains(r#"portcullis_gates_total{gate="not-too-much",policy="sum",result="fired"} 6"#),
        "{metrics}"
    );
}

#[test]
fn what_is_only_asked_for_by_name_matches_nothing_by_itself() {
    let upstream = Upstream::that(Script::says(HIGH));
    let policy = sum("").replace("[{model: \"sum-*\"}]", "by_name");
    let gateway = Setup::of(&upstream).policy("sum", &policy).policy_file("sum", "sum.schema.json", SUM_SCHEMA).start();
    assert_eq!(gateway.chat(&ask("sum-1", "")).status(), 200);
    assert_eq!(gateway.chat_with(&[("x-portcullis-policy", "sum")], &ask("sum-1", "")).status(), 422);
}

#[test]
fn within_an_entry_all_conditions_hold_and_any_entry_suffices() {
    let upstream = Upstream::that(Script::says(HIGH));
    let policy = sum("").replace("[{model: \"sum-*\"}]", "[{model: \"a\", schema_name: \"s*\"}, {schema_name: total}]");
    let gateway = Setup::of(&upstream).policy("sum", &policy).policy_file("sum", "sum.schema.json", SUM_SCHEMA).start();
    let named = |name: &str| {
        format!(r#""response_format":{{"type":"json_schema","json_schema":{{"name":"{name}","schema":{{}}}}}}"#)
    };
    for (model, name, status) in [("a", "sum", 422), ("b", "sum", 200), ("a", "x", 200), ("b", "total", 422)] {
        assert_eq!(gateway.chat(&ask(model, &named(name))).status(), status, "{model} {name}");
    }
    assert_eq!(gateway.chat(&ask("a", "")).status(), 200);
}

#[test]
fn an_answer_is_required_where_the_policy_has_a_schema_and_only_then() {
    let upstream = Upstream::that(Script::says("It is three."));
    let gateway = summing(&upstream, "");
    gateway.chat(&ask("sum-1", "")).assert_error(422, "contract_violation", "output_not_json");
    let body = sent(&upstream);
    let asked = &body["response_format"];
    assert_eq!((&asked["type"], &asked["json_schema"]["name"]), (&json!("json_schema"), &json!("sum")));
    assert_eq!(asked["json_schema"]["schema"], serde_json::from_str::<Value>(SUM_SCHEMA).unwrap());
    assert!(body["messages"][0]["content"].as_str().unwrap().ends_with(SUM_SCHEMA), "{body}");

    let when_asked = summing(&upstream, "structured_output: when_asked\n");
    let free = when_asked.chat(&ask("sum-1", ""));
    assert_eq!((free.status(), free.content().as_str()), (200, "It is three."));
    assert_eq!(free.header("x-portcullis-policy"), None);
    let asked = when_asked.chat(&ask("sum-1", r#""response_format":{"type":"json_object"}"#));
    asked.assert_error(422, "contract_violation", "output_not_json");
}

#[test]
fn an_accepted_answer_is_the_backends_own_bytes() {
    let upstream = Upstream::that(Script::says(GOOD_SUM));
    let gateway = summing(&upstream, "");
    let answer = gateway.chat(&ask("sum-1", ""));
    assert_eq!((answer.status(), answer.outcome()), (200, "accepted"), "{answer}");
    assert_eq!(answer.text(), completion(GOOD_SUM));
    upstream.always(Script::streams(&chunks(GOOD_SUM, "stop")));
    let stream = gateway.chat(&ask("sum-1", r#""stream":true"#));
    assert_eq!((stream.outcome(), streamed(&stream).as_str()), ("accepted", GOOD_SUM));
}

// ---------------------------------------------------------------------------------- what a caller gets instead

#[test]
fn a_question_is_a_refusal_by_default_whole_and_streamed_and_for_every_choice() {
    let upstream = Upstream::that(Script::says(WRONG_SUM));
    let gateway = summing(&upstream, "");
    let answer = gateway.chat(&ask("sum-1", ""));
    assert_eq!((answer.status(), answer.outcome()), (200, "clarified"), "{answer}");
    let said = message(&answer);
    assert_eq!((&said["content"], &said["refusal"]), (&Value::Null, &json!("Is it 1 and 2?")));
    let told = &said["portcullis"];
    assert_eq!((&told["outcome"], &told["questions"]), (&json!("clarified"), &json!(["Is it 1 and 2?"])));
    assert_eq!(
        (&told["violations"][0]["gate"], &told["violations"][0]["action"]),
        (&json!("adds-up"), &json!("clarify"))
    );
    assert_eq!(answer.json()["choices"][0]["finish_reason"], "stop");
    assert!(!answer.text().contains(r#"\"total\""#), "{answer}");

    upstream.always(Script::streams(&chunks(WRONG_SUM, "stop")));
    let stream = gateway.chat(&ask("sum-1", r#""stream":true"#));
    assert_eq!((stream.status(), stream.outcome()), (200, "clarified"), "{stream}");
    let deltas: Vec<Value> = stream.events().iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
    let words: Vec<&str> = deltas.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["refusal"].as_str()).collect();
    assert_eq!(words, ["Is it 1 and 2?"]);
    assert!(deltas.iter().all(|chunk| !chunk["choices"][0]["delta"]["content"].is_string()), "{stream}");
    assert_eq!(deltas.last().unwrap()["choices"][0]["finish_reason"], "stop");

    let two = [GOOD_SUM, WRONG_SUM]
        .iter()
        .enumerate()
        .map(|(index, text)| choice(index, &format!(r#""content":{},"refusal":null"#, quoted(text)), "stop"));
    upstream.always(Script::json(200, completion_of(&two.collect::<Vec<_>>())));
    let both = gateway.chat(&ask("sum-1", r#""n":2"#)).json();
    for choice in both["choices"].as_array().unwrap() {
        assert_eq!(
            (&choice["message"]["content"], &choice["message"]["refusal"]),
            (&Value::Null, &json!("Is it 1 and 2?"))
        );
    }
    let line = gateway.audit(3).remove(0);
    assert_eq!((&line["outcome"], &line["questions"]), (&json!("clarified"), &json!(["Is it 1 and 2?"])));
}

#[test]
fn a_question_can_be_an_error_and_a_rejection_a_refusal() {
    let upstream = Upstream::that(Script::says(WRONG_SUM));
    let gateway = summing(&upstream, "respond: {clarify: error, reject: refusal}\n");
    let asked = gateway.chat(&ask("sum-1", ""));
    asked.assert_error(422, "contract_violation", "clarification_required");
    assert_eq!(asked.outcome(), "clarified");
    assert_eq!(asked.json()["error"]["portcullis"]["questions"], json!(["Is it 1 and 2?"]));
    assert!(asked.json()["error"]["message"].as_str().unwrap().starts_with("Is it 1 and 2?"), "{asked}");
    upstream.always(Script::says(HIGH));
    let rejected = gateway.chat(&ask("sum-1", ""));
    assert_eq!((rejected.status(), rejected.outcome()), (200, "rejected"), "{rejected}");
    assert!(message(&rejected)["refusal"].as_str().unwrap().contains("100"), "{rejected}");
    assert_eq!(message(&rejected)["portcullis"]["outcome"], "rejected");
}

#[test]
fn an_object_of_the_policy_satisfies_the_schema_or_is_an_error() {
    let upstream = Upstream::that(Script::says(WRONG_SUM));
    let object = r#"respond: {clarify: {object: {a: {$value: output.a}, b: {$value: output.b}, total: 0}}}"#;
    let gateway = summing(&upstream, &format!("{object}\n"));
    let answer = gateway.chat(&ask("sum-1", ""));
    assert_eq!((answer.status(), answer.outcome()), (200, "clarified"), "{answer}");
    assert_eq!(answer.content(), r#"{"a":1,"b":2,"total":0}"#);
    assert_eq!(message(&answer)["portcullis"]["questions"], json!(["Is it 1 and 2?"]));
    upstream.always(Script::streams(&chunks(WRONG_SUM, "stop")));
    let stream = gateway.chat(&ask("sum-1", r#""stream":true"#));
    assert_eq!((stream.outcome(), streamed(&stream).as_str()), ("clarified", r#"{"a":1,"b":2,"total":0}"#));
    // The request's own schema is one that the object must satisfy too.
    upstream.always(Script::says(WRONG_SUM));
    let strict = format_of(r#"{"properties":{"total":{"minimum":1}}}"#);
    gateway.chat(&ask("sum-1", &strict)).assert_error(422, "contract_violation", "clarification_required");
}

#[test]
fn a_rejection_wins_over_a_question_and_both_are_told() {
    let upstream = Upstream::that(Script::says(BOTH));
    let answer = summing(&upstream, "").chat(&ask("sum-1", ""));
    answer.assert_error(422, "contract_violation", "contract_rejected");
    assert_eq!(gates(&answer), ["adds-up", "not-too-much"]);
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("the answer broke the contract `sum` (2 violations): $['total']: "), "{message}");
}

#[test]
fn passing_choices_go_on_alone_where_the_policy_says_so() {
    let texts = [HIGH, GOOD_SUM, WRONG_SUM];
    let three = texts
        .iter()
        .enumerate()
        .map(|(index, text)| choice(index, &format!(r#""content":{},"refusal":null"#, quoted(text)), "stop"));
    let upstream = Upstream::that(Script::json(200, completion_of(&three.collect::<Vec<_>>())));
    let gateway = summing(&upstream, "choices: passing\n");
    let answer = gateway.chat(&ask("sum-1", r#""n":3"#));
    assert_eq!((answer.status(), answer.outcome()), (200, "accepted"), "{answer}");
    let choices = answer.json()["choices"].clone();
    assert_eq!(choices.as_array().unwrap().len(), 1);
    assert_eq!((&choices[0]["index"], &choices[0]["message"]["content"]), (&json!(1), &json!(GOOD_SUM)));
    upstream.always(Script::says(HIGH));
    assert_eq!(gateway.chat(&ask("sum-1", "")).status(), 422);
}

// --------------------------------------------------------------------------------------------------------- monitor

#[test]
fn a_policy_that_only_watches_changes_nothing_and_is_recorded() {
    let upstream = Upstream::that(Script::says(HIGH));
    let gateway = summing(&upstream, "mode: monitor\n");
    let body = ask("sum-1", "");
    let answer = gateway.chat(&body);
    assert_eq!((answer.status(), answer.text()), (200, completion(HIGH)));
    assert_eq!(text(&upstream.calls()[0].body), body, "the request is as without the policy");
    upstream.always(Script::streams(&chunks(HIGH, "stop")));
    let stream = gateway.chat(&ask("sum-1", r#""stream":true"#));
    assert_eq!(streamed(&stream), HIGH);
    upstream.always(Script::streams(&chunks("It is three.", "stop")));
    assert_eq!(streamed(&gateway.chat(&ask("sum-1", r#""stream":true"#))), "It is three.");
    // The request's own schema stays enforced.
    upstream.always(Script::says(r#"{"z":1}"#));
    gateway.chat(&ask("sum-1", &format())).assert_error(422, "contract_violation", "schema_violation");
    let lines = gateway.audit(4);
    for line in &lines[..2] {
        assert_eq!((&line["outcome"], &line["watched"]), (&json!("unchecked"), &json!("rejected")), "{line}");
        assert_eq!(
            (&line["violations"][0]["gate"], &line["violations"][0]["action"]),
            (&json!("not-too-much"), &json!("monitor"))
        );
        assert_eq!(line["policies"][0]["mode"], "monitor");
    }
    assert_eq!((&lines[2]["watched"], &lines[3]["watched"]), (&json!("rejected"), &json!("rejected")));
    let metrics = gateway.metrics();
    assert!(metrics.contains(r#"portcullis_watched_total{outcome="rejected"} 4"#), "{metrics}");
}

// ------------------------------------------------------------------------------------------------ schemas and modes

#[test]
fn an_answer_must_satisfy_both_schemas_or_the_request_is_refused() {
    let upstream = Upstream::that(Script::says(GOOD_SUM));
    let own = format_of(r#"{"type":"object","properties":{"a":{"minimum":1}}}"#);
    let gateway = summing(&upstream, "");
    let answer = gateway.chat(&ask("sum-1", &own));
    answer.assert_error(422, "contract_violation", "schema_violation");
    assert_eq!(answer.json()["error"]["portcullis"]["violations"][0]["policy"], Value::Null);
    let body = sent(&upstream);
    assert_eq!(body["response_format"]["json_schema"]["schema"], serde_json::from_str::<Value>(SUM_SCHEMA).unwrap());
    let reject = summing(&upstream, "on_schema_conflict: reject\n");
    reject.chat(&ask("sum-1", &own)).assert_error(400, "invalid_request_error", "schema_conflict");
    let same = SUM_SCHEMA.replacen('{', r#"{"title":"mine","description":"d","#, 1);
    assert_eq!(reject.chat(&ask("sum-1", &format_of(&same))).status(), 200);
}

#[test]
fn the_schema_is_written_and_sent_as_the_policy_says() {
    let upstream = Upstream::that(Script::says(GOOD_SUM));
    for (more, injected, sent_natively, header) in [
        ("", true, true, "json_schema"),
        ("inject: never\n", false, true, "json_schema"),
        ("inject: unless_native\n", false, true, "json_schema"),
        ("native: never\n", true, false, "prompt"),
        ("native: never\ninject: unless_native\n", true, false, "prompt"),
        ("native: require\n", true, true, "json_schema"),
    ] {
        let gateway = summing(&upstream, more);
        let answer = gateway.chat(&ask("sum-1", ""));
        assert_eq!((answer.status(), answer.header("x-portcullis-native")), (200, Some(header)), "{more}");
        let body = sent(&upstream);
        assert_eq!(body["messages"][0]["role"] == "system", injected, "{more} {body}");
        assert_eq!(body.get("response_format").is_some(), sent_natively, "{more} {body}");
    }
    let bare = Setup::new().backend("up", "openai_compatible", upstream.address, "");
    let bare = bare.policy("sum", &sum("native: require\n")).policy_file("sum", "sum.schema.json", SUM_SCHEMA).start();
    let refused = bare.chat(&ask("sum-1", ""));
    refused.assert_error(422, "capability_error", "no_capable_backend");
    assert!(refused.text().contains("`up`"), "{refused}");
}

#[test]
fn strict_extraction_takes_no_fence() {
    let upstream = Upstream::that(Script::says(&format!("```json\n{GOOD_SUM}\n```")));
    assert_eq!(summing(&upstream, "").chat(&ask("sum-1", "")).content(), GOOD_SUM);
    let strict = summing(&upstream, "extraction: strict\n").chat(&ask("sum-1", ""));
    strict.assert_error(422, "contract_violation", "output_not_json");
}

#[test]
fn limits_cap_set_and_leave_out_what_a_backend_does_not_take() {
    let upstream = Upstream::that(Script::says(GOOD_SUM));
    let gateway = summing(&upstream, "limits: {max_output_tokens: 100, temperature: 0.5}\n");
    for (rest, member, expected) in [
        ("", "max_completion_tokens", json!(100)),
        (r#""max_tokens":7"#, "max_tokens", json!(7)),
        (r#""max_tokens":700"#, "max_tokens", json!(100)),
        (r#""max_completion_tokens":101"#, "max_completion_tokens", json!(100)),
        (r#""temperature":0.1"#, "temperature", json!(0.1)),
        (r#""temperature":1.5"#, "temperature", json!(0.5)),
        ("", "temperature", json!(0.5)),
    ] {
        assert_eq!(gateway.chat(&ask("sum-1", rest)).status(), 200, "{rest}");
        assert_eq!(sent(&upstream)[member].to_string(), expected.to_string(), "{rest}");
    }
    let bare = Setup::new().backend("up", "openai", upstream.address, ", capabilities: {without: [temperature]}");
    let bare =
        bare.policy("sum", &sum("limits: {temperature: 0.5}\n")).policy_file("sum", "sum.schema.json", SUM_SCHEMA);
    let answer = bare.start().chat(&ask("sum-1", r#""temperature":1"#));
    assert_eq!(answer.header("x-portcullis-dropped"), Some("temperature"));
    assert!(sent(&upstream).get("temperature").is_none());
}

#[test]
fn nothing_is_stored_where_it_could_be_fetched_around_the_gate() {
    let upstream = Upstream::that(Script::says(GOOD_SUM));
    let gateway = summing(&upstream, "");
    for member in ["store", "background"] {
        let refused = gateway.chat(&ask("sum-1", &format!("\"{member}\":true")));
        refused.assert_error(400, "invalid_request_error", "store_not_allowed");
    }
    assert_eq!(gateway.chat(&ask("sum-1", "")).status(), 200);
    assert_eq!(sent(&upstream)["store"], json!(false));
    assert_eq!(gateway.chat(&ask("sum-1", r#""store":false"#)).status(), 200);
    assert_eq!(gateway.chat(&ask("chat", r#""store":true"#)).status(), 200);
    assert_eq!(sent(&upstream)["store"], json!(true));
}

#[test]
fn a_stream_is_asked_for_its_usage_where_a_gate_looks_at_it() {
    let budget = |tokens: u32| {
        format!(
            "match: [{{model: \"sum-*\"}}]\nschema: sum.schema.json\ngates: [{{name: short, budget: {{output_tokens: {tokens}}}}}]"
        )
    };
    let mut events = chunks(GOOD_SUM, "stop");
    let usage = r#"data: {"id":"c1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}"#;
    events.insert(events.len() - 1, format!("{usage}\n\n"));
    let upstream = Upstream::that(Script::streams(&events));
    for (tokens, outcome) in [(4, "accepted"), (3, "rejected")] {
        let setup =
            Setup::of(&upstream).policy("sum", &budget(tokens)).policy_file("sum", "sum.schema.json", SUM_SCHEMA);
        let answer = setup.start().chat(&ask("sum-1", r#""stream":true,"stream_options":{"x":1}"#));
        assert_eq!(answer.outcome(), outcome, "{answer}");
        assert_eq!(sent(&upstream)["stream_options"], json!({"x": 1, "include_usage": true}));
        assert!(!answer.text().contains("total_tokens"), "the caller did not ask: {answer}");
    }
    upstream.always(Script::streams(&chunks(GOOD_SUM, "stop")));
    let setup = Setup::of(&upstream).policy("sum", &budget(100)).policy_file("sum", "sum.schema.json", SUM_SCHEMA);
    let unknown = setup.start().chat(&ask("sum-1", r#""stream":true"#));
    assert_eq!(unknown.outcome(), "rejected", "unknown is not zero: {unknown}");
}

// ------------------------------------------------------------------------------------- envelope and assigned fields

#[test]
fn a_bare_array_gets_its_envelope_and_code_sets_its_fields() {
    let schema = r#"{"type":"object","properties":{"id":{"type":"string"},"source":{"const":"web"},"names":{"type":"array","items":{"type":"string"}}},"required":["id","source","names"],"additionalProperties":false}"#;
    let policy = "match: [{model: names}]\nschema: names.schema.json\nenvelope: {wrap_array: names}\nassign: {id: {uuid: v7}, source: {const: web}}";
    let upstream = Upstream::that(Script::says(r#"["Ada", "Bob"]"#));
    let setup = Setup::of(&upstream).policy("names", policy).policy_file("names", "names.schema.json", schema);
    let gateway = setup.audited().start();
    let answer = gateway.chat(&ask("names", ""));
    assert_eq!((answer.status(), answer.outcome()), (200, "accepted"), "{answer}");
    let content = answer.content();
    assert!(
        content.starts_with(r#"{"names":["Ada", "Bob"],"id":""#) && content.ends_with(r#"","source":"web"}"#),
        "{content}"
    );
    let shown = sent(&upstream)["response_format"]["json_schema"]["schema"].clone();
    assert_eq!((&shown["required"], shown["properties"].get("id")), (&json!(["names"]), None));
    assert!(sent(&upstream)["messages"][0]["content"].as_str().unwrap().contains("Leave out `id`, `source`"));
    for (said, start) in
        [(r#"{"names":[]}"#, r#"{"names":[],"id":""#), ("Here:\n[\"A\\n\"]", r#"{"names":["A\n"],"id":""#)]
    {
        upstream.always(Script::says(said));
        let content = gateway.chat(&ask("names", "")).content();
        assert!(content.starts_with(start), "{content}");
        upstream.always(Script::streams(&chunks(said, "stop")));
        let content = streamed(&gateway.chat(&ask("names", r#""stream":true"#)));
        assert!(content.starts_with(start), "{content}");
    }
    upstream.always(Script::says(r#"{"names":[],"id":"mine"}"#));
    let refused = gateway.chat(&ask("names", ""));
    refused.assert_error(422, "contract_violation", "contract_rejected");
    assert_eq!(refused.json()["error"]["portcullis"]["violations"][0]["kind"], "assigned_field_present");
    assert_eq!(gateway.audit(6)[0]["wrapped_arrays"], 1);
    assert!(gateway.metrics().contains("portcullis_wrapped_arrays_total 3"), "{}", gateway.metrics());
}

// ------------------------------------------------------------------------------------------------------------ tools

#[test]
fn a_tool_is_judged_by_the_policy_that_names_it_and_others_can_be_denied() {
    let tool = |name: &str| {
        format!(r#"{{"type":"function","function":{{"name":"{name}","parameters":{{"type":"object"}}}}}}"#)
    };
    let call = |arguments: &str| {
        let calls = format!(
            r#"[{{"id":"t1","type":"function","function":{{"name":"add","arguments":{}}}}}]"#,
            quoted(arguments)
        );
        Script::json(200, completion_of(&[choice(0, &format!(r#""content":null,"tool_calls":{calls}"#), "tool_calls")]))
    };
    let upstream = Upstream::that(call(GOOD_SUM));
    let policy = sum("").replace("[{model: \"sum-*\"}]", "[{tool: add}]");
    let setup = |more: &str| {
        Setup::of(&upstream).policy("sum", &format!("{more}{policy}")).policy_file("sum", "sum.schema.json", SUM_SCHEMA)
    };
    let gateway = setup("").start();
    let offered = format!(r#""tools":[{},{}]"#, tool("add"), tool("other"));
    let good = gateway.chat(&ask("chat", &offered));
    assert_eq!((good.status(), good.outcome()), (200, "accepted"), "{good}");
    upstream.always(call(HIGH));
    let high = gateway.chat(&ask("chat", &offered));
    high.assert_error(422, "contract_violation", "contract_rejected");
    assert_eq!(high.json()["error"]["portcullis"]["violations"][0]["path"], "$['tool_calls'][0]['arguments']");
    upstream.always(call(WRONG_SUM));
    let asked = gateway.chat(&ask("chat", &offered));
    assert_eq!((asked.outcome(), &message(&asked)["tool_calls"]), ("clarified", &Value::Null), "{asked}");
    assert_eq!(message(&asked)["refusal"], "Is it 1 and 2?");
    upstream.always(call(r#"{"a":1}"#));
    gateway.chat(&ask("chat", &offered)).assert_error(422, "contract_violation", "tool_violation");
    // An entry for the alias takes nothing away from one for the tool: both are judged.
    let both = policy.replace("[{tool: add}]", "[{model: chat}, {tool: add}]");
    let both = Setup::of(&upstream).policy("sum", &both).policy_file("sum", "sum.schema.json", SUM_SCHEMA).start();
    upstream.always(call(HIGH));
    both.chat(&ask("chat", &offered)).assert_error(422, "contract_violation", "contract_rejected");
    upstream.always(Script::says(HIGH));
    both.chat(&ask("chat", &offered)).assert_error(422, "contract_violation", "contract_rejected");
    let deny = setup("tools: deny\n").start();
    deny.chat(&ask("chat", &offered)).assert_error(400, "invalid_request_error", "tools_not_allowed");
    upstream.always(call(GOOD_SUM));
    assert_eq!(deny.chat(&ask("chat", &format!(r#""tools":[{}]"#, tool("add")))).status(), 200);
}

/// tool-016, for the one pair of formats that there is: a policy sees the call put together, and nothing of it gets out before.
#[test]
fn a_streamed_tool_call_is_seen_whole_by_the_policy_that_names_it() {
    let pieces = |name: &str, arguments: &[&str]| {
        let call = |more: &str| chunk(&format!(r#"{{"tool_calls":[{{"index":0,{more}}}]}}"#), "null");
        let mut all =
            vec![call(&format!(r#""id":"t1","type":"function","function":{{"name":"{name}","arguments":""}}"#))];
        all.extend(arguments.iter().map(|piece| call(&format!(r#""function":{{"arguments":{}}}"#, quoted(piece)))));
        all.extend([chunk("{}", "\"tool_calls\""), "data: [DONE]\n\n".to_owned()]);
        Script::streams(&all)
    };
    let policy = "match: [{tool: [rm, mv]}]\ngates: [{name: denied, rule: \"output.path.startsWith('/tmp/')\"}]";
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).policy("files", policy).start();
    let tool = |name: &str| {
        format!(r#"{{"type":"function","function":{{"name":"{name}","parameters":{{"type":"object"}}}}}}"#)
    };
    let offered = format!(r#""stream":true,"tools":[{},{},{}]"#, tool("rm"), tool("mv"), tool("ls"));
    for (name, arguments, accepted) in [
        ("rm", &["{\"path\":\"/t", "mp/x\"}"][..], true),
        ("rm", &["{\"path\":\"/e", "tc/passwd\"}"], false),
        ("mv", &["{\"path\":\"/etc", "/passwd\"}"], false),
        ("rm", &["{}"], false),
        ("rm", &["{\"path\":\"/tmp/x\",", "\"path\":\"/etc/passwd\"}"], false),
        ("ls", &["{\"path\":\"/e", "tc/passwd\"}"], true),
    ] {
        upstream.always(pieces(name, arguments));
        let answer = gateway.chat(&ask("chat", &offered));
        let got_out = answer.text().contains("\"tool_calls\":[");
        assert_eq!(got_out, accepted, "{name} {arguments:?}: {answer}");
        assert_eq!(answer.text().contains("passwd"), accepted && name == "ls", "{name} {arguments:?}: {answer}");
        if !accepted {
            assert!(answer.text().contains("contract_violation"), "{name} {arguments:?}: {answer}");
        }
    }
}

// ----------------------------------------------------------------------------------------------- several policies

#[test]
fn several_policies_must_all_be_satisfied_and_two_owners_are_refused() {
    let upstream = Upstream::that(Script::says(GOOD_SUM));
    let small = "match: by_name\ngates: [{name: small, math: {compare: [\"$.a\", \"<\", \"0.1\"]}}]";
    let other = "match: by_name\nschema: own.schema.json\nenvelope: {wrap_array: list}";
    let third = other.replace("list", "rows");
    let schema = r#"{"type":"object"}"#;
    let gateway = setup(&upstream, "")
        .policy("small", small)
        .policy("other", other)
        .policy_file("other", "own.schema.json", schema)
        .policy("third", &third)
        .policy_file("third", "own.schema.json", schema)
        .start();
    assert_eq!(gateway.chat(&ask("sum-1", "")).status(), 200);
    let both = gateway.chat_with(&[("x-portcullis-policy", "small")], &ask("sum-1", ""));
    both.assert_error(422, "contract_violation", "contract_rejected");
    assert_eq!(both.header("x-portcullis-policy"), Some("small,sum"));
    assert_eq!(gates(&both), ["small"]);
    let two = gateway.chat_with(&[("x-portcullis-policy", "other,third")], &ask("chat", ""));
    two.assert_error(400, "invalid_request_error", "policy_conflict");
    assert!(two.text().contains("`other`") && two.text().contains("`third`"), "{two}");
}

#[test]
fn a_policy_that_is_wrong_never_starts() {
    let upstream = Upstream::good();
    let said = Setup::of(&upstream).policy("sum", "match: [{modle: x}]\ngates: [{name: g, maths: {}}]").refused();
    assert!(
        said.contains("policy.yaml:2:") && said.contains("`modle`") && said.contains("did you mean `model`?"),
        "{said}"
    );
    assert!(said.contains("`maths`"), "{said}");
}

// ----------------------------------------------------------------------------------------------------------- source

/// A policy whose one gate wants `$.q` to stand in the source.
fn quoting(upstream: &Upstream, source: &str) -> Gateway {
    let schema = r#"{"type":"object","properties":{"q":{"type":"string"},"page":{"type":"integer"}},"required":["q"]}"#;
    let policy =
        format!("match: [{{model: q}}]\nschema: q.schema.json\n{source}gates: [{{name: there, quote: \"$.q\"}}]");
    Setup::of(upstream).policy("q", &policy).policy_file("q", "q.schema.json", schema).start()
}

fn conversation(messages: &str, rest: &str) -> String {
    format!(r#"{{"model":"q","messages":[{messages}]{rest}}}"#)
}

#[test]
fn the_source_is_what_the_policy_says() {
    let upstream = Upstream::good();
    let said = |role: &str, text: &str| format!(r#"{{"role":"{role}","content":{}}}"#, quoted(text));
    let all = [
        said("system", "alpha"),
        said("developer", "beta"),
        said("user", "gamma <doc>delta one\u{c}two</doc> <doc>epsilon</doc>"),
        said("assistant", "zeta"),
        r#"{"role":"tool","tool_call_id":"t","content":"eta"}"#.to_owned(),
    ]
    .join(",");
    for (source, stand, absent) in [
        ("", vec!["gamma", "delta one"], vec!["alpha", "beta", "zeta", "eta"]),
        ("source: {roles: [system]}\n", vec!["alpha"], vec!["beta", "gamma"]),
        ("source: {roles: [developer, tool]}\n", vec!["beta", "eta"], vec!["alpha", "gamma", "zeta"]),
        ("source: {tag: doc}\n", vec!["delta one", "epsilon"], vec!["gamma"]),
        ("source: {tag: doc, page_break: \"\\f\"}\n", vec!["delta one", "two"], vec!["one\u{c}two"]),
    ] {
        let gateway = quoting(&upstream, source);
        for (quotes, outcome) in [(stand, "accepted"), (absent, "rejected")] {
            for quote in quotes {
                upstream.always(Script::says(&json!({"q": quote}).to_string()));
                let answer = gateway.chat(&conversation(&all, ""));
                assert_eq!(answer.outcome(), outcome, "{source} {quote}: {answer}");
            }
        }
    }
}

#[test]
fn a_request_brings_its_source_where_a_policy_allows_it() {
    let upstream = Upstream::that(Script::says(r#"{"q":"page two"}"#));
    let own = r#","portcullis":{"source":["page one","page two"]}"#;
    let ask = conversation(r#"{"role":"user","content":"hi"}"#, own);
    quoting(&upstream, "").chat(&ask).assert_error(400, "invalid_request_error", "source_not_allowed");
    let allowed = quoting(&upstream, "source: {request: allowed}\n");
    assert_eq!(allowed.chat(&ask).outcome(), "accepted");
    upstream.always(Script::says(r#"{"q":"hi"}"#));
    assert_eq!(allowed.chat(&ask).outcome(), "rejected");
    assert_eq!(allowed.chat(&conversation(r#"{"role":"user","content":"hi"}"#, "")).outcome(), "accepted");
    let wrong = ask.replace("\"page one\"", "1");
    allowed.chat(&wrong).assert_error(400, "invalid_request_error", "invalid_json");
}

#[test]
fn a_source_that_cannot_be_read_refuses_the_request() {
    let upstream = Upstream::that(Script::says(r#"{"q":"read this"}"#));
    let image = r#"{"role":"user","content":[{"type":"text","text":"read this"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}"#;
    let refused = quoting(&upstream, "").chat(&conversation(image, ""));
    refused.assert_error(400, "invalid_request_error", "source_unreadable");
    assert!(refused.text().contains("`messages[0].content`"), "{refused}");
    let disguised = image.replace(r#""image_url":{"#, r#""text":"x","image_url":{"#);
    quoting(&upstream, "").chat(&conversation(&disguised, "")).assert_error(
        400,
        "invalid_request_error",
        "source_unreadable",
    );
    assert_eq!(
        quoting(&upstream, "source: {unreadable: ignore}\n").chat(&conversation(image, "")).outcome(),
        "accepted"
    );
    // An image that is no part of the source is nobody's business.
    assert_eq!(quoting(&upstream, "source: {roles: [system]}\n").chat(&conversation(image, "")).outcome(), "rejected");
}

// ------------------------------------------------------------------------------------------------------------ retry

const TOTALS: &str = r#"match: [{model: bill}]
schema: bill.schema.json
evidence: {value: value, quote: source_span.text, page: source_span.page}
gates:
  - {name: grounded, provenance: ["$.total", "$.lines[*]"], numbers_match_quotes: {locale: en}}
  - {name: adds-up, math: {sum: "$.lines[*]", equals: "$.total"}}
  - {name: few, math: {compare: ["$.total", "<", 500]}}
retry: {attempts: 1, on: [adds-up, extraction, schema]ESCALATE}
"#;
const BILL: &str = "Paper 30.00\nInk 40.40\nTotal 70.40";

fn billing(upstream: &Upstream, escalate: &str) -> Setup {
    let figure = r#"{"type":"object","properties":{"value":{"type":"number"},"source_span":{"type":"object","properties":{"page":{"type":"integer"},"text":{"type":"string"}},"required":["page","text"]}},"required":["value","source_span"]}"#;
    let schema = format!(
        r#"{{"type":"object","properties":{{"lines":{{"type":"array","items":{figure}}},"total":{figure}}},"required":["lines","total"]}}"#
    );
    let policy = TOTALS.replace("ESCALATE", escalate);
    Setup::of(upstream).policy("bill", &policy).policy_file("bill", "bill.schema.json", &schema).audited()
}

fn bill(lines: &[(&str, &str)], total: (&str, &str)) -> String {
    let figure =
        |(value, quote): &(&str, &str)| format!(r#"{{"value":{value},"source_span":{{"page":1,"text":"{quote}"}}}}"#);
    let lines: Vec<String> = lines.iter().map(figure).collect();
    format!(r#"{{"lines":[{}],"total":{}}}"#, lines.join(","), figure(&total))
}

fn read_the_bill() -> String {
    format!(r#"{{"model":"bill","messages":[{{"role":"user","content":{}}}]}}"#, quoted(BILL))
}

/// The trap: told that its sum does not hold, the model leaves the lines alone and changes the total to fit them.
#[test]
fn a_total_that_was_changed_to_fit_the_lines_is_caught_by_its_quote() {
    let upstream = Upstream::good();
    let gateway = billing(&upstream, "").start();
    let dropped = bill(&[("30.00", "30.00")], ("70.40", "Total 70.40"));
    let fitted = bill(&[("30.00", "30.00")], ("30.00", "Total 70.40"));
    upstream.next(Script::says(&dropped));
    upstream.next(Script::says(&fitted));
    let answer = gateway.chat(&read_the_bill());
    answer.assert_error(422, "contract_violation", "contract_rejected");
    assert_eq!((gates(&answer), answer.header("x-portcullis-attempts")), (vec!["grounded".to_owned()], Some("2")));
    assert_eq!(answer.json()["error"]["portcullis"]["usage"]["input_tokens"], 6);
    let again = sent(&upstream);
    let messages = again["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 4, "{again}");
    assert_eq!((&messages[1]["content"], &messages[2]["role"]), (&json!(BILL), &json!("assistant")));
    assert_eq!(messages[2]["content"], json!(dropped));
    assert!(messages[3]["content"].as_str().unwrap().contains("$['total']"), "{again}");
    // The path that the violation named is no surprise; nothing else was changed.
    assert_eq!(gateway.audit(1)[0]["retry_changed_paths"], json!([]));
}

#[test]
fn a_second_attempt_that_holds_is_accepted_and_what_both_took_is_told() {
    let upstream = Upstream::good();
    let gateway = billing(&upstream, "").start();
    let good = bill(&[("30.00", "30.00"), ("40.40", "40.40")], ("70.40", "Total 70.40"));
    upstream.next(Script::says(&bill(&[("30.00", "30.00")], ("70.40", "Total 70.40"))));
    upstream.next(Script::says(&good));
    let answer = gateway.chat(&read_the_bill());
    assert_eq!((answer.status(), answer.outcome(), answer.content()), (200, "accepted", good.clone()), "{answer}");
    let body = answer.json();
    assert_eq!(
        (&body["usage"]["total_tokens"], &body["portcullis"]["usage_total"]["input_tokens"]),
        (&json!(7), &json!(6))
    );
    let line = gateway.audit(1).remove(0);
    assert_eq!((&line["attempts"], &line["retry_changed_paths"]), (&json!(2), &json!(["$['lines']"])));
    for bad in ["no data", r#"{"lines":[]}"#] {
        upstream.next(Script::says(bad));
        upstream.next(Script::says(&good));
        assert_eq!(gateway.chat(&read_the_bill()).outcome(), "accepted", "{bad}");
    }
    assert!(gateway.metrics().contains(r#"portcullis_retries_total{outcome="accepted"} 3"#), "{}", gateway.metrics());
}

#[test]
fn what_is_not_worth_another_attempt_gets_none() {
    let upstream = Upstream::good();
    let gateway = billing(&upstream, "").start();
    let invented = bill(&[("30.00", "31.00")], ("30.00", "Total 70.40"));
    upstream.next(Script::says(&invented));
    assert_eq!(gateway.chat(&read_the_bill()).header("x-portcullis-attempts"), Some("1"));
    // One violation that is worth it does not carry another that is not.
    upstream.next(Script::says(&bill(&[("30.00", "30.00")], ("700.40", "Total 70.40"))));
    assert_eq!(gateway.chat(&read_the_bill()).header("x-portcullis-attempts"), Some("1"));
    // A second attempt that fails upstream leaves the first answer's verdict.
    upstream.next(Script::says(&bill(&[("30.00", "30.00")], ("70.40", "Total 70.40"))));
    upstream.next(Script::json(500, "{}"));
    let answer = gateway.chat(&read_the_bill());
    answer.assert_error(422, "contract_violation", "contract_rejected");
    assert_eq!(gates(&answer), ["adds-up"]);
    let calls = billing(&upstream, "").model("bill", "{targets: [{backend: up}], upstream_calls_max: 1}").start();
    upstream.next(Script::says(&bill(&[("30.00", "30.00")], ("70.40", "Total 70.40"))));
    assert_eq!(calls.chat(&read_the_bill()).header("x-portcullis-attempts"), Some("1"));
}

#[test]
fn a_further_attempt_can_go_to_another_alias() {
    let (small, large) = (Upstream::good(), Upstream::good());
    let setup = billing(&small, ", escalate: [large]").backend("second", "openai", large.address, "");
    let setup = setup.model("bill", "{targets: [{backend: up, model: s}]}");
    let gateway = setup.model("large", "{targets: [{backend: second, model: l}]}").start();
    small.next(Script::says(&bill(&[("30.00", "30.00")], ("70.40", "Total 70.40"))));
    large.next(Script::says(&bill(&[("30.00", "30.00"), ("40.40", "40.40")], ("70.40", "70.40"))));
    let answer = gateway.chat(&read_the_bill());
    assert_eq!((answer.outcome(), answer.header("x-portcullis-backend")), ("accepted", Some("second")), "{answer}");
    assert_eq!(sent(&large)["model"], "l");
}

/// What a backend may take for a user's message is one: a policy that reads what users say must not miss it.
#[test]
fn a_role_is_read_whatever_its_case() {
    let upstream = Upstream::that(Script::says(r#"{"q":"page"}"#));
    for role in ["user", "User", " USER "] {
        let message = format!(r#"{{"role":"{role}","content":"page"}}"#);
        assert_eq!(quoting(&upstream, "").chat(&conversation(&message, "")).outcome(), "accepted", "{role}");
    }
}

// ------------------------------------------------------------------------------- what is refused until it can be kept

/// Nobody who calls has a team before there are keys, so a policy for one would silently bind nobody.
#[test]
fn a_policy_for_a_team_never_starts_while_nobody_has_one() {
    let upstream = Upstream::good();
    let policy = sum("").replace("[{model: \"sum-*\"}]", "[{model: \"sum-*\"}, {model: chat, team: [pos, kiosk]}]");
    let setup = Setup::of(&upstream).policy("sum", &policy).policy_file("sum", "sum.schema.json", SUM_SCHEMA);
    let said = setup.refused();
    assert!(said.contains("policy.yaml:2:") && said.contains("`match[1].team` is not available"), "{said}");
}

// ------------------------------------------------------------------------------------------------------------ facts

/// policy.md: "`facts` always read the messages, whatever else is the source".
#[test]
fn facts_are_found_in_what_users_say_whatever_the_source_is() {
    let upstream = Upstream::good();
    let said = |role: &str, text: &str| format!(r#"{{"role":"{role}","content":{}}}"#, quoted(text));
    let schema = r#"{"type":"object","properties":{"allergens":{"type":"array","items":{"type":"string"}}},"required":["allergens"]}"#;
    let gateway = |source: &str| {
        let policy = format!(
            "match: [{{model: q}}]\nschema: q.schema.json\n{source}facts: {{allergens: {{terms: {{peanut: [\"peanuts?\"]}}, cues: [\"allerg(?:y|ic)\"]}}}}\ngates: [{{name: kept, fact: {{array: \"$.allergens\", equals: allergens}}}}]"
        );
        Setup::of(&upstream).policy("q", &policy).policy_file("q", "q.schema.json", schema).start()
    };
    let allergic = "I am allergic to peanuts.";
    for source in
        ["", "source: {roles: [system]}\n", "source: {roles: [tool, developer], tag: doc}\n", "source: {tag: doc}\n"]
    {
        let gateway = gateway(source);
        let own = r#","portcullis":{"source":["I am allergic to peanuts."]}"#;
        for (messages, stated) in [
            (said("user", allergic), true),
            (format!("{},{}", said("system", "Be kind."), said("user", allergic)), true),
            (format!("{},{}", said("user", allergic), said("user", "A satay please.")), true),
            (format!("{},{}", said("assistant", allergic), said("user", "No.")), false),
            (said("user", "Hello."), false),
        ] {
            for (output, right) in [(r#"{"allergens":["peanut"]}"#, stated), (r#"{"allergens":[]}"#, !stated)] {
                upstream.always(Script::says(output));
                let answer = gateway.chat(&conversation(&messages, ""));
                let outcome = if right { "accepted" } else { "rejected" };
                assert_eq!(answer.outcome(), outcome, "{source} {messages} {output}: {answer}");
            }
        }
        gateway.chat(&conversation(&said("user", "hi"), own)).assert_error(
            400,
            "invalid_request_error",
            "source_not_allowed",
        );
    }
    // What a user says in a picture could state one.
    let image = r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}"#;
    gateway("source: {roles: [system]}\n").chat(&conversation(image, "")).assert_error(
        400,
        "invalid_request_error",
        "source_unreadable",
    );
}

// ------------------------------------------------------------------------------------------------- streams and calls

/// A stream that says `text` and then calls `add`.
fn calling(text: &str, arguments: &str) -> Script {
    let mut all = if text.is_empty() { Vec::new() } else { chunks(text, "stop") };
    all.truncate(all.len().saturating_sub(2));
    let call = |more: &str| chunk(&format!(r#"{{"tool_calls":[{{"index":0,{more}}}]}}"#), "null");
    all.push(call(r#""id":"t1","type":"function","function":{"name":"add","arguments":""}"#));
    all.push(call(&format!(r#""function":{{"arguments":{}}}"#, quoted(arguments))));
    all.extend([chunk("{}", "\"tool_calls\""), "data: [DONE]\n\n".to_owned()]);
    Script::streams(&all)
}

/// A request that offers the tool `add`; `strict` binds it without a policy.
fn offering(strict: bool, rest: &str) -> String {
    let tool = format!(
        r#"{{"type":"function","function":{{"name":"add","strict":{strict},"parameters":{{"type":"object"}}}}}}"#
    );
    ask("chat", &format!(r#""tools":[{tool}]{rest}"#))
}

#[test]
fn a_stream_whose_calls_are_held_answers_as_the_policy_says() {
    let upstream = Upstream::good();
    let policy = |respond: &str| format!("{respond}{}", sum("").replace("[{model: \"sum-*\"}]", "[{tool: add}]"));
    let object = "respond: {clarify: {object: {a: 0, b: 0, total: 0}}, reject: {object: {a: 0, b: 0, total: 0}}}\n";
    let refusals = "respond: {clarify: refusal, reject: refusal}\n";
    let errors = "respond: {clarify: error, reject: error}\n";
    for (respond, arguments, outcome, code) in [
        ("", WRONG_SUM, "clarified", None),
        ("", HIGH, "rejected", Some("contract_rejected")),
        (refusals, WRONG_SUM, "clarified", None),
        (refusals, HIGH, "rejected", None),
        (errors, WRONG_SUM, "clarified", Some("clarification_required")),
        (errors, HIGH, "rejected", Some("contract_rejected")),
        // An object stands in the place of content, and what is judged here is none: an error, as without a stream.
        (object, WRONG_SUM, "clarified", Some("clarification_required")),
        (object, HIGH, "rejected", Some("contract_rejected")),
    ] {
        let setup = Setup::of(&upstream).policy("sum", &policy(respond));
        let setup = setup.policy_file("sum", "sum.schema.json", SUM_SCHEMA);
        let gateway = setup.line("audit: {path: audit.jsonl, required: false}").start();
        let what = format!("{respond} {arguments}");
        let calls = format!(
            r#"[{{"id":"t1","type":"function","function":{{"name":"add","arguments":{}}}}}]"#,
            quoted(arguments)
        );
        let whole = completion_of(&[choice(0, &format!(r#""content":null,"tool_calls":{calls}"#), "tool_calls")]);
        upstream.always(Script::json(200, whole));
        let unstreamed = gateway.chat(&offering(false, ""));
        assert_eq!((unstreamed.outcome(), unstreamed.status() == 200), (outcome, code.is_none()), "{what}");
        for text in ["", "Let me see. "] {
            upstream.always(calling(text, arguments));
            let answer = gateway.chat(&offering(false, r#","stream":true"#));
            assert!(!answer.text().contains("tool_calls\":["), "{what}: {answer}");
            if let Some(code) = code.filter(|_| text.is_empty()) {
                answer.assert_error(422, "contract_violation", code); // nothing has gone out yet
                assert_eq!(answer.outcome(), outcome, "{what}");
                continue;
            }
            assert_eq!(streamed(&answer), text, "{what}: {answer}");
            let events: Vec<Value> =
                answer.events().iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
            match code {
                Some(code) => {
                    let error = &events.last().unwrap()["error"];
                    assert_eq!(error["code"], code, "{what}: {answer}");
                    assert_eq!(error["portcullis"]["outcome"], outcome, "{what}: {answer}");
                }
                None => {
                    assert_eq!(answer.status(), 200, "{what}: {answer}");
                    let deltas: Vec<&Value> = events.iter().map(|event| &event["choices"][0]["delta"]).collect();
                    let words: String = deltas.iter().filter_map(|delta| delta["refusal"].as_str()).collect();
                    assert_eq!(words, message(&unstreamed)["refusal"].as_str().unwrap(), "{what}: {answer}");
                    let told = deltas.iter().find(|delta| delta["portcullis"].is_object());
                    assert_eq!(told.unwrap()["portcullis"]["outcome"], outcome, "{what}: {answer}");
                    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "stop", "{what}: {answer}");
                }
            }
        }
        let lines = gateway.audit(3);
        for line in &lines {
            assert_eq!((&line["outcome"], &line["code"]), (&json!(outcome), &json!(code)), "{what}: {line}");
            assert_eq!((&line["reason"], &line["questions"]), (&lines[0]["reason"], &lines[0]["questions"]), "{what}");
        }
    }
}

#[test]
fn a_stream_whose_calls_are_held_is_watched_too() {
    let upstream = Upstream::good();
    let tools = sum("mode: monitor\n").replace("[{model: \"sum-*\"}]", "[{tool: add}]");
    for (policy, said, arguments, watched) in [
        (tools.clone(), "Let me see. ", HIGH, "rejected"),
        (tools.clone(), "Let me see. ", GOOD_SUM, "accepted"),
        (tools, "", WRONG_SUM, "clarified"),
        // Words beside a call hold no data; data does.
        (sum("mode: monitor\n").replace("sum-*", "*"), "It is three. ", GOOD_SUM, "accepted"),
        (sum("mode: monitor\n").replace("sum-*", "*"), HIGH, GOOD_SUM, "rejected"),
    ] {
        let setup = Setup::of(&upstream).policy("sum", &policy).policy_file("sum", "sum.schema.json", SUM_SCHEMA);
        let gateway = setup.line("audit: {path: audit.jsonl, required: false}").start();
        upstream.always(calling(said, arguments));
        let answer = gateway.chat(&offering(true, r#","stream":true"#));
        assert!(answer.text().contains("tool_calls\":["), "{answer}");
        let line = gateway.audit(1).remove(0);
        let told = (&line["outcome"], &line["watched"], &line["unwatched"]);
        assert_eq!(told, (&json!("accepted"), &json!(watched), &json!(false)), "{said} {arguments}: {line}");
    }
}

// ------------------------------------------------------------------------------------------------ what is not watched

/// The events of an answer with its usage.
fn with_usage(content: &str) -> Vec<String> {
    let mut events = chunks(content, "stop");
    let usage = r#"data: {"id":"c1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}"#;
    events.insert(events.len() - 1, format!("{usage}\n\n"));
    events
}

#[test]
fn a_gate_that_only_watches_does_not_fire_for_tokens_that_nobody_asked_for() {
    let gates = |tokens: u32| {
        format!(
            "match: [{{model: \"sum-*\"}}]\nmode: monitor\nstructured_output: when_asked\ngates:\n  - {{name: short, budget: {{output_tokens: {tokens}}}}}\n  - {{name: whole, context: {{bytes_per_token: 100}}}}\n  - {{name: ruled, rule: \"usage.output_tokens <= {tokens}\"}}\n  - {{name: only-then, rule: \"true\", when: \"usage.output_tokens > 0\"}}"
        )
    };
    let upstream = Upstream::good();
    let gateway = |tokens: u32| Setup::of(&upstream).policy("sum", &gates(tokens)).audited().start();
    let named = r#""portcullis":{"policy":["sum"]},"stream":true"#;
    // Relayed: the request is as without the policy, so nobody asks for the tokens.
    let relayed = gateway(4);
    upstream.always(Script::streams(&chunks(GOOD_SUM, "stop")));
    relayed.chat(&ask("sum-1", named));
    assert!(sent(&upstream).get("stream_options").is_none());
    let line = relayed.audit(1).remove(0);
    let told = (&line["watched"], &line["unwatched"], &line["violations"]);
    assert_eq!(told, (&json!("accepted"), &json!(true), &json!([])), "{line}");
    let metrics = relayed.metrics();
    for gate in ["short", "whole", "ruled", "only-then"] {
        let counted = format!(r#"portcullis_gates_total{{gate="{gate}",policy="sum",result="not_checked"}} 1"#);
        assert!(metrics.contains(&counted), "{counted}: {metrics}");
    }
    // The caller asks for them itself, or the answer is whole: they are known, and judged.
    for (tokens, watched) in [(4, "accepted"), (3, "rejected")] {
        let gateway = gateway(tokens);
        upstream.always(Script::streams(&with_usage(GOOD_SUM)));
        gateway.chat(&ask("sum-1", &format!(r#"{named},"stream_options":{{"include_usage":true}}"#)));
        upstream.always(Script::says(GOOD_SUM));
        gateway.chat(&ask("sum-1", r#""portcullis":{"policy":["sum"]}"#));
        // Held: the gateway asks, and the caller does not see it.
        upstream.always(Script::streams(&with_usage(GOOD_SUM)));
        let answer = gateway.chat(&ask("sum-1", r#""response_format":{"type":"json_object"},"stream":true"#));
        assert_eq!(sent(&upstream)["stream_options"], json!({"include_usage": true}));
        assert!(!answer.text().contains("total_tokens"), "{answer}");
        for line in gateway.audit(3) {
            let told = (&line["watched"], &line["unwatched"]);
            assert_eq!(told, (&json!(watched), &json!(false)), "{tokens}: {line}");
        }
    }
    // Asked for, and not told: unknown is not zero.
    let unknown = gateway(4);
    upstream.always(Script::streams(&chunks(GOOD_SUM, "stop")));
    unknown.chat(&ask("sum-1", &format!(r#"{named},"stream_options":{{"include_usage":true}}"#)));
    let line = unknown.audit(1).remove(0);
    assert_eq!((&line["watched"], &line["unwatched"]), (&json!("rejected"), &json!(false)), "{line}");
}

#[test]
fn a_policy_that_cannot_watch_an_answer_is_recorded_as_blind() {
    let upstream = Upstream::that(Script::says(GOOD_SUM));
    let gateway = summing(&upstream, "mode: monitor\non_schema_conflict: reject\n");
    let other = format_of(r#"{"type":"object","required":["a"]}"#);
    assert_eq!(gateway.chat(&ask("sum-1", &other)).outcome(), "accepted");
    let quotes =
        "match: [{model: q}]\nmode: monitor\nstructured_output: when_asked\ngates: [{name: there, quote: \"$.q\"}]";
    let quoting = Setup::of(&upstream).policy("q", quotes).audited().start();
    let image = r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}"#;
    assert_eq!(quoting.chat(&conversation(image, r#","portcullis":{"policy":["q"]}"#)).status(), 200);
    upstream.always(Script::says(&"long ".repeat(1 << 18)));
    assert_eq!(gateway.chat(&ask("sum-1", "")).status(), 200);
    upstream.always(Script::says(GOOD_SUM));
    assert_eq!(gateway.chat(&ask("sum-1", "")).status(), 200);
    let lines = gateway.audit(3);
    for (line, watched) in [(&lines[0], None), (&quoting.audit(1)[0], None), (&lines[1], None), (&lines[2], Some(()))] {
        let watched = watched.map(|()| "accepted");
        let told = (&line["watched"], &line["unwatched"]);
        assert_eq!(told, (&json!(watched), &json!(watched.is_none())), "{line}");
    }
    let metrics = gateway.metrics();
    assert!(metrics.contains(r#"portcullis_watched_total{outcome="unjudged"} 2"#), "{metrics}");
}

/// Beyond what is judged where the last byte goes out, another thread judges; the record tells of it all the same.
#[test]
fn a_large_answer_is_watched_as_a_small_one() {
    let upstream = Upstream::good();
    let gateway = summing(&upstream, "mode: monitor\n");
    let large = |total: u32| format!(r#"{{"a":100,"b":2,{}"total":{total}}}"#, " ".repeat(100 << 10));
    for (total, stream) in [(102, false), (102, true), (103, false)] {
        let answer = large(total);
        upstream.always(if stream { Script::streams(&chunks(&answer, "stop")) } else { Script::says(&answer) });
        let got = gateway.chat(&ask("sum-1", &format!(r#""stream":{stream}"#)));
        assert_eq!(got.status(), 200);
    }
    for line in gateway.audit(3) {
        assert_eq!((&line["outcome"], &line["watched"]), (&json!("unchecked"), &json!("rejected")), "{line}");
        assert_eq!(line["status"], 200);
    }
}

// ---------------------------------------------------------------------------------------- several policies, one model

#[test]
fn two_policies_that_escalate_elsewhere_are_refused() {
    let upstream = Upstream::that(Script::says(GOOD_SUM));
    let policy = |matches: &str, escalate: &str| {
        format!("match: {matches}\nretry: {{attempts: 1, on: [extraction]{escalate}}}\ngates: []")
    };
    let setup = |one: &str, two: &str| {
        let setup = Setup::of(&upstream).policy("one", one).policy("two", two);
        let models = ["chat", "large", "larger"];
        models.iter().fold(setup, |setup, name| setup.model(name, "{targets: [{backend: up}]}"))
    };
    let both = r#""response_format":{"type":"json_object"},"portcullis":{"policy":["one","two"]}"#;
    for (one, two, refused) in [
        (", escalate: [large]", ", escalate: [larger]", true),
        (", escalate: [large]", ", escalate: [large, larger]", true),
        (", escalate: [large]", ", escalate: [large]", false),
        (", escalate: [large]", "", false),
        ("", ", escalate: [large]", false),
    ] {
        let gateway = setup(&policy("by_name", one), &policy("by_name", two)).start();
        let answer = gateway.chat(&ask("chat", both));
        if refused {
            answer.assert_error(400, "invalid_request_error", "policy_conflict");
            assert!(answer.text().contains("`one`") && answer.text().contains("`two`"), "{answer}");
            let together = setup(&policy("[{model: chat}]", one), &policy("[{model: \"c*\"}]", two)).refused();
            assert!(together.contains("`one` and `two` both escalate"), "{together}");
            // What judges a tool is asked once more on the same terms.
            let tools = setup(&policy("by_name", one), &policy("[{tool: add}]", two)).start();
            let body = offering(false, r#","response_format":{"type":"json_object"},"portcullis":{"policy":["one"]}"#);
            tools.chat(&body).assert_error(400, "invalid_request_error", "policy_conflict");
        } else {
            assert_eq!(answer.outcome(), "accepted", "{answer}");
            upstream.forget();
            upstream.next(Script::says("no data"));
            let again = gateway.chat(&ask("chat", both));
            assert_eq!((again.outcome(), again.header("x-portcullis-attempts")), ("accepted", Some("2")), "{again}");
            assert_eq!(sent(&upstream)["model"], "large", "{one} {two}");
        }
    }
}

#[test]
fn the_prompt_shows_the_schema_of_every_policy() {
    let upstream = Upstream::that(Script::says(GOOD_SUM));
    let second = r#"{"type":"object","properties":{"total":{"maximum":100}}}"#;
    let third = SUM_SCHEMA.replacen('{', r#"{"title":"the same","#, 1);
    let policy = |more: &str| format!("match: by_name\nschema: own.schema.json\n{more}");
    for (inject, shown) in [("always", true), ("unless_native", true), ("never", false)] {
        let more = format!("inject: {inject}\n");
        let gateway = setup(&upstream, &more)
            .policy("tight", &policy(&more))
            .policy_file("tight", "own.schema.json", second)
            .policy("z-same", &policy(&more))
            .policy_file("z-same", "own.schema.json", &third)
            .start();
        let body = r#""portcullis":{"policy":["tight","z-same"]}"#;
        assert_eq!(gateway.chat(&ask("sum-1", body)).outcome(), "accepted");
        let first = sent(&upstream)["messages"][0].clone();
        let prompt = first["content"].as_str().unwrap();
        assert_eq!((prompt.contains(second), prompt.contains(SUM_SCHEMA)), (shown, shown), "{inject}: {prompt}");
        assert!(!prompt.contains("the same"), "what demands the same is shown once: {prompt}");
        // Where the caller shows them all already, nothing is added; where it shows one, they are.
        let told = |text: &str| {
            let system = format!(r#"{{"role":"system","content":{}}}"#, quoted(text));
            format!(r#"{{"model":"sum-1","messages":[{system},{{"role":"user","content":"hi"}}],{body}}}"#)
        };
        let all = format!("{second} and {SUM_SCHEMA}, please.");
        assert_eq!(gateway.chat(&told(&all)).outcome(), "accepted");
        assert_eq!(sent(&upstream)["messages"][0]["content"], json!(all), "{inject}");
        gateway.chat(&told(&format!("{second}, please.")));
        let prompt = sent(&upstream)["messages"][0]["content"].as_str().unwrap().to_owned();
        assert_eq!(prompt.contains(SUM_SCHEMA), shown, "{inject}: {prompt}");
    }
}
