//! A source as one set of folds leaves it, and the search for a quote in it.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use memchr::memmem;

use crate::contract::fold::Folded;
use crate::contract::fold::Folds;
use crate::contract::fold::Quote;
use crate::contract::source::Span;
use crate::contract::source::Stand;
use crate::contract::source::index::Index;
use crate::contract::token;

/// Bytes of text below which reading through it is cheaper than an index.
const INDEXED_MIN: usize = 4 << 10;
/// Bytes that one search may compare, and what each place costs besides.
const WORK_MAX: usize = 4 << 20;
const PLACE_WORK: usize = 32;
/// The same for all searches of one judgement: an answer may have a million quotes.
const SEARCHES_MAX: usize = 1 << 30;
/// Bytes behind a region that are looked through with it: as many as one piece of the map may have become.
const SLACK: usize = 64;

/// The pages of a source, folded one by one and written one behind the other.
#[derive(Debug)]
pub(super) struct Layer {
    folds: Folds,
    folded: Folded,
    /// Where each page begins in the folded text and in the bytes it was made of; one more than there are pages.
    pages: Vec<(usize, usize)>,
    index: Option<Index>,
    /// About where in the folded text the spans of regions are.
    spans: Vec<(Span, Range<usize>)>,
}

impl Layer {
    pub(super) fn new(pages: &[Arc<str>], folds: Folds, spans: &[Span]) -> Self {
        let mut folded = Folded::default();
        let mut starts = Vec::with_capacity(pages.len() + 1);
        for page in pages {
            starts.push((folded.text().len(), folded.source_bytes()));
            folded.append(folds, page);
        }
        starts.push((folded.text().len(), folded.source_bytes()));
        let stretches = starts.windows(2).filter_map(|pair| match pair {
            [(start, _), (end, _)] => Some(*start..*end),
            _ => None,
        });
        let index = (folded.text().len() >= INDEXED_MIN).then(|| Index::of(folded.text(), stretches));
        let about = |(page, byte): (usize, usize)| {
            let (_, source) = page.checked_sub(1).and_then(|page| starts.get(page))?;
            Some(folded.folded_before(source + byte))
        };
        let within = |span: &Span| Some((*span, about(span.from)?..about(span.through)? + SLACK));
        let spans = spans.iter().filter_map(within).collect();
        Self { folds, folded, pages: starts, index, spans }
    }

    /// About where in the folded text the span is; all of it where that was not prepared.
    fn about(&self, span: &Span) -> Range<usize> {
        let known = self.spans.iter().find(|(known, _)| known == span);
        known.map_or(0..self.folded.text().len(), |(_, range)| range.clone())
    }

    pub(super) fn folds(&self) -> Folds {
        self.folds
    }

    /// The page that holds a byte of the folded text, from 0: its folded bytes, and where its own bytes begin.
    fn page_of(&self, at: usize) -> Option<(usize, Range<usize>, usize)> {
        let page = self.pages.partition_point(|(start, _)| *start <= at).checked_sub(1)?;
        let ((start, source), (end, _)) = (self.pages.get(page)?, self.pages.get(page + 1)?);
        Some((page, *start..*end, *source))
    }
}

/// What the searches of one judgement may still do, all of them together.
#[derive(Debug)]
pub struct Searches {
    left: Cell<usize>,
}

impl Searches {
    /// Searches that may together do so much: bytes compared, and a flat charge for each place looked at.
    pub fn of(work: usize) -> Self {
        Self { left: Cell::new(work) }
    }
}

impl Default for Searches {
    fn default() -> Self {
        Self::of(SEARCHES_MAX)
    }
}

/// The places where a quote stands, in the order of the source, first by all folds, then by the plain ones.
#[derive(Debug)]
pub struct Stands<'a> {
    pages: &'a [Arc<str>],
    /// What is still to be looked through, the next one last.
    layers: [Option<&'a Layer>; 2],
    search: Option<Search<'a>>,
    quote: &'a str,
    page: Option<usize>,
    span: Option<Span>,
    /// What this search may still do, and what all searches of one judgement may.
    work: usize,
    all: &'a Searches,
}

/// One quote in one layer.
#[derive(Debug)]
struct Search<'a> {
    layer: &'a Layer,
    quote: Quote<'a>,
    places: Places<'a>,
}

/// Where to look next.
#[derive(Debug)]
enum Places<'a> {
    /// Places of a token that the quote has `offset` bytes from its beginning.
    Listed { places: std::slice::Iter<'a, u32>, offset: usize },
    /// The text from here on, up to the end of what is looked through.
    Read { at: usize, end: usize },
}

