//! Members and values of the format that this version does not have yet.
//!
//! They are known by name, so that nobody takes them for a misspelling, and refused, so that nobody takes them for in
//! force. The JSON Schema does not list them.

use crate::config::check;
use crate::config::problem::Problems;
use crate::config::tree::Content;
use crate::config::tree::Node;

/// Members; `*` stands for any name or index.
pub(super) const MEMBERS: [&[&str]; 13] = [
    &["auth", "keys"],
    &["backends", "*", "context"],
    &["backends", "*", "health"],
    &["backends", "*", "circuit"],
    &["backends", "*", "capabilities", "keywords"],
    &["models", "*", "targets", "*", "weight"],
    &["state"],
    &["audit", "rotate"],
    &["audit", "keep"],
    &["audit", "chain"],
    &["telemetry", "otlp"],
    &["telemetry", "service"],
    &["telemetry", "sample"],
];

/// Values of members that exist, and what the member takes instead.
const VALUES: [(&[&str], &[&str], &str); 5] = [
    (&["auth", "mode"], &["keys"], "`none`, `passthrough`"),
    (
        &["backends", "*", "kind"],
        &["anthropic", "gemini", "ollama", "azure", "azure_openai", "vertex", "bedrock"],
        "`openai`, `openai_compatible`, `vllm`, `llamacpp`, `lmstudio`, `demo`",
    ),
    (&["models", "*", "route"], &["weight", "capability"], "`order`"),
    (&["audit", "content"], &["hashed"], "`full`, `none`"),
    (&["reload"], &["watch", "signal"], "`never`"),
];

/// Reports members that are not available, and takes them out of what is checked and used.
pub(super) fn refuse_members(root: &mut Node, problems: &mut Problems) {
    refuse(&MEMBERS, root, problems);
}

/// Reports these members, which are not available, and takes them out of what is checked and used.
pub(super) fn refuse(members: &[&[&str]], root: &mut Node, problems: &mut Problems) {
    for pattern in members {
        if let Some((member, parents)) = pattern.split_last() {
            each(root, parents, &mut Vec::new(), &mut |node, path| {
                let Content::Map(entries) = &mut node.content else { return };
                for entry in entries.iter_mut().filter(|entry| entry.key == *member) {
                    let name = check::name(path, Some(member));
                    problems.add(&entry.key_span, format!("{name} is not available in this version"));
                    entry.node.broken = true;
                }
            });
        }
    }
}

/// Reports values that are not available, and takes them out of what is checked and used.
pub(super) fn refuse_values(root: &mut Node, problems: &mut Problems) {
    for (pattern, values, allowed) in VALUES {
        each(root, pattern, &mut Vec::new(), &mut |node, path| {
            let found = node.text().and_then(|text| values.iter().find(|value| **value == text));
            // An expanded value is left to the schema, which does not show it.
            let expanded = matches!(node.content, Content::Text { expanded: true, .. });
            if let Some(found) = found.filter(|_| !expanded && !node.broken) {
                let name = check::name(path, None);
                problems.add(
                    &node.span,
                    format!("the value `{found}` of {name} is not available in this version; allowed: {allowed}"),
                );
                node.broken = true;
            }
        });
    }
}

fn each(node: &mut Node, pattern: &[&str], path: &mut Vec<String>, act: &mut dyn FnMut(&mut Node, &[String])) {
    let Some((step, rest)) = pattern.split_first() else {
        return act(node, path);
    };
    match &mut node.content {
        Content::Map(entries) => {
            for entry in entries.iter_mut().filter(|entry| *step == "*" || entry.key == *step) {
                path.push(entry.key.clone());
                each(&mut entry.node, rest, path, act);
                path.pop();
            }
        }
        Content::List(items) if *step == "*" => {
            for (index, item) in items.iter_mut().enumerate() {
                path.push(index.to_string());
                each(item, rest, path, act);
                path.pop();
            }
        }
        _ => {}
    }
}
