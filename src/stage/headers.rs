//! Headers on their way through: what goes to a backend, and what comes back to a caller.

use http::HeaderMap;
use http::HeaderName;
use http::HeaderValue;
use http::header;
use memchr::memmem;

use crate::catalog::Backend;
use crate::catalog::Credentials;
use crate::stage::authenticate::Caller;

/// Headers that concern one connection alone (RFC 9110 section 7.6.1), besides those that `connection` names.
pub const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];
/// A client's headers that no backend gets: credentials, the connection's own, and what is written anew.
const FROM_CLIENT: &[&str] = &[
    "authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "cookie",
    "host",
    "content-length",
    "expect",
    "accept-encoding",
    "forwarded",
    "x-real-ip",
    "origin",
    "referer",
    // Other clouds' credentials.
    "ocp-apim-subscription-key",
    "x-amz-security-token",
    // They would lead a server behind the path or the method that were looked at.
    "x-original-url",
    "x-rewrite-url",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
];
/// A backend's headers that no client gets.
const FROM_BACKEND: &[&str] = &[
    "set-cookie",
    "alt-svc",
    "strict-transport-security",
    "content-length",
    "x-should-retry",
    "x-request-id",
    "request-id",
];
/// Headers about the provider's account, which go through only for a caller whose account it is.
const ACCOUNT: &[&str] = &["openai-organization", "openai-project"];

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
const UPSTREAM_REQUEST_ID: HeaderName = HeaderName::from_static("x-portcullis-upstream-request-id");

/// Whether an answer is held, so that its coding must be readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The answer is read here.
    Held,
    /// It passes through in whatever coding it has.
    Relayed,
}

/// The headers of a call to a backend.
pub fn outbound(client: &HeaderMap, caller: &Caller, backend: &Backend, reading: Reading) -> HeaderMap {
    let mut out = passed(client, reading, |name| is_stopped(name, backend));
    match (reading, client.get(header::ACCEPT_ENCODING)) {
        (Reading::Held, _) => {
            out.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        (Reading::Relayed, Some(codings)) => {
            out.insert(header::ACCEPT_ENCODING, codings.clone());
        }
        (Reading::Relayed, None) => {}
    }
    for (name, value) in &backend.headers {
        out.insert(name.clone(), value.clone());
    }
    match (&backend.credentials, caller) {
        (Credentials::Operator(key), _) => {
            out.insert(header::AUTHORIZATION, key.bearer().clone());
        }
        (Credentials::Caller, Caller::Own(key)) => {
            out.insert(header::AUTHORIZATION, key.clone());
        }
        (Credentials::Caller, Caller::Anyone) | (Credentials::None, _) => {}
    }
    out
}

/// Whether a client's header goes no further than here.
fn is_stopped(name: &str, backend: &Backend) -> bool {
    let own = matches!(backend.credentials, Credentials::Caller);
    let stopped = |name: &str| {
        FROM_CLIENT.contains(&name)
            || name.starts_with("x-portcullis-")
            || name.starts_with("x-forwarded-")
            || (!own && ACCOUNT.contains(&name))
    };
    // Many servers take `x_team` for `x-team`: what may not pass under its name may not under that one either.
    let alike = || name.replace('_', "-");
    let set = |name: &str| backend.headers.iter().any(|(set, _)| set.as_str() == name);
    stopped(name)
        || (name.contains('_') && (stopped(&alike()) || set(&alike()) || HOP_BY_HOP.contains(&alike().as_str())))
}

/// The trailers of a call: what may not be among the headers may not come behind the body either, nor may what the
/// operator sets.
pub fn trailers_out(client: &HeaderMap, backend: &Backend) -> HeaderMap {
    let set = |name: &str| backend.headers.iter().any(|(set, _)| set.as_str() == name);
    passed(client, Reading::Held, |name| is_stopped(name, backend) || set(name))
}

/// The trailers of a backend's answer, as a caller gets them.
pub fn trailers_in(mut trailers: HeaderMap, backend: &Backend) -> HeaderMap {
    scrub(&mut trailers, backend);
    inbound(&trailers, backend, Reading::Held)
}

/// Takes out what echoes a secret of the operator's. Done before anything reads the headers of an answer.
pub fn scrub(headers: &mut HeaderMap, backend: &Backend) {
    // Most values are shorter than any secret.
    let holds = |value: &[u8], secret: &str| {
        !secret.is_empty() && value.len() >= secret.len() && memmem::find(value, secret.as_bytes()).is_some()
    };
    let echoes = |value: &HeaderValue| backend.secrets().any(|secret| holds(value.as_bytes(), secret));
    let named: Vec<HeaderName> =
        headers.iter().filter(|(_, value)| echoes(value)).map(|(name, _)| name.clone()).collect();
    for name in named {
        headers.remove(name);
    }
}

/// The headers of a backend's answer, as a caller gets them.
pub fn inbound(backend_headers: &HeaderMap, backend: &Backend, reading: Reading) -> HeaderMap {
    let own = matches!(backend.credentials, Credentials::Caller);
    let mut out = passed(backend_headers, reading, |name| {
        FROM_BACKEND.contains(&name)
            || name.starts_with("x-portcullis-")
            || name.starts_with("access-control-")
            || (!own && (ACCOUNT.contains(&name) || name.starts_with("x-ratelimit-")))
            || (reading == Reading::Held
                && matches!(
                    name,
                    "content-type"
                        | "content-encoding"
                        | "content-digest"
                        | "repr-digest"
                        | "location"
                        | "etag"
                        | "content-md5"
                        | "digest"
                ))
    });
    if let Some(id) = request_id(backend_headers) {
        out.insert(UPSTREAM_REQUEST_ID, id.clone());
    }
    out
}

/// Whether a body is an event stream.
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    const TYPE: &[u8] = b"text/event-stream";
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    kind.get(..TYPE.len()).is_some_and(|start| start.eq_ignore_ascii_case(TYPE))
}

