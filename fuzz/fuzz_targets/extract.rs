//! Any text, under every schema top and in both modes: what is cut out is strict JSON and a slice of the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis::dialect::table::ReasoningTag;
use portcullis::extraction::{Admits, Mode, Rung, Wanted, extract};
use portcullis::json::check;

fuzz_target!(|text: &str| {
    for opening_implied in [false, true] {
        let think = ReasoningTag { open: "<think>".into(), close: "</think>".into(), opening_implied };
        for (object, array) in [(true, true), (true, false), (false, true), (false, false)] {
            let wanted =
                |mode| Wanted { admits: Admits { object, array }, mode, reasoning: std::slice::from_ref(&think) };
            let ladder = extract(text, wanted(Mode::Ladder));
            let strict = extract(text, wanted(Mode::Strict));
            if let Ok(whole) = &strict {
                assert_eq!(whole.rung, Rung::Whole);
                assert_eq!(ladder.as_ref(), Ok(whole), "strict mode accepts nothing that the ladder does not");
            }
            for not in [&ladder, &strict].into_iter().filter_map(|found| found.as_ref().err()) {
                assert!(text.is_char_boundary(not.at), "the place of a failure is one in the text");
            }
            let Ok(found) = ladder else { continue };
            let slice = &text[found.range.clone()];
            check::strict(slice).expect("what is cut out is strict JSON");
            serde_json::from_str::<serde_json::Value>(slice).expect("another parser agrees");
            let alone = Wanted { reasoning: &[], ..wanted(Mode::Strict) };
            let again = extract(slice, alone).expect("what is cut out stands alone");
            assert_eq!(again.range, 0..slice.len());
        }
    }
});