impl<'a> Stands<'a> {
    pub(super) fn new(
        pages: &'a [Arc<str>],
        [folded, plain]: [Option<&'a Layer>; 2],
        page: Option<usize>,
        quote: &'a str,
        span: Option<&Span>,
        all: &'a Searches,
    ) -> Self {
        let layers = if quote.trim().is_empty() { [None, None] } else { [plain, folded] };
        Self { pages, layers, search: None, quote, page, span: span.copied(), work: WORK_MAX, all }
    }

    fn find(&mut self, work: &mut usize) -> Option<Stand> {
        loop {
            if let Some(search) = &mut self.search {
                while let Some(at) = search.next_match(work) {
                    if let Some(stand) = search.stand(self.pages, at)
                        && self.page.is_none_or(|page| page == stand.page)
                    {
                        return Some(stand);
                    }
                }
            }
            // Most quotes are found at once, so nothing is prepared before it is needed.
            let layer = self.layers.iter_mut().rev().find_map(Option::take)?;
            self.search = Search::new(layer, self.page, self.quote, self.span.as_ref());
        }
    }
}

impl Iterator for Stands<'_> {
    type Item = Stand;

    fn next(&mut self) -> Option<Stand> {
        let before = self.work.min(self.all.left.get());
        let mut work = before;
        let found = self.find(&mut work);
        let done = before - work;
        self.work = self.work.saturating_sub(done);
        self.all.left.set(self.all.left.get().saturating_sub(done));
        found
    }
}

impl<'a> Search<'a> {
    fn new(layer: &'a Layer, page: Option<usize>, quote: &'a str, span: Option<&Span>) -> Option<Self> {
        let quote = layer.folds.quote(quote);
        let edge = |page: usize| layer.pages.get(page).map(|(start, _)| *start);
        let within = match page {
            Some(page) => edge(page.checked_sub(1)?)?..edge(page)?,
            None => 0..layer.folded.text().len(),
        };
        let within = match span.map(|span| layer.about(span)) {
            Some(about) => within.start.max(about.start)..within.end.min(about.end),
            None => within,
        };
        if quote.text().is_empty() || quote.text().len() > within.len() {
            return None;
        }
        let listed = layer.index.as_ref().and_then(|index| index.rarest(quote.text()));
        let places = match listed {
            Some((places, offset)) => {
                let from = places.partition_point(|place| (*place as usize) < within.start + offset);
                let to = places.partition_point(|place| (*place as usize) < within.end);
                Places::Listed { places: places.get(from..to).unwrap_or_default().iter(), offset }
            }
            None => Places::Read { at: within.start, end: within.end },
        };
        Some(Self { layer, quote, places })
    }

    /// The next byte of the folded text at which the folded quote is written.
    fn next_match(&mut self, work: &mut usize) -> Option<usize> {
        let (text, quote) = (self.layer.folded.text().as_bytes(), self.quote.text().as_bytes());
        match &mut self.places {
            Places::Listed { places, offset } => loop {
                *work = work.checked_sub(PLACE_WORK)?;
                let Some(at) = (*places.next()? as usize).checked_sub(*offset) else { continue };
                let Some(own) = text.get(at..at + quote.len()) else { continue };
                // The first bytes decide nearly always; only then is the rest looked at.
                if own.first() == quote.first() && own.get(..8) == quote.get(..8) {
                    *work = work.checked_sub(quote.len())?;
                    if own == quote {
                        return Some(at);
                    }
                }
            },
            Places::Read { at, end } => {
                let from = *at;
                let own = text.get(from..*end)?;
                *work = work.checked_sub(PLACE_WORK + quote.len())?;
                let found = memmem::find(own, quote);
                *work = work.checked_sub(found.map_or(0, |found| found / 8)).unwrap_or(0);
                let place = from + found?;
                *at = place + 1;
                Some(place)
            }
        }
    }

    /// The place of a match in the source, where it is one: on one page, on token borders, with no other currency.
    fn stand(&self, pages: &[Arc<str>], at: usize) -> Option<Stand> {
        let end = at + self.quote.text().len();
        let (page, folded, source) = self.layer.page_of(at)?;
        if end > folded.end || !self.is_same_currency(at) {
            return None;
        }
        let (start, end) = self.layer.folded.unfolded(at, end)?;
        let (start, end) = (start.checked_sub(source)?, end.checked_sub(source)?);
        let text = pages.get(page)?;
        let stands = end > start && token::is_border(text, start) && token::is_border(text, end);
        stands.then_some(Stand { page: page + 1, range: start..end })
    }

    /// Whether no number of the quote has a currency that the source prints otherwise.
    fn is_same_currency(&self, at: usize) -> bool {
        let printed = self.layer.folded.currencies();
        self.quote.currencies().iter().all(|(number, currency)| {
            let place = at + number;
            let from = printed.partition_point(|(other, _)| *other < place);
            let own = printed.get(from..).unwrap_or_default().iter().take_while(|(other, _)| *other == place);
            own.into_iter().all(|(_, other)| currency.is_same(*other))
        })
    }
}
