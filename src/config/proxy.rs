//! The proxy that a backend is called through, of its own or of the environment.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use http::uri::Authority;
use http::uri::Scheme;
use percent_encoding::percent_decode_str;

use crate::catalog::BaseUrl;
use crate::catalog::Proxy;
use crate::config::backend::is_loopback_host;
use crate::config::expand::World;
use crate::config::resolve::Notes;
use crate::config::secret;
use crate::network::Network;
use crate::network::NetworkError;

/// Variables that name a proxy for https, the first that is there and not empty counts.
const FOR_HTTPS: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
/// The same for http.
const FOR_HTTP: [&str; 4] = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
/// Variables that list who is called without a proxy.
const EXCEPT: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// The proxy of a backend: what is `written`, where that is not empty; without the member, that of the environment,
/// which a backend on loopback never takes. `NO_PROXY` has its say about both.
pub(super) fn resolve(
    name: &str,
    written: Option<&str>,
    base: Option<&BaseUrl>,
    world: &World<'_>,
    notes: &mut Notes<'_>,
) -> Option<Proxy> {
    let path = ["backends", name, "proxy"];
    if let Some(text) = written {
        return of_its_own(name, text, base, world, notes);
    }
    let base = base?;
    if notes.is_written(&path) || is_loopback_host(base.authority.host()) {
        return None;
    }
    let (variable, text) = variable(if base.scheme == Scheme::HTTPS { FOR_HTTPS } else { FOR_HTTP }, world)?;
    let proxy = match is_direct(base, world) {
        Ok(true) => return None,
        Ok(false) => parse(&text).map_err(|reason| format!("the environment variable `{variable}` {reason}")),
        Err(message) => Err(message),
    };
    proxy
        .map_err(|message| {
            let message = format!(
                "{message}; backend `{}` takes the environment's proxy, unless it has a `proxy` of its own (`\"\"` for none)",
                secret::name(name)
            );
            notes.error_at_name(&["backends", name], message);
        })
        .ok()
}

/// The proxy that is written. The text may hold a password, so no message repeats it.
fn of_its_own(
    name: &str,
    text: &str,
    base: Option<&BaseUrl>,
    world: &World<'_>,
    notes: &mut Notes<'_>,
) -> Option<Proxy> {
    if text.is_empty() {
        return None;
    }
    let proxy = parse(text).map_err(|reason| format!("the `proxy` of backend `{}` {reason}", secret::name(name)));
    let direct = base.map_or(Ok(true), |base| is_direct(base, world)); // a backend without an address was reported
    match (proxy, direct) {
        (Ok(proxy), Ok(false)) => Some(proxy),
        (Ok(_), Ok(true)) => None,
        (Err(message), _) | (_, Err(message)) => {
            notes.error(&["backends", name, "proxy"], message);
            None
        }
    }
}

fn variable<const N: usize>(names: [&'static str; N], world: &World<'_>) -> Option<(&'static str, String)> {
    let there = |name| Some((name, (world.env)(name)?));
    names.into_iter().filter_map(there).find(|(_, value)| !value.is_empty())
}

/// Whether the environment takes a backend out of every proxy.
fn is_direct(base: &BaseUrl, world: &World<'_>) -> Result<bool, String> {
    let Some((variable, list)) = variable(EXCEPT, world) else { return Ok(false) };
    let default = if base.scheme == Scheme::HTTPS { 443 } else { 80 };
    let port = base.authority.port_u16().unwrap_or(default);
    excepts(&list, base.authority.host(), port).map_err(|number| {
        format!(
            "entry {number} of the environment variable `{variable}` is no host name, IP address or network, with or \
             without a port"
        )
    })
}

/// Reads `http://host:port` and `http://user:password@host:port`; `host:port` alone too, as curl and Go do. The port
/// must be there, for its default differs between the two. The reason goes on after the name of what held the text.
fn parse(text: &str) -> Result<Proxy, &'static str> {
    const SHAPE: &str = "must be `http://host:port` or `http://user:password@host:port`";
    let rest = match text.split_once("://") {
        None => text,
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => {
            return Err("must be `http://host:port`; a proxy that is itself called over https is not supported");
        }
        Some((scheme, _)) if scheme.to_ascii_lowercase().starts_with("socks") => {
            return Err("must be `http://host:port`; SOCKS is not supported");
        }
        Some(_) => return Err(SHAPE),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (user, place) = rest.rsplit_once('@').map_or((None, rest), |(user, place)| (Some(user), place));
    let authority: Authority = place.parse().map_err(|_| SHAPE)?;
    if authority.host().is_empty() || authority.port_u16().is_none_or(|port| port == 0) {
        return Err(SHAPE);
    }
    Ok(Proxy { authority, credentials: user.map(basic).transpose()? })
}

/// `Basic` credentials (RFC 7617) of the `user:password` of a URL.
fn basic(user_and_password: &str) -> Result<HeaderValue, &'static str> {
    const REFUSED: &str =
        "has a user or a password that cannot be sent: no user, a `:` in its name, or a control character";
    let (user, password) = user_and_password.split_once(':').unwrap_or((user_and_password, ""));
    let (user, password) = (decoded(user)?, decoded(password)?);
    if user.is_empty()
        || user.contains(&b':')
        || [&user, &password].iter().any(|part| part.iter().any(u8::is_ascii_control))
    {
        return Err(REFUSED);
    }
    let pair = [user.as_slice(), b":", &password].concat();
    let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair))).map_err(|_| REFUSED)?;
    value.set_sensitive(true);
    Ok(value)
}

