//! Sizes and durations, which carry their units.

use std::borrow::Cow;
use std::time::Duration;

use schemars::JsonSchema;
use schemars::Schema;
use schemars::SchemaGenerator;
use schemars::json_schema;
use serde::Deserialize;
use serde::Deserializer;
use serde::de::Error;

/// How a size is written.
pub(super) const SIZE: &str = "^[0-9]{1,10}(B|KiB|MiB|GiB)$";
/// How a duration is written; a `minLength` of 1 stands beside it, since every part may be absent.
pub(super) const DURATION: &str = "^([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s)?([0-9]{1,9}ms)?$";
/// How a price is written.
pub(super) const PRICE: &str = "^(0|[1-9][0-9]{0,8})(\\.[0-9]{1,9})?$";
/// A price in words.
pub(super) const PRICE_HELP: &str =
    "a price: US dollars per million tokens, a decimal in quotes, for example `\"0.25\"`";
/// A size in words.
pub(super) const SIZE_HELP: &str =
    "a size: a whole number with `B`, `KiB`, `MiB` or `GiB` after it, for example `32MiB`";
/// A duration in words.
pub(super) const DURATION_HELP: &str = "a duration: whole numbers with `h`, `m`, `s` or `ms` after them, largest \
     first, for example `10s`, `1m30s` or `250ms`";

/// A number of bytes, as written (`32MiB`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size(pub(super) u64);

/// A span of time, as written (`1m30s`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span(pub(super) Duration);

impl Size {
    /// Reads `512B`, `64KiB`, `32MiB`, `1GiB`. Accepts exactly what [`SIZE`] matches: ten digits of GiB fit a `u64`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let factor: u64 = match text.strip_prefix(digits)? {
            "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return None,
        };
        count(digits, 10)?.checked_mul(factor).map(Self)
    }
}

impl Span {
    /// Reads `10s`, `1m30s`, `250ms`, `1h`. Accepts exactly what [`DURATION`] matches, the empty text excepted.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (mut total, mut rest, mut last) = (Duration::ZERO, text, 0);
        while !rest.is_empty() {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, tail) = rest.split_at(digits);
            let unit = tail.len() - tail.trim_start_matches(|c: char| !c.is_ascii_digit()).len();
            let (unit, tail) = tail.split_at(unit);
            let (order, one) = match unit {
                "h" => (1, Duration::from_secs(3600)),
                "m" => (2, Duration::from_secs(60)),
                "s" => (3, Duration::from_secs(1)),
                "ms" => (4, Duration::from_millis(1)),
                _ => return None,
            };
            if order <= last {
                return None;
            }
            let part = one.checked_mul(u32::try_from(count(number, 9)?).ok()?)?;
            (total, rest, last) = (total.checked_add(part)?, tail, order);
        }
        (last > 0).then_some(Self(total))
    }
}

fn count(digits: &str, most: usize) -> Option<u64> {
    let plain = !digits.is_empty() && digits.len() <= most && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not a size"))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not a duration"))
    }
}

impl JsonSchema for Size {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": SIZE, "examples": ["512B", "64KiB", "32MiB", "1GiB"]})
    }
}

impl JsonSchema for Span {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string", "minLength": 1, "pattern": DURATION, "examples": ["250ms", "10s", "1m30s", "1h"],
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_and_durations_carry_units() {
        assert_eq!(Size::parse("512B"), Some(Size(512)));
        assert_eq!(Size::parse("64KiB"), Some(Size(65_536)));
        assert_eq!(Size::parse("1GiB"), Some(Size(1 << 30)));
        assert_eq!(Size::parse("9999999999GiB"), Some(Size(9_999_999_999 << 30)));
        assert_eq!(Span::parse("1m30s"), Some(Span(Duration::from_secs(90))));
        assert_eq!(Span::parse("250ms"), Some(Span(Duration::from_millis(250))));
        assert_eq!(Span::parse("1h"), Some(Span(Duration::from_secs(3600))));
        for wrong in ["", "32", "32MB", "32 MiB", "-1B", "1.5GiB", "MiB", "99999999999B", "32mib"] {
            assert_eq!(Size::parse(wrong), None, "{wrong}");
        }
        for wrong in ["", "10", "10 s", "s", "30s1m", "1s1s", "1.5s", "1d", "-1s", "10S"] {
            assert_eq!(Span::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn the_pattern_and_the_reader_agree(text in "([0-9]{0,11}(B|KiB|MiB|GiB|h|m|s|ms|x)){0,3}") {
            let pattern = |p: &str| regex::Regex::new(p).unwrap().is_match(&text);
            prop_assert_eq!(Size::parse(&text).is_some(), pattern(SIZE));
            prop_assert_eq!(Span::parse(&text).is_some(), !text.is_empty() && pattern(DURATION));
        }
    }
}
