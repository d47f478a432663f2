//! Reports for people, and the one form in which a verdict is told to programs.

pub mod golden;
pub mod html;
pub mod junit;
pub mod marks;
pub mod outcome;
pub mod text;

/// A character as it is safe to show: what would steer a terminal, turn the line round or break a file format stands as
/// a picture of itself, or as the replacement character. Line ends and tabs are left to the caller.
pub fn visible(c: char) -> char {
    match c {
        '\n' | '\t' => c,
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'),
        '\u{7f}' => '\u{2421}',
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}', // XML 1.0 cannot hold them
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// A text as it is safe to show; see [`visible`].
pub fn shown(text: &str) -> String {
    text.chars().map(visible).collect()
}

/// A count with its thousands parted.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_shown_steers_a_terminal() {
        let text = shown("a\u{1b}[31m\u{0}\u{7f}\u{9b}2J\u{202e}b\r\né\t日");
        assert_eq!(text, "a␛[31m␀␡\u{fffd}2J\u{fffd}b␍\né\t日");
    }

    #[test]
    fn counts_are_parted_in_threes() {
        let told: Vec<String> = [0, 999, 1_000, 1_234_567].into_iter().map(count).collect();
        assert_eq!(told, ["0", "999", "1,000", "1,234,567"]);
    }
}
