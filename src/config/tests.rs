//! The room as a whole: broken files and what is said of them.

use std::fmt::Write as _;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use secrecy::ExposeSecret;

use super::*;
use crate::catalog::Backend;
use crate::catalog::Credentials;
use crate::catalog::Timeouts;
use crate::dialect::table::BackendKind;
use crate::settings::AuthMode;
use crate::settings::Limits;
use crate::settings::LogFormat;

const MAIN: &str = include_str!("../../tests/config/sample-main.yaml");
const KEYS: &str = include_str!("../../tests/config/sample-keys.yaml");
const EXAMPLE: &str = include_str!("../../config/portcullis.yaml");
const SECRET: &str = "sk-secret-123";

fn env(name: &str) -> Option<String> {
    match name {
        "KEY" | "OPENAI_API_KEY" | "ANTHROPIC_API_KEY" | "GEMINI_API_KEY" => Some(SECRET.into()),
        "EMPTY" => Some(String::new()),
        "WORD" => Some("hunter2".into()),
        "URL" => Some("https://user:hunter2@example.com".into()),
        _ => None,
    }
}

fn read(text: &str) -> Result<Configuration, ConfigErrors> {
    load_text("portcullis.yaml", text, Path::new("/etc/portcullis"), &env)
}

fn errors(text: &str) -> String {
    told(read(text))
}

fn told(read: Result<Configuration, ConfigErrors>) -> String {
    read.map_or_else(|errors| errors.to_string(), |_| "(no error)".into())
}

/// A folder with a configuration's folder `config` in it, and beside that the folder `certs` of the design's sample,
/// the server's pair and the client's with one authority.
fn with_certificates() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let certs = folder.path().join("certs");
    std::fs::create_dir_all(folder.path().join("config")).unwrap();
    std::fs::create_dir_all(folder.path().join("policies")).unwrap();
    std::fs::create_dir_all(&certs).unwrap();
    let write = |name: &str, text: &str| std::fs::write(certs.join(name), text).unwrap();
    let mut authority = rcgen::CertificateParams::new([]).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let ca = authority.self_signed(&key).unwrap().pem();
    write("internal-ca.pem", &ca);
    write("clients.pem", &ca);
    let issuer = rcgen::Issuer::new(authority, key);
    for name in ["server", "client"] {
        let key = rcgen::KeyPair::generate().unwrap();
        let leaf = rcgen::CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        write(&format!("{name}.pem"), &leaf.pem());
        write(&format!("{name}.key"), &key.serialize_pem());
    }
    let garbage = "-----BEGIN CERTIFICATE-----\naHVudGVyMg==\n-----END CERTIFICATE-----\n";
    write("garbage.pem", garbage);
    write("half-garbage.pem", &format!("{ca}{garbage}"));
    write("garbage.key", "-----BEGIN PRIVATE KEY-----\naHVudGVyMg==\n-----END PRIVATE KEY-----\n");
    write("broken.key", "-----BEGIN PRIVATE KEY-----\nhunter2\n");
    write("empty.pem", "");
    folder
}

fn read_in(folder: &tempfile::TempDir, text: &str) -> Result<Configuration, ConfigErrors> {
    load_text("portcullis.yaml", text, &folder.path().join("config"), &env)
}

/// A file with the smallest of everything, and `parts` in place of its sections.
fn with(parts: &[&str]) -> String {
    let mut text = String::from("version: 1\n");
    let sections =
        ["auth: {mode: none}", "backends: {demo: {kind: demo}}", "models: {\"*\": {targets: [{backend: demo}]}}"];
    for section in sections {
        let name = section.split(':').next().unwrap();
        if !parts.iter().any(|part| part.starts_with(name)) {
            writeln!(text, "{section}").unwrap();
        }
    }
    for part in parts {
        writeln!(text, "{part}").unwrap();
    }
    text
}

/// Compares a whole report with its snapshot. The cases stand above the call, so the snapshot does not repeat them.
macro_rules! assert_report {
    ($report:expr) => {
        insta::with_settings!({omit_expression => true}, { insta::assert_snapshot!($report) })
    };
}

fn report(cases: &[(&str, String)]) -> String {
    let mut report = String::new();
    for (name, text) in cases {
        writeln!(report, "=== {name}\n{}\n", errors(text)).unwrap();
    }
    report
}

fn backend(text: &str, name: &str) -> std::sync::Arc<Backend> {
    let configuration = read(text).unwrap_or_else(|errors| panic!("{errors}"));
    let aliases = configuration.catalog.aliases.values().chain(&configuration.catalog.fallback);
    let mut targets = aliases.flat_map(|alias| alias.targets.clone());
    targets.find(|target| &*target.backend.name == name).unwrap().backend
}

#[test]
fn what_is_not_yaml_is_said_clearly() {
    let case = |name, text: &str| (name, text.to_owned());
    assert_report!(report(&[
        case("empty", ""),
        case("only comments", "# nothing\n"),
        case("only a document start", "---\n"),
        case("a list", "- 1\n"),
        case("a text", "hello\n"),
        case("two documents", "version: 1\n---\nversion: 1\n"),
        case("tab", "auth:\n\tmode: none\n"),
        case("byte order mark", "\u{feff}version: 1\n"),
        case("quote not closed", "version: 1\nbackends:\n  openai: {kind: openai, api_key: \"sk-secret-123\n"),
        case("bracket not closed", "version: 1\nbackends: {a: {kind: demo}\nauth: x\n"),
        case("star unquoted", "version: 1\nmodels:\n  *: {targets: []}\n"),
        case("two colons", "auth: mode: none\n"),
        case("at sign", "auth: @none\n"),
        case("control character", "auth: \u{1}\n"),
        case("tag", &with(&["drain: !!str 30s"])),
        case("directive", "%YAML 1.2\n---\nversion: 1\n"),
        case("duplicate", &with(&["drain: 30s", "drain: 40s"])),
        case("duplicate in a flow mapping", &with(&["admin: {token: hunter2, token: \"hunter3\"}"])),
        case("merge key", &with(&["x: &x {a: 1}", "admin: {<<: *x}"])),
        case("key is a list", &with(&["? [a]\n: b"])),
        case("key is a reference", &with(&["${env:KEY}: b"])),
        case("unknown anchor", &with(&["drain: *later"])),
        case("alias of itself", &with(&["admin: &a {token: *a}"])),
        case("not finite", &with(&["drain: .inf"])),
    ]));
}

