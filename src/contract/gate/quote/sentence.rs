//! Where sentences begin and end, by plain rules:
//!
//! - A sentence ends with `.`, `!`, `?`, an ellipsis or their full-width forms, together with the closing quotes and
//!   brackets behind it, where white space or the end of the page follows.
//! - A point ends none behind an abbreviation (`Mr.`, `e.g.`), behind a single letter (`J. Smith`), and, where the next
//!   word begins with a small letter, behind one that can end a sentence too (`etc.`, `p.m.`): many people write no
//!   capitals. Nor does a point inside a number or a name, for no white space follows it.
//! - A paragraph ends at an empty line, at the end of the page, and at any line break behind which the next line does
//!   not begin with a small letter: such a line goes on with the sentence.
//! - A sentence begins where the page, a paragraph or a line begins that goes on with none, behind the mark of a list
//!   at the beginning of its line, and behind the end of the one before; opening quotes and brackets before it belong
//!   to it or not.
//! - A stretch holds more than one sentence where one ends within it for certain: not behind a short word that may be a
//!   title (`Lt. Smith`), nor at a line break alone.

use std::ops::Range;

/// Abbreviations that end no sentence, in small letters and without their last point.
const ABBREVIATIONS: &[&str] = &[
    "mr", "mrs", "ms", "dr", "prof", "st", "sr", "jr", "vs", "e.g", "i.e", "eg", "ie", "cf", "approx", "ca", "fig",
    "inc", "ltd", "corp", "dept", "est", "ext", "no", "nr", "bzw", "z.b", "d.h", "hr", "fr", "tel", "art", "mme",
    "m.e", "incl", "excl", "resp", "vol", "pp", "sec", "gen", "col", "capt", "rev", "hon", "messrs", "max", "min",
    "acct",
];
/// Abbreviations that end no sentence where the next word begins with a small letter.
const BEFORE_SMALL: &[&str] = &[
    "etc", "a.m", "p.m", "am", "pm", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov",
    "dec", "mon", "tue", "tues", "wed", "thu", "thur", "thurs", "fri", "sat", "sun", "hrs", "mins", "secs", "co", "al",
    "ave", "rd", "blvd", "u.s", "u.k", "usw", "bn", "mn",
];
/// Characters back to which a word is looked at.
const WORD_MAX: usize = 12;

/// Letters of the longest word before a point that may be a title.
const TITLE_MAX: usize = 4;

/// Why the stretch is no sentence, in words that follow it; none where it is one, from its beginning to its end.
pub(super) fn fault(page: &str, range: &Range<usize>) -> Option<&'static str> {
    if !(begins(page, range.start) && ends(page, range.end)) {
        return Some("stands only as a part of a sentence");
    }
    is_several(page.get(range.clone()).unwrap_or_default()).then_some("is more than one sentence")
}

/// Whether a sentence ends within the stretch, and another begins.
fn is_several(stretch: &str) -> bool {
    stretch.match_indices(char::is_whitespace).any(|(at, _)| {
        let before = stretch.get(..at).unwrap_or_default();
        if before.ends_with(char::is_whitespace) {
            return false; // the first of a run has spoken for it, so that a long one is read once
        }
        let next = stretch.get(at..).unwrap_or_default().trim_start();
        let left = before.strip_suffix('.').unwrap_or_default();
        let (head, word) = left.split_at(left.trim_end_matches(char::is_alphabetic).len());
        let title = !head.is_empty() && word.starts_with(char::is_uppercase) && word.chars().count() <= TITLE_MAX;
        !next.is_empty() && !title && closes(before, stretch, stretch.len() - next.len())
    })
}

fn is_mark(c: char) -> bool {
    matches!(c, '.' | '!' | '?' | '\u{2026}' | '\u{3002}' | '\u{ff01}' | '\u{ff1f}')
}

