//! What is wrong with a configuration file, said to the person who wrote it.

use std::fmt;
use std::ops::Range;

/// Everything that is wrong with a configuration, in the order of the file. Never empty.
///
/// `Display` prints every error with its place, the line it stands on and a caret. Neither `Display` nor `Debug` holds
/// a secret: values of secret members are masked before they get here, and expanded values never do.
#[derive(Debug, thiserror::Error)]
pub struct ConfigErrors {
    first: ConfigError,
    rest: Vec<ConfigError>,
}

impl ConfigErrors {
    /// One error.
    pub(super) fn one(error: ConfigError) -> Self {
        Self { first: error, rest: Vec::new() }
    }

    /// The errors of a list, or none where the list is empty.
    pub(super) fn of(errors: Vec<ConfigError>) -> Option<Self> {
        let mut errors = errors.into_iter();
        let first = errors.next()?;
        Some(Self { first, rest: errors.collect() })
    }

    /// The errors of several files, one after the other.
    pub(super) fn joined(all: Vec<Self>) -> Option<Self> {
        Self::of(all.into_iter().flat_map(|errors| std::iter::once(errors.first).chain(errors.rest)).collect())
    }

    /// Every error, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        self.rest.iter().try_for_each(|error| write!(f, "\n{error}"))
    }
}

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The file, as it was named to the gateway.
    pub name: String,
    /// What is wrong, what was found and what is allowed.
    pub message: String,
    /// Where it is; none where the file could not be read at all.
    pub place: Option<Place>,
}

/// A place in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The line with secrets masked; none where it is too long to help.
    pub excerpt: Option<Excerpt>,
}

/// A line as it may be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The text, secrets masked as `***`.
    pub text: String,
    /// Characters before the caret.
    pub indent: usize,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(place) = &self.place else {
            return write!(f, "{}: {}", self.name, self.message);
        };
        write!(f, "{}:{}:{}: {}", self.name, place.line, place.column, self.message)?;
        let Some(excerpt) = &place.excerpt else {
            return Ok(());
        };
        let gutter = place.line.to_string().len();
        write!(f, "\n{} | {}", place.line, excerpt.text)?;
        write!(f, "\n{:gutter$} | {:indent$}^", "", "", indent = excerpt.indent)
    }
}

/// What has been found wrong so far, by byte offset in the text.
#[derive(Debug, Default)]
pub(super) struct Problems {
    found: Vec<(usize, String)>,
}

impl Problems {
    /// Notes one problem at the start of `span`. The message holds no secret and no expanded value.
    pub(super) fn add(&mut self, span: &Range<usize>, message: impl Into<String>) {
        self.found.push((span.start, message.into()));
    }

    /// The problems in the order of the file, each once.
    pub(super) fn sorted(mut self) -> Vec<(usize, String)> {
        self.found.sort_by_key(|(offset, _)| *offset);
        self.found.dedup();
        self.found
    }
}
