//! Where the tokens of a text are: a table from a token's hash to its places.

use std::ops::Range;

use ahash::RandomState;

use crate::contract::token;

/// The places of every token. A lookup may give places of other tokens of the same bucket, and never misses one.
#[derive(Debug)]
pub(super) struct Index {
    hasher: RandomState,
    /// Where the places of each bucket begin; one more than there are buckets, which are a power of two.
    starts: Vec<u32>,
    places: Vec<u32>,
}

impl Index {
    /// The tokens of the stretches of `text`, none of which goes over the end of a stretch. What lies beyond 4 GiB has no
    /// place, so that it is never found.
    pub(super) fn of(text: &str, stretches: impl Iterator<Item = Range<usize>>) -> Self {
        let hasher = RandomState::new();
        let mut found: Vec<(u32, u32)> = Vec::with_capacity(text.len() / 6);
        for stretch in stretches {
            let own = text.get(stretch.clone()).unwrap_or_default();
            for token in tokens(own) {
                let Ok(place) = u32::try_from(stretch.start + token.start) else { break };
                let hash = hasher.hash_one(own.as_bytes().get(token).unwrap_or_default());
                found.push((hash as u32, place));
            }
        }
        let buckets = found.len().next_power_of_two();
        let bucket = |hash: u32| hash as usize & (buckets - 1);
        let mut starts = vec![0_u32; buckets + 1];
        for (hash, _) in &found {
            if let Some(count) = starts.get_mut(bucket(*hash) + 1) {
                *count += 1;
            }
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut next = starts.clone();
        let mut places = vec![0_u32; found.len()];
        for (hash, place) in found {
            if let Some(at) = next.get_mut(bucket(hash)) {
                if let Some(slot) = places.get_mut(*at as usize) {
                    *slot = place;
                }
                *at += 1;
            }
        }
        Self { hasher, starts, places }
    }

    /// The places of the rarest token of `quote`, ascending, and where in the quote that token is; none where the quote
    /// has no token.
    pub(super) fn rarest(&self, quote: &str) -> Option<(&[u32], usize)> {
        let places = tokens(quote).map(|token| {
            let at = token.start;
            (self.places_of(quote.as_bytes().get(token).unwrap_or_default()), at)
        });
        places.min_by_key(|(places, _)| places.len())
    }

    fn places_of(&self, token: &[u8]) -> &[u32] {
        let bucket = self.hasher.hash_one(token) as u32 as usize & (self.starts.len().saturating_sub(2));
        let edge = |at: usize| self.starts.get(at).map_or(0, |start| *start as usize);
        self.places.get(edge(bucket)..edge(bucket + 1)).unwrap_or_default()
    }
}

/// Runs of letters, runs of digits, and single letters of scripts without spaces. Every token border is the border of
/// such a run, so a quote that stands on borders begins and ends with whole ones.
fn tokens(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (mut start, mut kind);
        loop {
            start = at;
            (kind, at) = next(text, at)?;
            if kind != Class::None {
                break;
            }
        }
        if kind != Class::Single {
            while let Some((_, after)) = next(text, at).filter(|(own, _)| *own == kind) {
                at = after;
            }
        }
        Some(start..at)
    })
}

/// The class of the character at `at`, and where the next one begins; none at the end.
fn next(text: &str, at: usize) -> Option<(Class, usize)> {
    let byte = *text.as_bytes().get(at)?;
    if byte.is_ascii() {
        return Some((ascii(byte), at + 1));
    }
    let c = text.get(at..)?.chars().next()?;
    Some((class(c), at + c.len_utf8()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    None,
    Letter,
    Digit,
    Single,
}

/// The class of a byte of ASCII, as nearly all that is looked at is.
fn ascii(byte: u8) -> Class {
    match byte {
        b'0'..=b'9' => Class::Digit,
        b'a'..=b'z' | b'A'..=b'Z' | b'_' => Class::Letter,
        _ => Class::None,
    }
}

/// The class of a character beyond ASCII.
fn class(c: char) -> Class {
    match c {
        c if token::is_unspaced(c) => Class::Single,
        c if token::is_word(c) => Class::Letter,
        _ => Class::None,
    }
}
