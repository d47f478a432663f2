//! What holds of every answer that a policy makes in the place of one that it stops.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use crate::config::policy::bundle::Files;
use crate::config::policy::load::load;
use crate::contract::gate::schema;
use crate::exchange::recorded::Judge;
use crate::exchange::recorded::Recorded;
use crate::policy::Policy;
use crate::settings::SchemaLimits;
use crate::stage::respond::Respond;

const SCHEMA: &str = r#"{"type":"object","required":["status","words"],"additionalProperties":false,"properties":{
    "status":{"enum":["open","closed"]},"words":{"type":"array","items":{"type":"string","maxLength":24}},
    "note":{"type":["string","null"],"maxLength":20},"count":{"type":"integer","minimum":1}}}"#;

/// Members of a response object, some of which the schema takes from some answers only.
const MEMBERS: [&str; 12] = [
    r#""status":"closed""#,
    r#""status":"{{ output.status }}""#,
    r#""status":{"$value":"output.note or 'open'"}"#,
    r#""words":[]"#,
    r#""words":{"$value":"output.words"}"#,
    r#""words":["{{ output.words | join(' ') }}"]"#,
    r#""words":{"$value":"facts.named"}"#,
    r#""note":"{{ questions | join(' ') }}""#,
    r#""note":{"$value":"output.note"}"#,
    r#""note":"{{ output.words[0] }}""#,
    r#""count":{"$value":"output.count"}"#,
    r#""count":{"$value":"output.words | length"}"#,
];

fn policy(members: &[usize]) -> Option<Policy> {
    let all = tempfile::tempdir().unwrap();
    let folder = all.path().join("p");
    std::fs::create_dir(&folder).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    let name = |member: &&str| member.split(':').next().unwrap_or_default().to_owned();
    let members: Vec<&str> = members.iter().map(|at| MEMBERS[*at]).filter(|member| seen.insert(name(member))).collect();
    let object = format!("{{object: {{{}}}}}", members.join(", "));
    let facts = "facts: {named: {terms: {anna: anna, bartholomew: bartholomew the great}}}";
    let gates = "gates:\n  - {name: asks, rule: size(output.words) > 2, on_violation: clarify}\n  - {name: stops, rule: output.status == 'open'}";
    let text = format!(
        "version: 1\nmatch: by_name\nschema: s.json\n{facts}\n{gates}\nrespond: {{clarify: {object}, reject: {object}}}\n"
    );
    std::fs::write(folder.join("policy.yaml"), text).unwrap();
    std::fs::write(folder.join("s.json"), SCHEMA).unwrap();
    load(&Files::folder(&folder).unwrap(), SchemaLimits::default()).ok().map(|loaded| loaded.policy)
}

fn answers() -> impl Strategy<Value = String> {
    let word = prop_oneof![Just("a"), Just("twelve chars"), Just("{{ 1 }}"), Just("\"\\\u{0}é")];
    let note = prop_oneof![Just(json!(null)), Just(json!("open")), Just(json!("x")), Just(json!("a note of twenty"))];
    let words = prop::collection::vec(word, 0..4);
    (words, prop::option::of(note), prop::option::of(1_u8..4), any::<bool>()).prop_map(|(words, note, count, open)| {
        let mut answer = json!({"status": if open { "open" } else { "closed" }, "words": words});
        if let Some(note) = note {
            answer["note"] = note;
        }
        if let Some(count) = count {
            answer["count"] = json!(count);
        }
        answer.to_string()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// A template gives an object that satisfies the schema, or an error; never anything else, and never the answer that
    /// was stopped as it came.
    #[test]
    fn an_object_satisfies_the_schema_or_is_an_error(
        members in (0..3_usize, 3..7_usize, prop::collection::vec(7..MEMBERS.len(), 0..3)), answer in answers(), said in "(anna |bartholomew the great |bob ){0,3}",
    ) {
        let (status, words, more) = members;
        let Some(policy) = policy(&[&[status, words], &more[..]].concat()).map(Arc::new) else { return Ok(()) };
        let judge = Judge::by_policy(Arc::clone(&policy), SchemaLimits::default()).unwrap();
        let recorded = Recorded { source: Some(vec![said.into()]), ..Recorded::text(answer.clone()) };
        let heard = judge.judge(recorded).unwrap();
        let Some(respond) = heard.respond(&judge) else { return Ok(()) };
        match respond {
            Respond::Error => {}
            Respond::Object(object) => {
                let complete = &policy.schema.as_ref().unwrap().complete;
                prop_assert!(schema::check(complete, &object).is_none(), "{} {}", answer, object);
            }
            Respond::Refusal(words) => panic!("{words}"),
        }
    }
}

/// The property above would hold of templates that never load.
#[test]
fn some_of_these_objects_are_made() {
    for (members, made) in [(&[0, 3][..], true), (&[1, 4, 8], true), (&[0], false), (&[0, 5, 10], true)] {
        assert_eq!(policy(members).is_some(), made, "{members:?}");
    }
}