#[test]
fn what_does_not_fit_the_schema_is_said_clearly() {
    assert_report!(report(&[
        ("nothing that is needed", "{}".into()),
        ("version", "version: 2\nauth: {}\nbackends: {}\nmodels: {}\n".into()),
        ("unknown member", with(&["lisen: {}", "listen: {adress: 127.0.0.1:1, colour: blue}"])),
        (
            "unknown member with a secret",
            with(&["backends: {demo: {kind: demo}, a: {kind: openai, api_kye: hunter2, apiKey: x}}"])
        ),
        ("wrong types", with(&["listen: {headers: yes, cors: https://a.b, limits: {in_flight: \"5\"}}", "drain: 30"])),
        ("wrong types 2", with(&["listen:", "admin: [1]", "telemetry: {log: 3}", "audit: true"])),
        ("mapping expected", with(&["backends: {openai: hunter2, demo: {kind: demo}}", "models: sk-secret-123"])),
        ("bad values", with(&["auth: {mode: noen}", "telemetry: {log_format: xml}", "reload: nevr"])),
        ("bad kind", with(&["backends: {demo: {kind: demo}, a: {kind: opnai}, b: {kind: 3}, c: {}}"])),
        ("credentials with a key", with(&["backends: {demo: {kind: demo}, a: {kind: openai, credentials: hunter2}}"])),
        (
            "sizes",
            with(&[
                "listen: {limits: {body: 32, response: 32MB, headers: 0B, held: 9999999999GiB, schema: {bytes: \"\"}}}"
            ])
        ),
        (
            "durations",
            with(&[
                "listen: {limits: {header_timeout: 10, idle_timeout: 1d}, hold: {keepalive_after: 0s}}",
                "drain: 30s1m"
            ])
        ),
        ("numbers", with(&["listen: {limits: {in_flight: 0, schema: {depth: 1.5, expanded: 99999999999999999999}}}"])),
        (
            "targets",
            with(&[
                "models: {a: {targets: []}, b: {}, c: {targets: [3]}, d: {targets: [{model: x}]}, e: {targets: [{backend: demo, model: \"\"}]}}"
            ])
        ),
        (
            "capabilities",
            with(&[
                "backends: {demo: {kind: demo, capabilities: {json_schema: lax, json_objct: true, reasoning_tags: [{open: a}]}}}"
            ])
        ),
        (
            "from a reference",
            with(&["drain: \"${env:WORD}\"", "auth: {mode: \"${env:WORD}\"}", "listen: {headers: \"${env:WORD}\"}"])
        ),
        ("odd names", with(&["models: {\"a.b\": {x: 1}, \"sk-secret-123\": {y: 2}}"])),
    ]));
}

#[test]
fn what_contradicts_itself_is_said_clearly() {
    let openai = "backends: {demo: {kind: demo}, a: {kind: openai, api_key: \"${env:KEY}\"}}";
    let routed = "models: {m: {targets: [{backend: a}]}, n: {targets: [{backend: demo}]}}";
    assert_report!(report(&[
        ("backend not defined", "version: 1\nauth: {mode: none}\nbackends:\n  local: {kind: demo}\nmodels:\n  a: {targets: [{backend: locl}]}\n  b: {targets: [{backend: zzz}]}\n  c: {targets: [{backend: \"${env:WORD}\"}]}\n".into()),
        ("no error follows from a broken backend", with(&["backends: {demo: {kind: demo}, a: {kind: x}, b: 3}", "models: {m: {targets: [{backend: a}, {backend: b}]}}"])),
        ("addresses", with(&["listen: {address: localhost:80}", "admin: {address: \"[::1\"}"])),
        ("remote", with(&["listen: {address: 0.0.0.0:8787}", "admin: {address: 0.0.0.0:9000}"])),
        ("remote, empty token", with(&["admin: {address: 0.0.0.0:9000, token: \"${env:EMPTY}\"}"])),
        ("token", with(&["admin: {token: \"a b hunter2\"}"])),
        ("one port", with(&["admin: {address: 127.0.0.1:8787}"])),
        ("remote spends a key", with(&["auth: {mode: none, allow_remote: true}", openai, routed])),
        ("remote spends a key in a header", with(&["auth: {mode: passthrough, allow_remote: true}", "backends: {a: {kind: vllm, headers: {x-api-key: hunter2}}, demo: {kind: demo}}", routed])),
        ("caller without passthrough", with(&["backends: {a: {kind: openai, credentials: caller, api_key: \"${env:KEY}\"}, demo: {kind: demo}}", routed])),
        ("caller to two hosts", with(&["auth: {mode: passthrough}", "backends: {a: {kind: openai, credentials: caller}, b: {kind: openai_compatible, base_url: \"https://b.example\", credentials: caller}}", "models: {m: {targets: [{backend: a}, {backend: b}]}}"])),
        ("keys", with(&["backends: {demo: {kind: demo}, a: {kind: openai, api_key: \"${env:EMPTY}\"}, b: {kind: openai, api_key: \"hun ter2\"}}"])),
        ("demo takes nothing", with(&["backends: {demo: {kind: demo, base_url: \"http://x\", tls: {ca: x.pem}, proxy: \"\", api_key: hunter2, credentials: caller, headers: {x: y}}}"])),
        ("base urls", with(&["backends:\n  demo: {kind: demo}\n  a: {kind: openai_compatible}\n  b: {kind: vllm, base_url: \"ftp://x\"}\n  c: {kind: vllm, base_url: \"https://user:hunter2@x/v1\"}\n  d: {kind: vllm, base_url: \"https://x/v1?key=hunter2\"}\n  e: {kind: vllm, base_url: \"https://x/#hash\"}\n  f: {kind: vllm, base_url: user:hunter2@host}\n  g: {kind: vllm, base_url: \"${env:URL}\"}\n  h: {kind: vllm, base_url: \"https://x:99999\"}"])),
        ("headers", with(&["backends:\n  demo: {kind: demo}\n  a:\n    kind: vllm\n    headers:\n      authorization: hunter2\n      Connection: close\n      \"x y: hunter2\": z\n      x-a: \"h\\u00fcnter2\"\n      x-b: hunter2\n      X-B: hunter2"])),
        ("names", with(&["backends: {demo: {kind: demo}, \"a b\": {kind: demo}}", "models: {\"gpt-*\": {targets: [{backend: demo}]}, \" x\": {targets: [{backend: demo}]}}"])),
        ("origins", with(&["listen: {cors: [\"*\", https://a.example/, https://A.example, https://a.example:443, null]}"])),
        ("origins 2", with(&["listen: {cors: [\"*\", https://a.example/, https://A.example, https://a.example:443, https://ok.example]}"])),
        ("trusted proxies", with(&["listen: {trusted_proxies: [127.0.0.1/8, localhost, \"::1/129\", 10.0.0.0/8, \"${env:WORD}\", \"fd00::1/8\"]}"])),
        ("trusted proxies 2", with(&["listen: {trusted_proxies: 127.0.0.0/8}"])),
        ("trusted proxies 3", with(&["listen: {trusted_proxies: [10]}"])),
        ("log", with(&["telemetry: {log: inof}"])),
        ("log 2", with(&["telemetry: {log: \"info,portcullis=loud\"}"])),
    ]));
}

