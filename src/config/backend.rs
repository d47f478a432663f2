//! Backends: where they are, whose key they get, what they can do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use http::HeaderValue;
use http::Uri;
use http::uri::Scheme;

use crate::catalog::Backend;
use crate::catalog::BaseUrl;
use crate::catalog::Credentials;
use crate::catalog::OperatorKey;
use crate::catalog::Timeouts;
use crate::config::check;
use crate::config::expand::World;
use crate::config::file::AuthFile;
use crate::config::file::AuthModeFile;
use crate::config::file::BackendFile;
use crate::config::file::CredentialsFile;
use crate::config::file::TimeoutsFile;
use crate::config::proxy;
use crate::config::resolve::Notes;
use crate::config::secret;
use crate::config::tls;
use crate::dialect::table::BackendKind;
use crate::dialect::table::Capabilities;
use crate::stage::headers::HOP_BY_HOP;

/// Calls under way at once, where nothing is written.
const CONCURRENCY: usize = 256;

/// Headers that belong to the message's framing or to the gateway; those of one connection are refused, too.
const HEADERS_REFUSED: [&str; 5] = ["host", "content-length", "content-encoding", "content-type", "accept-encoding"];

/// Resolves every backend that can be; one with an error is left out, and the error is in `notes`.
pub(super) fn resolve(
    files: BTreeMap<String, BackendFile>,
    auth: &AuthFile,
    world: &World<'_>,
    notes: &mut Notes<'_>,
) -> BTreeMap<String, Arc<Backend>> {
    let mut backends = BTreeMap::new();
    for (name, file) in files {
        if !is_name(&name) {
            let message = format!(
                "the backend name `{}` must be 1 to 64 letters, digits, `-`, `_` or `.`, a letter or digit first",
                secret::name(&name)
            );
            notes.error_at_name(&["backends", &name], message);
        }
        if let Some(backend) = backend(&name, file, auth, world, notes) {
            backends.insert(name, Arc::new(backend));
        }
    }
    backends
}

