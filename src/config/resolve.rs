//! From the file as written to the settings as used.

use std::net::IpAddr;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tracing_subscriber::EnvFilter;

use crate::config::Configuration;
use crate::config::backend;
use crate::config::check;
use crate::config::check::Checked;
use crate::config::expand::World;
use crate::config::file::AdminFile;
use crate::config::file::AuditContentFile;
use crate::config::file::AuditFile;
use crate::config::file::AuthFile;
use crate::config::file::AuthModeFile;
use crate::config::file::ConfigFile;
use crate::config::file::ControlsFile;
use crate::config::file::LimitsFile;
use crate::config::file::ListenFile;
use crate::config::file::LogFormatFile;
use crate::config::file::ReloadFile;
use crate::config::file::TelemetryFile;
use crate::config::model;
use crate::config::policies;
use crate::config::policies::Bundles;
use crate::config::problem::Problems;
use crate::config::source::Shown;
use crate::config::tls;
use crate::config::tree::Node;
use crate::config::unit::Size;
use crate::config::unit::Span;
use crate::nearest::did_you_mean;
use crate::network::Network;
use crate::policy::Policies;
use crate::settings::Admin;
use crate::settings::Audit;
use crate::settings::AuditContent;
use crate::settings::Auth;
use crate::settings::AuthMode;
use crate::settings::Limits;
use crate::settings::Listen;
use crate::settings::LogFormat;
use crate::settings::SchemaLimits;
use crate::settings::Settings;
use crate::settings::Telemetry;

/// More than this is a slip of the pen; it also keeps sums of sizes and of instants far from overflow.
const SIZE_MAX: u64 = 1 << 40;
/// See [`SIZE_MAX`].
const SPAN_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// What the resolving of one file notes.
pub(super) struct Notes<'n> {
    checked: &'n Checked<'n>,
    shown: &'n Shown,
    problems: &'n mut Problems,
    pub(super) warnings: Vec<String>,
}

impl<'n> Notes<'n> {
    /// Nothing noted yet.
    pub(super) fn new(checked: &'n Checked<'n>, shown: &'n Shown, problems: &'n mut Problems) -> Self {
        Self { checked, shown, problems, warnings: Vec::new() }
    }

    /// What is allowed, but probably not meant.
    pub(super) fn into_warnings(self) -> Vec<String> {
        self.warnings
    }

    /// The file and line of the part at `path`.
    pub(super) fn declared(&self, path: &[&str]) -> String {
        self.checked.source.file_and_line(self.offset(path))
    }

    /// Reports an error at the value of `path`, or at the nearest part around it that is written.
    pub(super) fn error(&mut self, path: &[&str], message: impl Into<String>) {
        let offset = self.offset(path);
        self.problems.add(&(offset..offset), message);
    }

    /// Reports an error at the name of the member at `path`.
    pub(super) fn error_at_name(&mut self, path: &[&str], message: impl Into<String>) {
        let entry = path.split_last().and_then(|(last, parents)| self.checked.root.at(parents)?.entry(last));
        let offset = entry.map_or(0, |entry| entry.key_span.start);
        self.problems.add(&(offset..offset), message);
    }

    /// Notes something that is allowed, but probably not meant.
    pub(super) fn warn(&mut self, path: &[&str], message: &str) {
        let offset = self.offset(path);
        self.warnings.push(format!("{}: {message}", self.checked.source.position(offset)));
    }

    /// The value at `path` as it is written, for a message: never expanded, masked where it is secret.
    pub(super) fn quoted(&self, path: &[&str]) -> String {
        let span = &self.checked.root.nearest_at(path).span;
        self.checked.source.quoted(span, self.shown)
    }

    /// Whether `path` is written in the file, be it right or wrong.
    pub(super) fn is_written(&self, path: &[&str]) -> bool {
        self.checked.root.at(path).is_some()
    }

    /// Whether `path` is written, but was reported before, so that nothing follows from its absence.
    pub(super) fn is_broken(&self, path: &[&str]) -> bool {
        (1..=path.len())
            .any(|end| path.get(..end).and_then(|part| self.checked.root.at(part)).is_some_and(|node| node.broken))
    }

