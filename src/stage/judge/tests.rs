use std::sync::Arc;

use serde_json::Value;

use super::tools::arguments;
use super::*;
use crate::api::reply::Finish;
use crate::api::reply::ToolCall;
use crate::contract::ToolContract;
use crate::contract::schema::CompiledSchema;
use crate::settings::SchemaLimits;

fn compiled(schema: &Value) -> Arc<CompiledSchema> {
    Arc::new(CompiledSchema::compile(schema.to_string().into(), SchemaLimits::default()).unwrap())
}

fn of_schema(schema: &Value) -> Contract {
    Contract { content: Some(ContentContract::schema(compiled(schema))), ..Contract::default() }
}

fn choice(message: &Value, finish: &str) -> Choice {
    let text = |key: &str| message.get(key).and_then(Value::as_str).map(str::to_owned);
    Choice {
        content: text("content"),
        refusal: text("refusal"),
        finish: Some(Finish::read(finish)),
        reasoned: message.get("reasoning_content").is_some(),
        ..Choice::default()
    }
}

fn verdict(contract: &Contract, choices: Vec<Choice>) -> Verdict {
    judge(contract, &Reply { choices, ..Reply::default() }, &[], &Known::nothing()).verdict
}

/// One word for a verdict, as the case files have it.
fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Clarify(_) => "clarify",
        Verdict::Accept(_) => "accepted",
        Verdict::Reject(rejection) if rejection.violations.iter().any(|v| v.kind == "schema_echo") => "schema_echo",
        Verdict::Reject(rejection) => rejection.reason,
        Verdict::Refuse(Refused::Model) => "refusal",
        Verdict::Refuse(Refused::Filter) => "content_filter",
        Verdict::Fail(Failed::Empty) => "empty",
        Verdict::Fail(Failed::Reported) => "upstream_error",
        Verdict::Fail(Failed::Unfinished) => "unfinished",
    }
}

/// Cases of `gate.jsonl` whose gates or features come with policies; the rest is judged here.
const OUT: &[&str] = &[
    "gate-010", // the answer cache
    "gate-013", "gate-014", // context
    "gate-016", "gate-018", "gate-021", "gate-022", "gate-023", "gate-026", "gate-028", "gate-030", "gate-031",
    "gate-032", "gate-034",
];

#[test]
fn the_cases_of_the_gate_file_that_need_no_policy() {
    for line in include_str!("../../../tests/cases/gate.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let id = case["id"].as_str().unwrap();
        if OUT.contains(&id) {
            continue;
        }
        let (given, expect) = (&case["given"], &case["expect"]);
        let any = serde_json::json!({"type": "object"});
        let contract = of_schema(given.get("schema").unwrap_or(&any));
        let finish = |of: &Value| of.get("finish_reason").and_then(Value::as_str).unwrap_or("stop").to_owned();
        let choices = match (given.get("choices"), given.get("message"), given.get("answer")) {
            (Some(choices), ..) => choices.as_array().unwrap().iter().map(|one| choice(one, &finish(one))).collect(),
            (_, Some(message), _) => vec![choice(message, &finish(given))],
            (.., Some(answer)) => vec![choice(&serde_json::json!({"content": answer.to_string()}), "stop")],
            _ => panic!("{id}: nothing to judge"),
        };
        let rounds = given.get("same_answer_at_attempts").map_or(1, |rounds| rounds.as_array().unwrap().len());
        for _ in 0..rounds {
            let found = word(&verdict(&contract, choices.clone()));
            let wanted = match (expect.get("reason"), expect.get("client.error.code"), expect.get("outcomes")) {
                (Some(reason), ..) => reason.as_str().unwrap(),
                (_, Some(code), _) => code.as_str().unwrap().trim_start_matches("output_"),
                (.., Some(_)) => "schema",
                _ => panic!("{id}: nothing expected"),
            };
            assert_eq!(found, wanted, "{id}");
        }
    }
}

/// What `stream.jsonl` says of the verdict on the collected message.
#[test]
fn the_verdicts_of_the_stream_file() {
    use crate::api::backend::openai_stream::Collector;
    use crate::wire::sse::EventReader;
    let mut seen = 0;
    for line in include_str!("../../../tests/cases/stream.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let Some(wanted) = case["expect"].get("verdict") else { continue };
        let (mut reader, mut collector) = (EventReader::new(), Collector::default());
        reader.feed(case["given"]["sse"].as_str().unwrap().as_bytes(), |data| collector.take(data)).unwrap();
        reader.finish(|data| collector.take(data)).unwrap();
        let reply = collector.finish().unwrap().reply;
        let mut contract = Contract { content: Some(ContentContract::object()), ..Contract::default() };
        contract.tools.push(ToolContract { name: "f".into(), parameters: None, also: Vec::new(), bound: true });
        let wanted = wanted.get("reason").unwrap_or(wanted).as_str().unwrap();
        let found = word(&judge(&contract, &reply, &[], &Known::nothing()).verdict);
        assert!(found == wanted || (wanted == "reject" && found == "tool_violation"), "{}: {found}", case["id"]);
        seen += 1;
    }
    assert_eq!(seen, 5);
}