fn is_name(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    starts && name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn backend(
    name: &str,
    file: BackendFile,
    auth: &AuthFile,
    world: &World<'_>,
    notes: &mut Notes<'_>,
) -> Option<Backend> {
    let at = |member| ["backends", name, member];
    let timeouts = timeouts(name, file.timeouts.unwrap_or_default(), notes);
    let headers = headers(name, file.headers.unwrap_or_default(), notes);
    let Some(kind) = file.kind else {
        return None; // reported before, and the rest depends on it
    };
    if kind == BackendKind::Demo {
        for member in ["base_url", "tls", "proxy", "api_key", "credentials", "headers"] {
            if notes.is_written(&at(member)) {
                let message =
                    format!("a backend of kind `demo` is inside of the gateway and takes no `{member}`; remove it");
                notes.error(&at(member), message);
            }
        }
    }
    let base = if kind == BackendKind::Demo { None } else { base(name, kind, file.base_url.as_deref(), notes) };
    let tls = file.tls.filter(|_| kind != BackendKind::Demo);
    if tls.is_some() && base.as_ref().is_some_and(|base| base.scheme == Scheme::HTTP) {
        let message = format!(
            "backend `{}` is called over http, where its `tls` never applies; remove it, or write a `base_url` with https",
            secret::name(name)
        );
        notes.error_at_name(&at("tls"), message);
    }
    let tls = tls.and_then(|file| tls::client(name, file, world.folder, notes));
    let proxy = if kind == BackendKind::Demo {
        None // whatever is written was reported
    } else {
        proxy::resolve(name, file.proxy.as_deref(), base.as_ref(), world, notes)
    };
    let credentials = credentials(name, kind, file.api_key, file.credentials, auth, notes);
    let plain = base.as_ref().filter(|base| base.scheme == Scheme::HTTP && !is_loopback_host(base.authority.host()));
    if plain.is_some() && !matches!(credentials, Credentials::None) {
        let message = format!("backend `{}` sends a key over the network without TLS; use https", secret::name(name));
        notes.warn(&at("base_url"), &message);
    }
    let capabilities = Capabilities::of(kind).overridden(&file.capabilities.unwrap_or_default());
    let concurrency = file.concurrency.and_then(|n| usize::try_from(n).ok()).unwrap_or(CONCURRENCY);
    Some(Backend {
        name: name.into(),
        kind,
        base,
        tls,
        proxy,
        credentials,
        headers,
        timeouts,
        concurrency,
        capabilities,
    })
}

fn timeouts(name: &str, file: TimeoutsFile, notes: &mut Notes<'_>) -> Timeouts {
    let default = Timeouts::default();
    let mut span =
        |member, written, default: Duration| notes.span(&["backends", name, "timeouts", member], written, default);
    let timeouts = Timeouts {
        connect: span("connect", file.connect, default.connect),
        first_byte: span("first_byte", file.first_byte, default.first_byte),
        idle: span("idle", file.idle, default.idle),
        total: span("total", file.total, default.total),
    };
    if timeouts.total < timeouts.connect.max(timeouts.first_byte).max(timeouts.idle) {
        notes.warn(
            &["backends", name, "timeouts"],
            "`total` is shorter than another timeout, which can then never run out",
        );
    }
    timeouts
}

fn headers(name: &str, file: BTreeMap<String, String>, notes: &mut Notes<'_>) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
    for (header, value) in file {
        let path = ["backends", name, "headers", &header];
        let Ok(parsed) = HeaderName::try_from(header.as_str()) else {
            notes.error_at_name(
                &path,
                "this is not the name of a header; allowed: letters, digits and `-`, with no spaces and no `:`",
            );
            continue;
        };
        if parsed == http::header::AUTHORIZATION {
            notes.error_at_name(
                &path,
                "`authorization` is not set by `headers`; write `api_key`, which is sent as a bearer token",
            );
        } else if HEADERS_REFUSED.iter().chain(HOP_BY_HOP).any(|refused| *refused == parsed.as_str()) {
            let message = format!(
                "the header `{parsed}` belongs to the connection or to the gateway and cannot be set; remove it"
            );
            notes.error_at_name(&path, message);
        } else if headers.iter().any(|(other, _)| *other == parsed) {
            notes.error_at_name(
                &path,
                format!("the header `{parsed}` stands twice, in large and small letters; remove one of the two"),
            );
        } else if let Some(mut value) = header_value(&value) {
            // A header may hold a key, so no `Debug` shows it.
            value.set_sensitive(true);
            headers.push((parsed, value));
        } else {
            let message = format!(
                "the value of the header `{parsed}` holds a character that no header can carry; allowed: visible \
                 ASCII, and spaces inside"
            );
            notes.error(&path, message);
        }
    }
    headers
}

fn header_value(text: &str) -> Option<HeaderValue> {
    let plain = text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    (plain && text.trim() == text && !text.is_empty()).then(|| HeaderValue::from_str(text).ok()).flatten()
}

fn credentials(
    name: &str,
    kind: BackendKind,
    api_key: Option<String>,
    credentials: Option<CredentialsFile>,
    auth: &AuthFile,
    notes: &mut Notes<'_>,
) -> Credentials {
    let key_path = ["backends", name, "api_key"];
    let caller_path = ["backends", name, "credentials"];
    if kind == BackendKind::Demo {
        return Credentials::None; // whatever is written was reported
    }
    if let Some(CredentialsFile::Caller) = credentials {
        if notes.is_written(&key_path) {
            notes.error(&caller_path, "`credentials: caller` and `api_key` exclude each other; keep one of the two");
        }
        if auth.mode == Some(AuthModeFile::None) {
            notes.error(
                &caller_path,
                "`credentials: caller` asks for `auth.mode: passthrough`, for under `none` no caller brings a key",
            );
        }
        return Credentials::Caller;
    }
    match api_key {
        Some(key) if key.is_empty() && kind == BackendKind::Openai => {
            let message = format!(
                "{} is empty, and backend `{name}` of kind `openai` needs a key; set it, or write \
                 `credentials: caller` under `auth.mode: passthrough`",
                check::name(&key_path, None)
            );
            notes.error(&key_path, message);
        }
        Some(key) if key.is_empty() => {}
        Some(key) if key.bytes().all(|byte| byte.is_ascii_graphic()) => {
            return OperatorKey::new(key).map_or(Credentials::None, Credentials::Operator); // any such key fits a header
        }
        Some(_) => {
            notes.error(
                &key_path,
                "the key holds a character that no bearer token can have; allowed: visible ASCII, no spaces",
            );
        }
        None => {
            let unkeyed = kind == BackendKind::Openai && !notes.is_written(&["backends", name, "base_url"]);
            if unkeyed && !notes.is_written(&key_path) && !notes.is_written(&caller_path) {
                notes.warn(
                    &["backends", name],
                    &format!("backend `{name}` has no `api_key`, so OpenAI will refuse its calls"),
                );
            }
        }
    }
    Credentials::None
}

fn base(name: &str, kind: BackendKind, written: Option<&str>, notes: &mut Notes<'_>) -> Option<BaseUrl> {
    let path = ["backends", name, "base_url"];
    if notes.is_broken(&path) {
        return None;
    }
    let default = match kind {
        BackendKind::Openai => Some("https://api.openai.com/v1"),
        BackendKind::Lmstudio => Some("http://localhost:1234/v1"),
        BackendKind::Llamacpp => Some("http://127.0.0.1:8080/v1"),
        BackendKind::Vllm => Some("http://127.0.0.1:8000/v1"),
        BackendKind::OpenaiCompatible | BackendKind::Demo => None,
    };
    let Some(text) = written.or(default) else {
        let message =
            format!("backend `{name}` of kind `{}` lacks the member `base_url`, which has no default", kind.as_str());
        notes.error(&path, message);
        return None;
    };
    match parse(text) {
        Ok(base) => Some(base),
        Err(reason) => {
            // The text may hold a user and a password, so the message does not repeat it.
            notes.error(&path, format!("the `base_url` of backend `{name}` {reason}"));
            None
        }
    }
}

/// Reads a base URL. Where its path names no version, the provider's `/v1` is added.
fn parse(text: &str) -> Result<BaseUrl, &'static str> {
    const SHAPE: &str = "must be an http or https URL, for example `https://llm.example.com/v1`";
    if text.contains('#') {
        return Err("must not have a fragment (`#...`)");
    }
    let uri: Uri = text.parse().map_err(|_| SHAPE)?;
    let parts = uri.into_parts();
    let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
        return Err(SHAPE);
    };
    if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
        return Err(SHAPE);
    }
    if authority.as_str().contains('@') {
        return Err("must not hold a user or a password; write `api_key`");
    }
    let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    if authority.host().is_empty() || !(port.is_empty() || authority.port_u16().is_some_and(|port| port > 0)) {
        return Err("must name a host, and a port from 1 to 65535 where there is one");
    }
    let path_and_query = parts.path_and_query.as_ref();
    if path_and_query.is_some_and(|path| path.query().is_some()) {
        return Err("must not have a query (`?...`)");
    }
    let path = path_and_query.map_or("", |path| path.path()).trim_end_matches('/');
    let path = if path.split('/').any(is_version) { path.to_owned() } else { format!("{path}/v1") };
    Ok(BaseUrl { scheme, authority, path })
}

/// `v1`, `v4`, `v1beta`: a version among a path's segments.
fn is_version(segment: &str) -> bool {
    segment.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether a host of a URL is this machine: `localhost`, `127.0.0.0/8`, `[::1]`.
pub(super) fn is_loopback_host(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_taken_with_or_without_its_version() {
        let path = |text: &str| parse(text).map(|base| base.path);
        for text in ["https://h", "https://h/", "https://h/v1", "https://h/v1/", "https://h:8443/v1"] {
            assert_eq!(path(text).as_deref(), Ok("/v1"), "{text}");
        }
        assert_eq!(path("https://h/openai").as_deref(), Ok("/openai/v1"));
        assert_eq!(path("https://h/v1beta/openai").as_deref(), Ok("/v1beta/openai"));
        assert_eq!(path("https://h/api/paas/v4").as_deref(), Ok("/api/paas/v4"));
        for text in [
            "h",
            "h/v1",
            "ftp://h",
            "https://u:p@h",
            "https://h?x",
            "https://h#x",
            "https://h:0",
            "https://h:99999",
            "https://:1",
            "",
            "https://",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
