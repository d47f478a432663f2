//! YAML as a tree that knows where each part stands.
//!
//! The parser is the one that serde-saphyr is built on. Its events become a tree here, and not serde values at once,
//! so that every error of a file can be reported with its place, and so that nothing which YAML allows is dropped:
//! duplicate keys, tags, further documents and aliases without end are errors. Scalars are read by the core schema of
//! YAML 1.2 (`true` and `false` are booleans; `yes`, `on` and `~1` are text).

use std::collections::HashMap;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::ops::Range;

use serde_json::Number;
use serde_json::Value;
use serde_saphyr::granit_parser;
use serde_saphyr::granit_parser::ErrorKind;
use serde_saphyr::granit_parser::Event;
use serde_saphyr::granit_parser::Parser;
use serde_saphyr::granit_parser::ScalarStyle;
use serde_saphyr::granit_parser::ScanError;
use serde_saphyr::granit_parser::Span;

use crate::config::problem::Problems;
use crate::config::secret;
use crate::json::decimal::Decimal;

/// Open containers that a file may nest, aliases followed.
const DEPTH_MAX: usize = 64;
/// Nodes that a file may stand for, aliases followed.
const NODES_MAX: usize = 50_000;

/// One part of the file.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Bytes of the text where it stands; for an alias, the alias.
    pub(super) span: Range<usize>,
    /// Bytes of the text that hold its content; for an alias, those of what the alias stands for.
    pub(super) origin: Range<usize>,
    /// What it holds.
    pub(super) content: Content,
    /// Already reported: left out of what is checked and used, so that one fault is said once.
    pub(super) broken: bool,
    /// Nodes of the subtree, itself included.
    size: usize,
    /// Containers of the deepest branch, itself included.
    height: usize,
}

/// What a part of the file holds.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// Nothing: an empty place, `~` or `null`.
    Nothing,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A text, references expanded once `expand` has been there.
    Text {
        /// As it is used.
        value: String,
        /// Whether it is not what is written, but what a reference stood for.
        expanded: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// A mapping, in the order of the file, no key twice.
    Map(Vec<Entry>),
}

/// One member of a mapping.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Its name.
    pub(super) key: String,
    /// Bytes of the name.
    pub(super) key_span: Range<usize>,
    /// Its value.
    pub(super) node: Node,
}

impl Node {
    fn new(span: Range<usize>, content: Content) -> Self {
        let children: Box<dyn Iterator<Item = &Node>> = match &content {
            Content::List(items) => Box::new(items.iter()),
            Content::Map(entries) => Box::new(entries.iter().map(|entry| &entry.node)),
            _ => Box::new(std::iter::empty()),
        };
        let (size, height) = children
            .fold((1_usize, 0), |(size, height), child| (size.saturating_add(child.size), height.max(child.height)));
        let height = height + usize::from(matches!(content, Content::List(_) | Content::Map(_)));
        Self { origin: span.clone(), span, content, broken: false, size, height }
    }

    /// The members of a mapping; none of anything else.
    pub(super) fn entries(&self) -> &[Entry] {
        match &self.content {
            Content::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The member `key` of a mapping.
    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// The part at `path`: names of members, and indexes of lists as digits.
    pub(super) fn at<S: AsRef<str>>(&self, path: &[S]) -> Option<&Node> {
        path.iter().try_fold(self, |node, step| match &node.content {
            Content::List(items) => items.get(step.as_ref().parse::<usize>().ok()?),
            _ => node.entry(step.as_ref()).map(|entry| &entry.node),
        })
    }

    /// The part at `path`, to change it.
    pub(super) fn at_mut<S: AsRef<str>>(&mut self, path: &[S]) -> Option<&mut Node> {
        path.iter().try_fold(self, |node, step| match &mut node.content {
            Content::List(items) => items.get_mut(step.as_ref().parse::<usize>().ok()?),
            Content::Map(entries) => {
                entries.iter_mut().find(|entry| entry.key == step.as_ref()).map(|entry| &mut entry.node)
            }
            _ => None,
        })
    }

    /// The deepest part on the way to `path` that exists.
    pub(super) fn nearest_at<S: AsRef<str>>(&self, path: &[S]) -> &Node {
        (0..=path.len()).rev().filter_map(|end| self.at(path.get(..end)?)).next().unwrap_or(self)
    }

    /// Whether it, or anything in it, was reported before. No deeper than a file may nest.
    pub(super) fn has_broken(&self) -> bool {
        self.broken
            || match &self.content {
                Content::List(items) => items.iter().any(Node::has_broken),
                Content::Map(entries) => entries.iter().any(|entry| entry.node.has_broken()),
                _ => false,
            }
    }

    /// A part that was read in another way than from YAML.
    pub(super) fn of(span: Range<usize>, content: Content) -> Self {
        Self::new(span, content)
    }

    /// The text of a scalar as it is used.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Text { value, .. } => Some(value),
            _ => None,
        }
    }

