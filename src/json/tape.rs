//! JSON text as a tape: one small entry a value, in the order of the text, pointing back into it.
//!
//! A tape is made in one pass, without copying a string and without an allocation a value. It is what
//! answers are judged on; a tree is built only for what is reported.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

use super::check;
use super::compare;
use super::fault::{JsonFault, JsonFaultKind as Kind};
use super::path::{Path, Segment};
use super::string::{self, Spot};
use super::tree;

/// Objects of more members than this get their keys sorted, so that looking one up stays quick.
const SORTED_MIN: usize = 16;
const UNSORTED: u32 = u32::MAX;

/// The tape of one JSON value.
#[derive(Debug)]
pub struct Tape<'t> {
    text: &'t str,
    entries: Vec<Entry>,
    /// Keys of large objects, sorted: places in `entries`.
    sorted: Vec<u32>,
}

/// One value, or a key.
#[derive(Clone, Copy, Debug)]
struct Entry {
    what: What,
    /// A string or key with an escape in it.
    escaped: bool,
    /// Where it begins in the text.
    start: u32,
    /// Where it ends.
    end: u32,
    /// The entry after it and all that it holds.
    next: u32,
    /// Elements or members of a container.
    count: u32,
    /// Where the sorted keys of a large object begin.
    sorted: u32,
}

/// What kind of value an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// `null`
    Null,
    /// `true`
    True,
    /// `false`
    False,
    /// A number.
    Number,
    /// A string, or a member's key.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// A value on a tape.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    tape: &'a Tape<'a>,
    at: u32,
}

impl<'t> Tape<'t> {
    /// The tape of `text`, which [`check::strict`] has accepted. Other text is a fault, never a panic;
    /// a key that stands twice is not looked for again.
    pub fn of(text: &'t str) -> Result<Self, JsonFault> {
        if u32::try_from(text.len()).is_err() {
            return Err(JsonFault::new(Kind::TooDeep, 0));
        }
        let mut tape = Self { text, entries: Vec::with_capacity(text.len() / 8 + 4), sorted: Vec::new() };
        tape.fill()?;
        Ok(tape)
    }

