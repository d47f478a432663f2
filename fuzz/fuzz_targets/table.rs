//! Any bytes as a file of reference data, and any text as numbers and dates: read or refused, never half.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis::contract::data::Table;
use portcullis::json::decimal::Decimal;

fuzz_target!(|bytes: &[u8]| {
    for name in ["t.json", "t.jsonl", "t.csv", "t.yaml"] {
        for key in [None, Some("a")] {
            let _ = Table::read(name, bytes, key);
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(number) = Decimal::read(text)
    {
        let again = Decimal::read(&number.to_string()).expect("what is printed is read");
        assert_eq!(again, number);
    }
});
