//! References in values: `${env:NAME}`, `${env:NAME:-default}` and `${file:PATH}`.

use std::io::Read;
use std::path::Path;

use crate::config::problem::Problems;
use crate::config::secret;
use crate::config::tree::Content;
use crate::config::tree::Node;

/// Where references look.
pub(super) struct World<'w> {
    /// The environment.
    pub(super) env: &'w dyn Fn(&str) -> Option<String>,
    /// The folder that relative paths start at.
    pub(super) folder: &'w Path,
}

/// Bytes of a file that a reference may bring in.
const FILE_MAX: u64 = 64 << 10;

/// Expands every reference in the texts of a tree. A text whose reference fails is reported and marked as broken.
pub(super) fn expand(node: &mut Node, world: &World<'_>, problems: &mut Problems) {
    if node.broken {
        return;
    }
    match &mut node.content {
        Content::List(items) => items.iter_mut().for_each(|item| expand(item, world, problems)),
        Content::Map(entries) => entries.iter_mut().for_each(|entry| expand(&mut entry.node, world, problems)),
        Content::Text { value, expanded } if value.contains("${") => match text(value, world) {
            Ok(text) => (*value, *expanded) = (text, true),
            Err(messages) => {
                messages.into_iter().for_each(|message| problems.add(&node.span, message));
                node.broken = true;
            }
        },
        _ => {}
    }
}

/// The text with its references expanded once: what they bring in is not looked at again. `$${` stands for `${`.
fn text(written: &str, world: &World<'_>) -> Result<String, Vec<String>> {
    let mut out = String::new();
    let mut wrong = Vec::new();
    let mut rest = written;
    while let Some(at) = rest.find("${") {
        let (before, tail) = rest.split_at(at);
        let inner = tail.strip_prefix("${").unwrap_or(tail);
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = inner;
            continue;
        }
        out.push_str(before);
        let Some((reference, after)) = inner.split_once('}') else {
            wrong.push("a reference `${` is never closed by `}`; write `$${` for the text itself".to_owned());
            rest = "";
            break;
        };
        match resolve(reference, world) {
            Ok(text) => out.push_str(&text),
            Err(message) => wrong.push(message),
        }
        rest = after;
    }
    out.push_str(rest);
    if wrong.is_empty() { Ok(out) } else { Err(wrong) }
}

fn resolve(reference: &str, world: &World<'_>) -> Result<String, String> {
    const ALLOWED: &str =
        "allowed: `${env:NAME}`, `${env:NAME:-default}`, `${file:PATH}`, and `$${` for the text itself";
    match reference.split_once(':') {
        Some(("env", rest)) => {
            let (name, default) = match rest.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (rest, None),
            };
            if !is_variable(name) {
                return Err(format!("the reference does not name an environment variable; {ALLOWED}"));
            }
            if default.is_some_and(|default| default.contains("${")) {
                return Err("a default must not hold a reference itself".into());
            }
            // As in a shell, `:-` speaks up for a variable that is empty, too.
            match ((world.env)(name), default) {
                (Some(value), None) => Ok(value),
                (Some(value), Some(_)) if !value.is_empty() => Ok(value),
                (_, Some(default)) => Ok(default.to_owned()),
                (None, None) => Err(format!(
                    "the environment variable `{name}` is not set; set it, or give a default: `${{env:{name}:-...}}`"
                )),
            }
        }
        Some(("file", path)) => file(path, world.folder),
        _ => Err(format!("the reference is of no known kind; {ALLOWED}")),
    }
}

fn file(path: &str, folder: &Path) -> Result<String, String> {
    if path.is_empty() || path.contains("${") {
        return Err(
            "the reference does not name a file; write `${file:PATH}`, with a path that starts at this file's folder"
                .into(),
        );
    }
    let full = folder.join(path);
    // The path is what the file says, so it may be shown; what is in the file may not.
    let failed = |what: String| format!("the file `{}` of a reference {what}", secret::word(path));
    let open = std::fs::File::open(&full).map_err(|error| failed(format!("cannot be opened: {error}")))?;
    let mut bytes = Vec::new();
    open.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(|error| failed(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(failed(format!("is larger than {} KiB", FILE_MAX >> 10)));
    }
    let mut text = String::from_utf8(bytes).map_err(|_| failed("is not UTF-8".into()))?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

fn is_variable(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && name.len() <= 128 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether a value as written is one reference and nothing else, so that it tells where a secret is, not the secret.
pub(super) fn is_bare_reference(raw: &str) -> bool {
    let raw = raw.trim();
    let bare = ['"', '\''].iter().find_map(|quote| raw.strip_prefix(*quote)?.strip_suffix(*quote)).unwrap_or(raw);
    let Some(reference) = bare.strip_prefix("${").and_then(|tail| tail.strip_suffix('}')) else {
        return false;
    };
    match reference.split_once(':') {
        Some(("env", name)) => is_variable(name.strip_suffix(":-").unwrap_or(name)),
        Some(("file", path)) => path.chars().all(|c| c.is_alphanumeric() || "/._- ".contains(c)),
        _ => false,
    }
}
