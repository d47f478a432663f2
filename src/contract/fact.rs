//! Facts: what plain patterns find in the messages, once a request.
//!
//! A fact is a list of terms. A term counts where one of its patterns stands as whole words and, if the fact has `cues`
//! or `phrases`, where a cue stands in the same scope or a phrase holds it; `unless` cancels a scope, `denied` cancels
//! what it names at that place. Everything is found by linear-time automata, so a page costs time in proportion to
//! its length.

mod file;
mod page;
mod pattern;
mod scope;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use regex::bytes::Regex;
use serde::Deserialize as _;
use serde_json::Value;

pub use crate::contract::fact::file::FactFile;
pub use crate::contract::fact::file::Words;
pub use crate::contract::fact::pattern::Automata;
pub use crate::contract::fact::scope::Scope;

use crate::contract::data::Data;
use crate::contract::fact::page::BLANK;
use crate::contract::fact::page::Page;
use crate::contract::fact::pattern::Several;
use crate::contract::fact::pattern::any_of;
use crate::contract::fact::pattern::automaton;
use crate::contract::fact::pattern::filled;
use crate::contract::fact::pattern::list_of;
use crate::contract::fact::pattern::literal;
use crate::contract::fact::pattern::shortest;
use crate::contract::fact::pattern::whole;
use crate::contract::gate::BuildError;

/// Facts of one name that are kept. One more is kept to tell that there were more: a gate that uses the fact then
/// fails, because it does not know all of them.
pub const FACTS_MAX: usize = 1_000;
/// The light words of a list where a policy names none.
const BETWEEN: [&str; 9] = ["and", "or", "nor", "any", "all", "also", "both", "either", "the"];

/// The facts of one exchange, by the name that the policy gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts(pub BTreeMap<Arc<str>, Vec<Fact>>);

/// One thing that the messages state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The term, or the match of a pattern.
    pub term: Arc<str>,
    /// The page that it was first found on, from 1.
    pub page: usize,
    /// Where, in bytes of the page.
    pub range: Range<usize>,
}

/// One fact of a policy, ready to look for.
#[derive(Debug)]
pub struct FactRule {
    name: Arc<str>,
    /// Patterns are matched in ASCII alone: none of them names a character outside of it.
    ascii: bool,
    spot: Spot,
    ignore: Option<Regex>,
    cues: Option<Regex>,
    unless: Option<Regex>,
    scope: Scope,
    phrases: Arc<Several>,
    denied: Arc<Several>,
    /// Whether a term counts only with a cue or in a phrase.
    in_context: bool,
}

/// How terms are spotted.
#[derive(Debug)]
enum Spot {
    /// Any of the words, and whose it is.
    Terms { any: Regex, which: Arc<Several>, terms: Vec<Arc<str>> },
    /// Every match of a pattern.
    Matches(Regex),
}

/// A place at which terms stand, whether they count or not.
struct Spotted {
    at: Range<usize>,
    terms: Vec<Arc<str>>,
}

impl Facts {
    /// The terms of each fact, each once, in the order in which they were found.
    pub fn json(&self) -> Value {
        let terms = |facts: &Vec<Fact>| {
            let mut seen = std::collections::HashSet::new();
            facts.iter().filter(|fact| seen.insert(&fact.term)).map(|fact| Value::from(&*fact.term)).collect()
        };
        Value::Object(self.0.iter().map(|(name, facts)| (name.to_string(), terms(facts))).collect())
    }

    /// What the rules find on these pages. O(length of the pages) for each rule.
    pub fn read<'t>(rules: &[FactRule], pages: impl IntoIterator<Item = &'t str>) -> Self {
        let mut found: Vec<Vec<Fact>> = rules.iter().map(|_| Vec::new()).collect();
        let mut seen: Vec<HashSet<Arc<str>>> = rules.iter().map(|_| HashSet::new()).collect();
        if !rules.is_empty() {
            for (index, text) in pages.into_iter().enumerate() {
                let page = Page::of(text);
                let ascii = page.in_ascii();
                for ((rule, facts), seen) in rules.iter().zip(&mut found).zip(&mut seen) {
                    rule.read(&page, &ascii, index + 1, facts, seen);
                }
            }
        }
        Self(rules.iter().map(|rule| Arc::clone(&rule.name)).zip(found).collect())
    }

    /// The facts of this name; none where the policy has no such fact.
    pub fn of(&self, name: &str) -> &[Fact] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }
}

