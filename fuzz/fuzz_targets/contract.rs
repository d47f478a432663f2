//! Any source and any answer, under every example policy: the verdict is the same twice, every place it names is in the
//! answer, and what it accepts is JSON.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use portcullis::config;
use portcullis::contract::scene::Call;
use portcullis::json::check;
use portcullis::policy::Policies;
use portcullis::stage::judge::Verdict;
use portcullis::stage::recorded::{self, Given, Said};

static POLICIES: LazyLock<Policies> =
    LazyLock::new(|| config::embedded(&|_| None, &[]).expect("the embedded configuration is valid").policies);

fuzz_target!(|input: (&str, &str)| {
    let (source, output) = input;
    let pages: Vec<std::sync::Arc<str>> = source.split('\u{c}').map(Into::into).collect();
    for policy in POLICIES.iter() {
        let contract = recorded::contract(policy, Given::Source(pages.clone())).expect("pages are a source");
        let said = Said { output, finish_reason: "stop", call: Call::default() };
        let judged = recorded::judge(&contract, &said, &[]);
        assert_eq!(judged, recorded::judge(&contract, &said, &[]), "the same twice");
        let violations = match &judged.verdict {
            Verdict::Reject(rejection) => Some(&rejection.violations),
            Verdict::Clarify(asked) => Some(&asked.violations),
            Verdict::Accept(accepted) => {
                for choice in accepted.choices() {
                    let slice = &output[choice.slice.clone().expect("content is demanded")];
                    let whole = choice.around.as_ref().map_or_else(|| slice.to_owned(), |around| around.around(slice));
                    check::strict(&whole).expect("what is accepted is strict JSON");
                }
                None
            }
            Verdict::Refuse(_) | Verdict::Fail(_) => None,
        };
        for violation in violations.into_iter().flat_map(|violations| violations.iter()) {
            if let Some(at) = &violation.at {
                assert!(output.get(at.clone()).is_some(), "{at:?} lies in the answer: {violation:?}");
            }
            if let Some(place) = &violation.source_at {
                assert!(pages[place.page - 1].get(place.range.clone()).is_some(), "{violation:?}");
            }
        }
    }
});