fn is_closing(c: char) -> bool {
    matches!(c, '"' | '\'' | ')' | ']' | '\u{201d}' | '\u{2019}' | '\u{201c}' | '\u{bb}' | '\u{ab}' | '\u{300d}')
}

fn is_opening(c: char) -> bool {
    matches!(
        c,
        '"' | '\'' | '(' | '[' | '\u{201c}' | '\u{2018}' | '\u{201e}' | '\u{201a}' | '\u{ab}' | '\u{bb}' | '\u{300c}'
    )
}

/// Whether a sentence begins at byte `at`.
fn begins(page: &str, at: usize) -> bool {
    let before = page.get(..at).unwrap_or_default().trim_end_matches(is_opening);
    let gap = before.trim_end();
    let white = before.get(gap.len()..).unwrap_or_default();
    gap.is_empty()
        || is_listed(before)
        || (!white.is_empty() && (breaks(white, page.get(at..).unwrap_or_default()) || closes(gap, page, at)))
}

/// Whether the mark of a list stands before, with a blank behind it and nothing before it on its line.
fn is_listed(before: &str) -> bool {
    let blank = [' ', '\t', '\u{a0}'];
    let gap = before.trim_end_matches(blank);
    // A mark has three characters at the most, so no line is read through, however often a quote stands in it.
    let mark = gap.char_indices().rev().take(3).take_while(|(_, c)| !c.is_whitespace()).last();
    let start = mark.map_or(gap.len(), |(start, _)| start);
    let (line, mark) = gap.split_at_checked(start).unwrap_or_default();
    let opens = line.trim_end_matches(blank);
    let count = mark.strip_suffix(['.', ')']).unwrap_or_default();
    let number = (1..=2).contains(&count.len()) && count.bytes().all(|byte| byte.is_ascii_digit());
    let letter = mark.ends_with(')') && count.len() == 1 && count.bytes().all(|byte| byte.is_ascii_alphabetic());
    gap.len() < before.len()
        && (opens.is_empty() || opens.ends_with('\n'))
        && (number || letter || matches!(mark, "-" | "*" | "+" | "\u{2022}" | "\u{2013}" | "\u{2192}"))
}

/// Whether a sentence ends at byte `at`.
fn ends(page: &str, at: usize) -> bool {
    let (before, after) = (page.get(..at).unwrap_or_default(), page.get(at..).unwrap_or_default());
    let rest = after.trim_start_matches(is_closing);
    let next = rest.trim_start();
    let white = rest.get(..rest.len() - next.len()).unwrap_or_default();
    if next.is_empty() || (!white.is_empty() && breaks(white, next)) {
        return true;
    }
    !white.is_empty() && closes(before, page, page.len() - next.len())
}

/// Whether a paragraph ends in this white space before `next`.
fn breaks(white: &str, next: &str) -> bool {
    let lines = white.bytes().filter(|byte| *byte == b'\n').count();
    let small = next.trim_start_matches(is_opening).starts_with(char::is_lowercase);
    let lettered = next.as_bytes().get(1) == Some(&b')'); // `b) ` begins a line of a list
    lines > 1 || (lines == 1 && (!small || lettered))
}