#[test]
fn what_a_reference_cannot_bring_is_said_clearly() {
    let token = |reference: &str| with(&[&format!("admin: {{token: \"{reference}\"}}")]);
    assert_report!(report(&[
        ("not set", token("${env:NOT_SET}")),
        ("two not set", token("${env:NOT_SET}${env:NOR_THIS}")),
        ("no name", token("${env:}")),
        ("no name 2", token("${env:a b:-c}")),
        ("no kind", token("${NOT_SET}")),
        ("not closed", token("${env:KEY")),
        ("nested", token("${env:A:-${env:B}}")),
        ("no such file", token("${file:missing.txt}")),
        ("no file", token("${file:}")),
        (
            "default is hidden",
            with(&["backends: {demo: {kind: demo}, a: {kind: openai, api_key: \"${env:NOT_SET:-hunter 2}\"}}"])
        ),
    ]));
}

#[test]
fn the_sample_of_the_design_says_what_is_not_available_and_nothing_else() {
    let folder = with_certificates();
    let messages = read_in(&folder, MAIN).unwrap_err();
    let found = messages.to_string();
    assert_report!(found);
    assert!(messages.iter().all(|error| error.message.contains("is not available in this version")), "{found}");
}

const USED: &str = "models: {\"*\": {targets: [{backend: a}, {backend: demo}]}}";

#[test]
fn key_material_that_cannot_be_used_is_said_clearly() {
    let folder = with_certificates();
    let listen = |tls: &str| with(&[&format!("listen: {{tls: {tls}}}")]);
    let backend = |more: &str| with(&[&format!("backends: {{demo: {{kind: demo}}, a: {{kind: vllm, {more}}}}}"), USED]);
    let https = |tls: &str| backend(&format!("base_url: \"https://h\", tls: {tls}"));
    let cases = [
        (
            "good",
            listen("{certificate: ../certs/server.pem, key: ../certs/server.key, client_ca: ../certs/clients.pem}"),
        ),
        ("missing members", listen("{client_ca: ../certs/clients.pem}")),
        ("nothing", listen("")),
        ("misspelt", listen("{cert: ../certs/server.pem, key: ../certs/server.key, clientCa: x.pem}")),
        ("empty texts", listen("{certificate: \"\", key: \"\"}")),
        ("missing files", listen("{certificate: nowhere.pem, key: ../certs/no/key.pem, client_ca: /nowhere}")),
        (
            "missing secrets",
            listen("{certificate: \"/nowhere/secrets/it's.pem\", key: /nowhere/secrets/tls/server.key}"),
        ),
        ("a folder", listen("{certificate: ../certs, key: ../certs/server.key}")),
        ("swapped", listen("{certificate: ../certs/server.key, key: ../certs/server.pem}")),
        ("another's key", listen("{certificate: ../certs/server.pem, key: ../certs/client.key}")),
        ("garbage", listen("{certificate: ../certs/garbage.pem, key: ../certs/server.key}")),
        ("garbage 2", listen("{certificate: ../certs/server.pem, key: ../certs/garbage.key}")),
        (
            "garbage 3",
            listen(
                "{certificate: ../certs/server.pem, key: ../certs/server.key, client_ca: ../certs/half-garbage.pem}",
            ),
        ),
        (
            "broken",
            listen("{certificate: ../certs/empty.pem, key: ../certs/broken.key, client_ca: ../certs/clients.pem}"),
        ),
        ("from a reference", listen("{certificate: \"${env:WORD}\", key: \"${env:WORD}\"}")),
        (
            "the text of a key",
            listen("{certificate: ../certs/server.pem, key: \"-----BEGIN PRIVATE KEY----- hunter2\"}"),
        ),
        ("the text of a key 2", listen("{certificate: ../certs/server.pem, key: \"${file:../certs/server.key}\"}")),
        (
            "good backend",
            https("{ca: ../certs/internal-ca.pem, certificate: ../certs/client.pem, key: ../certs/client.key}"),
        ),
        ("nothing for a backend", https("{}")),
        ("one without the other", https("{certificate: ../certs/client.pem}")),
        ("one without the other 2", https("{ca: ../certs/internal-ca.pem, key: ../certs/client.key}")),
        (
            "a backend's files",
            https("{ca: ../certs/empty.pem, certificate: ../certs/client.pem, key: ../certs/server.key}"),
        ),
        (
            "a backend's files 2",
            https("{ca: ../certs/garbage.pem, certificate: ../certs/client.pem, key: ../certs/client.key}"),
        ),
        ("another's key for a backend", https("{certificate: ../certs/client.pem, key: ../certs/server.key}")),
        ("http", backend("base_url: \"http://h\", tls: {ca: ../certs/internal-ca.pem}")),
        ("http by default", backend("tls: {ca: ../certs/nowhere.pem}")),
    ];
    let report: String =
        cases.iter().map(|(name, text)| format!("=== {name}\n{}\n\n", told(read_in(&folder, text)))).collect();
    assert!(!report.contains("hunter2") && !report.contains("aHVudGVyMg"), "{report}");
    assert_report!(report);
}

