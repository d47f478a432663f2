//! The quote gate: a text of the answer stands literally in the source, or a number is one that the source prints.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::collections::HashSet;

use regex::Regex;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::contract::fold::Folds;
use crate::contract::gate::At;
use crate::contract::gate::Build;
use crate::contract::gate::BuildError;
use crate::contract::gate::Finding;
use crate::contract::gate::Findings;
use crate::contract::gate::Gate;
use crate::contract::gate::Kind;
use crate::contract::gate::Presence;
use crate::contract::gate::written;
use crate::contract::gate::written::NumberFile;
use crate::contract::gate::written::Paths;
use crate::contract::gate::written::quoted;
use crate::contract::number::NumberFormat;
use crate::contract::scene::Node;
use crate::contract::scene::Scene;
use crate::contract::scene::kind_of;
use crate::contract::source::Needs;
use crate::contract::source::Searches;
use crate::contract::source::Source;
use crate::contract::source::Stand;
use crate::contract::token;
use crate::contract::verdict::SourceAt;
use crate::json::decimal::Decimal;
use crate::json::query::Query;
use crate::json::tape::What;

mod sentence;

/// The kind as policies name it.
pub const KIND: Kind = Kind { name: "quote", schema: |generator| generator.subschema_for::<Settings>(), build };

/// The text stands literally in the source, on token borders.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Settings {
    /// The texts, or with `number` the numbers.
    quote: Paths,
    /// It is one whole token: no white space in it, nothing bound to it by `-`, `/`, `.` and the like.
    #[serde(default)]
    token: bool,
    /// It is what this pattern matches (its first group, where it has one), and the pattern matches nothing else in the
    /// source.
    only: Option<String>,
    /// The value is a number that the source prints.
    number: Option<NumberFile>,
    /// Patterns of stretches that do not count: an occurrence that lies wholly inside a match of one of them is none.
    #[serde(default)]
    outside: Vec<String>,
    /// Patterns of what takes back: an occurrence is none where one of them matches behind it on the same page, unless
    /// that match lies inside a stretch that does not count.
    #[serde(default)]
    not_before: Vec<String>,
    /// The occurrence is one whole sentence, from its beginning to its closing mark.
    #[serde(default)]
    sentence: bool,
    /// The folds of this gate, instead of those of the policy.
    folds: Option<Vec<String>>,
}

/// The gate.
#[derive(Debug)]
struct Quote {
    paths: Vec<Query>,
    presence: Presence,
    folds: Folds,
    wanted: Wanted,
}

#[derive(Debug)]
enum Wanted {
    Text { token: bool, only: Option<Regex>, outside: Vec<Regex>, not_before: Vec<Regex>, sentence: bool },
    Number(NumberFormat),
}

fn build(value: &Value, build: &Build<'_>) -> Result<Box<dyn Gate>, Vec<BuildError>> {
    let settings: Settings = written::settings(value)?;
    gate(settings, build).map(|gate| Box::new(gate) as Box<dyn Gate>).map_err(|error| vec![error])
}

fn gate(settings: Settings, build: &Build<'_>) -> Result<Quote, BuildError> {
    let patterns = |texts: &[String], member: &str| -> Result<Vec<Regex>, BuildError> {
        texts.iter().map(|text| written::pattern(text, member)).collect()
    };
    let textual = [
        ("token", settings.token),
        ("only", settings.only.is_some()),
        ("outside", !settings.outside.is_empty()),
        ("not_before", !settings.not_before.is_empty()),
        ("sentence", settings.sentence),
        ("folds", settings.folds.is_some()),
    ];
    let wanted = match &settings.number {
        Some(file) => {
            if let Some((member, _)) = textual.into_iter().find(|(_, set)| *set) {
                return Err(BuildError::at(member, format!("`{member}` is for texts, and `number` looks for numbers")));
            }
            Wanted::Number(file.read("number")?)
        }
        None => Wanted::Text {
            token: settings.token,
            only: settings.only.as_deref().map(|text| written::pattern(text, "only")).transpose()?,
            outside: patterns(&settings.outside, "outside")?,
            not_before: patterns(&settings.not_before, "not_before")?,
            sentence: settings.sentence,
        },
    };
    Ok(Quote {
        paths: settings.quote.read(KIND.name)?,
        presence: build.presence,
        folds: written::folds(settings.folds.as_deref(), build, None)?,
        wanted,
    })
}

impl Gate for Quote {
    fn check(&self, scene: &Scene<'_>, found: &mut Findings<'_>) {
        let sought = Sought {
            source: &scene.ground.source,
            searches: scene.answer.searches(),
            only: OnceCell::new(),
            taken_back: OnceCell::new(),
        };
        for path in &self.paths {
            for node in found.nodes(path, self.presence) {
                let Err((message, stand)) = self.stands(&sought, node) else { continue };
                found.report(At::Place(node.place), |at| Finding {
                    source_at: stand.map(|stand| SourceAt { page: stand.page, range: stand.range }),
                    ..Finding::new(at, message)
                });
            }
        }
    }

    fn paths(&self) -> Vec<&Query> {
        self.paths.iter().collect()
    }

    fn is_tied_to_source(&self) -> bool {
        true
    }

    fn prepare(&self, needs: &mut Needs) {
        match &self.wanted {
            Wanted::Number(format) => needs.numbers(*format),
            Wanted::Text { only, outside, not_before, .. } => {
                needs.fold(self.folds);
                only.iter().chain(outside).chain(not_before).for_each(|pattern| needs.pattern(pattern));
            }
        }
    }
}

type Unfounded = (String, Option<Stand>);