    /// Whether the part at `path`, or anything in it, was reported before.
    pub(super) fn has_broken(&self, path: &[&str]) -> bool {
        self.checked.root.at(path).is_some_and(Node::has_broken)
    }

    /// The names that the mapping at `path` has in the file, those of wrong members included.
    pub(super) fn names(&self, path: &[&str]) -> Vec<&str> {
        let entries = self.checked.root.at(path).map(|node| node.entries()).unwrap_or_default();
        entries.iter().map(|entry| entry.key.as_str()).collect()
    }

    fn offset(&self, path: &[&str]) -> usize {
        if let Some(node) = self.checked.root.at(path) {
            return node.span.start;
        }
        // The name of the innermost part that is there says more than the start of its value.
        let around = (1..path.len()).rev().find_map(|end| {
            let (last, parents) = path.get(..end)?.split_last()?;
            Some(self.checked.root.at(parents)?.entry(last)?.key_span.start)
        });
        around.unwrap_or(0)
    }

    /// A size in bytes within sense, or `default` where none is written.
    fn size(&mut self, path: &[&str], written: Option<Size>, default: usize) -> usize {
        let Some(Size(bytes)) = written else { return default };
        match usize::try_from(bytes) {
            Ok(size) if size > 0 && bytes <= SIZE_MAX => size,
            _ => {
                let message =
                    format!("{} must lie between 1B and 1024GiB; found {}", check::name(path, None), self.quoted(path));
                self.error(path, message);
                default
            }
        }
    }

    /// A duration within sense, or `default` where none is written.
    pub(super) fn span(&mut self, path: &[&str], written: Option<Span>, default: Duration) -> Duration {
        match written {
            Some(Span(span)) if span.is_zero() || span > SPAN_MAX => {
                let message =
                    format!("{} must lie between 1ms and 720h; found {}", check::name(path, None), self.quoted(path));
                self.error(path, message);
                default
            }
            Some(Span(span)) => span,
            None => default,
        }
    }
}

/// Resolves a file. Worth something only where no problem was added; none where a part without a default is missing.
pub(super) fn resolve(
    file: ConfigFile,
    checked: &Checked<'_>,
    shown: &Shown,
    world: &World<'_>,
    problems: &mut Problems,
    bundles: &mut Bundles<'_>,
) -> Option<Configuration> {
    let mut notes = Notes::new(checked, shown, problems);
    // What the schema allows is what this version does, so there is nothing to resolve.
    let (Some(1) | None, Some(ReloadFile::Never) | None) = (file.version, file.reload) else { return None };
    let auth = file.auth.unwrap_or_default();
    let listen = listen(file.listen.unwrap_or_default(), world.folder, &mut notes);
    let admin = admin(file.admin.unwrap_or_default(), &mut notes);
    check_addresses(&listen, &admin, &auth, &mut notes);
    let audit = file.audit.and_then(|file| audit(file, world.folder));
    let telemetry = telemetry(file.telemetry.unwrap_or_default(), &mut notes);
    let drain = match file.drain {
        Some(Span(Duration::ZERO)) => Duration::ZERO, // stop at once: harsh, but a meaning
        written => notes.span(&["drain"], written, Duration::from_secs(30)),
    };
    let backends = backend::resolve(file.backends.unwrap_or_default(), &auth, world, &mut notes);
    let catalog = model::resolve(file.models.unwrap_or_default(), &backends, &auth, &mut notes);
    let controls_required = file.controls == Some(ControlsFile::Required);
    let proofs =
        policies::resolve(file.policies, world.folder, listen.limits.schema, controls_required, &mut notes, bundles);
    policies::check_aliases(&proofs, &catalog, &mut notes, bundles);
    let policies = Policies::of(proofs.iter().map(|proof| Arc::clone(&proof.policy)));
    let auth = Auth { mode: auth_mode(auth.mode?), allow_remote: auth.allow_remote.unwrap_or(false) };
    let settings = Settings { listen, admin, auth, audit, telemetry, drain };
    Some(Configuration { settings, catalog, policies, proofs, warnings: notes.warnings })
}

fn auth_mode(mode: AuthModeFile) -> AuthMode {
    match mode {
        AuthModeFile::None => AuthMode::None,
        AuthModeFile::Passthrough => AuthMode::Passthrough,
    }
}

