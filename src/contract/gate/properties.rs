//! What holds of every contract, whatever its gates and whatever the answer.

use proptest::prelude::*;

use super::testing;
use super::*;
use crate::contract::PolicyContract;
use crate::contract::data::Table;
use crate::contract::fact::Automata;
use crate::contract::fact::FactRule;
use crate::contract::ground::LazyGround;
use crate::contract::scene::Answer;
use crate::contract::scene::Call;
use crate::json::path::Segment;
use crate::json::tree;

/// Real gates of every kind, some of which most of the answers below break.
pub(crate) const GATES: [(&str, &str); 20] = [
    ("math", r#"{"sum":["$.a","$.b"],"equals":"$.total"}"#),
    ("math", r#"{"sum":"$.list[*]","equals":"$.total"}"#),
    ("math", r#"{"compare":["$.a","<=","$.b"]}"#),
    ("math", r#"{"range":{"path":"$.list[*]","min":0,"max":3}}"#),
    ("quote", r#"{"quote":"$.q"}"#),
    ("quote", r#"{"quote":"$.list[*]","number":{"locale":"en"}}"#),
    ("text", r#"{"path":"$.q","forbid":"sorry","max_chars":4}"#),
    ("unique", r#""$.list[*]""#),
    ("rule", r#""size(output.list) > 0""#),
    ("rule", r#""output.a + output.b == output.total""#),
    ("rule", r#""output.q in source || output.a == 1""#),
    ("budget", r#"{"output_tokens":5}"#),
    ("context", "{}"),
    ("fact", r#"{"array":"$.list","includes":"named"}"#),
    ("fact", r#"{"value":"$.q","in":"named"}"#),
    ("member", r#"{"path":"$.q","of":"words"}"#),
    ("provenance", r#"{"provenance":"$.a","numbers_match_quotes":{"locale":"en"}}"#),
    ("quote", r#"{"quote":"$.q","token":true,"only":"o[a-z]+","not_before":["sorry"]}"#),
    ("rule", r#""facts.named.all(n, n in output.list) && data.words['one'].id == output.q""#),
    ("schema", r#"{"strict_types":true}"#),
];
pub(crate) const SOURCE: &str = "one 1 two 2.5 sorry";

#[test]
fn gates_of_every_kind_are_tried() {
    for kind in KINDS {
        assert!(GATES.iter().any(|(name, _)| *name == kind.name), "{}", kind.name);
    }
    contract("p", &(0..GATES.len()).collect::<Vec<_>>());
}

fn member() -> impl Strategy<Value = (&'static str, String)> {
    let number = prop_oneof![Just("1"), Just("2.5"), Just("3.50"), Just("-1"), Just("1e0"), Just("0")];
    let value = prop_oneof![
        4 => number.clone().prop_map(str::to_owned),
        1 => prop_oneof![Just("null"), Just("\"1\""), Just("true"), Just("{}")].prop_map(str::to_owned),
        2 => prop_oneof![Just("\"one\""), Just("\"sorry\""), Just("\"ONE\""), Just("\"\"")].prop_map(str::to_owned),
        1 => prop_oneof![Just("1"), Just("2.5")].prop_map(|n| format!(r#"{{"value":{n},"quote":"{n}","page":1}}"#)),
        1 => Just(r#"["one","two"]"#.to_owned()),
        3 => prop::collection::vec(number, 0..4).prop_map(|items| format!("[{}]", items.join(","))),
    ];
    (prop_oneof![Just("a"), Just("b"), Just("total"), Just("q"), Just("list")], value)
}

pub(crate) fn answers() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    prop::collection::vec(member(), 0..8).prop_map(|members| {
        let mut seen = std::collections::BTreeSet::new();
        members.into_iter().filter(|(key, _)| seen.insert(*key)).collect()
    })
}

pub(crate) fn text(members: &[(&str, String)]) -> String {
    let members: Vec<String> = members.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
    format!("{{{}}}", members.join(","))
}

/// A contract of these gates, with a fact and a table that they may look into; what follows from them differs.
pub(crate) fn contract(policy: &str, gates: &[usize]) -> Arc<PolicyContract> {
    let mut contract = PolicyContract { policy: policy.into(), ..PolicyContract::default() };
    let table = Table::read("t.json", br#"[{"id":"one"},{"id":"two"}]"#, Some("id")).unwrap();
    contract.data.0.insert("words".into(), table);
    let fact = tree::parse(r#"{"terms":{"one":"one","three":"three"}}"#).unwrap();
    contract.facts.push(FactRule::compile("named", &fact, &contract.data, &mut Automata::default()).unwrap());
    let [value, quote, page] = ["$.value", "$.quote", "$.page"].map(|path| Query::read(path).unwrap());
    contract.evidence = Some(Evidence { value, quote, page });
    for gate in gates {
        let (kind, settings) = GATES[*gate];
        testing::add(&mut contract, kind, settings, Presence::default()).unwrap();
        let action = [Action::Clarify, Action::Reject, Action::Monitor, Action::Reject][gate % 4];
        contract.gates.iter_mut().last().unwrap().action = action;
    }
    Arc::new(contract)
}

fn judged(contract: &Arc<PolicyContract>, answer: &str) -> Judged {
    let pages = vec![Arc::from(SOURCE)];
    let ground = LazyGround::new(Arc::clone(contract), pages.clone(), pages);
    let answer = Answer::read(answer).unwrap();
    run(&Scene { answer: &answer, contract, ground: ground.get(), call: &Call::default(), schemas: &[] })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_is_blocked_is_blocked_whatever_the_order(
        ranges in prop::collection::vec((0_usize..30, 1_usize..5), 0..8),
        (start, length) in (0_usize..30, 1_usize..5),
    ) {
        let ranges: Vec<_> = ranges.into_iter().map(|(start, length)| start..start + length).collect();
        let sought = start..start + length;
        let overlaps = |other: &Range<usize>| other.start < sought.end && sought.start < other.end;
        let apart = apart(ranges.clone());
        prop_assert!(apart.windows(2).all(|pair| pair[0].end <= pair[1].start));
        let first = apart.partition_point(|other| other.end <= sought.start);
        prop_assert_eq!(ranges.iter().any(overlaps), apart.get(first).is_some_and(|other| other.start < sought.end));
    }

    #[test]
    fn one_gate_more_never_turns_a_rejection_into_an_acceptance(
        gates in prop::collection::vec(0..GATES.len(), 0..5), more in 0..GATES.len(), members in answers(),
    ) {
        let answer = text(&members);
        let before = judged(&contract("p", &gates), &answer);
        let after = judged(&contract("p", &[&gates[..], &[more]].concat()), &answer);
        prop_assert!(after.total >= before.total);
        prop_assert_eq!(&after.violations[..before.violations.len()], &before.violations[..]);
        prop_assert!(after.action >= before.action);
    }

    #[test]
    fn a_violation_names_a_node_or_what_its_parent_lacks(
        gates in prop::collection::vec(0..GATES.len(), 1..6), members in answers(),
    ) {
        let text = text(&members);
        let answer = Answer::read(&text).unwrap();
        for violation in judged(&contract("p", &gates), &text).violations {
            let at = violation.at.expect("every violation of a gate has its bytes");
            match answer.root().at(&violation.path) {
                Some(place) => prop_assert_eq!(place.range(), at, "{}", violation.path),
                None => {
                    let (last, parents) = violation.path.segments().split_last().unwrap();
                    let parent = answer.root().at(&Path::new(parents.to_vec())).expect("what is lacking lacks in something");
                    prop_assert!(matches!(last, Segment::Key(_) | Segment::Index(_)));
                    prop_assert_eq!(parent.range(), at, "{}", violation.path);
                }
            }
        }
    }

    #[test]
    fn the_same_is_said_twice_and_the_order_of_members_decides_nothing(
        gates in prop::collection::vec(0..GATES.len(), 0..6), members in answers(),
    ) {
        let contract = contract("p", &gates);
        let once = judged(&contract, &text(&members));
        prop_assert_eq!(&once, &judged(&contract, &text(&members)));
        let turned: Vec<_> = members.iter().rev().cloned().collect();
        let other = judged(&contract, &text(&turned));
        prop_assert_eq!((once.total, once.action), (other.total, other.action));
    }
}
