//! The provenance gate: each value comes with a quote and a page, and the source bears it out.

use std::sync::Arc;

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::contract::date;
use crate::contract::date::DateOrder;
use crate::contract::date::PrintedDate;
use crate::contract::fold::Fold;
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
use crate::contract::gate::written::Paths;
use crate::contract::gate::written::quoted;
use crate::contract::number::NumberFormat;
use crate::contract::number::Printed;
use crate::contract::scene::Evidence;
use crate::contract::scene::Node;
use crate::contract::scene::Scene;
use crate::contract::scene::kind_of;
use crate::contract::source::Needs;
use crate::contract::source::Region;
use crate::contract::source::Span;
use crate::contract::source::Stand;
use crate::contract::source::Stands;
use crate::contract::token;
use crate::contract::verdict::SourceAt;
use crate::json::decimal::Decimal;
use crate::json::query::Query;
use crate::json::tape::What;

/// The kind as policies name it.
pub const KIND: Kind = Kind { name: "provenance", schema: |generator| generator.subschema_for::<Settings>(), build };

/// Each value comes with a quote and a page (`evidence` names the members), and the quote stands literally on that page.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Settings {
    /// The values, or the evidence objects around them.
    provenance: Paths,
    /// A number or date must be the one that its quote prints, with the sign, parentheses, percent and scale that stand
    /// around it in the source.
    numbers_match_quotes: Option<MatchFile>,
    /// A text must be part of its quote, after the folds of the gate and those of white space and split words.
    #[serde(default)]
    text_matches_quotes: bool,
    /// A date must be the latest of those that stand beside it in its line, as the heads of columns do: with nothing
    /// between but white space, `|`, `and`, and remarks in parentheses.
    #[serde(default)]
    latest_of_columns: bool,
    /// The quotes of each path stand one behind the other, in the order of the answer: nothing is quoted twice.
    #[serde(default)]
    in_order: bool,
    /// The region in which quotes must stand.
    within: Option<String>,
    /// How many characters a quote has at least: 1 where nothing is said.
    min_chars: Option<usize>,
    /// How many characters a quote has at most: 500 where nothing is said.
    max_chars: Option<usize>,
    /// The folds of this gate, instead of those of the policy.
    folds: Option<Vec<String>>,
}

/// How the numbers and dates of quotes are to be read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MatchFile {
    /// Whose marks the numbers have: `en`, `de`, `fr`, ...
    locale: String,
    /// What comes first in a date of digits: `day_first`, `month_first` or `iso` (the year, or no such date). Without
    /// it, dates are not compared.
    dates: Option<String>,
    /// What a percent sign does: `as_printed` (`15%` prints 15) or `fraction` (it prints 0.15).
    percent: Option<String>,
    /// What printed numbers are multiplied by: `as_printed`, `thousands`, `millions`, `billions`, or `words` (the scale
    /// word at the number, if there is one).
    scale: Option<String>,
}

/// The gate.
#[derive(Debug)]
struct Provenance {
    paths: Vec<Query>,
    presence: Presence,
    evidence: Evidence,
    numbers: Option<NumberFormat>,
    dates: Option<DateOrder>,
    text: bool,
    latest: bool,
    in_order: bool,
    within: Option<(Arc<str>, Region)>,
    chars: std::ops::RangeInclusive<usize>,
    folds: Folds,
}

fn build(value: &Value, build: &Build<'_>) -> Result<Box<dyn Gate>, Vec<BuildError>> {
    let settings: Settings = written::settings(value)?;
    gate(&settings, build).map(|gate| Box::new(gate) as Box<dyn Gate>).map_err(|error| vec![error])
}