#[test]
fn key_material_is_read_and_never_shown() {
    let folder = with_certificates();
    let text = with(&[
        "listen:\n  tls: {certificate: ../certs/server.pem, key: ../certs/server.key, client_ca: ../certs/clients.pem}\n  \
         trusted_proxies: [10.0.0.0/8, \"::1\"]",
        "backends:\n  demo: {kind: demo}\n  a: {kind: vllm, base_url: \"https://h\", tls: {ca: ../certs/internal-ca.pem, \
         certificate: ../certs/client.pem, key: ../certs/client.key}}",
        USED,
    ]);
    let Configuration { settings, catalog, warnings, .. } =
        read_in(&folder, &text).unwrap_or_else(|errors| panic!("{errors}"));
    let listen = settings.listen;
    assert_eq!(listen.trusted_proxies, ["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()]);
    let tls = listen.tls.unwrap();
    assert_eq!((tls.identity.certificates.len(), tls.client_ca.as_ref().unwrap().len()), (1, 1));
    let backend = &catalog.fallback.as_ref().unwrap().targets[0].backend;
    let client = backend.tls.as_ref().unwrap();
    assert_eq!(client.ca, tls.client_ca);
    assert_ne!(client.identity.as_ref().unwrap().certificates, tls.identity.certificates);
    assert_eq!(warnings, Vec::<String>::new());
    let debug = format!("{tls:?}{client:?}");
    let key = format!("{:?}", tls.identity.key.expose_secret());
    assert!(debug.contains("REDACTED") && !debug.contains(key.trim_matches(['[', ']'])), "{debug}");
    let empty = read(&with(&["listen: {trusted_proxies: []}"])).unwrap();
    assert!(empty.settings.listen.trusted_proxies.is_empty());
}

/// The configuration of one backend `a` with `more` members, where the environment has these variables.
fn proxied(more: &str, variables: &[(&str, &str)]) -> Result<Configuration, ConfigErrors> {
    let text = with(&[&format!("backends: {{demo: {{kind: demo}}, a: {{kind: openai_compatible, {more}}}}}"), USED]);
    let env = |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned());
    load_text("portcullis.yaml", &text, Path::new("/etc/portcullis"), &env)
}

#[test]
fn a_backend_is_called_through_its_own_proxy_or_that_of_the_environment() {
    let https = "base_url: \"https://llm.example.com\"";
    let http = "base_url: \"http://10.0.0.5:8000\"";
    let own = |base: &str, proxy: &str| format!("{base}, proxy: \"{proxy}\"");
    let from_environment = own(https, "${env:HTTPS_PROXY:-}");
    for (more, variables, through) in [
        (https, &[][..], None),
        (https, &[("HTTPS_PROXY", "http://p:1")], Some("p:1")),
        (https, &[("https_proxy", "http://p:1")], Some("p:1")),
        (https, &[("HTTPS_PROXY", ""), ("https_proxy", "p:1")], Some("p:1")),
        (https, &[("ALL_PROXY", "http://p:1")], Some("p:1")),
        (https, &[("all_proxy", "http://p:1"), ("HTTPS_PROXY", "http://q:1")], Some("q:1")),
        (https, &[("HTTP_PROXY", "http://p:1")], None),
        (http, &[("HTTP_PROXY", "http://p:1"), ("HTTPS_PROXY", "socks5://x:1")], Some("p:1")),
        (http, &[("http_proxy", "http://p:1")], Some("p:1")),
        (http, &[("HTTPS_PROXY", "http://p:1")], None),
        (https, &[("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", "localhost, .example.com")], None),
        (https, &[("HTTPS_PROXY", "http://p:1"), ("no_proxy", "example.com:443")], None),
        (https, &[("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", "example.com:8443")], Some("p:1")),
        (http, &[("HTTP_PROXY", "http://p:1"), ("NO_PROXY", "10.0.0.0/8")], None),
        // What is not used need not be usable.
        (https, &[("HTTPS_PROXY", "socks5://p:1"), ("NO_PROXY", "*")], None),
        (https, &[("NO_PROXY", "exa*mple")], None),
        // Loopback takes none of the environment.
        ("base_url: \"http://127.0.0.1:8000\"", &[("HTTP_PROXY", "socks5://p:1")], None),
        ("base_url: \"http://LOCALHOST:8000\"", &[("HTTP_PROXY", "http://p:1")], None),
        ("base_url: \"https://[::1]:8000\"", &[("ALL_PROXY", "http://p:1")], None),
        // The backend's own says it all, but for `NO_PROXY`.
        (&own(https, "http://own:1"), &[("HTTPS_PROXY", "http://p:1")], Some("own:1")),
        (&own(https, ""), &[("HTTPS_PROXY", "http://p:1")], None),
        (&own(https, "http://own:1"), &[("NO_PROXY", "example.com")], None),
        (&own("base_url: \"http://localhost:1\"", "http://own:1"), &[("HTTP_PROXY", "socks5://p:1")], Some("own:1")),
        (&own("base_url: \"http://localhost:1\"", "http://own:1"), &[("NO_PROXY", "localhost")], None),
        (&from_environment, &[("HTTPS_PROXY", "http://p:1")], Some("p:1")),
        (&from_environment, &[("ALL_PROXY", "http://p:1")], None),
        (&from_environment, &[("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", "*")], None),
    ] {
        let configuration = proxied(more, variables).unwrap_or_else(|errors| panic!("{errors}"));
        let backend = &configuration.catalog.fallback.unwrap().targets[0].backend;
        let found = backend.proxy.as_ref().map(|proxy| proxy.authority.as_str());
        assert_eq!(found, through, "{more} {variables:?}");
    }
}

#[test]
fn a_proxy_that_cannot_be_used_is_said_clearly_and_its_password_is_not() {
    let https = "base_url: \"https://llm.example.com\"";
    let own = |proxy: &str| format!("{https}, proxy: \"{proxy}\"");
    let cases: [(String, &[(&str, &str)]); 13] = [
        (own("https://u:hunter2@p:1"), &[]),
        (own("socks5://u:hunter2@p:1"), &[]),
        (own("http://u:hunter2@p"), &[]),
        (own("u:hunter2@p:1/x"), &[]),
        (own("http://u:hun%ter2@p:1"), &[]),
        (own("${env:HTTPS_PROXY}"), &[("HTTPS_PROXY", "https://u:hunter2@p:1")]),
        (own("http://u:hunter2@p:1") + ", x: 1", &[]),
        (own("http://u:hunter2@p:1"), &[("NO_PROXY", "a,hunter2/")]),
        (format!("{https}, proxy: [hunter2]"), &[]),
        (https.into(), &[("HTTPS_PROXY", "socks5h://u:hunter2@p:1")]),
        (https.into(), &[("https_proxy", "http://u:hunter2@p")]),
        (https.into(), &[("ALL_PROXY", "hunter2")]),
        (https.into(), &[("HTTPS_PROXY", "http://u:hunter2@p:1"), ("no_proxy", "hunter2*")]),
    ];
    let report: String =
        cases.iter().map(|(more, variables)| format!("{}\n\n", told(proxied(more, variables)))).collect();
    assert!(!report.contains("hunter2"), "{report}");
    assert_report!(report);
    let good = proxied(&own("http://u:hunter2@p:1"), &[]).unwrap();
    let debug = format!("{good:?}");
    assert!(!debug.contains("hunter2") && !debug.contains("dTpodW50ZXIy"), "{debug}");
}

#[test]
fn the_sample_of_keys_is_yaml() {
    let mut problems = problem::Problems::default();
    assert!(tree::parse(KEYS, "", &mut problems).is_some());
    assert!(problems.sorted().is_empty());
    assert!(errors(KEYS).contains("must be a mapping"));
}

#[test]
fn the_example_loads_without_an_environment() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/portcullis.yaml");
    let configuration = load(&path, &|_| None).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(configuration.warnings, Vec::<String>::new());
    assert!(configuration.catalog.fallback.is_some());
    assert!(configuration.catalog.aliases.contains_key("order-desk"));
}

