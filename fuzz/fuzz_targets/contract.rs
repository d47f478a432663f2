//! Any source and any answer, under every example policy: the verdict is the same twice, every place it names is in the
//! answer, and what it accepts is JSON.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use portcullis::config;
use portcullis::exchange::recorded::{Judge, Recorded};
use portcullis::json::check;
use portcullis::settings::SchemaLimits;
use portcullis::stage::judge::Verdict;

static JUDGES: LazyLock<Vec<Judge>> = LazyLock::new(|| {
    let policies = config::embedded(&|_| None, &[]).expect("the embedded configuration is valid").policies;
    let judge = |policy| Judge::by_policy(Arc::clone(policy), SchemaLimits::default()).expect("a loaded policy judges");
    policies.iter().map(judge).collect()
});

fuzz_target!(|input: (&str, &str)| {
    let (source, output) = input;
    let pages: Vec<Arc<str>> = source.split('\u{c}').map(Into::into).collect();
    for judge in JUDGES.iter() {
        let recorded = || Recorded { source: Some(pages.clone()), ..Recorded::text(output) };
        let judge = || judge.judge(recorded()).expect("pages are a source").judgement;
        let judged = judge();
        assert_eq!(judged, judge(), "the same twice");
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
