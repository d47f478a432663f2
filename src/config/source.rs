//! The text of the file, and how a line of it is shown without its secrets.

use std::collections::HashSet;
use std::ops::Range;

use crate::config::problem::ConfigError;
use crate::config::problem::ConfigErrors;
use crate::config::problem::Excerpt;
use crate::config::problem::Place;
use crate::config::problem::Problems;
use crate::config::secret;

/// A line longer than this is not shown: nobody finds the caret in it.
const LINE_MAX: usize = 400;
/// Errors that are listed one by one: whoever has more of them has taken the wrong file.
const ERRORS_MAX: usize = 1000;
/// Characters of a value that a message shows.
const VALUE_MAX: usize = 60;
/// What stands for a secret.
const MASK: &str = "***";

/// The text of a configuration file.
#[derive(Debug)]
pub(super) struct Source<'t> {
    name: &'t str,
    text: &'t str,
    lines: Vec<usize>,
}

/// What of the text may be shown.
#[derive(Debug)]
pub(super) enum Shown {
    /// All of it: the file holds no secrets.
    All,
    /// The file could be read, so its secrets are known by their place. Spans, sorted and apart, of the secrets; and
    /// spans of every scalar, which tell a comment's `#` from a text's.
    But { secrets: Vec<Range<usize>>, scalars: Vec<Range<usize>> },
    /// The file could not be read, so nobody knows where a secret starts or ends: only these words are shown.
    Words(HashSet<String>),
}

/// Adds spans to what is hidden.
pub(super) fn hide(shown: &mut Shown, mut spans: Vec<Range<usize>>) {
    if let Shown::But { secrets, .. } = shown {
        spans.append(secrets);
        *secrets = secret::merged(spans);
    }
}

impl<'t> Source<'t> {
    /// A text, and the name under which errors speak of it.
    pub(super) fn new(name: &'t str, text: &'t str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self { name, text, lines: std::iter::once(0).chain(breaks).collect() }
    }

    /// The problems as errors, with place and line.
    pub(super) fn report(&self, problems: Problems, shown: &Shown) -> Option<ConfigErrors> {
        let error = |(offset, message)| ConfigError {
            name: self.name.to_owned(),
            message,
            place: Some(self.place(offset, shown)),
        };
        let problems = problems.sorted();
        let more = problems.len().saturating_sub(ERRORS_MAX);
        let mut errors: Vec<_> = problems.into_iter().take(ERRORS_MAX).map(error).collect();
        if more > 0 {
            let message = format!("{more} more errors are not listed; is this the right file?");
            errors.push(ConfigError { name: self.name.to_owned(), message, place: None });
        }
        ConfigErrors::of(errors)
    }

    /// The whole text.
    pub(super) fn text(&self) -> &'t str {
        self.text
    }

    /// `name:line:column` of an offset.
    pub(super) fn position(&self, offset: usize) -> String {
        let place = self.place(offset, &Shown::Words(HashSet::new()));
        format!("{}:{}:{}", self.name, place.line, place.column)
    }

    /// `name:line` of an offset.
    pub(super) fn file_and_line(&self, offset: usize) -> String {
        format!("{}:{}", self.name, self.place(offset, &Shown::Words(HashSet::new())).line)
    }

    fn place(&self, offset: usize, shown: &Shown) -> Place {
        let offset = (0..=offset.min(self.text.len())).rev().find(|at| self.text.is_char_boundary(*at)).unwrap_or(0);
        let line = self.lines.partition_point(|start| *start <= offset).max(1);
        let start = self.lines.get(line - 1).copied().unwrap_or(0);
        let column = self.text.get(start..offset).map_or(0, |before| before.chars().count()) + 1;
        let end = self.lines.get(line).copied().unwrap_or(self.text.len());
        let excerpt = (end - start <= LINE_MAX).then(|| self.excerpt(start..end, offset, shown));
        Place { line, column, excerpt }
    }

    /// The text of `span` for a message: one line, secrets masked, quotes left away, shortened.
    pub(super) fn quoted(&self, span: &Range<usize>, shown: &Shown) -> String {
        let first = self.text.get(span.clone()).unwrap_or_default().trim_end().lines().next().unwrap_or_default();
        let end = span.start + first.len();
        let text = self.excerpt(span.start..end, span.start, shown).text;
        let text = text.trim();
        let bare = ['"', '\''].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote)).unwrap_or(text);
        let more = bare.chars().count() > VALUE_MAX
            || end < span.start + self.text.get(span.clone()).map_or(0, |t| t.trim_end().len());
        let short: String = bare.chars().take(VALUE_MAX).collect();
        if more { format!("`{short}...`") } else { format!("`{short}`") }
    }

    /// `line` as it may be shown, with the caret's place under `offset`.
    fn excerpt(&self, line: Range<usize>, offset: usize, shown: &Shown) -> Excerpt {
        let raw = self.text.get(line.clone()).unwrap_or_default().trim_end_matches(['\n', '\r']);
        let masks = match shown {
            Shown::All => Vec::new(),
            Shown::But { secrets, scalars } => {
                let comment = comment(raw, line.start, scalars);
                let mut masks = secret::in_text(raw, comment);
                let known = masks.len();
                masks.extend(within(secrets, line.start, raw));
                // A ` #` inside of an unquoted secret makes a comment of its rest.
                masks.extend(comment.filter(|_| masks.len() > known).map(|start| start + 1..raw.len()));
                masks
            }
            Shown::Words(words) => secret::all_but(raw, words),
        };
        let (mut text, mut indent, mut masked_to) = (String::new(), 0, 0);
        for (at, c) in raw.char_indices() {
            if line.start + at <= offset {
                indent = text.chars().count();
            }
            if at < masked_to {
                continue;
            }
            if let Some(end) = masks.iter().filter(|mask| mask.contains(&at)).map(|mask| mask.end).max() {
                if !text.ends_with(MASK) {
                    text.push_str(MASK);
                }
                masked_to = end;
            } else {
                text.push(printable(c));
            }
        }
        if offset >= line.start + raw.len() {
            indent = text.chars().count();
        }
        Excerpt { text, indent }
    }
}

/// Parts of `spans` that lie in a line, as offsets in it, the white space of its indentation left out.
fn within<'s>(spans: &'s [Range<usize>], start: usize, raw: &'s str) -> impl Iterator<Item = Range<usize>> + 's {
    let from = start + raw.len() - raw.trim_start().len();
    let first = spans.partition_point(|span| span.end <= from);
    let touching = spans.get(first..).unwrap_or_default().iter().take_while(move |span| span.start < start + raw.len());
    touching.map(move |span| span.start.max(from) - start..span.end - start)
}

/// Where the comment of a line starts, as an offset in it.
fn comment(raw: &str, start: usize, scalars: &[Range<usize>]) -> Option<usize> {
    let mut before = ' ';
    for (at, c) in raw.char_indices() {
        let next = scalars.partition_point(|span| span.end <= start + at);
        let in_scalar = scalars.get(next).is_some_and(|span| span.start <= start + at);
        if c == '#' && before.is_whitespace() && !in_scalar {
            return Some(at);
        }
        before = c;
    }
    None
}

/// One column for each character, and none that a terminal takes for a command or for a change of direction.
fn printable(c: char) -> char {
    match c {
        '\t' => ' ',
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}
