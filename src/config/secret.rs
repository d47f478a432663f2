//! What must not be shown: the values of secret members, and whatever looks like a key.

use std::collections::HashSet;
use std::ops::Range;

use crate::config::expand;
use crate::config::tree::Content;
use crate::config::tree::Entry;
use crate::config::tree::Node;
use crate::nearest;

/// Names of members whose values are secret, folded; a name near to one of them counts, for it may be misspelt.
const SECRET_NAMES: [&str; 9] =
    ["apikey", "token", "secret", "password", "passwd", "authorization", "credential", "bearer", "cookie"];

/// How keys of well-known providers start.
const KEY_STARTS: [&str; 24] = [
    "sk-",
    "sk_",
    "pk-",
    "pk_",
    "rk_",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "AIza",
    "AKIA",
    "ASIA",
    "eyJ",
    "gsk_",
    "hf_",
    "r8_",
    "xai-",
    "ya29.",
    "nvapi-",
    "pplx-",
    "fw_",
];

/// Whether a member of this name, or of a name that it may be meant to be, holds a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    let name = nearest::folded(name);
    name == "key"
        || SECRET_NAMES.iter().any(|secret| {
            let slips = if secret.len() > 5 { 2 } else { 1 };
            name.contains(secret) || nearest::distance(&name, secret) <= slips
        })
}

/// Whether a word looks like a key: by its start, or long and made of letters and digits.
pub(super) fn looks_like_key(word: &str) -> bool {
    let known = KEY_STARTS.iter().any(|start| word.len() >= start.len() + 4 && word.starts_with(start));
    let mixed = word.bytes().any(|b| b.is_ascii_digit()) && word.bytes().any(|b| b.is_ascii_alphabetic());
    known || (word.len() >= 32 && mixed && !word.contains('.'))
}

/// Whether a text that should be one word names a secret and goes on: `api_key:hunter2`, where a space is missing.
pub(super) fn speaks_of_a_secret(text: &str) -> bool {
    let mut words = words(text).filter_map(|span| text.get(span));
    let named = words.clone().any(is_secret_name);
    named && words.nth(1).is_some()
}

/// The unknown members of a mapping that may be the rest of a secret, which a comma has cut in two: `{token: one,two}`.
pub(super) fn cut_off<'e>(text: &str, entries: &'e [Entry], known: &[&str]) -> HashSet<&'e str> {
    let mut secret: Option<&Entry> = None;
    let mut cut = HashSet::new();
    for entry in entries {
        if is_secret_name(&entry.key) {
            let quoted = text.get(entry.node.origin.clone()).is_some_and(|raw| raw.starts_with(['"', '\'']));
            secret = Some(entry).filter(|_| !quoted);
        } else if known.contains(&entry.key.as_str()) {
            secret = None;
        } else if let Some(before) = secret {
            let between = text.get(before.key_span.end..entry.key_span.start);
            if between.is_some_and(|between| between.len() < 4096 && !between.contains('\n')) {
                cut.insert(entry.key.as_str());
            }
        }
    }
    cut
}

/// The name of a member for a message: itself, or a mask where it is more than a name.
pub(super) fn name(text: &str) -> String {
    if is_more_than_a_name(text) { "***".into() } else { word(text) }
}

/// Whether a text is the name of a header; one that is not may hold the value, too.
pub(super) fn is_header_name(text: &str) -> bool {
    http::HeaderName::try_from(text).is_ok()
}

/// Whether a text is the path of a file and no key: DER in base64 has no `.`, and does not start with `/`.
fn is_path(text: &str) -> bool {
    let one_line = text.len() <= 256 && !text.contains('\n');
    one_line
        && !["-----", "://"].iter().any(|sign| text.contains(sign))
        && (text.contains('.') || text.starts_with('/'))
}

fn is_more_than_a_name(text: &str) -> bool {
    speaks_of_a_secret(text) || text.contains(['"', '\'', '\n', '{', '}'])
}

/// A word of the user's for a message: itself, or a mask where it looks like a key.
pub(super) fn word(text: &str) -> String {
    let mut shown = String::new();
    let masks = in_text(text, None);
    for (at, c) in text.char_indices() {
        match masks.iter().find(|mask| mask.contains(&at)) {
            Some(mask) if mask.start == at => shown.push_str("***"),
            Some(_) => {}
            None if c.is_control() => shown.push('\u{fffd}'),
            None => shown.push(c),
        }
    }
    shown
}

