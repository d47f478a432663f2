//! Patterns that policies bring: they match in linear time and take bounded memory, or are refused when they are loaded.

use regex::Regex;
use regex::RegexBuilder;

/// Bytes that a compiled pattern may take. Matching takes time in proportion to it, too.
pub const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Compiles a pattern.
///
/// # Errors
/// What is wrong with it, in one line: it is none, it asks for what does not run in linear time, or it is too large.
pub fn pattern(text: &str) -> Result<Regex, String> {
    RegexBuilder::new(text).size_limit(PATTERN_BYTES_MAX).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(limit) => format!("the pattern takes more than {limit} bytes"),
        // The last line says what is wrong; the ones before it draw the whole pattern.
        other => {
            let told = other.to_string();
            let last = told.lines().last().unwrap_or_default().trim_start_matches("error: ");
            format!("not a regular expression: {last}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_said_in_one_line() {
        assert!(pattern(r"(?i)\bREF-[0-9]{4}\b").unwrap().is_match("ref-0012"));
        for (text, said) in [
            ("(a", "not a regular expression: unclosed group"),
            (
                r"(?=a)b",
                "not a regular expression: look-around, including look-ahead and look-behind, is not supported",
            ),
            (r"(a)\1", "not a regular expression: backreferences are not supported"),
            ("(?:a{1000}){1000}", "the pattern takes more than 1048576 bytes"),
            (r"\w{500}", "the pattern takes more than 1048576 bytes"),
        ] {
            assert_eq!(pattern(text).unwrap_err(), said, "{text}");
        }
    }
}