/// The comments of the example say what the defaults are, so they must load, too.
#[test]
fn the_example_loads_with_its_comments_taken_in() {
    let optional = [
        "listen:",
        "  address",
        "  limits",
        "    {body",
        "     schema",
        "  hold",
        "  cors",
        "  headers",
        "  trusted_proxies",
        "admin",
        "reload",
        "drain",
        "telemetry",
        "audit",
    ];
    let taken: Vec<String> = EXAMPLE
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if optional.iter().any(|start| rest.starts_with(start)) => rest.to_owned(),
            _ => line.replace("  # allow_remote", "  allow_remote").replace("    # route", "    route"),
        })
        .collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config"); // the policies that it names are there
    let taken = load_text("portcullis.yaml", &taken.join("\n"), &folder, &env);
    let taken = taken.unwrap_or_else(|errors| panic!("{errors}"));
    let bare = read(&with(&[])).unwrap();
    assert_eq!(taken.settings.listen.limits, bare.settings.listen.limits);
    assert_eq!(taken.settings.listen.address, bare.settings.listen.address);
    assert_eq!(taken.settings.listen.headers, bare.settings.listen.headers);
    assert_eq!(taken.settings.listen.trusted_proxies, bare.settings.listen.trusted_proxies);
    assert_eq!(taken.settings.admin.address, bare.settings.admin.address);
    assert_eq!(taken.settings.drain, bare.settings.drain);
    assert_eq!(taken.settings.telemetry, bare.settings.telemetry);
    assert_eq!(taken.settings.audit.unwrap().path, folder.join("../var/audit.jsonl"));
}