    /// The text that it was made of.
    pub fn text(&self) -> &'t str {
        self.text
    }

    /// The value.
    pub fn root(&self) -> Place<'_> {
        Place { tape: self, at: 0 }
    }

    /// How many values there are, keys among them.
    pub fn values(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of the longest key, as it is written.
    pub fn longest_key(&self) -> usize {
        let keys = |object: &Place<'_>| object.keys().map(|key| key.raw().len()).max().unwrap_or_default();
        let objects = (0..self.entries.len() as u32)
            .map(|at| Place { tape: self, at })
            .filter(|place| place.what() == What::Object);
        objects.map(|object| keys(&object)).max().unwrap_or_default()
    }

    fn fill(&mut self) -> Result<(), JsonFault> {
        let bytes = self.text.as_bytes();
        let mut open: Vec<u32> = Vec::with_capacity(8);
        let mut at = check::white(bytes, 0);
        loop {
            let byte = bytes.get(at).copied();
            at = match byte {
                Some(b'{' | b'[') => {
                    if open.len() >= super::DEPTH_MAX {
                        return Err(JsonFault::new(Kind::TooDeep, at));
                    }
                    open.push(self.entries.len() as u32);
                    self.push(if byte == Some(b'{') { What::Object } else { What::Array }, at, at + 1);
                    let inside = check::white(bytes, at + 1);
                    match bytes.get(inside) {
                        Some(b'}' | b']') => self.closed(&mut open, inside),
                        Some(b'"') if byte == Some(b'{') => {
                            at = self.key(&open, inside)?;
                            continue;
                        }
                        _ => {
                            self.counted(&open);
                            at = inside;
                            continue;
                        }
                    }
                }
                Some(b'"') => {
                    let spot = string::spot(bytes, at)?;
                    self.string(spot);
                    spot.after()
                }
                Some(b't') => self.word(What::True, at, 4),
                Some(b'f') => self.word(What::False, at, 5),
                Some(b'n') => self.word(What::Null, at, 4),
                Some(b'-' | b'0'..=b'9') => {
                    let number = |byte: &&u8| matches!(**byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                    let length = bytes.get(at..).unwrap_or_default().iter().take_while(number).count();
                    self.word(What::Number, at, length)
                }
                Some(_) => return Err(JsonFault::new(Kind::Expected("a value"), at)),
                None => return Err(JsonFault::new(Kind::Ends("a value"), at)),
            };
            loop {
                let Some(container) = open.last().copied() else { return Ok(()) };
                at = check::white(bytes, at);
                match bytes.get(at) {
                    Some(b',') => {
                        at = check::white(bytes, at + 1);
                        let object =
                            self.entries.get(container as usize).is_some_and(|entry| entry.what == What::Object);
                        if object {
                            at = self.key(&open, at)?;
                        } else {
                            self.counted(&open);
                        }
                        break;
                    }
                    Some(b'}' | b']') => at = self.closed(&mut open, at),
                    _ => return Err(JsonFault::new(Kind::Expected("`,` or the end of the container"), at)),
                }
            }
        }
    }

    fn push(&mut self, what: What, start: usize, end: usize) {
        let next = self.entries.len() as u32 + 1;
        let (start, end) = (start as u32, end as u32);
        self.entries.push(Entry { what, escaped: false, start, end, next, count: 0, sorted: UNSORTED });
    }

    fn word(&mut self, what: What, at: usize, length: usize) -> usize {
        self.push(what, at, at + length);
        at + length
    }

    fn string(&mut self, spot: Spot) {
        self.push(What::String, spot.open, spot.after());
        if let Some(entry) = self.entries.last_mut() {
            entry.escaped = spot.escaped;
        }
    }

    fn key(&mut self, open: &[u32], at: usize) -> Result<usize, JsonFault> {
        let bytes = self.text.as_bytes();
        if bytes.get(at) != Some(&b'"') {
            return Err(JsonFault::new(Kind::Expected("a key in double quotes"), at));
        }
        let spot = string::spot(bytes, at)?;
        self.string(spot);
        self.counted(open);
        let colon = check::white(bytes, spot.after());
        match bytes.get(colon) {
            Some(b':') => Ok(check::white(bytes, colon + 1)),
            _ => Err(JsonFault::new(Kind::Expected("`:`"), colon)),
        }
    }

    fn counted(&mut self, open: &[u32]) {
        if let Some(entry) = open.last().and_then(|container| self.entries.get_mut(*container as usize)) {
            entry.count += 1;
        }
    }

    /// Closes the innermost container at its closer; returns where the text goes on.
    fn closed(&mut self, open: &mut Vec<u32>, closer: usize) -> usize {
        let next = self.entries.len() as u32;
        let container = open.pop().unwrap_or_default();
        let sorted = self.sorted.len() as u32;
        if let Some(entry) = self.entries.get_mut(container as usize) {
            entry.next = next;
            entry.end = closer as u32 + 1;
            if entry.what != What::Object || (entry.count as usize) <= SORTED_MIN {
                return closer + 1;
            }
            entry.sorted = sorted;
        }
        let object = Place { tape: self, at: container };
        let mut keys: Vec<(Cow<'_, str>, u32)> = object.keys().map(|key| (key.text(), key.at)).collect();
        keys.sort_unstable();
        let keys: Vec<u32> = keys.into_iter().map(|(_, at)| at).collect();
        self.sorted.extend(keys);
        closer + 1
    }
}

impl<'a> Place<'a> {
    fn entry(&self) -> Entry {
        const MISSING: Entry =
            Entry { what: What::Null, escaped: false, start: 0, end: 0, next: 0, count: 0, sorted: UNSORTED };
        self.tape.entries.get(self.at as usize).copied().unwrap_or(MISSING)
    }

    /// What it is.
    pub fn what(&self) -> What {
        self.entry().what
    }

    /// Its text, byte for byte.
    pub fn raw(&self) -> &'a str {
        let entry = self.entry();
        self.tape.text.get(entry.start as usize..entry.end as usize).unwrap_or_default()
    }

    /// What a string says.
    pub fn text(&self) -> Cow<'a, str> {
        let entry = self.entry();
        let (open, close) = (entry.start as usize, (entry.end as usize).saturating_sub(1));
        if !entry.escaped {
            return Cow::Borrowed(self.tape.text.get(open + 1..close).unwrap_or_default());
        }
        string::decode(self.tape.text.as_bytes(), Spot { open, close, escaped: true }).unwrap_or_default()
    }

    /// The bytes of the tape's text that it takes.
    pub fn range(&self) -> Range<usize> {
        let entry = self.entry();
        entry.start as usize..entry.end as usize
    }

    /// The path from the tape's root to it. It is looked for from the root on, so this is for what is reported.
    pub fn path(&self) -> Path {
        let mut segments = Vec::new();
        let mut here = self.tape.root();
        while here.at < self.at {
            let holds = |place: &Place<'_>| (place.at..place.entry().next).contains(&self.at);
            let step = match here.what() {
                What::Array => here
                    .elements()
                    .enumerate()
                    .find(|(_, element)| holds(element))
                    .map(|(index, element)| (Segment::Index(index), element)),
                What::Object => here
                    .members()
                    .find(|(_, value)| holds(value))
                    .map(|(key, value)| (Segment::Key(key.text().into_owned()), value)),
                _ => None,
            };
            let Some((segment, next)) = step else { break };
            segments.push(segment);
            here = next;
        }
        Path::new(segments)
    }

    /// The value that `path` reaches from here.
    pub fn at(self, path: &Path) -> Option<Place<'a>> {
        path.segments().iter().try_fold(self, |place, segment| match (segment, place.what()) {
            (Segment::Key(key), What::Object) => place.get(key),
            (Segment::Index(index), What::Array) => place.elements().nth(*index),
            _ => None,
        })
    }

    /// Elements or members.
    pub fn count(&self) -> usize {
        self.entry().count as usize
    }

    /// Something that no other value of a living tape shares: where its entry lies in memory.
    pub fn address(&self) -> usize {
        self.tape.entries.get(self.at as usize).map_or(0, |entry| std::ptr::from_ref(entry) as usize)
    }

    /// The elements of an array.
    pub fn elements(&self) -> Elements<'a> {
        Elements { tape: self.tape, at: self.at + 1, left: self.count() }
    }

    /// The members of an object: key and value.
    pub fn members(&self) -> impl Iterator<Item = (Place<'a>, Place<'a>)> + use<'a> {
        let mut keys = self.keys();
        std::iter::from_fn(move || keys.next().map(|key| (key, Place { tape: key.tape, at: key.at + 1 })))
    }

    fn keys(&self) -> Keys<'a> {
        Keys { tape: self.tape, at: self.at + 1, left: self.count() }
    }

    /// The value of a member.
    pub fn get(&self, key: &str) -> Option<Place<'a>> {
        let entry = self.entry();
        let value = |key: Place<'a>| Place { tape: key.tape, at: key.at + 1 };
        if entry.sorted == UNSORTED {
            let mut at = self.at + 1;
            for _ in 0..entry.count {
                let own = Place { tape: self.tape, at };
                if own.says(key) {
                    return Some(value(own));
                }
                at = self.tape.entries.get(at as usize + 1)?.next;
            }
            return None;
        }
        let first = entry.sorted as usize;
        let sorted = self.tape.sorted.get(first..first + entry.count as usize)?;
        let found = sorted.binary_search_by(|at| Place { tape: self.tape, at: *at }.text().as_ref().cmp(key)).ok()?;
        sorted.get(found).map(|at| value(Place { tape: self.tape, at: *at }))
    }

    fn says(&self, text: &str) -> bool {
        let Some(entry) = self.tape.entries.get(self.at as usize) else { return false };
        if entry.escaped {
            return self.text() == text;
        }
        let (start, end) = (entry.start as usize + 1, (entry.end as usize).saturating_sub(1));
        end.checked_sub(start) == Some(text.len()) && self.tape.text.as_bytes().get(start..end) == Some(text.as_bytes())
    }

    /// Whether it equals a tree as JSON: by type and exact number, members in any order.
    pub fn equals(&self, value: &Value) -> bool {
        match (self.what(), value) {
            (What::Null, Value::Null) | (What::True, Value::Bool(true)) | (What::False, Value::Bool(false)) => true,
            (What::Number, Value::Number(number)) => compare::same_number(self.raw(), number.as_str()),
            (What::String, Value::String(text)) => self.says(text),
            (What::Array, Value::Array(items)) => {
                self.count() == items.len() && self.elements().zip(items).all(|(element, item)| element.equals(item))
            }
            (What::Object, Value::Object(members)) => {
                self.count() == members.len()
                    && members.iter().all(|(key, member)| self.get(key).is_some_and(|place| place.equals(member)))
            }
            _ => false,
        }
    }

    /// It as a tree.
    pub fn tree(&self) -> Value {
        tree::built(self.raw()).unwrap_or_default()
    }
}