    /// The JSON value of the tree, broken parts left out; none where the part itself is broken. A list with a broken
    /// item is left out whole, because indexes would shift.
    pub(super) fn to_json(&self) -> Option<Value> {
        if self.broken {
            return None;
        }
        Some(match &self.content {
            Content::Nothing => Value::Null,
            Content::Bool(flag) => Value::Bool(*flag),
            Content::Number(number) => Value::Number(number.clone()),
            Content::Text { value, .. } => Value::String(value.clone()),
            Content::List(items) => Value::Array(items.iter().map(Node::to_json).collect::<Option<_>>()?),
            Content::Map(entries) => {
                let member = |entry: &Entry| Some((entry.key.clone(), entry.node.to_json()?));
                Value::Object(entries.iter().filter_map(member).collect())
            }
        })
    }
}

/// A file as a tree.
#[derive(Debug)]
pub(super) struct Tree {
    /// The whole of it.
    pub(super) root: Node,
    /// Bytes of members that were refused and are not in the tree. Nothing is known of them, so they are not shown.
    pub(super) refused: Vec<Range<usize>>,
}

/// Reads one YAML document. `None` where it is not YAML at all, or holds nothing; what is wrong is in `problems`.
/// `empty` says what a file must hold at least.
pub(super) fn parse(text: &str, empty: &str, problems: &mut Problems) -> Option<Tree> {
    let options = granit_parser::options! {
        emit_unresolved_aliases: true,
        disallow_directives: true,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    };
    let mut builder = Builder {
        problems,
        frames: Vec::new(),
        anchors: HashMap::new(),
        anchored: 0,
        root: None,
        refused: Vec::new(),
        documents: 0,
        nodes: 0,
    };
    for event in Parser::new_from_str_with_options(text, options) {
        match event {
            Ok((event, span)) => {
                if builder.take(event, &bytes(&span)).is_break() {
                    return None;
                }
            }
            Err(error) => {
                builder.problems.add(&place(text, &error), syntax(text, &error));
                return None;
            }
        }
    }
    let refused = std::mem::take(&mut builder.refused);
    let Some(root) = builder.root.take() else {
        problems.add(&(0..0), format!("the file is empty; it must hold at least {empty}"));
        return None;
    };
    Some(Tree { root, refused })
}

fn bytes(span: &Span) -> Range<usize> {
    let start = span.start.byte_offset().unwrap_or(0);
    start..span.end.byte_offset().unwrap_or(start).max(start)
}

fn place(text: &str, error: &ScanError) -> Range<usize> {
    let offset = error.marker().byte_offset().unwrap_or(0).min(text.len());
    offset..offset
}

/// A syntax error in our words. The parser's own messages hold no text of the file beyond one character.
fn syntax(text: &str, error: &ScanError) -> String {
    let rest = error.marker().byte_offset().and_then(|offset| text.get(offset..)).unwrap_or_default();
    match error.kind() {
        ErrorKind::TabInBlockIndentation | ErrorKind::TabInIndentation | ErrorKind::TabNotAllowed => {
            "a tab stands where YAML takes spaces only; indent with spaces".into()
        }
        ErrorKind::UnclosedQuotedScalar => "this quote is never closed".into(),
        ErrorKind::UnclosedFlowCollection { open } => format!("this `{open}` is never closed"),
        ErrorKind::RecursionLimitExceeded => format!("more than {DEPTH_MAX} levels are nested"),
        ErrorKind::DirectiveDisallowed => "YAML directives (`%...`) are not taken; remove the line".into(),
        ErrorKind::MappingValueNotAllowed => {
            "a second `: ` stands in one value; put a text with `: ` in quotes, and each member on its own line".into()
        }
        ErrorKind::UnexpectedCharacter { character } if !character.is_control() => {
            format!("no value can start with `{character}`; put the text in quotes")
        }
        ErrorKind::UnexpectedCharacter { .. } => "a control character stands here".into(),
        _ if rest.starts_with('*')
            || text.get(..place(text, error).start).is_some_and(|t| t.trim_end().ends_with("*:")) =>
        {
            "`*` unquoted refers to an anchor in YAML; write \"*\" in quotes".into()
        }
        other => format!("this is not YAML: {other}"),
    }
}