fn listen(file: ListenFile, folder: &Path, notes: &mut Notes<'_>) -> Listen {
    let address = address(&["listen", "address"], file.address.as_deref(), 8787, notes);
    let tls = file.tls.and_then(|file| tls::server(file, folder, notes));
    let limits = limits(file.limits.unwrap_or_default(), notes);
    let hold = file.hold.unwrap_or_default();
    let keepalive_after =
        notes.span(&["listen", "hold", "keepalive_after"], hold.keepalive_after, Duration::from_secs(10));
    let cors = file.cors.unwrap_or_default();
    for (index, origin) in cors.iter().enumerate() {
        if !is_origin(origin) {
            let path = ["listen", "cors", &index.to_string()];
            let message = format!(
                "{} is not an origin as browsers send it: a scheme, a host in small letters and a port other than the \
                 scheme's own, with no path or `/` after them, for example `https://app.example.com`",
                notes.quoted(&path)
            );
            notes.error(&path, message);
        }
    }
    let trusted_proxies = trusted_proxies(file.trusted_proxies, notes);
    let headers = file.headers.unwrap_or(true);
    Listen { address, tls, limits, keepalive_after, cors, headers, trusted_proxies }
}

fn trusted_proxies(written: Option<Vec<String>>, notes: &mut Notes<'_>) -> Vec<Network> {
    let Some(written) = written else { return vec![Network::LOOPBACK] };
    let mut networks = Vec::new();
    for (index, text) in written.iter().enumerate() {
        let index = index.to_string();
        let path = ["listen", "trusted_proxies", &index];
        match text.parse::<Network>() {
            Ok(network) if network.prefix() == 0 => {
                let message = format!("`listen.trusted_proxies` believes whoever calls, for `{network}` is everyone");
                notes.warn(&path, &message);
                networks.push(network);
            }
            Ok(network) => networks.push(network),
            Err(error) => {
                let message = format!("{} of {} {error}", notes.quoted(&path), check::name(&path, None));
                notes.error(&path, message);
            }
        }
    }
    networks
}

fn limits(file: LimitsFile, notes: &mut Notes<'_>) -> Limits {
    let default = Limits::default();
    let at = |member| ["listen", "limits", member];
    let schema = file.schema.unwrap_or_default();
    let count = |written: Option<u32>, default| written.and_then(|n| usize::try_from(n).ok()).unwrap_or(default);
    let limits = Limits {
        body: notes.size(&at("body"), file.body, default.body),
        response: notes.size(&at("response"), file.response, default.response),
        headers: notes.size(&at("headers"), file.headers, default.headers),
        header_timeout: notes.span(&at("header_timeout"), file.header_timeout, default.header_timeout),
        idle_timeout: notes.span(&at("idle_timeout"), file.idle_timeout, default.idle_timeout),
        in_flight: count(file.in_flight, default.in_flight),
        held: notes.size(&at("held"), file.held, default.held),
        schema: SchemaLimits {
            bytes: notes.size(&["listen", "limits", "schema", "bytes"], schema.bytes, default.schema.bytes),
            depth: count(schema.depth, default.schema.depth),
            expanded: count(schema.expanded, default.schema.expanded),
        },
    };
    if limits.held < limits.body.max(limits.response) {
        notes.warn(
            &at("held"),
            "`listen.limits.held` is smaller than one `body` or one `response` may be; the largest are refused",
        );
    }
    limits
}

fn admin(file: AdminFile, notes: &mut Notes<'_>) -> Admin {
    let address = address(&["admin", "address"], file.address.as_deref(), 8788, notes);
    let path = ["admin", "token"];
    let token = file.token.filter(|token| !token.is_empty());
    if token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
        notes.error(
            &path,
            "`admin.token` holds a character that no bearer token can have; allowed: visible ASCII, no spaces",
        );
    }
    if token.is_none() && !is_loopback(address) && !notes.is_broken(&path) {
        let message = format!(
            "`admin.address` {} is not a loopback address, so `admin.token` must be there and not empty",
            notes.quoted(&["admin", "address"])
        );
        notes.error(&["admin", "address"], message);
    }
    Admin { address, token: token.map(SecretString::from) }
}

