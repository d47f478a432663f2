//! JSONPath (RFC 9535) over a tape, with what a contract needs beyond it: a value that is not there is told of, not
//! passed over.
//!
//! A path of names, indices and wildcards is walked on the tape itself. What stands before the last filter, slice or
//! descendant of any other path is asked of a JSONPath library on a tree.

use std::fmt;

use serde_json::Value;
use serde_json_path::JsonPath;

use super::path::Path;
use super::path::Segment;
use super::tape::Place;
use super::tape::What;

/// Bytes that a path may have.
const BYTES_MAX: usize = 1 << 10;

/// A path, ready to be walked.
#[derive(Clone, Debug)]
pub struct Query {
    text: String,
    /// Everything up to the last step that is no name, index or wildcard; none where there is no such step.
    found: Option<Box<JsonPath>>,
    /// What follows it.
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(i64),
    Every,
}

/// A path that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// It has too many bytes.
    #[error("the path has {0} bytes, at most {BYTES_MAX} are allowed")]
    Long(usize),
    /// It is no JSONPath.
    #[error("`{text}` is not a JSONPath (RFC 9535): {message}")]
    Syntax {
        /// The path as written.
        text: String,
        /// What is wrong with it.
        message: String,
    },
}

/// What a path came to at one node.
#[derive(Clone, Copy, Debug)]
pub enum Reached<'a, 'q> {
    /// A value.
    Value(Place<'a>),
    /// An object or array that lacks what the path goes on to.
    Missing {
        /// Where the path ended.
        parent: Place<'a>,
        /// What is not there.
        lacks: Lacks<'q>,
    },
    /// A value that is no container of the kind that the path goes on into.
    Other {
        /// It.
        place: Place<'a>,
        /// `object`, `array`, or either.
        expected: &'static str,
    },
}

/// What an object or array lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacks<'q> {
    /// A member.
    Key(&'q str),
    /// An element.
    Index(i64),
}

impl Lacks<'_> {
    /// The path of what is not there, below `parent`.
    pub fn below(self, parent: Place<'_>) -> Path {
        match self {
            Self::Key(key) => parent.path().key(key),
            Self::Index(index) => parent.path().index(usize::try_from(index).unwrap_or_default()),
        }
    }
}

/// Whether a text ends within `\uXXXX`.
fn ends_in_escape(text: &str) -> bool {
    let before = text.trim_end_matches(|c: char| c.is_ascii_hexdigit());
    text.len() - before.len() < 4 && before.ends_with("\\u")
}