fn decoded(text: &str) -> Result<Vec<u8>, &'static str> {
    let escape = |(at, _)| {
        let digits = text.as_bytes().get(at + 1..at + 3).unwrap_or_default();
        digits.len() == 2 && digits.iter().all(u8::is_ascii_hexdigit)
    };
    if text.contains(['/', '?', '#']) || !text.match_indices('%').all(escape) {
        return Err(
            "must have `%`, `/`, `?`, `#` and `@` of a user or a password written as `%25`, `%2F`, `%3F`, `%23` and `%40`",
        );
    }
    Ok(percent_decode_str(text).collect())
}

/// Whether a list in the manner of `NO_PROXY` holds a host of a URL: `*` for all; a name, with or without a dot or `*.`
/// before it, for itself and what ends with it; an IP address; a network; each but `*` and the last with or without a
/// port. Entries stand between commas or spaces.
///
/// # Errors
/// The number, from 1, of the first entry that is none of these.
fn excepts(list: &str, host: &str, port: u16) -> Result<bool, usize> {
    let entries = list.split(|c: char| c == ',' || c.is_whitespace()).filter(|entry| !entry.is_empty());
    let entries: Vec<Entry> =
        entries.enumerate().map(|(index, entry)| Entry::parse(entry).ok_or(index + 1)).collect::<Result<_, _>>()?;
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase();
    Ok(entries.iter().any(|entry| entry.holds(&host, port)))
}

/// One entry of `NO_PROXY`.
enum Entry {
    All,
    Within { network: Network, port: Option<u16> },
    Below { name: String, port: Option<u16> },
}