#[test]
fn the_defaults_are_those_of_the_design() {
    let Configuration { settings, catalog, warnings, .. } = read(&with(&[])).unwrap();
    assert_eq!(settings.listen.address.to_string(), "127.0.0.1:8787");
    assert_eq!(settings.listen.limits, Limits::default());
    assert_eq!(settings.listen.limits.body, 32 << 20);
    assert_eq!(settings.listen.limits.held, 512 << 20);
    assert_eq!(settings.listen.keepalive_after, Duration::from_secs(10));
    assert!(settings.listen.cors.is_empty() && settings.listen.headers);
    assert!(settings.listen.tls.is_none());
    assert_eq!(settings.listen.trusted_proxies, ["127.0.0.0/8".parse().unwrap()]);
    assert_eq!(settings.admin.address.to_string(), "127.0.0.1:8788");
    assert!(settings.admin.token.is_none() && settings.audit.is_none());
    assert_eq!((settings.auth.mode, settings.auth.allow_remote), (AuthMode::None, false));
    assert_eq!((settings.telemetry.log.as_str(), settings.telemetry.format), ("info", LogFormat::Text));
    assert_eq!(settings.drain, Duration::from_secs(30));
    let alias = catalog.fallback.unwrap();
    assert_eq!((alias.upstream_calls_max, alias.targets.len()), (4, 1));
    assert_eq!(alias.targets[0].backend.timeouts, Timeouts::default());
    assert_eq!(alias.targets[0].backend.concurrency, 256);
    assert_eq!(warnings, Vec::<String>::new());
}

/// Every `default` of the schema, written into a file, changes nothing: the schema tells editors the truth.
#[test]
fn the_defaults_of_the_schema_are_the_defaults() {
    let text = with(&[
        "listen: {address: \"127.0.0.1:8787\", limits: {body: 32MiB, response: 64MiB, headers: 64KiB, header_timeout: 10s, \
         idle_timeout: 75s, in_flight: 4096, held: 512MiB, schema: {bytes: 256KiB, depth: 64, expanded: 10000}}}",
        "drain: 30s",
    ]);
    let written = read(&text).unwrap();
    assert_eq!(written.settings.listen.limits, Limits::default());
    let schema = schema();
    for (pointer, value) in [
        ("/$defs/Limits/properties/body/default", "32MiB"),
        ("/$defs/Limits/properties/idle_timeout/default", "75s"),
        ("/properties/drain/default", "30s"),
        ("/$defs/Audit/properties/content/default", "full"),
        ("/$defs/Timeouts/properties/total/default", "10m"),
    ] {
        assert_eq!(schema.pointer(pointer).and_then(|v| v.as_str()), Some(value), "{pointer}");
    }
}

#[test]
fn the_schema_compiles_says_no_null_and_lists_nothing_that_is_not_available() {
    let schema = schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert!(jsonschema::meta::is_valid(&schema));
    assert!(jsonschema::options().build(&schema).is_ok());
    let text = serde_json::to_string_pretty(&schema).unwrap();
    for word in ["\"null\"", "anyOf", "hashed", "anthropic", "signal", "weight", "otlp", "rotate"] {
        assert!(!text.contains(word), "{word} in {text}");
    }
    for pointer in ["/required", "/properties/auth/required", "/$defs/Backend/required", "/$defs/Target/required"] {
        assert!(schema.pointer(pointer).is_some(), "{pointer} in {text}");
    }
    assert_report!(text);
}

#[test]
fn a_full_file_is_resolved() {
    let text = with(&[
        "auth: {mode: passthrough}",
        "admin: {address: 0.0.0.0:9000, token: \"${env:KEY}\"}",
        "audit: {path: var/audit.jsonl, content: none, required: false}",
        "telemetry: {log: \"info,portcullis=debug,hyper::client=off\", log_format: json}",
        "listen: {cors: [https://ok.example, \"http://localhost:3000\", tauri://localhost], headers: false}",
        "backends:\n  demo: {kind: demo}\n  a: {kind: openai, api_key: \"${env:KEY}\", headers: {x-team: platform}, timeouts: {total: 1m30s}, concurrency: 7, capabilities: {json_object: false}}\n  b: {kind: openai, credentials: caller}\n  c: {kind: openai_compatible, base_url: http://10.0.0.1/v1}",
        "models:\n  a: {targets: [{backend: a, model: x}, {backend: demo}], upstream_calls_max: 2}\n  b: {targets: [{backend: b}]}\n  c: {targets: [{backend: c}]}",
    ]);
    let a = backend(&text, "a");
    assert!(matches!(&a.credentials, Credentials::Operator(key) if key.expose_secret() == SECRET));
    assert_eq!(a.base.as_ref().unwrap().path, "/v1");
    assert_eq!((a.concurrency, a.timeouts.total), (7, Duration::from_secs(90)));
    assert!(!a.capabilities.json_object);
    assert_eq!(a.headers[0].0, "x-team");
    assert!(matches!(backend(&text, "b").credentials, Credentials::Caller));
    assert!(matches!(backend(&text, "c").credentials, Credentials::None));
    let configuration = read(&text).unwrap();
    assert_eq!(configuration.settings.admin.token.as_ref().unwrap().expose_secret(), SECRET);
    assert_eq!(configuration.settings.audit.as_ref().unwrap().path, PathBuf::from("/etc/portcullis/var/audit.jsonl"));
    assert!(configuration.catalog.alias("nobody").is_none());
    let debug = format!("{configuration:?}");
    assert!(!debug.contains(SECRET) && !debug.contains("\"platform\""), "{debug}");
}