impl Query {
    /// Reads a path.
    pub fn read(text: &str) -> Result<Self, QueryError> {
        if text.len() > BYTES_MAX {
            return Err(QueryError::Long(text.len()));
        }
        let syntax = |message: String| QueryError::Syntax { text: text.to_owned(), message };
        if ends_in_escape(text) {
            return Err(syntax("it ends within an escape".to_owned())); // serde_json_path 0.7.2 panics at that
        }
        // The library says what is a JSONPath; this file only takes apart what it has accepted.
        JsonPath::parse(text).map_err(|error| syntax(error.message().to_owned()))?;
        let parts = parts(text);
        let simple = parts.iter().rposition(|part| step(part).is_none()).map_or(0, |last| last + 1);
        let (before, after) = parts.split_at(simple);
        let found = if before.is_empty() {
            None
        } else {
            let text = format!("${}", before.concat());
            Some(Box::new(JsonPath::parse(&text).map_err(|error| syntax(error.message().to_owned()))?))
        };
        Ok(Self { text: text.to_owned(), found, steps: after.iter().filter_map(|part| step(part)).collect() })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it can reach one node at the most.
    pub fn is_singular(&self) -> bool {
        self.found.is_none() && !self.steps.contains(&Step::Every)
    }

    /// Whether it goes into an array or object with a wildcard, a filter or the like.
    pub fn selects_many(&self) -> bool {
        !self.is_singular()
    }

    /// Whether whatever `other` reaches is reached by this path too, or stands below what it reaches, in every value. Where that
    /// cannot be told from the paths alone, no.
    pub fn covers(&self, other: &Self) -> bool {
        if self.found.is_some() || other.found.is_some() {
            return self.text == other.text;
        }
        self.steps.len() <= other.steps.len()
            && self.steps.iter().zip(&other.steps).all(|(one, two)| one == two || *one == Step::Every)
    }

    /// Calls `each` for every node that the path reaches, in the order of the text, and for every one that it should
    /// reach and does not: up to its last wildcard, and beyond it at each of the nodes there.
    ///
    /// Linear in the value for a path of names, indices and wildcards.
    pub fn reach<'a, 'q>(&'q self, root: Place<'a>, each: &mut impl FnMut(Reached<'a, 'q>)) {
        match &self.found {
            None => walk(root, &self.steps, each),
            Some(found) => {
                let tree = root.tree();
                for path in located(found, &tree) {
                    if let Some(place) = root.at(&path) {
                        walk(place, &self.steps, each);
                    }
                }
            }
        }
    }

    /// The value that a singular path reaches.
    pub fn one<'a>(&self, root: Place<'a>) -> Option<Place<'a>> {
        let mut found = None;
        self.reach(root, &mut |reached| {
            if let (Reached::Value(place), None) = (reached, &found) {
                found = Some(place);
            }
        });
        found
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Paths have at most [`BYTES_MAX`] bytes, so this goes some hundred steps deep at the most.
fn walk<'a, 'q>(mut place: Place<'a>, steps: &'q [Step], each: &mut impl FnMut(Reached<'a, 'q>)) {
    for (index, step) in steps.iter().enumerate() {
        match (step, place.what()) {
            (Step::Key(key), What::Object) => match place.get(key) {
                Some(value) => place = value,
                None => return each(Reached::Missing { parent: place, lacks: Lacks::Key(key) }),
            },
            (Step::Index(wanted), What::Array) => {
                let count = i64::try_from(place.count()).unwrap_or(i64::MAX);
                let index = if *wanted < 0 { wanted.saturating_add(count) } else { *wanted };
                match usize::try_from(index).ok().and_then(|index| place.elements().nth(index)) {
                    Some(value) => place = value,
                    None => return each(Reached::Missing { parent: place, lacks: Lacks::Index(*wanted) }),
                }
            }
            (Step::Every, What::Array) => {
                let rest = steps.get(index + 1..).unwrap_or_default();
                return place.elements().for_each(|element| walk(element, rest, each));
            }
            (Step::Every, What::Object) => {
                let rest = steps.get(index + 1..).unwrap_or_default();
                return place.members().for_each(|(_, value)| walk(value, rest, each));
            }
            (Step::Key(_), _) => return each(Reached::Other { place, expected: "object" }),
            (Step::Index(_), _) => return each(Reached::Other { place, expected: "array" }),
            (Step::Every, _) => return each(Reached::Other { place, expected: "array" }),
        }
    }
    each(Reached::Value(place));
}

fn located(found: &JsonPath, tree: &Value) -> Vec<Path> {
    use serde_json_path::PathElement;
    let nodes = found.query_located(tree);
    let mut paths: Vec<Path> = Vec::with_capacity(nodes.len());
    for node in nodes.iter() {
        let segments = node.location().iter().map(|element| match element {
            PathElement::Name(name) => Segment::Key((*name).to_owned()),
            PathElement::Index(index) => Segment::Index(*index),
        });
        paths.push(Path::new(segments.collect()));
    }
    paths
}

/// The steps of a path that the library has accepted, each as it is written, without the `$`.
fn parts(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let mut parts = Vec::new();
    let mut at = text.find('$').map_or(0, |dollar| dollar + 1);
    while at < bytes.len() {
        let start = at;
        at += match bytes.get(at..) {
            Some([b'.', b'.', ..]) => 2,
            Some([b'.', ..]) => 1,
            _ => 0,
        };
        if bytes.get(at) == Some(&b'[') {
            at = closed(bytes, at);
        } else {
            at += bytes.get(at..).unwrap_or_default().iter().take_while(|byte| !b".[ \t\r\n".contains(byte)).count();
        }
        if at == start {
            at += 1; // white space between two steps
        } else if let Some(part) = text.get(start..at) {
            parts.push(part);
        }
    }
    parts
}

/// The byte after the bracket that closes the one at `at`.
fn closed(bytes: &[u8], mut at: usize) -> usize {
    let (mut open, mut quote) = (0_usize, None);
    while let Some(byte) = bytes.get(at) {
        match (quote, byte) {
            (Some(_), b'\\') => at += 1,
            (Some(mark), _) if mark == byte => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b'[') => open += 1,
            (None, b']') => {
                open = open.saturating_sub(1);
                if open == 0 {
                    return at + 1;
                }
            }
            (None, _) => {}
        }
        at += 1;
    }
    bytes.len()
}

