//! How the gateway itself is run, resolved: listeners, limits, authentication, audit, telemetry.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretSlice;
use secrecy::SecretString;

use crate::network::Network;

/// Everything of the configuration that is not a backend or a model.
#[derive(Debug)]
pub struct Settings {
    /// The main listener.
    pub listen: Listen,
    /// The admin listener.
    pub admin: Admin,
    /// Who may call.
    pub auth: Auth,
    /// Where the audit record goes; none writes no record.
    pub audit: Option<Audit>,
    /// The log.
    pub telemetry: Telemetry,
    /// How long requests in flight may take to finish after SIGTERM.
    pub drain: Duration,
}

/// The main listener.
#[derive(Debug)]
pub struct Listen {
    /// Address and port; port 0 takes a free one.
    pub address: SocketAddr,
    /// Certificate, key and whose clients are let in; none serves plain HTTP.
    pub tls: Option<ServerTls>,
    /// Bounds on size, time and number.
    pub limits: Limits,
    /// How long a held stream is silent before comments keep it alive.
    pub keepalive_after: Duration,
    /// Origins that a browser may call from, besides none at all.
    pub cors: Vec<String>,
    /// Whether `x-portcullis-*` headers are added to answers.
    pub headers: bool,
    /// Peers that are believed when they say for whom they call. Empty believes nobody.
    pub trusted_proxies: Vec<Network>,
}

/// How the main listener proves who it is, and whom it lets in.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// The server's certificate and key.
    pub identity: Identity,
    /// Certificates (DER) of the authorities whose clients are let in: with them, a client without a certificate of one
    /// of them gets no connection. None asks no client for one.
    pub client_ca: Option<Vec<Vec<u8>>>,
}

/// A certificate and the key that proves it. That the two belong together is checked when the configuration is read.
#[derive(Clone, Debug)]
pub struct Identity {
    /// DER; its own certificate first, then those that lead to the authority. Never empty.
    pub certificates: Vec<Vec<u8>>,
    /// DER of PKCS #8, PKCS #1 or SEC 1.
    pub key: SecretSlice<u8>,
}

/// Bounds of the main listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one request body.
    pub body: usize,
    /// Bytes of one answer that is held for judgement.
    pub response: usize,
    /// Bytes of a request's head.
    pub headers: usize,
    /// Time for a request's head to arrive.
    pub header_timeout: Duration,
    /// Time that a connection may lie idle, and that a request body may pause.
    pub idle_timeout: Duration,
    /// Requests under way at once.
    pub in_flight: usize,
    /// Bytes of request and answer bodies held at once, in the whole process.
    pub held: usize,
    /// Bounds of a JSON Schema, met before the compiler sees it.
    pub schema: SchemaLimits,
}

/// Bounds of a JSON Schema that a caller sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaLimits {
    /// Bytes of its text.
    pub bytes: usize,
    /// Open containers of its text.
    pub depth: usize,
    /// Subschemas that one instance node can meet, references followed.
    pub expanded: usize,
}

impl Default for SchemaLimits {
    fn default() -> Self {
        Self { bytes: 256 << 10, depth: 64, expanded: 10_000 }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 32 << 20,
            response: 64 << 20,
            headers: 64 << 10,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            in_flight: 4096,
            held: 512 << 20,
            schema: SchemaLimits::default(),
        }
    }
}

/// The admin listener.
#[derive(Debug)]
pub struct Admin {
    /// Address and port; port 0 takes a free one.
    pub address: SocketAddr,
    /// What `/readyz?verbose` asks for; probes and metrics are exempt.
    pub token: Option<SecretString>,
}

/// Who may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auth {
    /// How a caller is known.
    pub mode: AuthMode,
    /// Whether names other than loopback ones are served.
    pub allow_remote: bool,
}

/// How a caller is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMode {
    /// Anyone who reaches the listener.
    None,
    /// The caller brings the provider's key, which goes to backends with `credentials: caller`.
    Passthrough,
}

/// The audit record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// The JSON Lines file.
    pub path: PathBuf,
    /// How much of a request's and an answer's text it holds.
    pub content: AuditContent,
    /// Whether judged traffic stops when a record cannot be written.
    pub required: bool,
}

/// How much text an audit record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditContent {
    /// The model's text as it came.
    Full,
    /// No text of the caller's or the model's.
    None,
}

/// The log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telemetry {
    /// A level, or directives such as `info,portcullis=debug`.
    pub log: String,
    /// Lines for people or for machines.
    pub format: LogFormat,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For a person at a terminal.
    Text,
    /// One JSON object a line.
    Json,
}
