//! The example policies do what their controls say, and the same each time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::process::Command;
use std::process::Stdio;

use serde_json::Value;

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

/// Every record is told to end otherwise than it does, so that the reports hold every verdict with its violations. The policies
/// have rules, facts, quotes, tables and regions; the sets are larger than what several threads take at a time.
#[test]
fn verdicts_are_the_same_to_the_byte_on_any_number_of_threads() {
    for (name, copies) in [("orders", 20), ("tickets", 80), ("invoices", 5), ("statements", 5)] {
        let controls = std::fs::read_to_string(format!("policies/{name}/controls.jsonl")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut set = String::new();
        for copy in 0..copies {
            for line in controls.lines() {
                let mut record: serde_json::Map<String, Value> = serde_json::from_str(line).unwrap();
                let other = if record["expect"] == "accepted" { "rejected" } else { "accepted" };
                record.insert("expect".to_owned(), other.into());
                record.insert("name".to_owned(), format!("{} {copy}", record["name"].as_str().unwrap()).into());
                record.retain(|key, _| key != "gate" && key != "code");
                set.push_str(&serde_json::to_string(&record).unwrap());
                set.push('\n');
            }
        }
        assert!(set.len() > 1 << 18, "{name}: {}", set.len());
        std::fs::write(folder.path().join("set.jsonl"), &set).unwrap();
        let begin = |threads: &'static str| {
            let at = |ending: &str| folder.path().join(format!("{threads}.{ending}"));
            let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
            command.args(["golden", "--format", "json", "--threads", threads, "--policy"]);
            command.arg(format!("policies/{name}")).arg(folder.path().join("set.jsonl"));
            command.arg("--junit").arg(at("xml")).arg("--report").arg(at("html"));
            let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            (child, [at("xml"), at("html")])
        };
        // All at once: a machine that is busy gives them their turns in another order each time.
        let running = ["1", "2", "3", "8"].map(begin);
        let ended = running.map(|(child, reports)| {
            let done = child.wait_with_output().unwrap();
            assert_eq!(done.status.code(), Some(1), "{}", String::from_utf8_lossy(&done.stderr));
            (done.stdout, reports.map(|report| std::fs::read_to_string(report).unwrap()))
        });
        let (told, [junit, _]) = &ended[0];
        let told: Value = serde_json::from_slice(told).unwrap();
        let records = set.lines().count();
        assert_eq!((&told["records"], junit.matches("<testcase ").count()), (&records.into(), records), "{name}");
        assert!(junit.matches("<failure ").count() * 10 > records * 9, "{name}");
        for other in &ended[1..] {
            assert!(*other == ended[0], "{name}: not the same on another number of threads");
        }
    }
}