/// A name, an index or a wildcard; none for anything else.
fn step(part: &str) -> Option<Step> {
    if part.starts_with("..") {
        return None;
    }
    if let Some(name) = part.strip_prefix('.') {
        return Some(if name == "*" { Step::Every } else { Step::Key(name.to_owned()) });
    }
    let inside = part.strip_prefix('[')?.strip_suffix(']')?.trim();
    if inside == "*" {
        return Some(Step::Every);
    }
    if let Ok(index) = inside.parse::<i64>() {
        return Some(Step::Index(index));
    }
    let (first, last) = (inside.chars().next()?, inside.chars().last()?);
    let name = inside.get(1..inside.len().checked_sub(1)?)?;
    (matches!(first, '\'' | '"') && first == last && !name.contains(['\\', first])).then(|| Step::Key(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::tape::Tape;

    fn reached(path: &str, text: &str) -> String {
        let tape = Tape::of(text).unwrap();
        let query = Query::read(path).unwrap();
        let mut all = Vec::new();
        query.reach(tape.root(), &mut |reached| {
            all.push(match reached {
                Reached::Value(place) => format!("{}={}", place.path(), place.raw()),
                Reached::Missing { parent, lacks } => format!("-{}", lacks.below(parent)),
                Reached::Other { place, expected } => format!("{} is no {expected}", place.path()),
            });
        });
        all.join(" ")
    }

    #[test]
    fn what_should_be_there_and_is_not_is_told() {
        let text = r#"{"items":[{"sku":"A","tags":[1,2]},{"n":1},3],"total":1.50,"it's":{"a.b":null},"none":[]}"#;
        for (path, expected) in [
            ("$", text),
            ("$.total", "$['total']=1.50"),
            ("$['total']", "$['total']=1.50"),
            ("$.absent", "-$['absent']"),
            ("$.total.x", "$['total'] is no object"),
            ("$.items[*].sku", "$['items'][0]['sku']=\"A\" -$['items'][1]['sku'] $['items'][2] is no object"),
            ("$.items[0].tags[*]", "$['items'][0]['tags'][0]=1 $['items'][0]['tags'][1]=2"),
            (
                "$.items[*].tags[*]",
                "$['items'][0]['tags'][0]=1 $['items'][0]['tags'][1]=2 -$['items'][1]['tags'] $['items'][2] is no object",
            ),
            ("$.items[-1]", "$['items'][2]=3"),
            ("$.items[7]", "-$['items'][7]"),
            ("$.items.sku", "$['items'] is no object"),
            ("$.total[*]", "$['total'] is no array"),
            ("$.none[*].x", ""),
            ("$.gone[*].x", "-$['gone']"),
            ("$[\"it's\"]['a.b']", "$['it\\'s']['a.b']=null"),
            ("$..sku", "$['items'][0]['sku']=\"A\""),
            ("$.items[?@.sku == 'A'].tags[1]", "$['items'][0]['tags'][1]=2"),
            ("$.items[?@.sku == 'A'].gone", "-$['items'][0]['gone']"),
            ("$.items[0:2].sku", "$['items'][0]['sku']=\"A\" -$['items'][1]['sku']"),
            ("$.items[0]['sku','tags']", "$['items'][0]['sku']=\"A\" $['items'][0]['tags']=[1,2]"),
        ] {
            let found = reached(path, text);
            assert_eq!(found.strip_prefix("$=").unwrap_or(&found), expected, "{path}");
        }
    }

    #[test]
    fn a_path_is_cut_into_its_steps() {
        for (path, expected) in [
            ("$", &[][..]),
            ("$.a.b", &[".a", ".b"]),
            ("$ .a [0]\t['b'] ", &[".a", "[0]", "['b']"]),
            ("$..a[*]", &["..a", "[*]"]),
            ("$..['a']", &["..['a']"]),
            ("$['it\\'s'].b", &["['it\\'s']", ".b"]),
            ("$['a]'][\"[\"].b", &["['a]']", "[\"[\"]", ".b"]),
            ("$[\"'\\\\\"].b", &["[\"'\\\\\"]", ".b"]),
            ("$[?@.a[0] == ']'].b", &["[?@.a[0] == ']']", ".b"]),
            ("$[?@['x]'] == 1 && @[\"y\"] == 2][1]", &["[?@['x]'] == 1 && @[\"y\"] == 2]", "[1]"]),
        ] {
            assert_eq!(parts(path), expected, "{path}");
        }
    }

    #[test]
    fn a_step_is_a_name_an_index_or_a_wildcard() {
        let key = |name: &str| Some(Step::Key(name.to_owned()));
        for (part, expected) in [
            (".a", key("a")),
            (".*", Some(Step::Every)),
            ("[ * ]", Some(Step::Every)),
            ("[-2]", Some(Step::Index(-2))),
            ("['a.b']", key("a.b")),
            ("[ \"a'\" ]", key("a'")),
            ("['']", key("")),
            ("..a", None),
            ("[0:2]", None),
            ("['a','b']", None),
            ("['it\\'s']", None),
            ("[?@.a]", None),
            ("['a\"]", None),
            ("[']", None),
            ("[]", None),
        ] {
            assert_eq!(step(part), expected, "{part}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for bad in [
            "",
            "total",
            "$.",
            "$[",
            "$.items[",
            "$[?@.a ==]",
            "$ .. ",
            "$[ \"\\u",
            "$['\\uD",
            "$['\\uD800\\u",
            "$['\\uD800\\ud",
        ] {
            assert!(matches!(Query::read(bad), Err(QueryError::Syntax { .. })), "{bad}");
        }
        assert!(matches!(Query::read(&format!("$.{}", "a".repeat(2_000))), Err(QueryError::Long(_))));
    }

    #[test]
    fn coverage_is_told_from_the_paths() {
        let covers = |one: &str, two: &str| Query::read(one).unwrap().covers(&Query::read(two).unwrap());
        assert!(covers("$.lines[*].amount", "$.lines[*].amount"));
        assert!(covers("$.lines[*]", "$.lines[*].amount") && covers("$.lines[*].amount", "$.lines[0].amount"));
        assert!(!covers("$.lines[0].amount", "$.lines[*].amount") && !covers("$.total", "$.subtotal"));
        assert!(covers("$..a", "$..a") && !covers("$..a", "$.a"));
    }
}
