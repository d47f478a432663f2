//! Any text as a schema, under small limits: compiled or refused, within bounded time, and what is compiled judges.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use portcullis::contract::gate;
use portcullis::contract::schema::CompiledSchema;
use portcullis::settings::SchemaLimits;

const INSTANCES: &[&str] =
    &["null", "1.5", r#""aaaaaaaaaaaaaaaaaaaaaaaab""#, r#"[[],[1,"a"],{}]"#, r#"{"a":{"a":[{"a":{}}]},"b":1}"#];

fuzz_target!(|text: &[u8]| {
    let limits = SchemaLimits { bytes: 4 << 10, depth: 16, expanded: 500 };
    let Ok(schema) = CompiledSchema::compile(Bytes::copy_from_slice(text), limits) else { return };
    assert!(text.len() <= limits.bytes);
    let said = std::str::from_utf8(text).expect("a schema is text");
    if !schema.value().is_boolean() {
        assert!(gate::schema::check(&schema, said).is_some(), "a schema is no instance of itself");
    }
    for instance in INSTANCES {
        let verdict = gate::schema::check(&schema, instance);
        assert_eq!(verdict, gate::schema::check(&schema, instance), "the same verdict twice");
        let (admits, top) = (schema.admits(), instance.as_bytes()[0]);
        // Beside `$ref`, drafts 7 and older overlook `type`, which is then only what the extraction looks for.
        let overlooked = schema.value().get("$schema").is_some();
        if verdict.is_none() && !overlooked {
            assert!(admits.object || top != b'{', "an object passes, so objects are admitted");
            assert!(admits.array || top != b'[', "an array passes, so arrays are admitted");
        }
    }
});
