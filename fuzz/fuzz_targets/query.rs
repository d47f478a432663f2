//! Any path over any JSON: what it reaches has a path of its own that leads back to it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis::json::check;
use portcullis::json::query::{Query, Reached};
use portcullis::json::tape::Tape;

fuzz_target!(|input: (&str, &str)| {
    let (path, text) = input;
    let Ok(query) = Query::read(path) else { return };
    assert!(query.covers(&query));
    if check::strict(text).is_err() {
        return;
    }
    let tape = Tape::of(text).expect("strict JSON has a tape");
    query.reach(tape.root(), &mut |reached| match reached {
        Reached::Value(place) | Reached::Other { place, .. } => {
            let again = tape.root().at(&place.path()).expect("a place has a path");
            assert_eq!(again.range(), place.range());
        }
        Reached::Missing { parent, lacks } => {
            assert!(tape.root().at(&parent.path()).is_some());
            assert!(
                tape.root().at(&lacks.below(parent)).is_none() || path.contains("-"),
                "what is missing is not there"
            );
        }
    });
});
