//! Model aliases, and where each of them goes.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::catalog::Alias;
use crate::catalog::Backend;
use crate::catalog::Catalog;
use crate::catalog::Credentials;
use crate::catalog::Price;
use crate::catalog::Target;
use crate::config::file::AuthFile;
use crate::config::file::ModelFile;
use crate::config::file::PriceFile;
use crate::config::file::RouteFile;
use crate::config::file::TargetFile;
use crate::config::resolve::Notes;
use crate::config::secret;
use crate::json::decimal::Decimal;
use crate::nearest::did_you_mean;

/// Upstream calls that one request may cost, where nothing is written.
const UPSTREAM_CALLS_MAX: u32 = 4;

/// Headers that carry a key in the manner of some provider.
const KEY_HEADERS: [&str; 3] = ["x-api-key", "api-key", "x-goog-api-key"];

type Backends = BTreeMap<String, Arc<Backend>>;

/// Resolves every alias against the backends.
pub(super) fn resolve(
    files: BTreeMap<String, ModelFile>,
    backends: &Backends,
    auth: &AuthFile,
    notes: &mut Notes<'_>,
) -> Catalog {
    let mut catalog = Catalog::default();
    let mut used = BTreeSet::new();
    for (name, file) in files {
        check_name(&name, notes);
        match file.route {
            Some(RouteFile::Order) | None => {} // what the schema allows and this version does
        }
        let Some(written) = file.targets else { continue };
        let upstream_calls_max = file.upstream_calls_max.unwrap_or(UPSTREAM_CALLS_MAX);
        if usize::try_from(upstream_calls_max).is_ok_and(|most| most < written.len()) {
            let message = format!(
                "model `{}` has more targets than `upstream_calls_max`; the last are never reached",
                secret::name(&name)
            );
            notes.warn(&["models", &name], &message);
        }
        let mut targets = Vec::new();
        for (index, target) in written.into_iter().enumerate() {
            used.extend(target.backend.clone());
            targets.extend(self::target(&name, index, target, backends, auth, notes));
        }
        one_host_for_callers(&name, &targets, notes);
        let alias = Arc::new(Alias { name: name.as_str().into(), targets, upstream_calls_max });
        if name == "*" {
            catalog.fallback = Some(alias);
        } else {
            catalog.aliases.insert(name, alias);
        }
    }
    for name in backends.keys().filter(|name| !used.contains(*name)) {
        notes.warn(&["backends", name], &format!("backend `{name}` is used by no model"));
    }
    catalog
}

fn check_name(name: &str, notes: &mut Notes<'_>) {
    let shown = secret::name(name);
    let path = ["models", name];
    if name != "*" && name.contains('*') {
        notes.error_at_name(
            &path,
            format!("the model name `{shown}` is no pattern; only `*` alone, for every other name, is allowed"),
        );
    } else if name.len() > 256 || name.trim() != name || name.chars().any(char::is_control) {
        notes.error_at_name(
            &path,
            format!(
                "the model name `{shown}` must have at most 256 bytes, no control characters, and no spaces around it"
            ),
        );
    }
}

fn target(
    model: &str,
    index: usize,
    file: TargetFile,
    backends: &Backends,
    auth: &AuthFile,
    notes: &mut Notes<'_>,
) -> Option<Target> {
    let index = index.to_string();
    let path = ["models", model, "targets", &index, "backend"];
    let name = file.backend?;
    let Some(backend) = backends.get(&name) else {
        let known = notes.names(&["backends"]);
        if !known.contains(&name.as_str()) && !notes.is_broken(&["backends"]) {
            let near = did_you_mean(&name, known.iter().copied());
            let all = known.iter().map(|name| format!("`{}`", secret::name(name))).collect::<Vec<_>>().join(", ");
            let defined = if !near.is_empty() || all.is_empty() { near } else { format!("; defined: {all}") };
            let message = format!(
                "model `{}` names backend {}, which is not defined{defined}",
                secret::name(model),
                notes.quoted(&path)
            );
            notes.error(&path, message);
        }
        return None;
    };
    if auth.allow_remote == Some(true) && auth.mode.is_some() && spends_a_key(backend) {
        let message = format!(
            "model `{}` goes to backend `{}`, which spends the operator's key; with `auth.allow_remote: true` and \
             a mode that knows no keys of its own, anyone could spend it",
            secret::name(model),
            backend.name
        );
        notes.error(&path, message);
    }
    Some(Target { backend: Arc::clone(backend), model: file.model, price: file.price.and_then(price) })
}

/// The schema has let through only what can be read.
fn price(file: PriceFile) -> Option<Price> {
    let read = |text: Option<String>| text.and_then(|text| Decimal::read(&text).ok());
    let input = read(file.input)?;
    let cached_input = read(file.cached_input).unwrap_or_else(|| input.clone());
    Some(Price { input, cached_input, output: read(file.output)? })
}

fn spends_a_key(backend: &Backend) -> bool {
    let by_header = |name: &str| KEY_HEADERS.contains(&name) || secret::is_secret_name(name);
    matches!(backend.credentials, Credentials::Operator(_))
        || backend.headers.iter().any(|(name, _)| by_header(name.as_str()))
}

/// A caller's key is for one provider, so failover must not carry it to another host.
fn one_host_for_callers(model: &str, targets: &[Target], notes: &mut Notes<'_>) {
    let mut hosts = BTreeSet::new();
    for target in targets.iter().filter(|target| matches!(target.backend.credentials, Credentials::Caller)) {
        hosts.extend(target.backend.base.as_ref().map(|base| format!("{}://{}", base.scheme, base.authority)));
    }
    if hosts.len() > 1 {
        let message = format!(
            "model `{}` would take the caller's key to more than one host; its targets with `credentials: caller` must \
             share one",
            secret::name(model)
        );
        notes.error(&["models", model, "targets"], message);
    }
}
