//! The configuration as it is written.
//!
//! These structs are the file's JSON Schema, too. Every member is an `Option`, because a file with errors is read as
//! far as it goes, so that all its errors are reported at once; which members must be there is said by `required` and
//! checked by the schema before. None of them derives `Debug`: they hold expanded secrets.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::unit::PRICE;
use crate::config::unit::Size;
use crate::config::unit::Span;
use crate::dialect::table::BackendKind;
use crate::dialect::table::CapabilityOverrides;

/// The configuration of the Portcullis gateway.
///
/// `${env:NAME}`, `${env:NAME:-default}` and `${file:PATH}` are expanded in every text value. Sizes (`32MiB`) and
/// durations (`1m30s`) carry units. Relative paths start at the file's folder.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Portcullis configuration")]
pub(super) struct ConfigFile {
    /// The version of this format.
    #[schemars(required, extend("const" = 1))]
    pub(super) version: Option<u32>,
    /// The main listener, where clients call.
    pub(super) listen: Option<ListenFile>,
    /// The admin listener: probes and metrics.
    pub(super) admin: Option<AdminFile>,
    /// Who may call.
    #[schemars(required)]
    pub(super) auth: Option<AuthFile>,
    /// Provider endpoints by a name of your choice.
    #[schemars(required, extend("minProperties" = 1))]
    pub(super) backends: Option<BTreeMap<String, BackendFile>>,
    /// Model aliases: the names that clients put in `model`. `*` serves every other name, under that name.
    #[schemars(required, extend("minProperties" = 1))]
    pub(super) models: Option<BTreeMap<String, ModelFile>>,
    /// The folder of policies, each a folder in it; without it, there are none.
    #[schemars(length(min = 1))]
    pub(super) policies: Option<String>,
    /// What is said of a policy without a control that must be accepted, or without one for each of its gates.
    #[schemars(extend("default" = "warn"))]
    pub(super) controls: Option<ControlsFile>,
    /// The audit record; without it, none is written.
    pub(super) audit: Option<AuditFile>,
    /// The log.
    pub(super) telemetry: Option<TelemetryFile>,
    /// How a changed file is taken up.
    #[schemars(extend("default" = "never"))]
    pub(super) reload: Option<ReloadFile>,
    /// How long requests in flight may take to finish after SIGTERM.
    #[schemars(extend("default" = "30s"))]
    pub(super) drain: Option<Span>,
}

/// The main listener.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Listen")]
pub(super) struct ListenFile {
    /// IP address and port; port 0 takes a free one.
    #[schemars(extend("default" = "127.0.0.1:8787"))]
    pub(super) address: Option<String>,
    /// TLS; without it, the listener speaks plain HTTP.
    pub(super) tls: Option<ServerTlsFile>,
    /// Bounds on size, time and number.
    pub(super) limits: Option<LimitsFile>,
    /// How answers are held while they are judged.
    pub(super) hold: Option<HoldFile>,
    /// Origins that a browser may call from, such as `https://app.example.com`; a request with any other `Origin` is
    /// refused.
    #[schemars(extend("default" = []))]
    pub(super) cors: Option<Vec<String>>,
    /// Whether `x-portcullis-*` headers are added to answers.
    #[schemars(extend("default" = true))]
    pub(super) headers: Option<bool>,
    /// Networks (`10.0.0.0/8`) or addresses of peers that are believed when they say for whom they call; `[]` believes
    /// nobody.
    #[schemars(extend("default" = ["127.0.0.0/8"]))]
    pub(super) trusted_proxies: Option<Vec<String>>,
}

/// Certificate and key of the main listener, as PEM files.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "ServerTls")]
pub(super) struct ServerTlsFile {
    /// The PEM file with the server's certificate, then those that lead to its authority.
    #[schemars(required, length(min = 1))]
    pub(super) certificate: Option<String>,
    /// The PEM file with the certificate's key, not encrypted.
    #[schemars(required, length(min = 1))]
    pub(super) key: Option<String>,
    /// The PEM file with the authorities of clients: only who shows a certificate of one of them is let in (mTLS).
    #[schemars(length(min = 1))]
    pub(super) client_ca: Option<String>,
}