struct Builder<'p> {
    problems: &'p mut Problems,
    frames: Vec<Frame>,
    anchors: HashMap<usize, Node>,
    anchored: usize,
    root: Option<Node>,
    refused: Vec<Range<usize>>,
    documents: usize,
    nodes: usize,
}

struct Frame {
    start: usize,
    anchor: usize,
    open: Open,
}

enum Open {
    List(Vec<Node>),
    Map(Members),
}

/// The members of a mapping that is still open.
#[derive(Default)]
struct Members {
    entries: Vec<Entry>,
    seen: HashSet<String>,
    /// The name whose value is awaited; the text is none where the name was refused, and its value with it.
    key: Option<(Option<String>, Range<usize>)>,
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, span: &Range<usize>) -> ControlFlow<()> {
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    self.problems.add(span, "a second document starts here; one file holds one document");
                    return ControlFlow::Break(());
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let mut node = Node::new(span.clone(), Content::Nothing);
                match scalar(text.into_owned(), style, span) {
                    Ok(content) => node.content = content,
                    Err(message) => {
                        node.broken = true;
                        self.problems.add(span, message);
                    }
                }
                self.refuse_tag(tag.is_some(), span);
                return self.place(node, anchor);
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.refuse_tag(tag.is_some(), span);
                self.frames.push(Frame { start: span.start, anchor, open: Open::List(Vec::new()) });
            }
            Event::MappingStart(_, anchor, tag) => {
                self.refuse_tag(tag.is_some(), span);
                self.frames.push(Frame { start: span.start, anchor, open: Open::Map(Members::default()) });
            }
            Event::SequenceEnd | Event::MappingEnd => return self.close(span.end),
            Event::Alias(id) => return self.alias(id, span),
            Event::UnresolvedAlias(name) => {
                self.problems.add(
                    span,
                    "this `*` refers to an anchor that is not defined above it; put it in quotes if text is meant",
                );
                let mut node = Node::new(span.clone(), Content::Text { value: name.into_owned(), expanded: false });
                node.broken = true;
                return self.place(node, 0);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn refuse_tag(&mut self, tagged: bool, span: &Range<usize>) {
        if tagged {
            self.problems.add(span, "YAML tags (`!...`) are not taken; remove the tag");
        }
    }

    fn close(&mut self, end: usize) -> ControlFlow<()> {
        let Some(frame) = self.frames.pop() else {
            return ControlFlow::Continue(());
        };
        let content = match frame.open {
            Open::List(items) => Content::List(items),
            Open::Map(members) => Content::Map(members.entries),
        };
        self.place(Node::new(frame.start..end.max(frame.start), content), frame.anchor)
    }

    fn alias(&mut self, id: usize, span: &Range<usize>) -> ControlFlow<()> {
        let mut node = match self.anchors.get(&id) {
            Some(node) if self.nodes.saturating_add(node.size) > NODES_MAX => return self.too_much(span),
            Some(node) if self.frames.len() + node.height > DEPTH_MAX => {
                self.problems.add(span, format!("more than {DEPTH_MAX} levels are nested, aliases followed"));
                return ControlFlow::Break(());
            }
            Some(node) => node.clone(),
            None => {
                self.problems.add(span, "this alias stands inside of what it refers to");
                let mut node = Node::new(span.clone(), Content::Nothing);
                node.broken = true;
                node
            }
        };
        node.span = span.clone();
        self.nodes += node.size;
        self.place(node, 0)
    }

    fn too_much(&mut self, span: &Range<usize>) -> ControlFlow<()> {
        self.problems.add(span, format!("the file stands for more than {NODES_MAX} values, aliases followed"));
        ControlFlow::Break(())
    }

    /// Puts a complete node where it belongs: into a list, as a key or a value, or as the document.
    fn place(&mut self, node: Node, anchor: usize) -> ControlFlow<()> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return self.too_much(&node.span);
        }
        if anchor > 0 {
            self.anchored += node.size;
            if self.anchored > NODES_MAX {
                return self.too_much(&node.span);
            }
            self.anchors.insert(anchor, node.clone());
        }
        match self.frames.last_mut().map(|frame| &mut frame.open) {
            None => self.root = Some(node),
            Some(Open::List(items)) => items.push(node),
            Some(Open::Map(members)) => match members.key.take() {
                Some((Some(key), key_span)) => members.entries.push(Entry { key, key_span, node }),
                Some((None, _)) => self.refused.push(node.origin),
                None => {
                    let name = key_name(&node).map_err(str::to_owned).and_then(|name| {
                        let twice =
                            || format!("the member `{}` stands twice in one mapping; remove one", secret::name(&name));
                        if members.seen.insert(name.clone()) { Ok(name) } else { Err(twice()) }
                    });
                    if let Err(message) = &name {
                        self.problems.add(&node.span, message);
                        if matches!(node.content, Content::List(_) | Content::Map(_)) {
                            self.refused.push(node.origin);
                        }
                    }
                    members.key = Some((name.ok(), node.span));
                }
            },
        }
        ControlFlow::Continue(())
    }
}

