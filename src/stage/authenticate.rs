//! Who may call: loopback names where there are no keys, known origins, and the caller's own key.

use std::net::IpAddr;

use http::HeaderMap;
use http::HeaderName;
use http::HeaderValue;
use http::header;

use crate::network::Network;
use crate::settings::Auth;
use crate::settings::AuthMode;
use crate::wire::fault::Code;

/// Addresses of `x-forwarded-for` that are looked at.
const HOPS_MAX: usize = 64;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Who is calling.
#[derive(Clone, Debug)]
pub enum Caller {
    /// Anyone who reaches the listener.
    Anyone,
    /// Someone with a provider's key of their own. Kept as it came, to go to the provider and nowhere else.
    Own(HeaderValue),
}

/// Why a caller is turned away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// No key came, and the caller's own is needed.
    #[error("the header `authorization` is missing: this gateway passes the caller's own provider key on")]
    MissingKey,
    /// The host name is no loopback one, which a page of another origin could have made resolve to here.
    #[error("the host `{0}` is not served: without keys only loopback names are (localhost, 127.0.0.1, [::1])")]
    Host(String),
    /// A browser's page of an origin that is not listed.
    #[error("the origin `{0}` is not among `listen.cors`")]
    Origin(String),
}

impl AuthError {
    /// The code for the caller.
    pub fn code(&self) -> Code {
        match self {
            Self::MissingKey => Code::MissingKey,
            Self::Host(_) | Self::Origin(_) => Code::OriginNotAllowed,
        }
    }
}

/// Tells who is calling, or why not. `host` is the request's authority: its `host` header or `:authority`.
pub fn authenticate(auth: Auth, cors: &[String], host: Option<&str>, headers: &HeaderMap) -> Result<Caller, AuthError> {
    if !auth.allow_remote {
        let host = host.unwrap_or_default();
        if !is_loopback(host) {
            return Err(AuthError::Host(crate::json::fault::shown(host)));
        }
    }
    for origin in headers.get_all(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        if !cors.iter().any(|allowed| allowed == origin) {
            return Err(AuthError::Origin(crate::json::fault::shown(origin)));
        }
    }
    match auth.mode {
        AuthMode::None => Ok(Caller::Anyone),
        AuthMode::Passthrough => match headers.get(header::AUTHORIZATION) {
            Some(key) => {
                let mut key = key.clone();
                key.set_sensitive(true);
                Ok(Caller::Own(key))
            }
            None => Err(AuthError::MissingKey),
        },
    }
}

/// The address that a request comes from: `peer`, or where that is a trusted proxy, the last address in
/// `x-forwarded-for` that is not one. What stands before it, anyone could have written.
pub fn client(peer: IpAddr, trusted: &[Network], headers: &HeaderMap) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    let mut client = peer.to_canonical();
    // From the last, which the nearest proxy wrote: the first ones may be anyone's.
    let hops = headers.get_all(FORWARDED_FOR).iter().rev().flat_map(|hops| hops.to_str().unwrap_or("?").rsplit(','));
    for hop in hops.take(HOPS_MAX) {
        if !is_trusted(client) {
            break;
        }
        let Some(address) = address(hop.trim()) else { break };
        client = address.to_canonical();
    }
    client
}

/// An address as proxies write it: bare, in brackets, or with a port.
fn address(hop: &str) -> Option<IpAddr> {
    let socket = || hop.parse::<std::net::SocketAddr>().ok().map(|socket| socket.ip());
    let bracketed = || hop.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    hop.parse().ok().or_else(socket).or_else(bracketed)
}