/// Bounds of the main listener.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Limits")]
pub(super) struct LimitsFile {
    /// Size of one request body.
    #[schemars(extend("default" = "32MiB"))]
    pub(super) body: Option<Size>,
    /// Size of one answer that is held for judgement.
    #[schemars(extend("default" = "64MiB"))]
    pub(super) response: Option<Size>,
    /// Size of a request's head.
    #[schemars(extend("default" = "64KiB"))]
    pub(super) headers: Option<Size>,
    /// Time for a request's head to arrive.
    #[schemars(extend("default" = "10s"))]
    pub(super) header_timeout: Option<Span>,
    /// Time that a connection may lie idle, and that a request body may pause.
    #[schemars(extend("default" = "75s"))]
    pub(super) idle_timeout: Option<Span>,
    /// Requests under way at once.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 4096))]
    pub(super) in_flight: Option<u32>,
    /// Size of all request and answer bodies held at once.
    #[schemars(extend("default" = "512MiB"))]
    pub(super) held: Option<Size>,
    /// Bounds of a JSON Schema that a caller sends.
    pub(super) schema: Option<SchemaLimitsFile>,
}

/// Bounds of a JSON Schema that a caller sends.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "SchemaLimits")]
pub(super) struct SchemaLimitsFile {
    /// Size of its text.
    #[schemars(extend("default" = "256KiB"))]
    pub(super) bytes: Option<Size>,
    /// Levels of lists and mappings in its text.
    #[schemars(range(min = 1, max = 127), extend("default" = 64))]
    pub(super) depth: Option<u32>,
    /// Subschemas that one instance node can meet, references followed.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 10_000))]
    pub(super) expanded: Option<u32>,
}

/// How answers are held while they are judged.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Hold")]
pub(super) struct HoldFile {
    /// How long a held stream is silent before comments keep it alive.
    #[schemars(extend("default" = "10s"))]
    pub(super) keepalive_after: Option<Span>,
}

/// The admin listener.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Admin")]
pub(super) struct AdminFile {
    /// IP address and port; port 0 takes a free one. An address that is not loopback demands a token.
    #[schemars(extend("default" = "127.0.0.1:8788"))]
    pub(super) address: Option<String>,
    /// The bearer token of admin calls; an empty one is none. Probes and metrics are exempt.
    pub(super) token: Option<String>,
}

/// Who may call.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Auth")]
pub(super) struct AuthFile {
    /// How a caller is known. There is no default.
    #[schemars(required)]
    pub(super) mode: Option<AuthModeFile>,
    /// Whether addresses other than loopback ones are served; then no key of the operator's is ever spent.
    #[schemars(extend("default" = false))]
    pub(super) allow_remote: Option<bool>,
}

/// How a caller is known.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", rename = "AuthMode")]
pub(super) enum AuthModeFile {
    /// Anyone who reaches the listener.
    None,
    /// The caller brings the provider's key, which goes to backends with `credentials: caller`.
    Passthrough,
}

/// One provider endpoint.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Backend")]
pub(super) struct BackendFile {
    /// Its wire format and manners.
    #[schemars(required)]
    pub(super) kind: Option<BackendKind>,
    /// Where it is, with or without `/v1` at the end. `openai`, `lmstudio`, `llamacpp` and `vllm` have their usual
    /// address as default.
    pub(super) base_url: Option<String>,
    /// Whom TLS trusts there, and what is shown to it.
    #[schemars(extend("minProperties" = 1))]
    pub(super) tls: Option<ClientTlsFile>,
    /// The HTTP proxy that calls go through: `http://host:port`, with `user:password@` before the host where it asks for
    /// them. An empty text is none. Without the member, `HTTPS_PROXY`, `HTTP_PROXY` or `ALL_PROXY` of the environment
    /// is taken, but not for a backend on loopback. `NO_PROXY` takes hosts out of all of these.
    pub(super) proxy: Option<String>,
    /// The operator's key, sent as a bearer token.
    pub(super) api_key: Option<String>,
    /// Whose key is sent, where it is not the operator's.
    pub(super) credentials: Option<CredentialsFile>,
    /// How long each phase of a call may take.
    pub(super) timeouts: Option<TimeoutsFile>,
    /// Calls under way at once; more of them wait.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 256))]
    pub(super) concurrency: Option<u32>,
    /// What it can do, where that is not what its kind can do.
    pub(super) capabilities: Option<CapabilityOverrides>,
    /// Headers added to every request.
    pub(super) headers: Option<BTreeMap<String, String>>,
}

/// Whom TLS trusts at a backend, and what is shown to it, as PEM files.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "ClientTls")]
pub(super) struct ClientTlsFile {
    /// The PEM file with the authorities that are trusted, in place of the public ones.
    #[schemars(length(min = 1))]
    pub(super) ca: Option<String>,
    /// The PEM file with the gateway's own certificate, then those that lead to its authority. Asks for `key`.
    #[schemars(length(min = 1))]
    pub(super) certificate: Option<String>,
    /// The PEM file with the certificate's key, not encrypted.
    #[schemars(length(min = 1))]
    pub(super) key: Option<String>,
}