impl FactRule {
    /// Its name in the policy.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Makes a fact's automata of its settings, as [`FactFile`] describes them, or takes those that are made already.
    ///
    /// # Errors
    /// Everything that is wrong with the settings, each with the members that lead to it.
    pub fn compile(
        name: &str,
        settings: &Value,
        data: &Data,
        automata: &mut Automata,
    ) -> Result<Self, Vec<BuildError>> {
        let file = FactFile::deserialize(settings)
            .map_err(|error| vec![BuildError { at: Vec::new(), message: error.to_string() }])?;
        // In ASCII alone the automata are smaller and quicker; where a pattern needs more, all get it, so that one text
        // serves them all.
        let mut errors = match Compiler::new(&file, data, automata, true).rule(name) {
            Ok(rule) => return Ok(rule),
            Err(errors) => errors,
        };
        match Compiler::new(&file, data, automata, false).rule(name) {
            Ok(rule) => return Ok(rule),
            Err(found) => errors = if found.len() <= errors.len() { found } else { errors },
        }
        Err(errors)
    }

    fn read(&self, page: &Page, ascii: &[u8], number: usize, facts: &mut Vec<Fact>, seen: &mut HashSet<Arc<str>>) {
        let lines = if self.ascii { ascii } else { page.lines.as_bytes() };
        let text = self.blanked(lines);
        let spotted = self.spotted(&text, page);
        if spotted.is_empty() {
            return;
        }
        for at in self.counted(&text, &spotted) {
            let Some(spotted) = spotted.get(at) else { continue };
            for term in &spotted.terms {
                if facts.len() <= FACTS_MAX && seen.insert(Arc::clone(term)) {
                    facts.push(Fact { term: Arc::clone(term), page: number, range: page.source(&spotted.at) });
                }
            }
        }
    }

    /// The text on one line, without what is ignored: byte for byte as long.
    fn blanked<'t>(&self, lines: &'t [u8]) -> Cow<'t, [u8]> {
        let mut text = Cow::Borrowed(lines);
        if let Some(ignore) = &self.ignore {
            for found in ignore.find_iter(lines).filter(|found| !found.is_empty()) {
                text.to_mut().get_mut(found.range()).unwrap_or_default().fill(BLANK);
            }
        }
        if memchr::memchr(b'\n', &text).is_some() {
            text.to_mut().iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
        }
        text
    }

    fn spotted(&self, text: &[u8], page: &Page) -> Vec<Spotted> {
        match &self.spot {
            Spot::Terms { any, which, terms } => any
                .find_iter(text)
                .map(|found| {
                    let told = which.which(found.as_bytes());
                    let terms = told.into_iter().filter_map(|index| terms.get(index).cloned()).collect();
                    Spotted { at: found.range(), terms }
                })
                .collect(),
            Spot::Matches(pattern) if pattern.captures_len() > 1 => pattern
                .captures_iter(text)
                .filter_map(|found| found.iter().skip(1).flatten().next().or(found.get(0)).map(|part| part.range()))
                .filter(|at| !at.is_empty())
                .map(|at| Spotted { terms: vec![page.words(&at).into()], at })
                .collect(),
            Spot::Matches(pattern) => pattern
                .find_iter(text)
                .filter(|found| !found.is_empty())
                .map(|found| Spotted { terms: vec![page.words(&found.range()).into()], at: found.range() })
                .collect(),
        }
    }

    /// Which of the places count, in their order.
    fn counted(&self, text: &[u8], spotted: &[Spotted]) -> Vec<usize> {
        let plain = !self.in_context && self.unless.is_none() && self.denied.is_empty();
        if plain {
            return (0..spotted.len()).collect();
        }
        let mut counted = Vec::new();
        let mut next = 0;
        for stretch in self.scope.stretches(text) {
            let first = next;
            while spotted.get(next).is_some_and(|spotted| spotted.at.start < stretch.end) {
                next += 1;
            }
            let here = first..next;
            if here.is_empty() {
                continue;
            }
            let part = text.get(stretch.clone()).unwrap_or_default();
            if self.unless.as_ref().is_some_and(|unless| unless.is_match(part)) {
                continue;
            }
            let everywhere = !self.in_context || self.cues.as_ref().is_some_and(|cues| cues.is_match(part));
            // What cannot be told counts as stated and not as denied.
            let stated = if everywhere { Some(Vec::new()) } else { self.phrases.matches(text, &stretch) };
            let stated = stated.unwrap_or_else(|| vec![stretch.clone()]);
            let denied = self.denied.matches(text, &stretch).unwrap_or_default();
            let (mut stated, mut denied) = (Sweep::over(&stated), Sweep::over(&denied));
            for index in here {
                let Some(Spotted { at, .. }) = spotted.get(index) else { continue };
                let (is_stated, is_denied) = (stated.holds(at), denied.holds(at));
                if (everywhere || is_stated) && !is_denied {
                    counted.push(index);
                }
            }
        }
        counted
    }
}

/// Tells of ranges that come in their order whether one of a list, ordered too, holds them. Linear in both together.
struct Sweep<'r> {
    ranges: std::iter::Peekable<std::slice::Iter<'r, Range<usize>>>,
    reach: usize,
}