/// The elements of an array.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    tape: &'a Tape<'a>,
    at: u32,
    left: usize,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Place<'a>;

    fn next(&mut self) -> Option<Place<'a>> {
        self.left = self.left.checked_sub(1)?;
        let place = Place { tape: self.tape, at: self.at };
        self.at = place.entry().next;
        Some(place)
    }
}

#[derive(Clone, Debug)]
struct Keys<'a> {
    tape: &'a Tape<'a>,
    at: u32,
    left: usize,
}

impl<'a> Iterator for Keys<'a> {
    type Item = Place<'a>;

    fn next(&mut self) -> Option<Place<'a>> {
        self.left = self.left.checked_sub(1)?;
        let key = Place { tape: self.tape, at: self.at };
        self.at = Place { tape: self.tape, at: self.at + 1 }.entry().next;
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rebuilt(place: Place<'_>) -> Value {
        match place.what() {
            What::Object => place.members().map(|(key, value)| (key.text().into_owned(), rebuilt(value))).collect(),
            What::Array => place.elements().map(rebuilt).collect(),
            What::String => Value::String(place.text().into_owned()),
            _ => place.tree(),
        }
    }

    #[test]
    fn a_tape_reads_back_as_the_tree() {
        let text = r#" {"a":[1.0,"x\n",null,true,false,{},[]],"b":{"c":12345678901234567890.5},"é\u0041":""} "#;
        let tape = Tape::of(text).unwrap();
        assert_eq!(rebuilt(tape.root()), tree::parse(text).unwrap());
        assert_eq!(tape.root().get("éA").unwrap().raw(), "\"\"");
        assert!(tape.root().get("z").is_none());
        assert!(tape.root().equals(&tree::parse(text).unwrap()));
    }

