//! What holds of policies together, whatever their gates and whatever the answer.

use proptest::prelude::*;

use super::*;
use crate::api::reply::Finish;
use crate::contract::PolicyContract;
use crate::contract::Scope;
use crate::contract::gate::properties;
use crate::contract::ground::LazyGround;

fn judged(policies: &[Arc<PolicyContract>], answer: &str) -> Judgement {
    let pages = vec![Arc::from(properties::SOURCE)];
    let scope = |contract: &Arc<PolicyContract>| Scope {
        contract: Arc::clone(contract),
        subject: Subject::Content,
        ground: Arc::new(LazyGround::new(Arc::clone(contract), pages.clone(), pages.clone())),
    };
    let scopes = policies.iter().map(scope).collect();
    let contract = Contract { content: Some(ContentContract::object()), scopes, ..Contract::default() };
    let choice = Choice { content: Some(answer.to_owned()), finish: Some(Finish::Stop), ..Choice::default() };
    judge(&contract, &Reply { choices: vec![choice], ..Reply::default() }, &[], &Known::nothing())
}

/// How little of the answer goes on, and everything that was said of it: the gates of each policy are named by it.
fn found(judgement: &Judgement) -> (u8, Vec<Violation>) {
    let (strictness, decided) = match &judgement.verdict {
        Verdict::Accept(_) => (0, None),
        Verdict::Clarify(asked) => (1, Some(&asked.violations)),
        Verdict::Reject(rejection) => (2, Some(&rejection.violations)),
        other => panic!("{other:?}"),
    };
    let all = decided.into_iter().chain(&judgement.observed).flat_map(Violations::iter);
    (strictness, all.cloned().collect())
}

fn policies() -> impl Strategy<Value = [Vec<usize>; 2]> {
    let gates = || prop::collection::vec(0..properties::GATES.len(), 0..4);
    [gates(), gates()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Several policies are as strict as the strictest of them, and each says all that it says alone.
    #[test]
    fn one_policy_more_never_weakens([one, other] in policies(), members in properties::answers()) {
        let answer = properties::text(&members);
        let [one, other] = [properties::contract("one", &one), properties::contract("other", &other)];
        let alone = [&one, &other].map(|policy| found(&judged(&[Arc::clone(policy)], &answer)));
        for both in [[&one, &other], [&other, &one]] {
            let (strictness, said) = found(&judged(&both.map(Arc::clone), &answer));
            prop_assert_eq!(strictness, alone[0].0.max(alone[1].0));
            for violation in alone.iter().flat_map(|(_, said)| said) {
                prop_assert!(said.contains(violation), "{}: {:?}", answer, violation);
            }
        }
    }

    /// What goes on is what was judged, byte for byte, and it goes on only where no gate that decides has spoken.
    #[test]
    fn what_goes_on_is_the_answer_as_it_came([one, other] in policies(), members in properties::answers()) {
        let answer = properties::text(&members);
        let policies = [properties::contract("one", &one), properties::contract("other", &other)];
        let judgement = judged(&policies, &answer);
        prop_assert_eq!(&judgement, &judged(&policies, &answer));
        match &judgement.verdict {
            Verdict::Accept(accepted) => {
                prop_assert_eq!(accepted.choices()[0].slice.clone().map(|range| &answer[range]), Some(&*answer));
                let watched = judgement.observed.iter().flat_map(Violations::iter);
                prop_assert!(watched.into_iter().all(|violation| violation.action == Action::Monitor));
            }
            Verdict::Clarify(asked) => {
                prop_assert!(asked.violations.iter().any(|violation| violation.action == Action::Clarify));
                prop_assert!(asked.violations.iter().all(|violation| violation.action != Action::Reject));
                prop_assert!(!asked.questions.is_empty());
            }
            Verdict::Reject(rejection) => {
                prop_assert!(rejection.violations.iter().any(|violation| violation.action == Action::Reject));
            }
            other => panic!("{other:?}"),
        }
    }
}