fn gate(settings: &Settings, build: &Build<'_>) -> Result<Provenance, BuildError> {
    let member = "numbers_match_quotes";
    let evidence = build.contract.evidence.clone().ok_or_else(|| {
        BuildError::at(KIND.name, "the policy declares no `evidence`, so no value can come with a quote")
    })?;
    let matching = settings.numbers_match_quotes.as_ref();
    let dates = matching.and_then(|matching| matching.dates.as_deref()).map(|name| {
        let message = || format!("expected `day_first`, `month_first` or `iso`, found `{name}`");
        let at = || vec![member.to_owned(), "dates".to_owned()];
        DateOrder::named(name).ok_or_else(|| BuildError { at: at(), message: message() })
    });
    let numbers = matching
        .map(|file| written::number_format(&file.locale, file.percent.as_deref(), file.scale.as_deref(), member));
    let numbers = numbers.transpose()?;
    let within = settings.within.as_deref().map(|name| match build.contract.regions.get_key_value(name) {
        Some((name, region)) => Ok((Arc::clone(name), region.clone())),
        None => {
            let known: Vec<String> = build.contract.regions.keys().map(|name| format!("`{name}`")).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Err(BuildError::at("within", format!("region `{name}` is not declared; declared are {known}")))
        }
    });
    if settings.latest_of_columns && matching.is_none_or(|matching| matching.dates.is_none()) {
        let message = "`latest_of_columns` needs `numbers_match_quotes` with `dates`, so that dates can be read";
        return Err(BuildError::at("latest_of_columns", message));
    }
    let chars = settings.min_chars.unwrap_or(1)..=settings.max_chars.unwrap_or(500);
    if *chars.start() == 0 || chars.is_empty() {
        let message = format!("expected 1 <= min_chars <= max_chars, found {} and {}", chars.start(), chars.end());
        return Err(BuildError::at("min_chars", message));
    }
    Ok(Provenance {
        paths: settings.provenance.read(KIND.name)?,
        presence: build.presence,
        evidence,
        numbers,
        dates: dates.transpose()?,
        text: settings.text_matches_quotes,
        latest: settings.latest_of_columns,
        in_order: settings.in_order,
        within: within.transpose()?,
        chars,
        folds: written::folds(settings.folds.as_deref(), build, numbers.and_then(|numbers| numbers.locale))?,
    })
}

/// Why a value is not borne out, and where in the source that shows.
struct Unfounded {
    message: String,
    stand: Option<Stand>,
}

impl From<String> for Unfounded {
    fn from(message: String) -> Self {
        Self { message, stand: None }
    }
}

