//! The example policies do what their controls say.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::process::Command;

#[test]
fn the_example_policies_do_what_their_controls_say() {
    for name in ["entities", "invoices", "orders", "statements", "tickets"] {
        let folder = format!("policies/{name}");
        let controls = format!("{folder}/controls.jsonl");
        let count = std::fs::read_to_string(&controls).unwrap().lines().count();
        let arguments = ["golden", "--policy", &folder, &controls];
        let ran = Command::new(env!("CARGO_BIN_EXE_portcullis")).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
        assert!(said.contains(&format!("{count} of {count} records as expected")), "{said}");
    }
}
