//! What is served under a path.

use std::borrow::Cow;

use http::HeaderMap;
use http::HeaderValue;
use http::Method;
use http::header;

/// What is served under a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    /// `POST /v1/chat/completions`
    Chat,
    /// `GET /v1/models`
    Models,
    /// `GET /v1/models/{id}`; the name, its escapes read.
    Model(Cow<'a, str>),
    /// Every other path: passed on as it is, below the backend's version path. It starts with `/`.
    Open(&'a str),
    /// A WebSocket, or what is served over one.
    WebSocket,
    /// A path whose answers a contract may concern, and which is not judged in this version.
    Unjudged,
    /// The path is served, but not with this method; the methods that are.
    Wrong(&'static str),
    /// `OPTIONS` on a path of the gateway's own; the methods that are served.
    Options(&'static str),
    /// Another spelling of a path that the gateway serves itself: a backend might take it for that one.
    Spelling(&'static str),
    /// Nothing.
    Unknown,
}

/// First segments of the paths that answer without `/v1`, too: some clients are given a base URL that has none.
const BARE: &[&str] = &[
    "assistants",
    "audio",
    "batches",
    "chat",
    "completions",
    "containers",
    "conversations",
    "embeddings",
    "evals",
    "files",
    "fine_tuning",
    "images",
    "moderations",
    "rerank",
    "responses",
    "threads",
    "uploads",
    "vector_stores",
    "videos",
];

/// Paths that are the gateway's own, in the one spelling that is served.
const OWN: &[&str] = &["chat/completions", "responses", "messages", "messages/count_tokens", "models", "realtime"];

/// Methods that are passed on.
const PASSED: &[Method] =
    &[Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// Finds what is served under `path` with this method.
pub(super) fn route<'a>(method: &Method, path: &'a str, headers: &HeaderMap) -> Route<'a> {
    let versioned = path.strip_prefix("/v1").filter(|rest| rest.starts_with('/'));
    let below = versioned.unwrap_or(path);
    let get = *method == Method::GET || *method == Method::HEAD;
    let upgrade = headers.get(header::UPGRADE).map(HeaderValue::as_bytes).unwrap_or_default();
    if upgrade.eq_ignore_ascii_case(b"websocket") {
        return Route::WebSocket;
    }
    let own = |route, served: bool, methods| match served {
        true => route,
        false if *method == Method::OPTIONS => Route::Options(methods),
        false => Route::Wrong(methods),
    };
    match below {
        "/chat/completions" => return own(Route::Chat, *method == Method::POST, "POST"),
        "/models" => return own(Route::Models, get, "GET, HEAD"),
        "/realtime" => return Route::WebSocket,
        "/responses" | "/messages" | "/messages/count_tokens" => return Route::Unjudged,
        _ => {}
    }
    let Some(segments) = plain(below) else { return Route::Unknown };
    if let Some(name) = below.strip_prefix("/models/").filter(|name| !name.is_empty()) {
        let name = percent_encoding::percent_decode_str(name).decode_utf8_lossy();
        return own(Route::Model(name), get, "GET, HEAD");
    }
    let first = below.split('/').nth(1).unwrap_or_default();
    if first.is_empty() || (versioned.is_none() && !BARE.contains(&first)) {
        return Route::Unknown;
    }
    match spelt_otherwise(&segments) {
        Some(own) => Route::Spelling(own),
        None if PASSED.contains(method) => Route::Open(below),
        None => Route::Wrong("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
    }
}

/// A path as a lenient server may read it: escapes undone, segments that say nothing left away, in small letters. None
/// where servers may read it in ways that are not foreseen: where it leads up, is escaped more than once or in no UTF-8,
/// or escapes what would end it.
fn plain(path: &str) -> Option<Vec<String>> {
    let text = percent_encoding::percent_decode_str(path).decode_utf8().ok()?;
    if text.contains(['%', '?', '#']) || text.chars().any(char::is_control) {
        return None;
    }
    let segments =
        text.split(['/', '\\']).map(|segment| segment.split(';').next().unwrap_or_default().trim_matches(' '));
    let segments: Vec<&str> = segments.collect();
    // A dot at its end is no part of a name for some servers.
    let plain = segments.iter().map(|segment| segment.trim_end_matches('.').to_lowercase());
    (!segments.contains(&"..")).then(|| plain.filter(|segment| !segment.is_empty()).collect())
}

/// The path of the gateway's own that a backend might take this one for.
fn spelt_otherwise(segments: &[String]) -> Option<&'static str> {
    let joined = segments.join("/");
    if let Some(own) = OWN.iter().find(|own| joined == **own || joined.strip_prefix("v1/") == Some(own)) {
        return Some(own);
    }
    // Servers that know models by path have the same service further down (`/engines/M/chat/completions`); what lies
    // below the service itself are stored answers.
    let service = segments.windows(2).position(|pair| matches!(pair, [a, b] if a == "chat" && b == "completions"));
    let responses = segments.len() > 1 && segments.last().is_some_and(|last| last == "responses");
    match service {
        Some(at) if at > 0 => Some("chat/completions"),
        _ => responses.then_some("responses"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: Method, path: &str) -> Route<'_> {
        route(&method, path, &HeaderMap::new())
    }

    #[test]
    fn paths_lead_where_the_design_says() {
        for (method, path, expected) in [
            (Method::POST, "/v1/chat/completions", Route::Chat),
            (Method::POST, "/chat/completions", Route::Chat),
            (Method::GET, "/v1/chat/completions", Route::Wrong("POST")),
            (Method::OPTIONS, "/v1/chat/completions", Route::Options("POST")),
            (Method::HEAD, "/v1/models", Route::Models),
            (Method::GET, "/v1/models/a%2Fb", Route::Model("a/b".into())),
            (Method::GET, "/v1/models/demo/clean", Route::Model("demo/clean".into())),
            (Method::DELETE, "/v1/models/ft", Route::Wrong("GET, HEAD")),
            (Method::POST, "/v1/embeddings", Route::Open("/embeddings")),
            (Method::POST, "/embeddings", Route::Open("/embeddings")),
            (Method::GET, "/v1/files/file-1/content", Route::Open("/files/file-1/content")),
            (Method::GET, "/v1/chat/completions/cmpl-1", Route::Open("/chat/completions/cmpl-1")),
            (Method::GET, "/v1/responses/resp-1", Route::Open("/responses/resp-1")),
            (Method::POST, "/v1/something/new", Route::Open("/something/new")),
            (Method::POST, "/v1/responses", Route::Unjudged),
            (Method::POST, "/v1/messages", Route::Unjudged),
            (Method::GET, "/v1/realtime", Route::WebSocket),
            (Method::TRACE, "/v1/files", Route::Wrong("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")),
            (Method::GET, "/", Route::Unknown),
            (Method::GET, "/v1", Route::Unknown),
            (Method::GET, "/v1/", Route::Unknown),
            (Method::GET, "/v1beta/models", Route::Unknown),
            (Method::GET, "/favicon.ico", Route::Unknown),
            (Method::GET, "/metrics", Route::Unknown),
        ] {
            assert_eq!(of(method.clone(), path), expected, "{method} {path}");
        }
    }

    #[test]
    fn no_spelling_leads_around_the_judge() {
        for path in [
            "/v1/chat/completions/",
            "/v1/chat//completions",
            "/v1//chat/completions",
            "/v1/Chat/Completions",
            "/v1/chat/completions%2f",
            "/v1/chat%2fcompletions",
            "/v1/chat%252fcompletions",
            "/v1/c%68at/completions",
            "/v1/./chat/completions",
            "/v1/chat/%2e/completions",
            "/v1/chat\\completions",
            "/v1/chat/completions;v=1",
            "/v1/chat/completions%3fx",
            "/v1/v1/chat/completions",
            "/v1/engines/m/chat/completions",
            "/v1/openai/deployments/d/chat/completions",
            "/v1/responses/",
            "/v1/messages%20",
            "/v1/chat/completions.",
            "/v1/chat./completions",
            "/v1/engines/m/responses",
            "/v1/openai/responses",
            "/chat/completions/",
            "/v1/models/",
        ] {
            let found = of(Method::POST, path);
            assert!(matches!(found, Route::Spelling(_) | Route::Unknown), "{path}: {found:?}");
        }
        for path in [
            "/v1/../admin",
            "/v1/files/../chat/completions",
            "/v1/files/%2e%2e/x",
            "/v1/files/..%2fx",
            "/v1/files/%252e%252e/x",
            "/v1/files/..;/x",
            "/v1/models/..",
            "/v1/models/%2e%2e/files",
            "/v1/..",
            "/v1/chat/completions%00",
            "/v1/chat/completions%2500.json",
            "/v1/files/a%0ab",
            "/v1/models/m%00",
            "/v1/chat/completions%3f/x",
            "/v1/chat/completions%23/x",
            "/v1/chat/completions/%3f/x",
            "/v1/chat/completions%2525",
            "/v1/chat%c0%afcompletions",
            "/v1/%u0063hat/completions",
        ] {
            assert_eq!(of(Method::POST, path), Route::Unknown, "{path}");
        }
    }
}