/// Whether a `host:port` names this machine's loopback.
pub fn is_loopback(host: &str) -> bool {
    let (bare, rest) = match host.strip_prefix('[') {
        Some(inside) => inside.split_once(']').unwrap_or_default(),
        None => host.find(':').map_or((host, ""), |colon| host.split_at(colon)),
    };
    let port = rest.strip_prefix(':').unwrap_or(rest);
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let name = bare.trim_end_matches('.');
    name.eq_ignore_ascii_case("localhost")
        || name
            .len()
            .checked_sub(".localhost".len())
            .and_then(|at| name.get(at..))
            .is_some_and(|end| end.eq_ignore_ascii_case(".localhost"))
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Auth = Auth { mode: AuthMode::None, allow_remote: false };

    fn with(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn loopback_names_alone_are_served_without_keys() {
        for host in
            ["localhost", "localhost:8787", "127.0.0.1:1", "127.8.9.1", "[::1]:8787", "LOCALHOST.", "app.localhost:1"]
        {
            assert!(authenticate(LOCAL, &[], Some(host), &HeaderMap::new()).is_ok(), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8787",
            "10.0.0.5",
            "[::2]:1",
            "",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost:80@evil.example",
            "[::1].evil.example",
            "localhost:evil.example",
            "[::1",
        ] {
            let refused = authenticate(LOCAL, &[], Some(host), &HeaderMap::new());
            assert!(matches!(refused, Err(AuthError::Host(_))), "{host}");
        }
        assert!(authenticate(LOCAL, &[], None, &HeaderMap::new()).is_err());
        let remote = Auth { allow_remote: true, ..LOCAL };
        assert!(authenticate(remote, &[], Some("gateway.example"), &HeaderMap::new()).is_ok());
    }

    #[test]
    fn origins_must_be_listed() {
        let from = |origin: &str, cors: &[String]| {
            authenticate(LOCAL, cors, Some("localhost"), &with(header::ORIGIN, origin)).map(|_| ())
        };
        assert_eq!(from("https://evil.example", &[]), Err(AuthError::Origin("https://evil.example".into())));
        assert_eq!(from("null", &[]), Err(AuthError::Origin("null".into())));
        assert_eq!(from("https://app.example", &["https://app.example".into()]), Ok(()));
    }

    #[test]
    fn only_trusted_proxies_tell_where_a_request_comes_from() {
        let trusted: Vec<Network> = ["127.0.0.0/8", "10.0.0.0/8"].map(|text| text.parse().unwrap()).into();
        let from = |peer: &str, hops: &[&str]| {
            let name = header::HeaderName::from_static("x-forwarded-for");
            let headers = hops.iter().map(|hops| (name.clone(), HeaderValue::from_str(hops).unwrap())).collect();
            client(peer.parse().unwrap(), &trusted, &headers).to_string()
        };
        for (peer, hops, client) in [
            ("203.0.113.7", vec!["1.2.3.4"], "203.0.113.7"),
            ("127.0.0.1", vec![], "127.0.0.1"),
            ("127.0.0.1", vec!["203.0.113.7"], "203.0.113.7"),
            ("127.0.0.1", vec!["6.6.6.6, 203.0.113.7, 10.1.2.3"], "203.0.113.7"),
            ("127.0.0.1", vec!["6.6.6.6", "203.0.113.7", "10.1.2.3"], "203.0.113.7"),
            ("127.0.0.1", vec!["203.0.113.7:443,[2001:db8::1]"], "2001:db8::1"),
            ("127.0.0.1", vec!["203.0.113.7:443"], "203.0.113.7"),
            ("::ffff:127.0.0.1", vec!["::ffff:203.0.113.7"], "203.0.113.7"),
            ("127.0.0.1", vec![&"6.6.6.6,".repeat(100), "6.6.6.6, 203.0.113.7, 10.0.0.1"], "203.0.113.7"),
            ("127.0.0.1", vec!["6.6.6.6, unknown"], "127.0.0.1"),
            ("127.0.0.1", vec!["6.6.6.6, unknown, 10.0.0.9"], "10.0.0.9"),
        ] {
            assert_eq!(from(peer, &hops), client, "{peer} {hops:?}");
        }
    }

    #[test]
    fn passthrough_needs_the_callers_own_key() {
        let auth = Auth { mode: AuthMode::Passthrough, ..LOCAL };
        let none = authenticate(auth, &[], Some("localhost"), &HeaderMap::new());
        assert!(matches!(none, Err(AuthError::MissingKey)));
        let caller =
            authenticate(auth, &[], Some("localhost"), &with(header::AUTHORIZATION, "Bearer sk-mine")).unwrap();
        assert!(!format!("{caller:?}").contains("sk-mine"));
        assert!(matches!(caller, Caller::Own(key) if key == "Bearer sk-mine"));
    }
}