#[test]
fn aliases_are_followed_and_bounded() {
    let text =
        with(&["backends:\n  demo: &d {kind: demo}\n  other: *d", "models: {\"*\": {targets: [{backend: other}]}}"]);
    assert_eq!(backend(&text, "other").kind, BackendKind::Demo);
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let below = vec![format!("*a{}", level - 1); 10].join(", ");
        writeln!(bomb, "a{level}: &a{level} [{below}]").unwrap();
    }
    assert!(errors(&bomb).contains("stands for more than"), "{}", errors(&bomb));
    let deep = format!("a: {}{}", "[".repeat(3000), "]".repeat(3000));
    assert!(errors(&deep).contains("levels are nested"));
    let mut chain = String::from("a0: &a0 [x]\n");
    for level in 1..100 {
        writeln!(chain, "a{level}: &a{level} [*a{}]", level - 1).unwrap();
    }
    assert!(errors(&chain).contains("levels are nested, aliases followed"));
}

#[test]
fn a_file_of_errors_is_reported_in_bounded_time() {
    let mut text = String::from("{");
    for n in 0..3_000 {
        write!(text, "m{n}: sk-secret-123, ").unwrap();
    }
    text.push('}');
    let found = read(&text).unwrap_err();
    assert_eq!(found.iter().count(), 1001);
    assert!(found.to_string().ends_with("more errors are not listed; is this the right file?"));
    assert!(!found.to_string().contains(SECRET));
}

#[test]
fn the_embedded_configuration_serves_without_a_file() {
    let bare = embedded(&|_| None, &["fenced", "it's \"odd\": #1"]).unwrap_or_else(|errors| panic!("{errors}"));
    let names: Vec<_> = bare.catalog.aliases.keys().map(String::as_str).collect();
    assert_eq!(names, ["demo", "demo/fenced", "demo/it's \"odd\": #1"]);
    assert_eq!(bare.catalog.aliases["demo/fenced"].targets[0].model.as_deref(), Some("demo/fenced"));
    assert_eq!(bare.catalog.aliases["demo"].targets[0].model.as_deref(), Some("demo"));
    let fallback = bare.catalog.fallback.unwrap();
    assert_eq!((fallback.targets[0].backend.kind, fallback.targets[0].model.as_deref()), (BackendKind::Demo, None));
    assert_eq!(bare.warnings, Vec::<String>::new());
    let keyed = embedded(&env, &[]).unwrap();
    assert_eq!(keyed.catalog.fallback.unwrap().targets[0].backend.kind, BackendKind::Openai);
    assert_eq!(keyed.warnings, Vec::<String>::new());
    let empty = embedded(&|_| Some(String::new()), &[]).unwrap();
    assert_eq!(empty.catalog.fallback.unwrap().targets[0].backend.kind, BackendKind::Demo);
}

#[test]
fn a_file_is_read_from_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("portcullis.yaml");
    let missing = load(&path, &|_| None).unwrap_err().to_string();
    assert!(missing.contains("cannot be opened"), "{missing}");
    std::fs::write(folder.path().join("token.txt"), "hunter2\n").unwrap();
    std::fs::write(&path, with(&["admin: {token: \"${file:token.txt}\"}", "audit: {path: a.jsonl}"])).unwrap();
    let configuration = load(&path, &|_| None).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(configuration.settings.admin.token.unwrap().expose_secret(), "hunter2");
    assert_eq!(configuration.settings.audit.unwrap().path, folder.path().join("a.jsonl"));
    for (bytes, message) in [
        (b"version: 1\nauth: \xff\n".as_slice(), "byte 18 (on line 2)"),
        (b"\xff\xfev\0".as_slice(), "UTF-16"),
        (&[b'#'; (1 << 20) + 2], "larger than 1 MiB"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let found = load(&path, &|_| None).unwrap_err().to_string();
        assert!(found.contains(message), "{found}");
    }
}

#[test]
fn what_is_probably_not_meant_is_warned_of() {
    let text = with(&[
        "listen: {limits: {held: 1MiB}, trusted_proxies: [0.0.0.0/0]}",
        "backends: {demo: {kind: demo}, a: {kind: vllm, base_url: \"http://10.0.0.1\", api_key: k}, b: {kind: openai}}",
        "models: {\"*\": {targets: [{backend: demo}, {backend: b}], upstream_calls_max: 1}}",
    ]);
    assert_report!(read(&text).unwrap().warnings.join("\n"));
}

