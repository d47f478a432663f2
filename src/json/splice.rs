//! Edits of a text in place: what is not edited keeps its bytes, and is not copied.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// Bodies up to this size are copied into one piece; larger ones go out as slices of what came in.
const FLAT_MAX: usize = 64 << 10;

/// A set of edits to one text, each by byte range.
#[derive(Clone, Debug, Default)]
pub struct Splice {
    edits: Vec<Edit>,
}

#[derive(Clone, Debug)]
struct Edit {
    range: Range<usize>,
    with: Bytes,
}

/// Two edits touch the same bytes, or one lies outside the text: a fault of the program, not of the input.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("edits overlap or lie outside the text at byte {0}")]
pub struct SpliceError(usize);

impl Splice {
    /// No edit yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `with` in the place of `range`.
    pub fn replace(&mut self, range: Range<usize>, with: impl Into<Bytes>) {
        self.edits.push(Edit { range, with: with.into() });
    }

    /// Whether no edit touches `range` yet.
    pub fn leaves(&self, range: &Range<usize>) -> bool {
        self.edits.iter().all(|edit| edit.range.end <= range.start || range.end <= edit.range.start)
    }

    /// Puts `with` before byte `at`.
    pub fn insert(&mut self, at: usize, with: impl Into<Bytes>) {
        self.replace(at..at, with);
    }

    /// Takes `range` away.
    pub fn delete(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            self.replace(range, Bytes::new());
        }
    }

    /// Takes members out of an object, with the commas that go with them.
    ///
    /// `members` are all members in their order, each from its key to the end of its value;
    /// `gone` tells which of them to take.
    pub fn remove_members(&mut self, members: &[Range<usize>], gone: impl Fn(usize) -> bool) {
        let Some(kept) = (0..members.len()).find(|index| !gone(*index)) else {
            if let (Some(first), Some(last)) = (members.first(), members.last()) {
                self.delete(first.start..last.end);
            }
            return;
        };
        for (index, member) in members.iter().enumerate().filter(|(index, _)| gone(*index)) {
            if index < kept {
                let next = members.get(index + 1).map_or(member.end, |next| next.start);
                self.delete(member.start..next);
            } else {
                let before =
                    index.checked_sub(1).and_then(|before| members.get(before)).map_or(member.start, |m| m.end);
                self.delete(before..member.end);
            }
        }
    }

    /// The edited text, as pieces in their order. Edits at one place stay in the order they were made.
    pub fn apply(mut self, text: &Bytes) -> Result<Vec<Bytes>, SpliceError> {
        self.edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
        let mut pieces = Vec::with_capacity(2 * self.edits.len() + 1);
        let mut at = 0;
        for edit in self.edits {
            if edit.range.start < at || edit.range.end < edit.range.start || edit.range.end > text.len() {
                return Err(SpliceError(edit.range.start));
            }
            pieces.push(text.slice(at..edit.range.start));
            pieces.push(edit.with);
            at = edit.range.end;
        }
        pieces.push(text.slice(at..));
        pieces.retain(|piece| !piece.is_empty());
        Ok(flattened(pieces))
    }
}

fn flattened(pieces: Vec<Bytes>) -> Vec<Bytes> {
    let length: usize = pieces.iter().map(Bytes::len).sum();
    if pieces.len() < 2 || length > FLAT_MAX {
        return pieces;
    }
    let mut flat = BytesMut::with_capacity(length);
    for piece in pieces {
        flat.extend_from_slice(&piece);
    }
    vec![flat.freeze()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn applied(splice: Splice, text: &str) -> String {
        let pieces = splice.apply(&Bytes::copy_from_slice(text.as_bytes())).unwrap();
        String::from_utf8(pieces.concat()).unwrap()
    }

    #[test]
    fn members_go_with_their_commas() {
        let text = r#"{ "a":1, "b":2 , "c":3 }"#;
        let members = [2..7, 9..14, 17..22];
        for (gone, left) in [
            (vec![0], r#"{ "b":2 , "c":3 }"#),
            (vec![1], r#"{ "a":1 , "c":3 }"#),
            (vec![2], r#"{ "a":1, "b":2 }"#),
            (vec![0, 1], r#"{ "c":3 }"#),
            (vec![1, 2], r#"{ "a":1 }"#),
            (vec![0, 2], r#"{ "b":2 }"#),
            (vec![0, 1, 2], r#"{  }"#),
        ] {
            let mut splice = Splice::new();
            splice.remove_members(&members, |index| gone.contains(&index));
            assert_eq!(applied(splice, text), left, "{gone:?}");
        }
    }

    #[test]
    fn edits_that_overlap_are_an_error() {
        let mut splice = Splice::new();
        splice.delete(0..3);
        splice.delete(2..4);
        assert_eq!(splice.apply(&Bytes::from_static(b"abcdef")), Err(SpliceError(2)));
    }

    #[test]
    fn a_large_text_is_not_copied() {
        let text = Bytes::from(vec![b'x'; FLAT_MAX + 1]);
        let mut splice = Splice::new();
        splice.insert(10, "y");
        let pieces = splice.apply(&text).unwrap();
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces[2].as_ptr(), text[10..].as_ptr());
    }

    proptest! {
        #[test]
        fn every_byte_outside_the_edits_is_kept(
            text in "[a-z]{0,40}",
            cuts in prop::collection::vec((0usize..40, 0usize..5, "[A-Z]{0,3}"), 0..5),
        ) {
            let mut splice = Splice::new();
            let (mut expected, mut at) = (String::new(), 0);
            let mut cuts = cuts;
            cuts.sort();
            for (start, length, with) in cuts {
                let end = start + length;
                if start < at || end > text.len() {
                    continue;
                }
                splice.replace(start..end, with.clone());
                expected.push_str(&text[at..start]);
                expected.push_str(&with);
                at = end;
            }
            expected.push_str(&text[at..]);
            prop_assert_eq!(applied(splice, &text), expected);
        }
    }
}
