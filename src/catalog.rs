//! What the operator has set up, resolved: backends, model aliases and their targets.
//!
//! Nothing here is unresolved: a name that could not be found never gets past the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::uri::{Authority, Scheme};
use http::{HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};

use crate::dialect::table::{BackendKind, Capabilities};
use crate::json::decimal::Decimal;
use crate::settings::Identity;

/// Every alias that a caller may name, with the targets behind it.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Aliases by the name that clients put in `model`.
    pub aliases: BTreeMap<String, Arc<Alias>>,
    /// The alias `*`: where any other name goes, under its own name.
    pub fallback: Option<Arc<Alias>>,
}

impl Catalog {
    /// The alias that serves `model`, or none where the operator offers nothing under that name.
    pub fn alias(&self, model: &str) -> Option<&Arc<Alias>> {
        self.aliases.get(model).or(self.fallback.as_ref())
    }
}

/// A model alias: the name that clients use, and the targets tried in order.
#[derive(Debug)]
pub struct Alias {
    /// The name as configured; `*` for the fallback. Metrics are labelled with it, never with a caller's invention.
    pub name: Arc<str>,
    /// Where requests go, first to last. Never empty.
    pub targets: Vec<Target>,
    /// Upstream calls that one request may cost, all targets and attempts together.
    pub upstream_calls_max: u32,
}

/// One place that a request can be sent to.
#[derive(Clone, Debug)]
pub struct Target {
    /// The provider endpoint.
    pub backend: Arc<Backend>,
    /// The model's name there; none means the caller's own name.
    pub model: Option<String>,
    /// What it costs there; none where the operator has not said.
    pub price: Option<Price>,
}

/// What a model costs, in US dollars per million tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Price {
    /// Tokens of the prompt.
    pub input: Decimal,
    /// Tokens of the prompt that the backend had in its cache.
    pub cached_input: Decimal,
    /// Tokens of the answer.
    pub output: Decimal,
}

impl Price {
    /// What these tokens cost in US dollars, exactly. `cached` tokens are part of `input`; more of them than that are
    /// none. None where the numbers are beyond what is calculated with.
    pub fn cost(&self, input: u64, cached: u64, output: u64) -> Option<Decimal> {
        let tokens = |count: u64| Decimal::read(&count.to_string());
        let cached = cached.min(input);
        let fresh = tokens(input - cached).and_then(|count| count.mul(&self.input)).ok()?;
        let cached = tokens(cached).and_then(|count| count.mul(&self.cached_input)).ok()?;
        let output = tokens(output).and_then(|count| count.mul(&self.output)).ok()?;
        fresh.add(&cached).and_then(|sum| sum.add(&output)).and_then(|sum| sum.shifted(-6)).ok()
    }
}

/// One upstream provider endpoint.
#[derive(Debug)]
pub struct Backend {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// Its wire format and manners.
    pub kind: BackendKind,
    /// Where it is; none for the demo backend, which lives in the binary.
    pub base: Option<BaseUrl>,
    /// Whom TLS trusts there and who calls; none trusts the public authorities and shows no certificate.
    pub tls: Option<ClientTls>,
    /// The proxy that calls go through, whatever the environment says; none goes straight there.
    pub proxy: Option<Proxy>,
    /// Whose key is sent.
    pub credentials: Credentials,
    /// Headers added to every request, after the client's.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How long each phase of a call may take.
    pub timeouts: Timeouts,
    /// Calls under way at once; more of them wait, within the deadline.
    pub concurrency: usize,
    /// What it can do.
    pub capabilities: Capabilities,
}

/// Bytes from which on the value of a header of the operator's is taken for a secret.
const SECRET_MIN: usize = 16;

impl Backend {
    /// What the operator has with this backend that no caller may see: its key, values of headers that are long enough
    /// to be one, and what its proxy is shown.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let key = match &self.credentials {
            Credentials::Operator(key) => Some(key.expose_secret()),
            Credentials::Caller | Credentials::None => None,
        };
        let headers = self.headers.iter().filter_map(|(_, value)| value.to_str().ok());
        let proxy = self.proxy.as_ref().and_then(|proxy| proxy.credentials.as_ref()?.to_str().ok());
        let proxy = proxy.map(|shown| shown.strip_prefix("Basic ").unwrap_or(shown));
        key.into_iter().chain(headers.filter(|value| value.len() >= SECRET_MIN)).chain(proxy)
    }

    /// `text` with every one of them blotted out.
    pub fn blotted(&self, text: String) -> String {
        self.secrets().filter(|secret| !secret.is_empty()).fold(text, |text, secret| match text.contains(secret) {
            true => text.replace(secret, "***"),
            false => text,
        })
    }
}

/// Whose key goes to a backend.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// No key at all.
    None,
    /// The operator's key, as a bearer token.
    Operator(OperatorKey),
    /// The caller's own `authorization`, unchanged (`auth: passthrough`).
    Caller,
}

/// The operator's key for a backend.
#[derive(Clone, Debug)]
pub struct OperatorKey {
    key: SecretString,
    bearer: HeaderValue,
}

impl OperatorKey {
    /// A key; none where it is no text that a header can carry.
    pub fn new(key: String) -> Option<Self> {
        let mut bearer = HeaderValue::try_from(format!("Bearer {key}")).ok()?;
        bearer.set_sensitive(true);
        Some(Self { key: key.into(), bearer })
    }

    /// The key itself.
    pub fn expose_secret(&self) -> &str {
        self.key.expose_secret()
    }

    /// The value of `authorization`, marked as sensitive.
    pub fn bearer(&self) -> &HeaderValue {
        &self.bearer
    }
}

/// A provider's address, up to and with its version path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host and port.
    pub authority: Authority,
    /// The path with no slash at its end, for example `/v1`.
    pub path: String,
}

/// Whom TLS trusts at a backend, and who the gateway says that it is.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// Certificates (DER) of the authorities that are trusted, in place of the public ones. Never empty.
    pub ca: Option<Vec<Vec<u8>>>,
    /// What is shown where the backend asks for a client certificate.
    pub identity: Option<Identity>,
}

/// An HTTP proxy: asked by `CONNECT` for backends over https, with the whole URL for those over http.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// Host and port, both always there; no user.
    pub authority: Authority,
    /// The value of `proxy-authorization` (`Basic ...`, RFC 7617), marked as sensitive so that no `Debug` shows it.
    pub credentials: Option<HeaderValue>,
}

/// How long each phase of a call to a backend may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection stands, TLS included.
    pub connect: Duration,
    /// From the request's last byte to the first byte of the answer's head.
    pub first_byte: Duration,
    /// Between two pieces of the answer's body.
    pub idle: Duration,
    /// For all attempts of one request together.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            first_byte: Duration::from_secs(60),
            idle: Duration::from_secs(30),
            total: Duration::from_secs(600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_cost_exactly_what_the_price_says() {
        let read = |text: &str| Decimal::read(text).unwrap();
        let price = Price { input: read("0.25"), cached_input: read("0.025"), output: read("2.00") };
        for (input, cached, output, cost) in [
            (1_000_000, 0, 0, "0.25"),
            (1_000_000, 1_000_000, 0, "0.025"),
            (1_000, 400, 10, "0.00018"),
            (10, 20, 0, "0.00000025"),
            (0, 0, 1, "0.000002"),
        ] {
            assert_eq!(price.cost(input, cached, output), Some(read(cost)), "{input} {cached} {output}");
        }
        assert!(price.cost(u64::MAX, 0, u64::MAX).is_some());
    }
}