/// Reads an address, or takes the loopback one with `port` where none is written.
fn address(path: &[&str], written: Option<&str>, port: u16, notes: &mut Notes<'_>) -> SocketAddr {
    let default = SocketAddr::from(([127, 0, 0, 1], port));
    let Some(text) = written else { return default };
    text.parse().unwrap_or_else(|_| {
        let hint = if text.starts_with("localhost:") { "; write `127.0.0.1` for `localhost`" } else { "" };
        let message = format!(
            "{} must be an IP address and a port, for example `127.0.0.1:{port}` or `[::1]:{port}`; found {}{hint}",
            check::name(path, None),
            notes.quoted(path)
        );
        notes.error(path, message);
        default
    })
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn check_addresses(listen: &Listen, admin: &Admin, auth: &AuthFile, notes: &mut Notes<'_>) {
    let remote = auth.allow_remote.unwrap_or(false);
    let mode = match auth.mode {
        Some(AuthModeFile::None) => "none",
        Some(AuthModeFile::Passthrough) => "passthrough",
        None => return check_apart(listen.address, admin.address, notes),
    };
    if !is_loopback(listen.address) && !remote && !notes.is_broken(&["auth", "allow_remote"]) {
        let path = ["listen", "address"];
        let message = format!(
            "`listen.address` {} is not a loopback address, and `auth.mode: {mode}` serves loopback alone unless \
             `auth.allow_remote: true` is written",
            notes.quoted(&path)
        );
        notes.error(&path, message);
    }
    check_apart(listen.address, admin.address, notes);
}

fn check_apart(listen: SocketAddr, admin: SocketAddr, notes: &mut Notes<'_>) {
    let any = |ip: IpAddr| ip.is_unspecified();
    let one_host = listen.ip() == admin.ip() || any(listen.ip()) || any(admin.ip());
    if listen.port() == admin.port() && listen.port() != 0 && one_host {
        let path = if notes.is_written(&["admin", "address"]) { ["admin", "address"] } else { ["listen", "address"] };
        notes.error(&path, "`listen.address` and `admin.address` take the same port; the admin listener needs its own");
    }
}

/// `https://app.example.com`, `tauri://localhost`, `http://[::1]:3000`: what a browser puts in `Origin`.
fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return false };
    let small = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let own_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "://",
    };
    let scheme_ok =
        scheme.starts_with(|c: char| c.is_ascii_lowercase()) && scheme.chars().all(|c| small(c) || "+-.".contains(c));
    let host_ok = !host.is_empty() && host.chars().all(|c| small(c) || "-._:[]".contains(c));
    scheme_ok && host_ok && !host.ends_with(own_port) && host.parse::<http::uri::Authority>().is_ok()
}

fn audit(file: AuditFile, folder: &Path) -> Option<Audit> {
    let content = match file.content {
        Some(AuditContentFile::Full) | None => AuditContent::Full,
        Some(AuditContentFile::None) => AuditContent::None,
    };
    Some(Audit { path: folder.join(file.path?), content, required: file.required.unwrap_or(true) })
}

fn telemetry(file: TelemetryFile, notes: &mut Notes<'_>) -> Telemetry {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let log = file.log.unwrap_or_else(|| "info".into());
    let path = ["telemetry", "log"];
    let bare = |part: &str| !part.contains(['=', '[']) && !LEVELS.contains(&part.trim().to_ascii_lowercase().as_str());
    let fits = !log.trim().is_empty() && log.split(',').all(|part| !part.trim().is_empty());
    if !fits || EnvFilter::try_new(&log).is_err() || (!log.contains('[') && log.split(',').any(bare)) {
        // A bare word would be taken for a target and silence all the rest, so a misspelt level is caught here.
        let near = did_you_mean(log.trim(), LEVELS);
        let message = format!(
            "`telemetry.log` must be a level (`off`, `error`, `warn`, `info`, `debug`, `trace`), or levels by \
             target, for example `info,portcullis=debug`; found {}{near}",
            notes.quoted(&path)
        );
        notes.error(&path, message);
    }
    let format = match file.log_format {
        Some(LogFormatFile::Json) => LogFormat::Json,
        Some(LogFormatFile::Text) | None => LogFormat::Text,
    };
    Telemetry { log, format }
}