impl<'r> Sweep<'r> {
    fn over(ranges: &'r [Range<usize>]) -> Self {
        Self { ranges: ranges.iter().peekable(), reach: 0 }
    }

    fn holds(&mut self, at: &Range<usize>) -> bool {
        while let Some(range) = self.ranges.next_if(|range| range.start <= at.start) {
            self.reach = self.reach.max(range.end);
        }
        self.reach >= at.end
    }
}

/// Makes the automata of one fact.
struct Compiler<'f> {
    file: &'f FactFile,
    data: &'f Data,
    automata: &'f mut Automata,
    ascii: bool,
    /// What `{NAME}` stands for.
    names: BTreeMap<String, String>,
    /// One letter for each of them: enough to tell whether what is around them is a pattern.
    letters: BTreeMap<String, String>,
    /// The patterns that were read, with their places.
    read: Vec<(Vec<String>, String)>,
    errors: Vec<BuildError>,
}

impl<'f> Compiler<'f> {
    fn new(file: &'f FactFile, data: &'f Data, automata: &'f mut Automata, ascii: bool) -> Self {
        let (names, letters) = (BTreeMap::new(), BTreeMap::new());
        Self { file, data, automata, ascii, names, letters, read: Vec::new(), errors: Vec::new() }
    }

    fn rule(mut self, name: &str) -> Result<FactRule, Vec<BuildError>> {
        let file = self.file;
        for (name, words) in &file.words {
            let is_name =
                name.starts_with(|first: char| first.is_ascii_alphabetic()) && name != "term" && name != "terms";
            if !is_name {
                self.wrong(&["words", name], "expected a name that begins with a letter and is not `term` or `terms`");
                continue;
            }
            let patterns = self.words(&["words", name], words);
            let all: Vec<String> = patterns.into_iter().flat_map(|(_, patterns)| patterns).collect();
            self.name(name, &whole(&any_of(&all)));
        }
        let ignore = self.patterns("ignore", &file.ignore).map(|all| any_in_order(&all));
        let spot = self.spot();
        let cues = self.patterns("cues", &file.cues).map(|all| whole(&any_in_order(&all)));
        let unless = self.patterns("unless", &file.unless).map(|all| whole(&any_in_order(&all)));
        let phrases: Vec<String> =
            self.patterns("phrases", &file.phrases).unwrap_or_default().iter().map(|one| whole(one)).collect();
        let denied: Vec<String> =
            self.patterns("denied", &file.denied).unwrap_or_default().iter().map(|one| whole(one)).collect();
        let [ignore, cues, unless] =
            [("ignore", ignore), ("cues", cues), ("unless", unless)].map(|(at, pattern)| self.built(at, pattern));
        let [phrases, denied] =
            [("phrases", phrases), ("denied", denied)].map(|(at, patterns)| self.several(at, patterns));
        let in_context = !file.cues.is_empty() || !file.phrases.is_empty();
        match (spot, phrases, denied) {
            (Some(spot), Some(phrases), Some(denied)) if self.errors.is_empty() => Ok(FactRule {
                name: name.into(),
                ascii: self.ascii,
                spot,
                ignore,
                cues,
                unless,
                scope: file.scope,
                phrases,
                denied,
                in_context,
            }),
            _ => Err(self.errors),
        }
    }

    fn wrong(&mut self, at: &[&str], message: impl Into<String>) {
        self.errors.push(BuildError { at: at.iter().map(|&step| step.to_owned()).collect(), message: message.into() });
    }

    /// Says what `{name}` stands for from here on.
    fn name(&mut self, name: &str, pattern: &str) {
        self.names.insert(name.to_owned(), format!("(?:{pattern})"));
        self.letters.insert(name.to_owned(), "x".to_owned());
    }

    /// The automata for the terms; what `{term}` and `{terms}` stand for is known from here on.
    fn spot(&mut self) -> Option<Spot> {
        let (terms, pattern) = (&self.file.terms, &self.file.pattern);
        match (terms, pattern) {
            (None, Some(pattern)) => {
                if pattern.is_empty() {
                    self.wrong(&["pattern"], "expected a pattern, found an empty text");
                    return None;
                }
                let pattern = self.one(&["pattern"], pattern)?;
                self.built("pattern", Some(pattern)).map(Spot::Matches)
            }
            (Some(terms), None) => {
                let terms = self.words(&["terms"], terms);
                if let Words::Listed(_) = self.file.terms.as_ref()? {
                    self.wrong(&["terms"], "expected the terms with their patterns, or `TABLE.COLUMN`, found a list");
                }
                let all: Vec<String> = terms.iter().flat_map(|(_, patterns)| patterns.iter().cloned()).collect();
                let term = whole(&any_of(&all));
                let light = match &self.file.between {
                    Some(_) => self.patterns("between", self.file.between.as_deref().unwrap_or_default()),
                    None => Some(BETWEEN.iter().map(|&word| word.to_owned()).collect()),
                };
                self.name("terms", &list_of(&term, &light.unwrap_or_default()));
                self.name("term", &term);
                let each: Vec<String> =
                    terms.iter().map(|(_, patterns)| format!(r"\A(?:{})\z", any_of(patterns))).collect();
                let any = self.built("terms", Some(term))?;
                let which = self.several("terms", each)?;
                Some(Spot::Terms { any, which, terms: terms.into_iter().map(|(term, _)| term.into()).collect() })
            }
            _ => {
                self.wrong(&[], "expected either `terms` or `pattern`");
                None
            }
        }
    }

