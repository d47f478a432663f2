//! Violations marked inside a text: a text cut into pieces, so that ranges which nest or overlap can each be shown.

use std::ops::Range;

use serde::Serialize;

use crate::report::shown;

/// Bytes of a piece from which on its middle is left out.
const PIECE_MAX: usize = 4_096;
/// Bytes of a long piece that are shown at either end.
const EDGE: usize = 1_536;
/// Labels that the title of one piece says; the others are counted.
const LABELS_MAX: usize = 5;

/// One mark that is to be made.
#[derive(Clone, Debug)]
pub struct Mark {
    /// What stands beside it, as a number that a list explains.
    pub number: usize,
    /// Bytes of the text.
    pub range: Range<usize>,
    /// What is said of it.
    pub label: String,
}

/// A piece of a text, safe to show, in which the same marks hold from end to end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Piece {
    /// The text.
    pub text: String,
    /// How many marks hold; none is plain text.
    pub depth: usize,
    /// The numbers of the marks that begin here.
    pub begins: String,
    /// What all the marks say.
    pub title: String,
    /// Bytes that are left out after it.
    pub left_out: usize,
}

/// Cuts `text` at the ends of all marks. Joined, the pieces are the text but for what they leave out. A mark beyond the
/// text is drawn back to it, and one of nothing is widened to a character where there is one.
pub fn pieces(text: &str, marks: &[Mark]) -> Vec<Piece> {
    let placed: Vec<(Range<usize>, &Mark)> = marks.iter().map(|mark| (within(text, &mark.range), mark)).collect();
    let mut cuts: Vec<usize> = placed.iter().flat_map(|(range, _)| [range.start, range.end]).collect();
    cuts.extend([0, text.len()]);
    cuts.sort_unstable();
    cuts.dedup();
    let mut out = Vec::with_capacity(cuts.len());
    for (start, end) in cuts.iter().zip(cuts.iter().skip(1)) {
        let holding = || placed.iter().filter(|(range, _)| range.start <= *start && *end <= range.end);
        let begins = |(range, _): &&(Range<usize>, &Mark)| range.start == *start;
        push(
            &mut out,
            text.get(*start..*end).unwrap_or_default(),
            holding().copied_marks(),
            holding().filter(begins).copied_marks(),
        );
    }
    // What is meant may be the end of the text, where no character is left to mark.
    let at_end = || placed.iter().filter(|(range, _)| range.is_empty());
    if at_end().next().is_some() {
        push(&mut out, "", at_end().copied_marks(), at_end().copied_marks());
    }
    out
}

/// The marks of placed ones.
trait CopiedMarks<'m> {
    fn copied_marks(self) -> Vec<&'m Mark>;
}

impl<'p, 'm: 'p, I: Iterator<Item = &'p (Range<usize>, &'m Mark)>> CopiedMarks<'m> for I {
    fn copied_marks(self) -> Vec<&'m Mark> {
        self.map(|(_, mark)| *mark).collect()
    }
}

fn push(out: &mut Vec<Piece>, text: &str, marks: Vec<&Mark>, begins: Vec<&Mark>) {
    let mut title: Vec<String> =
        marks.iter().take(LABELS_MAX).map(|mark| format!("{}. {}", mark.number, shown(&mark.label))).collect();
    if marks.len() > LABELS_MAX {
        title.push(format!("and {} more", marks.len() - LABELS_MAX));
    }
    let mut numbers: Vec<String> = begins.iter().take(LABELS_MAX).map(|mark| mark.number.to_string()).collect();
    if begins.len() > LABELS_MAX {
        numbers.push("…".to_owned());
    }
    let piece = Piece {
        text: String::new(),
        depth: marks.len(),
        begins: numbers.join(","),
        title: title.join("\n"),
        left_out: 0,
    };
    if text.len() <= PIECE_MAX {
        out.push(Piece { text: shown(text), ..piece });
        return;
    }
    let (head, tail) = (floor(text, EDGE), floor(text, text.len() - EDGE));
    let tail_piece =
        Piece { text: shown(text.get(tail..).unwrap_or_default()), begins: String::new(), ..piece.clone() };
    out.push(Piece { text: shown(text.get(..head).unwrap_or_default()), left_out: tail - head, ..piece });
    out.push(tail_piece);
}

fn within(text: &str, range: &Range<usize>) -> Range<usize> {
    let start = floor(text, range.start);
    let end = floor(text, range.end.max(range.start));
    if start < end {
        return start..end;
    }
    let next = text.get(start..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
    start..start + next
}

/// The last place in `text` at or before `at` where a character begins.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mark(number: usize, range: Range<usize>) -> Mark {
        Mark { number, range, label: format!("m{number}") }
    }

    fn drawn(text: &str, marks: &[Mark]) -> String {
        let told = |piece: &Piece| match piece.depth {
            0 => piece.text.clone(),
            depth => format!("[{depth}:{}:{}]", piece.begins, piece.text),
        };
        pieces(text, marks).iter().map(told).collect()
    }

    #[test]
    fn marks_nest_overlap_and_touch() {
        assert_eq!(drawn("abcdef", &[]), "abcdef");
        assert_eq!(drawn("abcdef", &[mark(1, 0..6), mark(2, 2..4)]), "[1:1:ab][2:2:cd][1::ef]");
        assert_eq!(drawn("abcdef", &[mark(1, 1..4), mark(2, 2..5)]), "a[1:1:b][2:2:cd][1::e]f");
        assert_eq!(drawn("abcdef", &[mark(1, 1..2), mark(2, 2..3), mark(3, 1..2)]), "a[2:1,3:b][1:2:c]def");
    }

    #[test]
    fn what_is_empty_or_beyond_the_text_is_drawn_back() {
        assert_eq!(drawn("aéb", &[mark(1, 2..2)]), "a[1:1:é]b");
        assert_eq!(drawn("ab", &[mark(1, 1..900), mark(2, 70..80)]), "a[1:1:b][1:2:]");
        assert_eq!(drawn("", &[mark(1, 0..0)]), "[1:1:]");
        assert_eq!(drawn("", &[]), "");
    }

    #[test]
    fn a_long_text_is_shown_around_its_marks() {
        let text = format!("{}x{}", "é".repeat(40_000), "\u{1b}".repeat(40_000));
        let all = pieces(&text, &[mark(1, 80_000..80_001)]);
        assert!(all.iter().map(|piece| piece.text.len()).sum::<usize>() < 30_000);
        let left_out: usize = all.iter().map(|piece| piece.left_out).sum();
        assert!(left_out > 100_000);
        assert!(all.iter().any(|piece| piece.text == "x" && piece.title == "1. m1"));
    }

    proptest! {
        #[test]
        fn joined_they_are_the_text(text in "[a-zé日 ]{0,40}", ranges in proptest::collection::vec((0usize..60, 0usize..60), 0..8)) {
            let marks: Vec<Mark> = ranges.iter().enumerate().map(|(number, (start, end))| mark(number, *start..*end)).collect();
            let joined: String = pieces(&text, &marks).iter().map(|piece| piece.text.as_str()).collect();
            prop_assert_eq!(joined, text);
        }
    }
}