impl Entry {
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        // A network whose address goes on after its prefix is taken as everyone else takes it.
        match text.parse::<Network>() {
            Ok(network) | Err(NetworkError::HostBits { network }) => return Some(Self::Within { network, port: None }),
            Err(_) => {}
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !text.ends_with(']') => (host, Some(port.parse().ok().filter(|port| *port > 0)?)),
            _ => (text, None),
        };
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if let Ok(address) = bracketed.unwrap_or(host).parse::<IpAddr>() {
            let fits = bracketed.is_some() == address.is_ipv6();
            return fits.then(|| Self::Within { network: Network::from(address), port });
        }
        let name = host.strip_prefix("*.").or_else(|| host.strip_prefix('.')).unwrap_or(host);
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let label =
            |label: &str| !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        name.split('.').all(label).then_some(Self::Below { name, port })
    }

    fn holds(&self, host: &str, at: u16) -> bool {
        let here = |port: &Option<u16>| port.is_none_or(|port| port == at);
        match (self, host.parse::<IpAddr>()) {
            (Self::All, _) => true,
            (Self::Within { network, port }, Ok(address)) => here(port) && network.contains(address),
            (Self::Below { name, port }, Err(_)) => {
                let before = host.strip_suffix(name.as_str());
                here(port) && before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
            }
            (Self::Within { .. }, Err(_)) | (Self::Below { .. }, Ok(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_a_host_and_a_port_and_perhaps_a_user() {
        for (text, authority, credentials) in [
            ("http://proxy.example:3128", "proxy.example:3128", None),
            ("HTTP://proxy.example:3128/", "proxy.example:3128", None),
            ("proxy.example:3128", "proxy.example:3128", None),
            ("http://[::1]:8080", "[::1]:8080", None),
            ("http://u:p@10.0.0.1:1", "10.0.0.1:1", Some("Basic dTpw")),
            ("u:p@10.0.0.1:1", "10.0.0.1:1", Some("Basic dTpw")),
            ("http://u@h:1", "h:1", Some("Basic dTo=")),
            ("http://u:p:q@h:1", "h:1", Some("Basic dTpwOnE=")),
            ("http://u:p%40%25@h:1", "h:1", Some("Basic dTpwQCU=")),
        ] {
            let proxy = parse(text).unwrap();
            let found = proxy.credentials.as_ref().map(|value| value.to_str().unwrap());
            assert_eq!((proxy.authority.as_str(), found), (authority, credentials), "{text}");
            assert!(!format!("{proxy:?}").contains("dTp"), "{proxy:?}");
        }
        for text in [
            "",
            "http://",
            "proxy",
            "http://proxy",
            "http://proxy:0",
            "http://proxy:99999",
            "http://:3128",
            "ftp://proxy:21",
            "https://proxy:3128",
            "socks5://proxy:1080",
            "SOCKS5h://proxy:1080",
            "http://proxy:3128/path",
            "http://proxy:3128?q",
            "http://proxy:3128#f",
            "http://@proxy:1",
            "http://:p@proxy:1",
            "http://u%3a:p@proxy:1",
            "http://u:%0a@proxy:1",
            "http://u:p%@proxy:1",
            "http://u:p%4@proxy:1",
            "http://u:p/q@proxy:1",
            "http://pro xy:1",
            "http://proxy:1,other:2",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_list_of_exceptions_is_read_as_curl_and_go_read_it() {
        for (list, host, port) in [
            ("*", "anyone.example", 1),
            ("other.example, *", "10.0.0.1", 1),
            ("example.com", "example.com", 443),
            ("example.com", "EXAMPLE.com.", 443),
            ("Example.COM.", "llm.example.com", 443),
            (".example.com", "example.com", 443),
            (".example.com", "a.b.example.com", 443),
            ("*.example.com", "llm.example.com", 443),
            ("one,,example.com:8443", "example.com", 8443),
            ("one two\texample.com", "example.com", 443),
            ("localhost", "localhost", 80),
            ("10.0.0.5", "10.0.0.5", 443),
            ("10.0.0.5:443", "10.0.0.5", 443),
            ("10.0.0.0/8", "10.1.2.3", 443),
            ("10.9.9.9/8", "10.1.2.3", 443),
            ("::1", "[::1]", 443),
            ("[::1]", "[::1]", 443),
            ("[::1]:443", "[::1]", 443),
            ("fd00::/8", "[fd12::1]", 443),
            ("10.0.0.0/8", "[::ffff:10.0.0.1]", 443),
        ] {
            assert_eq!(excepts(list, host, port), Ok(true), "{list} {host}:{port}");
        }
        for (list, host, port) in [
            ("", "example.com", 443),
            (" , ,", "example.com", 443),
            ("example.com", "notexample.com", 443),
            ("example.com", "example.com.evil.example", 443),
            ("llm.example.com", "example.com", 443),
            ("example.com:8443", "example.com", 443),
            ("10.0.0.5", "10.0.0.50", 443),
            ("10.0.0.5:80", "10.0.0.5", 443),
            ("127.0.0.1", "localhost", 443),
            ("5", "10.0.0.5", 443),
            ("::1", "[::2]", 443),
        ] {
            assert_eq!(excepts(list, host, port), Ok(false), "{list} {host}:{port}");
        }
        for (list, number) in [
            ("http://example.com", 1),
            ("a,10.0.0.0/33", 2),
            ("a b c d:x", 4),
            ("*,exa*mple.com", 2),
            ("<local>", 1),
            ("::1:99999", 1),
            ("[10.0.0.1]", 1),
            ("a:0", 1),
            ("..", 1),
            ("a..b", 1),
            ("10.*", 1),
            ("[::1", 1),
        ] {
            assert_eq!(excepts(list, "example.com", 443), Err(number), "{list}");
        }
    }
}