/// Whose key is sent.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", rename = "Credentials")]
pub(super) enum CredentialsFile {
    /// The caller's own, unchanged. Asks for `auth.mode: passthrough`.
    Caller,
}

/// How long each phase of a call to a backend may take.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Timeouts")]
pub(super) struct TimeoutsFile {
    /// Until the connection stands, TLS included.
    #[schemars(extend("default" = "2s"))]
    pub(super) connect: Option<Span>,
    /// From the request's last byte to the first byte of the answer.
    #[schemars(extend("default" = "60s"))]
    pub(super) first_byte: Option<Span>,
    /// Between two pieces of the answer.
    #[schemars(extend("default" = "30s"))]
    pub(super) idle: Option<Span>,
    /// For all attempts of one request together.
    #[schemars(extend("default" = "10m"))]
    pub(super) total: Option<Span>,
}

/// A model alias: a name that clients use, and the places behind it.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Model")]
pub(super) struct ModelFile {
    /// Where requests go, first to last.
    #[schemars(required, length(min = 1))]
    pub(super) targets: Option<Vec<TargetFile>>,
    /// How a target is chosen.
    #[schemars(extend("default" = "order"))]
    pub(super) route: Option<RouteFile>,
    /// Upstream calls that one request may cost: targets, native fallback, retry and escalation together.
    #[schemars(range(min = 1, max = 100), extend("default" = 4))]
    pub(super) upstream_calls_max: Option<u32>,
}

/// How a target is chosen.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", rename = "Route")]
pub(super) enum RouteFile {
    /// As listed; the next one where one fails.
    Order,
}

/// One place that a request can be sent to.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Target")]
pub(super) struct TargetFile {
    /// The name of a backend.
    #[schemars(required)]
    pub(super) backend: Option<String>,
    /// The model's name there; without it, the caller's own name.
    #[schemars(length(min = 1))]
    pub(super) model: Option<String>,
    /// What it costs there; without it, what a request costs is not known.
    pub(super) price: Option<PriceFile>,
}

/// What a model costs, in US dollars per million tokens, as decimals in quotes.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Price")]
pub(super) struct PriceFile {
    /// Tokens of the prompt.
    #[schemars(required, regex(pattern = PRICE))]
    pub(super) input: Option<String>,
    /// Tokens of the prompt that the backend had in its cache; without it, they cost what the others do.
    #[schemars(regex(pattern = PRICE))]
    pub(super) cached_input: Option<String>,
    /// Tokens of the answer.
    #[schemars(required, regex(pattern = PRICE))]
    pub(super) output: Option<String>,
}

/// What is said of a policy whose controls leave something untested.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", rename = "Controls")]
pub(super) enum ControlsFile {
    /// A warning.
    Warn,
    /// An error.
    Required,
}

/// The audit record.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Audit")]
pub(super) struct AuditFile {
    /// The JSON Lines file.
    #[schemars(required, length(min = 1))]
    pub(super) path: Option<String>,
    /// How much of a request's and an answer's text it holds.
    #[schemars(extend("default" = "full"))]
    pub(super) content: Option<AuditContentFile>,
    /// Whether judged traffic stops when a record cannot be written.
    #[schemars(extend("default" = true))]
    pub(super) required: Option<bool>,
}

/// How much text an audit record holds.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", rename = "AuditContent")]
pub(super) enum AuditContentFile {
    /// The model's text as it came.
    Full,
    /// No text of the caller's or the model's.
    None,
}

/// The log.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Telemetry")]
pub(super) struct TelemetryFile {
    /// A level (`error`, `warn`, `info`, `debug`, `trace`, `off`), or directives such as `info,portcullis=debug`.
    #[schemars(length(min = 1), extend("default" = "info"))]
    pub(super) log: Option<String>,
    /// Lines for people or for machines.
    #[schemars(extend("default" = "text"))]
    pub(super) log_format: Option<LogFormatFile>,
}

/// How log lines look.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", rename = "LogFormat")]
pub(super) enum LogFormatFile {
    /// For a person at a terminal.
    Text,
    /// One JSON object a line.
    Json,
}

/// How a changed file is taken up.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", rename = "Reload")]
pub(super) enum ReloadFile {
    /// By a restart.
    Never,
}
