//! The source that an answer must be grounded in: its pages, folded and indexed once an exchange while the upstream
//! call runs, so that finding a quote afterwards costs about a microsecond. Nothing of it changes once it is made.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use regex::Regex;

use crate::contract::date;
use crate::contract::date::DateFault;
use crate::contract::date::DateOrder;
use crate::contract::date::PrintedDate;
use crate::contract::fold::Folds;
use crate::contract::number;
use crate::contract::number::NumberFault;
use crate::contract::number::NumberFormat;
use crate::contract::number::Printed;
use crate::json::decimal::Decimal;

mod index;
mod layer;
mod region;

pub use layer::Searches;
pub use layer::Stands;
pub use region::Region;
pub use region::RegionError;
pub use region::RegionFault;
pub use region::Span;

use layer::Layer;

/// What the gates of a contract will ask of a source. Known when the policy is loaded; nothing else is prepared.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    folds: Vec<Folds>,
    regions: Vec<(Arc<str>, Region)>,
    numbers: Vec<NumberFormat>,
    patterns: Vec<Regex>,
}

impl Needs {
    /// Quotes will be looked for by these folds.
    pub fn fold(&mut self, folds: Folds) {
        // What a fold takes away can be quoted all the same, so the text without it is looked through as well.
        for folds in [folds, folds.plain()] {
            if !self.folds.contains(&folds) {
                self.folds.push(folds);
            }
        }
    }

    /// Quotes will have to stand within this region.
    pub fn region(&mut self, name: &Arc<str>, region: &Region) {
        if !self.regions.iter().any(|(known, _)| known == name) {
            self.regions.push((Arc::clone(name), region.clone()));
        }
    }

    /// Values will be looked for among the numbers that are printed.
    pub fn numbers(&mut self, format: NumberFormat) {
        if !self.numbers.contains(&format) {
            self.numbers.push(format);
        }
    }

    /// The matches of this pattern will be asked for.
    pub fn pattern(&mut self, pattern: &Regex) {
        if !self.patterns.iter().any(|known| known.as_str() == pattern.as_str()) {
            self.patterns.push(pattern.clone());
        }
    }
}

/// A source, page by page. Pages count from 1.
#[derive(Debug, Default)]
pub struct Source {
    pages: Vec<Arc<str>>,
    layers: Vec<Layer>,
    regions: Vec<(Arc<str>, Result<Span, RegionFault>)>,
    numbers: Vec<(NumberFormat, HashSet<Decimal, ahash::RandomState>)>,
    matches: Vec<(String, Vec<Stand>)>,
}

/// A stretch of one page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stand {
    /// The page, from 1.
    pub page: usize,
    /// Bytes of the page as it came, unfolded.
    pub range: Range<usize>,
}

impl Source {
    /// Prepares the pages for what will be asked of them. O(size of the pages) for each set of folds, each locale, each
    /// region and each pattern that is needed.
    pub fn new(pages: Vec<Arc<str>>, needs: &Needs) -> Self {
        let regions = needs.regions.iter().map(|(name, region)| (Arc::clone(name), region.span(&pages)));
        let regions: Vec<_> = regions.collect();
        let spans: Vec<Span> = regions.iter().filter_map(|(_, span)| span.as_ref().ok().copied()).collect();
        let layers = needs.folds.iter().map(|folds| Layer::new(&pages, *folds, &spans)).collect();
        let numbers = needs.numbers.iter().map(|format| {
            let read = pages.iter().flat_map(|page| number::read_all(page, *format));
            (*format, read.filter_map(|read| read.ok().map(|printed| printed.value)).collect())
        });
        let numbers = numbers.collect();
        let matches = needs.patterns.iter().map(|pattern| (pattern.as_str().to_owned(), matches(&pages, pattern)));
        let matches = matches.collect();
        Self { pages, layers, regions, numbers, matches }
    }

    /// The pages as they came.
    pub fn pages(&self) -> &[Arc<str>] {
        &self.pages
    }

    /// The text of a page; pages count from 1.
    pub fn page(&self, page: usize) -> Option<&str> {
        page.checked_sub(1).and_then(|at| self.pages.get(at)).map(AsRef::as_ref)
    }

    /// The text of a stretch.
    pub fn text(&self, stand: &Stand) -> &str {
        self.page(stand.page).and_then(|page| page.get(stand.range.clone())).unwrap_or_default()
    }