/// Whether what stands before a gap closes a sentence, with the next word at `next`.
fn closes(before: &str, page: &str, next: usize) -> bool {
    let own = before.trim_end_matches(is_closing);
    let Some(mark) = own.chars().next_back().filter(|c| is_mark(*c)) else { return false };
    let next = page.get(next..).unwrap_or_default().trim_start_matches(is_opening);
    let small = next.starts_with(char::is_lowercase);
    if small && own.len() < before.len() {
        return false; // `rename it to "Who am I?" and share it`
    }
    if mark != '.' {
        return true;
    }
    let word = own.strip_suffix('.').unwrap_or(own);
    let start = word.char_indices().rev().take(WORD_MAX).take_while(|(_, c)| c.is_alphanumeric() || *c == '.').last();
    let word = start.and_then(|(start, _)| word.get(start..)).unwrap_or_default().to_lowercase();
    let letter = word.chars().count() == 1 && word.chars().all(char::is_alphabetic) && word != "i";
    // `No.` is an answer, and `No. 5` is not.
    let number = word != "no" || next.starts_with(|c: char| c.is_ascii_digit());
    let is_in = |list: &[&str]| list.contains(&word.as_str());
    !(letter || (number && is_in(ABBREVIATIONS)) || (small && is_in(BEFORE_SMALL)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Why the part between the bars is no sentence.
    fn found(marked: &str) -> Option<&'static str> {
        let parts: Vec<&str> = marked.split('|').collect();
        fault(&parts.concat(), &(parts[0].len()..parts[0].len() + parts[1].len()))
    }

    #[test]
    fn sentences_are_told_by_their_marks() {
        for marked in [
            "|Please reset it.|",
            "rows vanish when i sort. |please restore it.| thanks",
            "Closed at 5 p.m. |Please call.|",
            "It broke. |Please reset it.| Thanks!",
            "Ticket: HD-1234\n|Please reset it|",
            "Ticket: HD-1234\n|Please reset it|\nBye",
            "It broke! |Could you reset\nit for me?|",
            "He said \u{201c}no.\u{201d} |Please reset it.|",
            "x? |\"Please reset it.\"|",
            "x? \"|Please reset it.|\"",
            "A. Then J. Smith left. |Ask Mr. Smith, e.g. today.| Bye.",
            "It is i. |Reset 3.5 of v1.2.| 4 remain.",
            "|No.| Please go.",
            "|Two.| Three.",
            "It broke\u{2026} |Reset it.|",
            "Two things:\n- it is slow\n- |please replace it|\nBye",
            "x:\n 2) |please replace it.|\n 3) thanks",
            "x:\n\u{2022} |please replace it.|",
            "x:\n b) |please replace it.|",
            "x:\na) |please replace it|\nb) thanks",
            "|Please rename it to \"Who am I?\" and share it.|",
            "|Please ask Lt. Smith, Sgt. Pepper and J. Doe by 5 p.m. today.|",
            "|Please reset\nMFA for me at 3.5 Main St. in \u{201c}Rome\u{201d}.|",
        ] {
            assert_eq!(found(marked), None, "{marked}");
        }
    }

    #[test]
    fn hostile_texts_end() {
        assert_eq!(found(&format!("|a{}b.|", " ".repeat(400_000))), None);
        let page = format!("{}a.", "x ".repeat(400_000));
        assert!((0..10_000).all(|_| !is_listed(&page)));
    }

    #[test]
    fn two_sentences_are_not_one() {
        for marked in [
            "|One. Two.| Three.",
            "|Could you set it back? I'm in no hurry.|",
            "|It broke! Please reset it.|",
            "|Please reset it.\nThanks.|",
            "|He said \u{201c}no.\u{201d} Please reset it.|",
        ] {
            assert_eq!(found(marked), Some("is more than one sentence"), "{marked}");
        }
    }

    #[test]
    fn parts_of_sentences_are_none() {
        for marked in [
            "|Please reset| it.",
            "Please |reset it.|",
            "Please do\n|reset it.|",
            "|Please do|\nreset it.",
            "Ask Mr. |Smith today.|",
            "Call at 5 p.m. |please do it.|",
            "Phones, tablets etc. |are broken.|",
            "Use e.g. |Reset it.|",
            "|Use No.| 5 please.",
            "|See v1.|2 for it.",
            "It broke.|Please reset it.|",
            "|Please reset it|. Thanks",
            "J. |Smith left.|",
            "Wait, |Please reset it.|",
            "see 3 - |please reset it.|",
            "x\n-|please reset it.|",
            "x\n- a |please reset it.|",
            "x\nbc) |please reset it.|",
            "Rename it to \"Who am I?\" |and share it.|",
        ] {
            assert_eq!(found(marked), Some("stands only as a part of a sentence"), "{marked}");
        }
    }
}