/// Spans of a line to mask for their looks alone: keys, what follows `Bearer`, users and queries of URLs, and a comment
/// (from `comment` on) that speaks of secrets.
pub(super) fn in_text(line: &str, comment: Option<usize>) -> Vec<Range<usize>> {
    let mut masks = Vec::new();
    let mut after_scheme = false;
    for span in words(line) {
        let text = line.get(span.clone()).unwrap_or_default();
        if after_scheme || looks_like_key(text) {
            masks.push(span.clone());
        }
        // A space is missing: `api_key:hunter2` is one text to YAML.
        let rest = line.get(span.end..).unwrap_or_default();
        let glued = rest.strip_prefix([':', '=']).filter(|rest| !rest.starts_with([' ', '\t', '-']));
        if let Some(glued) = glued.filter(|glued| !glued.is_empty() && is_secret_name(text)) {
            let end = glued.find(|c: char| c.is_whitespace() || ",}]".contains(c)).unwrap_or(glued.len());
            masks.push(span.end + 1..span.end + 1 + end);
        }
        after_scheme = text.eq_ignore_ascii_case("bearer") || text.eq_ignore_ascii_case("basic");
    }
    masks.extend(in_urls(line, 0));
    if let Some(start) = comment {
        let text = line.get(start..).unwrap_or_default();
        if words(text).any(|span| is_secret_name(text.get(span).unwrap_or_default())) {
            let gap = text.len() - text.trim_start_matches(['#', ' ']).len();
            masks.push(start + gap..line.len());
        }
    }
    masks
}

/// Spans of a line to mask where nothing is known of its structure: every word but the given ones, and all that follows
/// a secret name.
pub(super) fn all_but(line: &str, shown: &HashSet<String>) -> Vec<Range<usize>> {
    let mut masks = Vec::new();
    for span in words(line) {
        let text = line.get(span.clone()).unwrap_or_default();
        if is_secret_name(text) && shown.contains(text) {
            let rest = line.get(span.end..).unwrap_or_default();
            let gap = rest.len() - rest.trim_start_matches(['"', '\'', ':', ' ', '=']).len();
            masks.push(span.end + gap..line.len());
            break;
        }
        if !shown.contains(text) && text.contains(|c: char| c != '-' && c != '.') {
            masks.push(span);
        }
    }
    masks
}

/// Words: runs of what is neither white space, nor a sign that YAML or a URL gives a meaning to.
fn words(line: &str) -> impl Iterator<Item = Range<usize>> + Clone + '_ {
    let in_word = |c: char| !c.is_whitespace() && !"[]{}(),:;\"'#&*!|>%@`=/?<$\\".contains(c);
    let mut rest = 0;
    std::iter::from_fn(move || {
        let start = rest + line.get(rest..)?.find(in_word)?;
        let tail = line.get(start..)?;
        let end = start + tail.find(|c| !in_word(c)).unwrap_or(tail.len());
        rest = end;
        Some(start..end)
    })
}

/// Spans of users (`user:password@`) and queries in the URLs of a text, moved by `offset`.
fn in_urls(text: &str, offset: usize) -> Vec<Range<usize>> {
    let mut masks = Vec::new();
    for (at, _) in text.match_indices("://") {
        let start = at + 3;
        let tail = text.get(start..).unwrap_or_default();
        let end = start + tail.find(|c: char| c.is_whitespace() || "\"'<>".contains(c)).unwrap_or(tail.len());
        let url = text.get(start..end).unwrap_or_default();
        if let Some(user) = url.rfind('@') {
            masks.push(offset + start..offset + start + user);
        }
        if let Some(query) = url.find('?') {
            masks.push(offset + start + query + 1..offset + end);
        }
    }
    masks
}

/// Spans of a tree's secrets, and of its scalars.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Bytes of the text that hold secrets.
    pub(super) secrets: Vec<Range<usize>>,
    /// Bytes of the text that hold scalars.
    pub(super) scalars: Vec<Range<usize>>,
}

impl Found {
    /// Walks a tree.
    pub(super) fn of(root: &Node, text: &str) -> Self {
        let mut found = Self::default();
        found.walk(root, text, false);
        found
    }