    #[test]
    fn large_objects_find_their_members() {
        let text = format!("{{{}}}", (0..300).map(|i| format!("\"k\\u0030{i}\":{i}")).collect::<Vec<_>>().join(","));
        let tape = Tape::of(&text).unwrap();
        for i in 0..300 {
            assert_eq!(tape.root().get(&format!("k0{i}")).unwrap().raw(), i.to_string());
        }
        assert!(tape.root().get("k0300").is_none());
    }

    #[test]
    fn addresses_are_pairwise_different() {
        let tape = Tape::of("[[],[],{}]").unwrap();
        let mut seen: Vec<usize> =
            tape.root().elements().map(|place| place.address()).chain([tape.root().address()]).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 4);
    }

    proptest! {
        #[test]
        fn agrees_with_the_tree(text in r#"[\[\]{}",:0-9a-e.\\ tn-]{0,24}"#) {
            if let Ok(tree) = tree::parse(&text) {
                let tape = Tape::of(&text).unwrap();
                prop_assert_eq!(rebuilt(tape.root()), tree.clone());
                prop_assert!(tape.root().equals(&tree));
            }
        }

        #[test]
        fn unchecked_text_never_panics(text in r#"[\[\]{}",:0-9a-e.\\ tn-]{0,24}|\PC{0,20}"#) {
            if let Ok(tape) = Tape::of(&text) {
                let _ = rebuilt(tape.root());
            }
        }
    }
}
