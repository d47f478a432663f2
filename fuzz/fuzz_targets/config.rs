//! Any text as a configuration: an answer or errors, and no secret in either.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use portcullis::config;

/// What every environment variable holds but one that is not set.
const SECRET: &str = "sk-Zq7vW2nL9xTbR4";

fuzz_target!(|text: &str| {
    // References to files would read whatever a mutation names.
    if text.contains("${file:") || text.contains(SECRET) {
        return;
    }
    let env = |name: &str| (name != "UNSET").then(|| SECRET.to_owned());
    match config::load_text("fuzz.yaml", text, Path::new("/nonexistent"), &env) {
        Ok(configuration) => {
            assert!(configuration.warnings.iter().all(|warning| !warning.contains(SECRET)));
            assert!(configuration.catalog.aliases.values().all(|alias| !alias.targets.is_empty()));
        }
        Err(errors) => {
            let said = errors.to_string();
            assert!(!said.is_empty() && !said.contains(SECRET), "an error shows no secret: {said}");
        }
    }
});