    fn walk(&mut self, node: &Node, text: &str, secret: bool) {
        let scalar = match &node.content {
            Content::List(items) => return items.iter().for_each(|item| self.walk(item, text, secret)),
            Content::Map(entries) => {
                for entry in entries {
                    self.scalars.push(entry.key_span.clone());
                    if secret || is_more_than_a_name(&entry.key) {
                        self.secrets.push(entry.key_span.clone());
                    }
                    self.member(entry, text, secret);
                }
                return;
            }
            Content::Text { value, .. } => value,
            Content::Nothing => return,
            Content::Bool(_) | Content::Number(_) => "",
        };
        self.scalars.push(node.origin.clone());
        let raw = text.get(node.origin.clone()).unwrap_or_default();
        // A key's own text where the path of its file should be.
        if raw.contains("-----BEGIN") {
            self.secrets.push(node.origin.clone());
        }
        if (secret || speaks_of_a_secret(scalar)) && !expand::is_bare_reference(raw) {
            self.secrets.push(node.origin.clone());
        }
        let url = raw.contains("://") || scalar.contains("://");
        if url && (scalar.contains('@') || scalar.contains('?')) {
            let masks = in_urls(raw, node.origin.start);
            let whole = masks.is_empty() || raw.contains(['\n', '\\']);
            self.secrets.extend(if whole { vec![node.origin.clone()] } else { masks });
        }
    }

    /// An unquoted secret may start with `&`, `!` or `#`, and so look like an anchor, a tag or a comment to YAML.
    fn before_value(&mut self, entry: &Entry, text: &str) {
        let from = entry.key_span.end;
        let gap = text.get(from..entry.node.span.start).unwrap_or_default();
        if let Some(at) = gap.find(['&', '!']) {
            self.secrets.push(from + at..entry.node.span.start);
        }
        if matches!(entry.node.content, Content::Nothing) {
            let line = text.get(from..).and_then(|rest| rest.lines().next()).unwrap_or_default();
            self.secrets.extend(line.find('#').map(|at| from + at + 1..from + line.len()));
        }
    }

    fn member(&mut self, entry: &Entry, text: &str, secret: bool) {
        let (key, node) = (entry.key.as_str(), &entry.node);
        if secret || key == "headers" || is_secret_name(key) {
            self.before_value(entry, text);
        }
        let raw = text.get(node.origin.clone()).unwrap_or_default();
        match &node.content {
            // Names of headers are shown, so that an error can speak of one; what is none may be more than a name.
            Content::Map(headers) if key == "headers" => {
                for header in headers {
                    self.scalars.push(header.key_span.clone());
                    if !is_header_name(&header.key) || matches!(header.node.content, Content::Nothing) {
                        self.secrets.push(header.key_span.clone());
                    }
                    self.before_value(header, text);
                    self.walk(&header.node, text, true);
                }
            }
            // These are paths of files, which an error must be able to name: `key`, and whatever lies in `/run/secrets`.
            Content::Map(members) if key == "tls" && !secret => {
                for member in members {
                    self.scalars.push(member.key_span.clone());
                    if is_more_than_a_name(&member.key) {
                        self.secrets.push(member.key_span.clone());
                    }
                    let named = ["certificate", "key", "ca", "client_ca"].contains(&member.key.as_str());
                    match member.node.text() {
                        Some(path) if named && is_path(path) => self.scalars.push(member.node.origin.clone()),
                        _ => self.member(member, text, false),
                    }
                }
            }
            Content::List(_) if key == "headers" => self.walk(node, text, true),
            // A whole header line; sizes, and what was meant for a boolean, are single words.
            Content::Text { value, .. } if key == "headers" && !value.chars().all(char::is_alphanumeric) => {
                self.walk(node, text, true);
            }
            // Anything else here is most likely a key in the wrong place.
            Content::Text { value, .. } if key == "credentials" => self.walk(node, text, secret || value != "caller"),
            // A proxy's password is not found by its looks in what is no URL.
            Content::Text { value, .. }
                if key == "proxy" && value.contains('@') && value.contains([' ', '\t', '\n', '"', '\'', '<', '>']) =>
            {
                self.walk(node, text, true);
            }
            Content::List(_) | Content::Map(_) if key == "proxy" => self.walk(node, text, true),
            // An address without a scheme is not found by its looks.
            Content::Text { value, .. }
                if matches!(key, "base_url" | "url" | "proxy" | "otlp") && !raw.contains("://") =>
            {
                self.walk(node, text, secret || value.contains('@'));
            }
            _ => self.walk(node, text, secret || is_secret_name(key)),
        }
    }
}

/// Spans sorted, those that touch made one.
pub(super) fn merged(mut spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    spans.retain(|span| !span.is_empty());
    spans.sort_by_key(|span| span.start);
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => merged.push(span),
        }
    }
    merged
}