/// Places where a secret may stand, `@` for it. Each file has an error on the secret's line, and some beside it.
const PLACES: [&str; 53] = [
    "backends: {a: {kind: openai, api_key: @, x: 1}}",
    "backends: {a: {kind: openai, api_key: '@', x: 1}}",
    "backends: {a: {kind: openai, api_key: \"@\", x: 1}}",
    "backends: {a: {kind: openai, api_key: \"@",
    "backends: {a: {kind: openai, api_key: \"one\n   @ two\", x: 1}}",
    "backends:\n  a:\n    api_key: |\n      @\n      @\n    x: 1",
    "backends:\n  a:\n    api_key: >-\n\t@\n    x: 1",
    "backends: {a: {kind: openai, api_key: [@], x: 1}}",
    "backends: {a: {kind: openai, api_key: {@: @}, x: 1}}",
    "backends: {a: {kind: openai, api_key: x, api_key: @}}",
    "backends: {a: {kind: openai, \"api\\x5fkey\": @, x: 1}}",
    "backends: {a: {kind: openai, api_key: \"${env:NONE:-@}\", x: 1}}",
    "backends: {a: {kind: openai, api_key: \"${@}\", x: 1}}",
    "backends: {a: {kind: openai, api_key: &k @, x: *k}}",
    "backends: {a: {kind: openai, x: &k @, api_key: *k}}",
    "backends: {a: {kind: vllm, base_url: \"https://u:@@h/v1\", x: 1}}",
    "backends: {a: {kind: vllm, base_url: \"https://h/v1?k=@\", x: 1}}",
    "backends: {a: {kind: vllm, base_url: \"https://u:@\\x40h\", x: 1}}",
    "backends: {a: {kind: vllm, headers: {authorization: Bearer @}, x: 1}}",
    "backends: {a: {kind: vllm, headers: {x-key: @, x y: 1}}}",
    "backends: {a: {kind: vllm, headers: [\"x-key: @\"]}}",
    "backends: {a: {kind: vllm, proxy: \"http://u:@@h\", x: 1}}",
    "backends: {a: {kind: vllm, proxy: \"u:@@h\", x: 1}}",
    "backends: {a: {kind: vllm, proxy: \"socks5://u:@@h:1\"}}",
    "backends: {a: {kind: vllm, proxy: \"http://u:@ @@h:1\"}}",
    "backends: {a: {kind: vllm, proxy: [\"http://u:@ @@h:1\"]}}",
    "backends: {a: {kind: vllm, tls: {ca: a.pem, key: @, x: 1}}}",
    "backends: {a: {kind: vllm, tls: {ca: \"-----BEGIN @\", x: 1}}}",
    "backends: {a: {kind: vllm, tls: {ca: a.pem, token: a.@, x: 1}}}",
    "listen: {tls: {certificate: a.pem, key: \"-----BEGIN PRIVATE KEY----- @ a.b\", x: 1}}",
    "listen:\n  tls:\n    certificate: a.pem\n    key: |\n      -----BEGIN PRIVATE KEY-----\n      @\n    x: 1",
    "listen: {tls: {certificate: a.pem, key: [@], x: 1}}",
    "admin: {token: @, x: 1, address: 9} # token: @",
    "admin: {tokn: @}",
    "auth: {mode: none, password: @}",
    "backends: {a: {kind: openai, credentials: @}}",
    "backends: {a: {kind: openai, api_key:@}}",
    "backends: {a: {kind: openai, api_key:* \"@\"}}",
    "backends: {a: {\"kind\":\"openai\",\"api_key\":\"@\",\"x\":1}}",
    "admin: {token: one,@, x: 1}",
    "admin: {token: *@, x: 1}",
    "backends: {a: {kind: vllm, headers: \"x-key: ${ @\"}}",
    "admin: {token: &@, x: 1}",
    "admin: {token: !@ , x: 1}",
    "admin: {token: !@ y, x: 1}",
    "admin:\n  token: #@",
    "admin:\n  token: &@\n  x: 1",
    "admin:\n  token: |@\n  x: 1",
    "backends: {a: {kind: vllm, headers: {x-key: *'@', y: &@ }}}",
    "admin: {token: one, two, @: 1}",
    "admin:\n  token: one #@\n  token: 2",
    "backends:\n  a:\n    kind: openai\n      api_key:@",
    "backends:\n  a:\n    kind: openai\n    api_key=@\n    x: 1",
];

#[test]
fn no_secret_is_ever_shown() {
    for secret in ["sk-secret-123", "hunter2"] {
        for place in PLACES {
            // `\x01` keeps the `@` of a URL apart from the mark.
            let text = place
                .replace("@@", "@\u{1}")
                .replacen('@', secret, 9)
                .replace(&format!("{secret}\u{1}"), &format!("{secret}@"));
            let found = read(&with(&[&text])).unwrap_err();
            assert!(!found.to_string().contains(secret), "{found}");
            assert!(!format!("{found:?}").contains(secret), "{found:?}");
        }
    }
}

fn shown_secret(text: &str) -> Option<String> {
    let found = read(text).err()?.to_string();
    found.contains("correct-horse").then_some(found)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC*") {
        let _ = read(&text).map_err(|errors| errors.to_string());
    }

    #[test]
    fn text_of_yaml_signs_never_panics(text in "(version|models|a|1|\"|'|\\{|\\}|\\[|\\]|: |, |\n|  |- |&a |\\*a|\t|#|\\$\\{env:|\\$\\{|[|>]|é|!|---\n){0,60}") {
        let _ = read(&text).map_err(|errors| errors.to_string());
    }

    /// A file with one piece cut out or put in never panics, is always told as the file's fault, and shows no secret.
    #[test]
    fn a_mutated_file_never_panics_and_shows_no_secret(
        which in 0..3_usize,
        at in any::<prop::sample::Index>(),
        cut in 0..12_usize,
        put in prop::sample::select(vec!["", "\"", "{", "}", "]", ": ", "\n", "\t", "*", "x", "\u{0}", "é", "${", "- ", "#", ","]),
    ) {
        let secret = "backends:\n  a: {kind: openai, api_key: \"correct-horse\", x: 1}\n  b:\n    kind: vllm\n    headers: {x-key: 'correct-horse'}\n    api_key: >-\n      correct-horse\nadmin: {token: correct-horse, x: 1}\n";
        let file = [MAIN, EXAMPLE, secret].get(which).copied().unwrap_or_default();
        let chars: Vec<char> = file.chars().collect();
        let start = at.index(chars.len());
        let end = (start + cut).min(chars.len());
        let mutated: String = chars[..start].iter().copied().chain(put.chars()).chain(chars[end..].iter().copied()).collect();
        // A cut through the name of a secret member takes its meaning away, so only whole names are held to this.
        let names_whole = mutated.matches("api_key").count() == file.matches("api_key").count() && mutated.matches("token").count() == file.matches("token").count() && mutated.matches("headers").count() == file.matches("headers").count();
        let found = read(&mutated).map_err(|errors| errors.to_string()).err().unwrap_or_default();
        prop_assert!(!found.contains("please report this"), "{}", found);
        if which == 2 && names_whole {
            prop_assert!(shown_secret(&mutated).is_none(), "{}\n---\n{}", found, mutated);
        }
    }
}