impl Gate for Provenance {
    fn check(&self, scene: &Scene<'_>, found: &mut Findings<'_>) {
        let span = self.span(scene);
        if let Err(message) = &span {
            found.say(At::Answer, || message.clone());
        }
        let span = span.ok().flatten();
        for path in &self.paths {
            let mut behind = (0, 0);
            for node in found.nodes(path, self.presence) {
                let unfounded = match self.founded(scene, node, span, behind) {
                    Ok((stand, printed)) => {
                        if let Some(printed) = printed {
                            scene.answer.keep_printed(self, scene.ground, node.place, printed);
                        }
                        if self.in_order {
                            behind = (stand.page, stand.range.end);
                        }
                        continue;
                    }
                    Err(unfounded) => unfounded,
                };
                found.report(At::Place(node.place), |at| Finding {
                    source_at: unfounded.stand.map(|stand| SourceAt { page: stand.page, range: stand.range }),
                    ..Finding::new(at, unfounded.message)
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
        needs.fold(self.folds);
        if let Some((name, region)) = &self.within {
            needs.region(name, region);
        }
    }

    fn reads_numbers_of(&self, query: &Query) -> bool {
        self.numbers.is_some() && self.paths.iter().any(|path| path.covers(query))
    }

    fn printed_at(&self, scene: &Scene<'_>, node: Node<'_>) -> Option<Printed> {
        if let Some(kept) = scene.answer.printed(self, scene.ground, node.place) {
            return Some(kept);
        }
        let span = self.span(scene).ok()?;
        self.founded(scene, node, span, (0, 0)).ok()?.1
    }
}

impl Provenance {
    /// Where quotes must stand; none for anywhere.
    fn span(&self, scene: &Scene<'_>) -> Result<Option<Span>, String> {
        let Some((name, _)) = &self.within else { return Ok(None) };
        match scene.ground.source.region(name) {
            Some(Ok(span)) => Ok(Some(span)),
            Some(Err(fault)) => Err(format!("the source has no region `{name}` for certain: {fault}")),
            None => Err(format!("the source was not searched for the region `{name}`")),
        }
    }

    /// Where the source bears the value out, from the page and byte `behind` on, and the number that its quote prints,
    /// where it is compared.
    fn founded(
        &self,
        scene: &Scene<'_>,
        node: Node<'_>,
        span: Option<Span>,
        behind: (usize, usize),
    ) -> Result<(Stand, Option<Printed>), Unfounded> {
        if !node.has_evidence {
            let found = kind_of(node.place);
            return Err(format!("expected an object with a value, a quote and a page, found a bare {found}").into());
        }
        let quote = self.evidence.quote.one(node.place);
        let quote = match quote {
            Some(quote) if quote.what() == What::String => quote.text(),
            Some(other) => {
                return Err(format!("expected a quote at `{}`, found {}", self.evidence.quote, kind_of(other)).into());
            }
            None => return Err(format!("the quote is missing at `{}`", self.evidence.quote).into()),
        };
        let page = self.evidence.page.one(node.place);
        let number = page.filter(|page| page.what() == What::Number).and_then(|page| Decimal::read(page.raw()).ok());
        let number = number.and_then(|number| number.to_i64()).and_then(|number| usize::try_from(number).ok());
        let Some(number) = number.filter(|number| *number > 0) else {
            let found = page.map_or("nothing", |page| page.raw());
            let (path, found) = (&self.evidence.page, quoted(found));
            return Err(format!("expected the number of a page at `{path}`, found {found}").into());
        };
        let chars = quote.trim().chars().take(self.chars.end().saturating_add(1)).count();
        if !self.chars.contains(&chars) {
            let (least, most) = (self.chars.start(), self.chars.end());
            let found = if chars > *most { "more".to_owned() } else { chars.to_string() };
            return Err(format!("expected a quote of {least} to {most} characters, found {found}").into());
        }
        self.borne_out(scene, node, (&quote, number), span, behind)
    }

    /// The first place in the region where the quote stands that satisfies all that is demanded. Only for what is wanting
    /// is the rest of the source looked through, to tell what there is.
    fn borne_out(
        &self,
        scene: &Scene<'_>,
        node: Node<'_>,
        (quote, page): (&str, usize),
        span: Option<Span>,
        behind: (usize, usize),
    ) -> Result<(Stand, Option<Printed>), Unfounded> {
        let source = &scene.ground.source;
        let within = source.stands_within(self.folds, page, quote, span.as_ref(), scene.answer.searches());
        self.first_of(within, scene, node, (quote, page), span, behind).or_else(|unfounded| match span {
            None => Err(unfounded),
            Some(_) => {
                let all = source.stands(self.folds, Some(page), quote, scene.answer.searches());
                self.first_of(all, scene, node, (quote, page), span, behind)
            }
        })
    }

    /// The first place where the quote stands that satisfies all that is demanded at once: see [`Source::stands`].
    ///
    /// [`Source::stands`]: crate::contract::source::Source::stands
    fn first_of(
        &self,
        stands: Stands<'_>,
        scene: &Scene<'_>,
        node: Node<'_>,
        (quote, page): (&str, usize),
        span: Option<Span>,
        behind: (usize, usize),
    ) -> Result<(Stand, Option<Printed>), Unfounded> {
        let source = &scene.ground.source;
        let mut wanting = None;
        let mut first: Option<(Stand, Option<Printed>)> = None;
        for stand in stands {
            if span.is_some_and(|span| !span.holds(&stand)) {
                let region = self.within.as_ref().map_or("", |(name, _)| name);
                let message =
                    || format!("the quote {} stands on page {page}, but outside the region `{region}`", quoted(quote));
                wanting.get_or_insert_with(|| Unfounded { message: message(), stand: Some(stand) });
                continue;
            }
            if (stand.page, stand.range.start) < behind {
                let message = || {
                    format!(
                        "the quote {} stands on page {page} only where an earlier one stands, or before it; each is quoted once, in the order of the page",
                        quoted(quote)
                    )
                };
                wanting.get_or_insert_with(|| Unfounded { message: message(), stand: Some(stand) });
                continue;
            }
            match self.says(scene, node, &stand, quote) {
                // Places come in order by one set of folds, and then again by the plain ones. Where the next quote has
                // to stand behind this one, the first of all leaves it the most room.
                Ok(printed) if self.in_order && self.folds != self.folds.plain() => {
                    if first.as_ref().is_none_or(|(known, _)| stand.range.end < known.range.end) {
                        first = Some((stand, printed));
                    }
                }
                Ok(printed) => return Ok((stand, printed)),
                // What is wrong within the region says more than what stands outside it.
                Err(message) => wanting = Some(Unfounded { message, stand: Some(stand) }),
            }
        }
        if let Some(first) = first {
            return Ok(first);
        }
        Err(wanting.unwrap_or_else(|| {
            let elsewhere = source.find(self.folds, None, quote, scene.answer.searches());
            let hint = elsewhere.map(|stand| format!("; it stands on page {}", stand.page)).unwrap_or_default();
            format!("the quote {} does not stand on page {page}{hint}", quoted(quote)).into()
        }))
    }

    /// Whether the stretch says what the value is.
    fn says(&self, scene: &Scene<'_>, node: Node<'_>, stand: &Stand, quote: &str) -> Result<Option<Printed>, String> {
        let source = &scene.ground.source;
        match (node.value.what(), self.numbers) {
            (What::Number, Some(format)) => {
                let value = Decimal::read(node.value.raw()).map_err(|error| error.to_string())?;
                let printed = source.number_at(stand, format);
                let printed = printed.map_err(|fault| format!("the quote {}: {fault}", quoted(quote)))?;
                if printed.value != value {
                    return Err(format!("the quote {} prints {}, not {value}", quoted(quote), printed.value));
                }
                Ok(Some(printed))
            }
            (What::String, _) => {
                let text = node.value.text();
                if let (Some(order), Some(date)) = (self.dates, iso_date(&text)) {
                    let date = date.ok_or_else(|| format!("{} is no day of the calendar", quoted(&text)))?;
                    let printed = source.date_at(stand, Some(order));
                    let printed = printed.map_err(|fault| format!("the quote {}: {fault}", quoted(quote)))?;
                    if printed.date != date {
                        return Err(format!("the quote {} prints {}, not {date}", quoted(quote), printed.date));
                    }
                    let page = source.page(stand.page).unwrap_or_default();
                    let later = if self.latest { later_column(page, &printed, order) } else { None };
                    return later.map_or(Ok(None), |later| {
                        Err(format!("the quote {} heads a column beside a later one, of {later}", quoted(quote)))
                    });
                }
                if self.text && !self.holds_text(source.text(stand), &text) {
                    return Err(format!("the quote {} does not print {}", quoted(quote), quoted(&text)));
                }
                Ok(None)
            }
            (What::Number, None) => Ok(None),
            (_, _) => Err(format!("expected a number or a text, found {}", kind_of(node.value))),
        }
    }

    /// Whether the stretch prints the text, whole words of it. A word that a line end splits is quoted with its hyphen,
    /// and its value is the whole word: without the hyphen, or with it where the word has one of its own.
    fn holds_text(&self, stretch: &str, text: &str) -> bool {
        if text == stretch && !text.is_empty() && !text.contains(['\n', '\r']) {
            return true; // as it nearly always is
        }
        let folds = self.folds.with(Fold::Whitespace);
        let text = folds.quote(text);
        let text = text.text();
        let prints = |folds: Folds, stretch: &str| {
            let stretch = folds.quote(stretch);
            let stretch = stretch.text();
            let border = |at| token::is_border(stretch, at);
            let mut found = stretch.match_indices(text).take(64);
            found.any(|(at, own)| border(at) && border(at + own.len()))
        };
        !text.is_empty()
            // A dash with a blank behind it ends no split word: `day- and night-shift`, broken behind the first dash.
            && (text.contains("- ") && prints(folds.plain(), stretch)
                || prints(folds.with(Fold::Hyphenation), stretch)
                || kept_hyphens(stretch, text).is_some_and(|stretch| prints(folds.with(Fold::Hyphenation), &stretch)))
    }
}

/// The stretch without the line breaks behind those hyphens at line ends that `text` writes too; none where there are
/// none of them.
fn kept_hyphens(stretch: &str, text: &str) -> Option<String> {
    let mut lines = stretch.lines();
    let mut whole = lines.next()?.to_owned();
    let mut kept = false;
    for line in lines {
        let (before, after) = (whole.trim_end(), line.trim_start());
        let (left, right) = (last_word(before), after.split(char::is_whitespace).next().unwrap_or_default());
        if left.ends_with(['-', '\u{2010}']) && holds_dashed(text, left, right) {
            whole.truncate(before.len());
            whole.push_str(after);
            kept = true;
        } else {
            whole.push('\n');
            whole.push_str(line);
        }
    }
    kept.then_some(whole)
}

fn last_word(text: &str) -> &str {
    text.rsplit(char::is_whitespace).next().unwrap_or_default()
}

/// Whether `text` writes the two parts of a word with a dash between them.
fn holds_dashed(text: &str, left: &str, right: &str) -> bool {
    let plain = Folds::NONE.with(Fold::Typography);
    let whole = format!("{left}{right}");
    plain.quote(text).text().contains(plain.quote(&whole).text())
}

/// A later date that heads a column beside that of `printed`, in its line.
fn later_column(page: &str, printed: &PrintedDate, order: DateOrder) -> Option<Date> {
    let from = page.get(..printed.range.start)?.rfind('\n').map_or(0, |at| at + 1);
    let to = page.get(printed.range.end..)?.find('\n').map_or(page.len(), |at| printed.range.end + at);
    let line = page.get(from..to)?;
    let mut dates = date::read_all(line, Some(order)).into_iter().filter_map(Result::ok).peekable();
    let (mut is_beside, mut latest): (bool, Option<Date>) = (false, None);
    while let Some(own) = dates.next() {
        is_beside |= from + own.range.start == printed.range.start;
        latest = latest.max(Some(own.date));
        let goes_on =
            dates.peek().and_then(|next| line.get(own.range.end..next.range.start)).is_some_and(is_between_columns);
        if !goes_on {
            if is_beside {
                return latest.filter(|latest| *latest > printed.date);
            }
            latest = None;
        }
    }
    None
}

/// Whether nothing but what may stand between the heads of two columns is in the gap.
fn is_between_columns(gap: &str) -> bool {
    let mut depth = 0_usize;
    let mut bare = String::new();
    for c in gap.chars() {
        match c {
            _ if c.is_numeric() => return false,
            '(' => depth += 1,
            ')' if depth == 0 => return false,
            ')' => depth -= 1,
            c if depth == 0 => bare.push(c),
            _ => {}
        }
    }
    depth == 0 && bare.split(|c: char| c.is_whitespace() || c == '|').all(|word| matches!(word, "" | "and" | "&"))
}

/// The date that a value writes as `YYYY-MM-DD`; `Some(None)` where the calendar has no such day.
fn iso_date(text: &str) -> Option<Option<Date>> {
    let shape = text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    shape.then(|| text.parse().ok())
}

#[cfg(test)]
#[path = "provenance/tests.rs"]
mod tests;