/// The name that a key stands for. Keys are names as written, so `1` and `true` are names too.
fn key_name(node: &Node) -> Result<String, &'static str> {
    match &node.content {
        _ if node.broken => Err("a name must be a text"),
        Content::Text { value, .. } if value.contains("${") => {
            Err("references (`${env:...}`, `${file:...}`) are expanded in values, not in names")
        }
        Content::Text { value, .. } if value == "<<" => {
            Err("merge keys (`<<`) are not taken; write the members out, or use an alias for a whole value")
        }
        Content::Text { value, .. } if value.is_empty() => Err("a name must not be empty"),
        Content::Text { value, .. } => Ok(value.clone()),
        Content::Bool(flag) => Ok(flag.to_string()),
        Content::Number(number) => Ok(number.to_string()),
        Content::Nothing => Err("a name must not be empty; put `null` or `~` in quotes if it is meant"),
        Content::List(_) | Content::Map(_) => Err("a name must be a text, not a list or a mapping"),
    }
}

/// Reads a scalar by the core schema (YAML 1.2.2 section 10.3.2).
fn scalar(text: String, style: ScalarStyle, span: &Range<usize>) -> Result<Content, &'static str> {
    if style != ScalarStyle::Plain {
        return Ok(Content::Text { value: text, expanded: false });
    }
    if span.is_empty() {
        return Ok(Content::Nothing); // the parser calls an empty place `~`
    }
    match text.as_str() {
        "~" | "null" | "Null" | "NULL" => return Ok(Content::Nothing),
        "true" | "True" | "TRUE" => return Ok(Content::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Content::Bool(false)),
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "-.inf" | "-.Inf" | "-.INF" => {
            return Err("a number must be finite; put the text in quotes if text is meant");
        }
        _ => {}
    }
    match number(&text)? {
        Some(number) => Ok(Content::Number(number)),
        None => Ok(Content::Text { value: text, expanded: false }),
    }
}

fn number(text: &str) -> Result<Option<Number>, &'static str> {
    let unsigned = text.trim_start_matches(['+', '-']);
    let based = |digits: &str, base| u64::from_str_radix(digits, base).map_err(|_| "this number is too large");
    let all = |digits: &str, is: fn(&char) -> bool| !digits.is_empty() && digits.chars().all(|c| is(&c));
    if let Some(digits) = text.strip_prefix("0o").filter(|d| all(d, |c| c.is_digit(8))) {
        return based(digits, 8).map(|n| Some(n.into()));
    }
    if let Some(digits) = text.strip_prefix("0x").filter(|d| all(d, char::is_ascii_hexdigit)) {
        return based(digits, 16).map(|n| Some(n.into()));
    }
    if text.len() > unsigned.len() + 1 || !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Ok(None);
    }
    let shaped = unsigned.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-'));
    if !shaped || text.parse::<f64>().is_err() {
        return Ok(None);
    }
    if let Ok(whole) = text.parse::<i64>() {
        return Ok(Some(whole.into()));
    }
    let written = as_json(text);
    let exact = Decimal::read(&written).map_err(|_| "this number is too large")?;
    // A whole number in another form (`4096.0`, `1e3`) is one to JSON Schema, so it is one here.
    if let Some(whole) = exact.to_i64() {
        return Ok(Some(whole.into()));
    }
    written.parse().map(Some).map_err(|_| "this number is too large")
}

/// A number as JSON writes it: YAML's core schema takes `+1`, `.5`, `1.` and zeros in front, too. No digit that counts
/// is lost.
fn as_json(text: &str) -> String {
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, exponent) = unsigned.find(['e', 'E']).map_or((unsigned, ""), |at| unsigned.split_at(at));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        digits => digits,
    };
    let point = if fraction.is_empty() { "" } else { "." };
    [sign, whole, point, fraction, exponent].concat()
}