    /// Terms with their patterns, each of which is a pattern of its own; words without terms are one nameless term.
    fn words(&mut self, at: &[&str], words: &Words) -> Vec<(String, Vec<String>)> {
        let (named, literal_words) = match words {
            Words::Named(named) => (named.clone(), false),
            Words::Listed(listed) => (vec![(String::new(), listed.clone())], false),
            Words::Column(column) => match self.data.words(column) {
                Ok(rows) => (rows, true),
                Err(message) => {
                    self.wrong(at, message);
                    return Vec::new();
                }
            },
        };
        if named.is_empty() || named.iter().all(|(_, patterns)| patterns.is_empty()) {
            self.wrong(at, "expected words, found none");
        }
        let mut all = Vec::with_capacity(named.len());
        for (name, patterns) in named {
            let mut read = Vec::with_capacity(patterns.len());
            for (index, pattern) in patterns.iter().enumerate() {
                if literal_words {
                    if self.ascii && !pattern.is_ascii() {
                        self.wrong(at, "not words in ASCII");
                    }
                    read.push(literal(pattern, self.file.plurals));
                    continue;
                }
                let index = index.to_string();
                let mut path = at.to_vec();
                if !name.is_empty() {
                    path.push(&name);
                }
                path.push(&index);
                read.extend(self.one(&path, pattern));
            }
            if read.is_empty() && !literal_words {
                self.wrong(at, format!("`{name}` has no pattern"));
            }
            if !read.is_empty() {
                all.push((name, read));
            }
        }
        all
    }

    /// The patterns of one member; none where there are none.
    fn patterns(&mut self, member: &str, patterns: &[String]) -> Option<Vec<String>> {
        let mut all = Vec::with_capacity(patterns.len());
        for (index, pattern) in patterns.iter().enumerate() {
            all.extend(self.one(&[member, &index.to_string()], pattern));
        }
        (!all.is_empty()).then_some(all)
    }

    /// One pattern with its words filled in, once it is known that it is one.
    fn one(&mut self, at: &[&str], pattern: &str) -> Option<String> {
        let read = self.checked(at, pattern).map_err(|message| self.wrong(at, message)).ok()?;
        self.read.push((at.iter().map(|&step| step.to_owned()).collect(), read.clone()));
        Some(read)
    }

    fn checked(&self, at: &[&str], pattern: &str) -> Result<String, String> {
        if pattern.trim().is_empty() {
            return Err("expected a pattern, found an empty text".to_owned());
        }
        if self.ascii && (!pattern.is_ascii() || pattern.contains("\\x") || pattern.contains("\\u")) {
            return Err("not a pattern in ASCII".to_owned());
        }
        let least = shortest(&filled(pattern, &self.letters)?, self.ascii)?;
        if at != ["pattern"] && least == Some(0) {
            return Err("the pattern matches the empty text".to_owned());
        }
        Ok(format!("(?:{})", filled(pattern, &self.names)?))
    }

    fn built(&mut self, at: &str, pattern: Option<String>) -> Option<Regex> {
        self.automata.one(pattern?, self.ascii).map_err(|message| self.failed(at, message)).ok()
    }

    fn several(&mut self, at: &str, patterns: Vec<String>) -> Option<Arc<Several>> {
        self.automata.several(patterns, self.ascii).map_err(|message| self.failed(at, message)).ok()
    }

    /// An automaton of a member's patterns together has failed: the first of them that fails alone is to blame, else
    /// all of them are.
    fn failed(&mut self, member: &str, message: String) {
        let here = self.read.iter().filter(|(at, _)| at.first().is_some_and(|first| first == member));
        let alone = here.filter_map(|(at, one)| Some((at.clone(), automaton(one, self.ascii).err()?))).next();
        let (at, message) = alone.unwrap_or_else(|| (vec![member.to_owned()], message));
        self.errors.push(BuildError { at, message });
    }
}

fn any_in_order(patterns: &[String]) -> String {
    patterns.join("|")
}