    /// Every place where `quote` stands, on one page or on any, folded by `folds` on both sides and on token borders.
    ///
    /// An empty quote, or one of white space alone, stands nowhere, and no quote runs over the end of a page. Folds that
    /// the source was not prepared for find nothing. The work is bounded, for each quote and for `all` of a judgement: a
    /// quote that all but stands in very many places may not be found at all.
    ///
    /// A quote may stand in several places with different signs, or inside and outside a region. It says nothing of which
    /// is meant, so whoever asks takes it if one and the same place satisfies all that is demanded: every place is one
    /// that the source prints, and a claim that is true of one of them is one that the quote bears out. It would not be
    /// safe to mix places: the sign of one and the region of another.
    pub fn stands<'a>(&'a self, folds: Folds, page: Option<usize>, quote: &'a str, all: &'a Searches) -> Stands<'a> {
        Stands::new(&self.pages, self.layers(folds), page, quote, None, all)
    }

    /// The same on one page, where it is looked for no further than about the span of a region: places outside it may or
    /// may not be among them. So a quote of one digit costs what the region has of it, and not what the source has.
    pub fn stands_within<'a>(
        &'a self,
        folds: Folds,
        page: usize,
        quote: &'a str,
        span: Option<&Span>,
        all: &'a Searches,
    ) -> Stands<'a> {
        Stands::new(&self.pages, self.layers(folds), Some(page), quote, span, all)
    }

    /// The texts that quotes of these folds are looked for in.
    fn layers(&self, folds: Folds) -> [Option<&Layer>; 2] {
        let layer = |folds| self.layers.iter().find(|layer| layer.folds() == folds);
        let plain = folds.plain();
        [layer(folds), (plain != folds).then(|| layer(plain)).flatten()]
    }

    /// The first place where `quote` stands.
    pub fn find(&self, folds: Folds, page: Option<usize>, quote: &str, all: &Searches) -> Option<Stand> {
        self.stands(folds, page, quote, all).next()
    }

    /// The number that the stretch prints. Its sign, parentheses, percent and scale are read from the source around it:
    /// quoting `90.00` out of `(90.00)` quotes minus ninety.
    ///
    /// # Errors
    /// Where it prints none, more than one, or one that the locale leaves uncertain.
    pub fn number_at(&self, stand: &Stand, format: NumberFormat) -> Result<Printed, NumberFault> {
        let page = self.page(stand.page).ok_or(NumberFault::Missing)?;
        number::read_one(page, stand.range.clone(), format)
    }

    /// The date that the stretch prints.
    ///
    /// # Errors
    /// Where it prints none, more than one, or one that the order leaves uncertain.
    pub fn date_at(&self, stand: &Stand, order: Option<DateOrder>) -> Result<PrintedDate, DateFault> {
        let page = self.page(stand.page).ok_or(DateFault::Missing)?;
        date::read_one(page, stand.range.clone(), order)
    }

    /// Where the region of this name is; none where the source was not prepared for it.
    pub fn region(&self, name: &str) -> Option<Result<Span, &RegionFault>> {
        let (_, found) = self.regions.iter().find(|(known, _)| **known == *name)?;
        Some(found.as_ref().copied())
    }

    /// Whether some page prints a number of this value. False where the source was not prepared for the format.
    pub fn prints(&self, format: NumberFormat, value: &Decimal) -> bool {
        self.numbers.iter().any(|(known, values)| *known == format && values.contains(value))
    }

    /// What the pattern matches, in order: its first group where it has one. None where the source was not prepared for
    /// it.
    pub fn matches(&self, pattern: &Regex) -> Option<&[Stand]> {
        let (_, found) = self.matches.iter().find(|(known, _)| known == pattern.as_str())?;
        Some(found)
    }
}

fn matches(pages: &[Arc<str>], pattern: &Regex) -> Vec<Stand> {
    let grouped = pattern.captures_len() > 1;
    let mut found = Vec::new();
    for (at, page) in pages.iter().enumerate() {
        let stand = |own: regex::Match<'_>| Stand { page: at + 1, range: own.range() };
        if grouped {
            found.extend(pattern.captures_iter(page).filter_map(|captures| captures.get(1)).map(stand));
        } else {
            found.extend(pattern.find_iter(page).map(stand));
        }
    }
    found
}

#[cfg(test)]
mod tests;