/// The backend's own request id.
pub fn request_id(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(X_REQUEST_ID).or_else(|| headers.get(REQUEST_ID))
}

/// The trace that a request belongs to (W3C Trace Context, `traceparent`); none where the header is missing or cannot be
/// read, for then it belongs to none.
pub fn trace_id(headers: &HeaderMap) -> Option<String> {
    let mut fields = headers.get(TRACEPARENT)?.to_str().ok()?.split('-');
    let mut field = |length: usize| {
        let small = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        fields.next().filter(|field| field.len() == length && field.bytes().all(small))
    };
    let (version, trace, parent, _flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
    let is_none = |id: &str| id.bytes().all(|byte| byte == b'0');
    let sound = version != "ff" && !is_none(trace) && !is_none(parent);
    (sound && (version != "00" || fields.next().is_none())).then(|| trace.to_owned())
}

fn passed(from: &HeaderMap, reading: Reading, stopped: impl Fn(&str) -> bool) -> HeaderMap {
    let named = named_by_connection(from);
    let mut out = HeaderMap::with_capacity(from.len() + 10);
    for (name, value) in from {
        let text = name.as_str();
        // Trailers go through where the body does, and then so does the announcement of them.
        let hop = HOP_BY_HOP.contains(&text) && (text != "trailer" || reading == Reading::Held);
        if hop || stopped(text) || named.iter().any(|named| named == text) {
            continue;
        }
        out.append(name.clone(), value.clone());
    }
    out
}

fn named_by_connection(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::OperatorKey;
    use crate::catalog::Timeouts;
    use crate::dialect::table::BackendKind;
    use crate::dialect::table::Capabilities;

    fn backend(credentials: Credentials) -> Backend {
        Backend {
            name: "b".into(),
            kind: BackendKind::Openai,
            base: None,
            tls: None,
            proxy: None,
            credentials,
            headers: vec![(HeaderName::from_static("x-team"), HeaderValue::from_static("platform"))],
            timeouts: Timeouts::default(),
            concurrency: 1,
            capabilities: Capabilities::of(BackendKind::Openai),
        }
    }

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        headers.keys().map(HeaderName::as_str).collect()
    }

    #[test]
    fn no_credential_of_the_client_and_no_hop_by_hop_header_reaches_a_backend() {
        let client = map(&[
            ("authorization", "Bearer client"),
            ("x-api-key", "client"),
            ("api-key", "client"),
            ("x-goog-api-key", "client"),
            ("cookie", "a=b"),
            ("connection", "upgrade, x-secret"),
            ("x-secret", "1"),
            ("te", "trailers"),
            ("proxy-authorization", "Basic x"),
            ("upgrade", "h2c"),
            ("host", "localhost"),
            ("x-forwarded-for", "1.2.3.4"),
            ("x-portcullis-policy", "p"),
            ("openai-organization", "org"),
            ("accept-encoding", "gzip, br"),
            ("x_api_key", "client"),
            ("x_team", "mine"),
            ("content_length", "5"),
            ("transfer_encoding", "chunked"),
            ("x_other", "1"),
            ("idempotency-key", "k1"),
            ("traceparent", "00-1"),
            ("user-agent", "OpenAI/Python"),
        ]);
        let out = outbound(
            &client,
            &Caller::Anyone,
            &backend(Credentials::Operator(OperatorKey::new("sk-op".to_owned()).unwrap())),
            Reading::Held,
        );
        assert_eq!(
            names(&out),
            ["x_other", "idempotency-key", "traceparent", "user-agent", "accept-encoding", "x-team", "authorization"]
        );
        assert_eq!(out["accept-encoding"], "identity");
        assert_eq!(out["authorization"], "Bearer sk-op");
        assert!(!format!("{out:?}").contains("sk-op"));
        let relayed = outbound(&client, &Caller::Anyone, &backend(Credentials::None), Reading::Relayed);
        assert_eq!(relayed["accept-encoding"], "gzip, br");
        assert!(!relayed.contains_key("authorization"));
    }

    #[test]
    fn the_callers_own_key_goes_only_where_the_caller_pays() {
        let caller = Caller::Own(HeaderValue::from_static("Bearer mine"));
        let client = map(&[("authorization", "Bearer mine"), ("openai-organization", "org")]);
        let own = outbound(&client, &caller, &backend(Credentials::Caller), Reading::Held);
        assert_eq!(
            (&own["authorization"], &own["openai-organization"]),
            (&"Bearer mine".parse().unwrap(), &"org".parse().unwrap())
        );
        let other = outbound(&client, &caller, &backend(Credentials::None), Reading::Held);
        assert!(!other.contains_key("authorization") && !other.contains_key("openai-organization"));
    }

    #[test]
    fn what_may_not_be_a_header_may_not_be_a_trailer() {
        let operator = backend(Credentials::Operator(OperatorKey::new("sk-op".to_owned()).unwrap()));
        let client =
            map(&[("x-api-key", "c"), ("cookie", "a=b"), ("x_api_key", "c"), ("x-team", "me"), ("x-sum", "1")]);
        assert_eq!(names(&trailers_out(&client, &operator)), ["x-sum"]);
        let from =
            map(&[("x-echo", "sk-op"), ("x-portcullis-outcome", "accepted"), ("set-cookie", "a"), ("x-sum", "1")]);
        assert_eq!(names(&trailers_in(from, &operator)), ["x-sum"]);
    }

    #[test]
    fn a_trace_is_known_by_a_sound_traceparent_alone() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let of = |value: String| {
            let name = HeaderName::from_static("traceparent");
            trace_id(&HeaderMap::from_iter([(name, HeaderValue::from_str(&value).unwrap())]))
        };
        assert_eq!(of(format!("00-{trace}-00f067aa0ba902b7-01")).as_deref(), Some(trace));
        assert_eq!(of(format!("cc-{trace}-00f067aa0ba902b7-01-more")).as_deref(), Some(trace));
        for bad in [
            format!("00-{trace}-00f067aa0ba902b7-01-more"),
            format!("ff-{trace}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", trace.to_uppercase()),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{trace}-00f067aa0ba902b7"),
            "00-1".into(),
            String::new(),
        ] {
            assert_eq!(of(bad.clone()), None, "{bad}");
        }
    }

    #[test]
    fn a_header_that_echoes_the_operators_key_goes_no_further() {
        let operator = backend(Credentials::Operator(OperatorKey::new("sk-op".to_owned()).unwrap()));
        let mut from =
            map(&[("x-echo", "Bearer sk-op"), ("x-request-id", "sk-op"), ("retry-after", "sk-op"), ("x-other", "1")]);
        scrub(&mut from, &operator);
        assert_eq!(names(&inbound(&from, &operator, Reading::Held)), ["x-other"]);
    }

    #[test]
    fn what_describes_the_operators_account_never_reaches_a_client() {
        let from = map(&[
            ("set-cookie", "a=b"),
            ("alt-svc", "h3"),
            ("strict-transport-security", "x"),
            ("x-ratelimit-remaining-requests", "1"),
            ("openai-organization", "org"),
            ("x-request-id", "up-1"),
            ("x-portcullis-outcome", "accepted"),
            ("connection", "close, x-secret"),
            ("x-secret", "1"),
            ("keep-alive", "timeout=5"),
            ("content-encoding", "gzip"),
            ("openai-processing-ms", "7"),
        ]);
        let held = inbound(&from, &backend(Credentials::None), Reading::Held);
        assert_eq!(names(&held), ["openai-processing-ms", "x-portcullis-upstream-request-id"]);
        let relayed = inbound(&from, &backend(Credentials::Caller), Reading::Relayed);
        assert!(relayed.contains_key("content-encoding") && relayed.contains_key("x-ratelimit-remaining-requests"));
    }
}