impl Quote {
    fn stands(&self, sought: &Sought<'_>, node: Node<'_>) -> Result<(), Unfounded> {
        let (value, what) = (node.value, node.value.what());
        match &self.wanted {
            Wanted::Number(format) => {
                if what != What::Number {
                    return Err((format!("expected a number, found {}", kind_of(value)), None));
                }
                let number = Decimal::read(value.raw()).map_err(|error| (error.to_string(), None))?;
                let printed = sought.source.prints(*format, &number);
                let shown = quoted(value.raw());
                if printed { Ok(()) } else { Err((format!("the source prints no number {shown}"), None)) }
            }
            Wanted::Text { .. } if what != What::String => {
                Err((format!("expected a text, found {}", kind_of(value)), None))
            }
            Wanted::Text { .. } => self.stands_as_text(sought, &value.text()),
        }
    }

    /// Whether one and the same occurrence satisfies all that is demanded of it.
    fn stands_as_text(&self, sought: &Sought<'_>, text: &str) -> Result<(), Unfounded> {
        let Wanted::Text { token, only, outside, not_before, sentence } = &self.wanted else { return Ok(()) };
        let source = sought.source;
        if let Some(pattern) = only {
            sought.only.get_or_init(|| Only::of(source, pattern)).is(source, pattern, text)?;
        }
        let shown = quoted(text);
        let mut wanting: Option<Unfounded> = None;
        for stand in source.stands(self.folds, None, text, sought.searches) {
            let page = source.page(stand.page).unwrap_or_default();
            let why = if lies_in(source, outside, &stand) {
                "stands only in a part of the source that does not count"
            } else if sought.is_taken_back(not_before, outside, &stand) {
                "stands only before words that take it back"
            } else if *token && !token::is_whole(page, stand.range.start, stand.range.end) {
                "stands only as a part of a longer token"
            } else if let Some(why) = sentence.then(|| sentence::fault(page, &stand.range)).flatten() {
                why
            } else {
                return Ok(());
            };
            wanting.get_or_insert_with(|| (format!("{shown} {why}"), Some(stand)));
        }
        Err(wanting.unwrap_or_else(|| (format!("{shown} does not stand in the source"), None)))
    }
}

/// What is looked for in a source, for every text of the answer once: a hostile source has very many matches, and many
/// places for each text.
struct Sought<'s> {
    source: &'s Source,
    searches: &'s Searches,
    only: OnceCell<Only<'s>>,
    /// Where the last words that take back begin, page by page.
    taken_back: OnceCell<BTreeMap<usize, usize>>,
}

impl Sought<'_> {
    /// Whether words that take back stand behind the stretch on its page, and count.
    fn is_taken_back(&self, patterns: &[Regex], outside: &[Regex], stand: &Stand) -> bool {
        let last = self.taken_back.get_or_init(|| last_words(self.source, patterns, outside));
        last.get(&stand.page).is_some_and(|start| *start >= stand.range.end)
    }
}

/// The last match of any of the patterns on each page that does not lie outside what counts.
fn last_words(source: &Source, patterns: &[Regex], outside: &[Regex]) -> BTreeMap<usize, usize> {
    let mut last = BTreeMap::new();
    for stand in patterns.iter().flat_map(|pattern| source.matches(pattern).unwrap_or_default()) {
        if last.get(&stand.page).is_none_or(|start| *start < stand.range.start) && !lies_in(source, outside, stand) {
            last.insert(stand.page, stand.range.start);
        }
    }
    last
}

/// What a pattern matches that must match one text alone. The same match twice is one.
struct Only<'s> {
    first: Option<&'s Stand>,
    /// The first match of another text.
    other: Option<&'s Stand>,
    /// All texts, where there are several.
    texts: HashSet<&'s str, ahash::RandomState>,
}

impl<'s> Only<'s> {
    fn of(source: &'s Source, pattern: &Regex) -> Self {
        let matches = source.matches(pattern).unwrap_or_default();
        let first = matches.first();
        let other = first.and_then(|first| matches.iter().find(|stand| source.text(stand) != source.text(first)));
        let several = if other.is_some() { matches } else { &[] };
        Self { first, other, texts: several.iter().map(|stand| source.text(stand)).collect() }
    }

    /// Whether the text is what the pattern matches, and all that it matches.
    fn is(&self, source: &Source, pattern: &Regex, text: &str) -> Result<(), Unfounded> {
        let Some(first) = self.first else {
            return Err((format!("nothing in the source matches `{pattern}`"), None));
        };
        let other = if source.text(first) == text { self.other } else { Some(first) };
        let Some(other) = other else { return Ok(()) };
        let (found, shown) = (quoted(source.text(other)), quoted(text));
        let message = if self.texts.contains(text) {
            format!("{shown} is not the only match of `{pattern}` in the source: {found} is another")
        } else {
            format!("expected the match of `{pattern}` in the source, {found}, found {shown}")
        };
        Err((message, Some(other.clone())))
    }
}

/// Whether a match of one of the patterns holds the stretch.
fn lies_in(source: &Source, patterns: &[Regex], stand: &Stand) -> bool {
    patterns.iter().any(|pattern| {
        let matches = source.matches(pattern).unwrap_or_default();
        // The matches of one pattern are in order and apart, so only the last that begins before can hold it.
        let next = matches.partition_point(|m| (m.page, m.range.start) <= (stand.page, stand.range.start));
        let last = next.checked_sub(1).and_then(|at| matches.get(at));
        last.is_some_and(|m| m.page == stand.page && m.range.end >= stand.range.end)
    })
}

#[cfg(test)]
#[path = "quote/tests.rs"]
mod tests;