/// The cases of `tool.jsonl` that concern a request's own tools. Emulation by tool (tool-014) is not in this version; a policy that
/// denies a tool (tool-016) is tried in `tests/policies.rs`.
#[test]
fn the_cases_of_the_tool_file_that_need_no_policy() {
    let mut out = Vec::new();
    for line in include_str!("../../../tests/cases/tool.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let (given, expect) = (&case["given"], &case["expect"]);
        let call = |call: &Value| ToolCall {
            id: "a".into(),
            name: call["name"].as_str().unwrap().into(),
            arguments: call["arguments"].as_str().unwrap().into(),
        };
        let verdict = if let Some(given_call) = given.get("tool_call") {
            let call = call(given_call);
            let parameters = Some(compiled(&given["parameters"]));
            let tools = vec![ToolContract { name: call.name.clone(), parameters, also: Vec::new(), bound: true }];
            let choice = Choice { tool_calls: vec![call], finish: Some(Finish::ToolCalls), ..Choice::default() };
            verdict(&Contract { tools, ..Contract::default() }, vec![choice])
        } else if let Some(message) = given.get("response_message") {
            let tool_calls =
                message["tool_calls"].as_array().unwrap().iter().map(|one| call(&one["function"])).collect();
            let mut contract = of_schema(&serde_json::json!({"type": "object", "required": ["a"]}));
            contract.tools.push(ToolContract { name: "f".into(), parameters: None, also: Vec::new(), bound: false });
            verdict(&contract, vec![Choice { tool_calls, finish: Some(Finish::ToolCalls), ..Choice::default() }])
        } else {
            out.push(case["id"].as_str().unwrap().to_owned());
            continue;
        };
        let accepted = matches!(verdict, Verdict::Accept(_));
        assert_eq!(accepted, expect["outcome"] != "reject", "{}: {verdict:?}", case["id"]);
        if let Verdict::Reject(rejection) = verdict {
            assert_eq!(rejection.code, Code::ToolViolation, "{}", case["id"]);
        }
    }
    assert_eq!(out, ["tool-014", "tool-016"]);
}

#[test]
fn an_unknown_tool_is_a_violation_and_an_unbound_one_is_counted() {
    let parameters = Some(compiled(&serde_json::json!({"type": "object", "required": ["x"]})));
    let contract = Contract {
        content: Some(ContentContract::object()),
        tools: vec![ToolContract { name: "f".into(), parameters, also: Vec::new(), bound: false }],
        ..Contract::default()
    };
    let calling = |name: &str| Choice {
        tool_calls: vec![ToolCall { name: name.into(), arguments: "{}".into(), ..ToolCall::default() }],
        finish: Some(Finish::ToolCalls),
        ..Choice::default()
    };
    assert!(matches!(verdict(&contract, vec![calling("f")]), Verdict::Accept(accepted) if accepted.loose() == 1));
    let rejected = verdict(&contract, vec![calling("rm")]);
    assert!(
        matches!(rejected, Verdict::Reject(rejection) if rejection.violations.iter().any(|v| v.kind == "unknown_tool"))
    );
}

#[test]
fn a_forced_tool_must_be_called() {
    let tools = vec![ToolContract { name: "f".into(), parameters: None, also: Vec::new(), bound: true }];
    let contract = Contract { tools, forced: Some(0), ..Contract::default() };
    let found = verdict(&contract, vec![choice(&serde_json::json!({"content": "{\"x\":1}"}), "stop")]);
    assert!(matches!(found, Verdict::Reject(rejection) if rejection.code == Code::ToolViolation));
}

#[test]
fn empty_arguments_mean_none_only_where_nothing_is_required() {
    let tool = |schema: Value| ToolContract {
        name: "f".into(),
        parameters: Some(compiled(&schema)),
        also: Vec::new(),
        bound: true,
    };
    let call = ToolCall { name: "f".into(), ..ToolCall::default() };
    assert!(arguments(&tool(serde_json::json!({"type": "object"})), &call).is_empty());
    assert!(!arguments(&tool(serde_json::json!({"type": "object", "required": ["x"]})), &call).is_empty());
}

#[test]
fn arguments_are_judged_as_they_go_on() {
    let tool = ToolContract { name: "f".into(), parameters: None, also: Vec::new(), bound: true };
    for (text, good) in
        [(" {} ", true), ("\u{feff}{}", false), ("\u{a0}{}\u{2028}", false), ("{}{}", false), ("[]", false)]
    {
        let call = ToolCall { name: "f".into(), arguments: text.into(), ..ToolCall::default() };
        assert_eq!(arguments(&tool, &call).is_empty(), good, "{text:?}");
    }
}

#[test]
fn among_choices_rejections_come_first_then_failures_then_refusals() {
    let contract = of_schema(&serde_json::json!({"type": "object"}));
    let content = |text: &str| choice(&serde_json::json!({"content": text}), "stop");
    let refused = choice(&serde_json::json!({"refusal": "No."}), "stop");
    assert_eq!(word(&verdict(&contract, vec![content("{}"), content("{}")])), "accepted");
    assert_eq!(word(&verdict(&contract, vec![refused.clone(), content("prose"), content("")])), "no_json");
    assert_eq!(word(&verdict(&contract, vec![refused.clone(), content("")])), "empty");
    assert_eq!(word(&verdict(&contract, vec![content("{}"), refused])), "refusal");
    assert_eq!(word(&verdict(&contract, vec![])), "empty");
    let both = verdict(&contract, vec![content("prose"), content("[1]")]);
    assert!(matches!(both, Verdict::Reject(rejection) if rejection.violations.total() == 2));
}

#[test]
fn violations_name_bytes_of_the_models_text() {
    let contract = of_schema(&serde_json::json!({"properties": {"n": {"type": "integer"}}}));
    let text = "Sure: {\"n\":\"17\"}";
    let Verdict::Reject(rejection) = verdict(&contract, vec![choice(&serde_json::json!({"content": text}), "stop")])
    else {
        panic!("accepted");
    };
    let violation = rejection.violations.iter().next().unwrap();
    assert_eq!(&text[violation.at.clone().unwrap()], "\"17\"");
    assert_eq!(violation.path.to_string(), "$['n']");
}
