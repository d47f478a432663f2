//! Exact decimals on a number's own text. Nothing here is ever a float, so that `0.1 + 0.2` is `0.3` and twenty digits
//! stay twenty digits.

use std::cmp::Ordering;
use std::fmt;
use std::hash::Hash;
use std::hash::Hasher;
use std::str::FromStr;

use num_bigint::BigInt;
use num_bigint::Sign;

/// Digits that a number may have as it is read, written out without an exponent.
pub const DIGITS_MAX: usize = 1_000;
/// The largest exponent, either way.
pub const EXPONENT_MAX: i64 = 400;
/// Digits that a result may have: any two numbers that were read can be added and multiplied.
const RESULT_DIGITS_MAX: usize = 2 * DIGITS_MAX;
/// Powers of ten that an `i128` holds.
const SMALL_DIGITS: u32 = 38;

/// An exact decimal: an integer and how many of its digits stand after the point.
///
/// Equality, order and hash go by value: `1.10` is `1.1`. [`places`](Self::places) keeps what was printed.
#[derive(Clone, Debug)]
pub struct Decimal {
    mantissa: Mantissa,
    scale: u32,
}

/// The digits, in a machine word where they fit.
#[derive(Clone, Debug)]
enum Mantissa {
    Small(i128),
    /// Beyond an `i128`: what fits is always `Small`.
    Big(BigInt),
}

/// Why a text or a calculation yields no decimal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecimalError {
    /// The text breaks the number grammar of RFC 8259 section 6.
    #[error("not a number as JSON writes it")]
    Grammar,
    /// The exponent is out of bounds.
    #[error("an exponent beyond {EXPONENT_MAX}")]
    Exponent,
    /// More digits than are calculated with.
    #[error("more digits than are calculated with: at most {DIGITS_MAX} a number")]
    TooLong,
    /// A division by zero.
    #[error("a division by zero")]
    DivideByZero,
    /// A quotient whose digits do not end within the bound.
    #[error("a quotient that has no exact decimal")]
    Endless,
}

impl Decimal {
    /// Zero.
    pub const ZERO: Self = Self { mantissa: Mantissa::Small(0), scale: 0 };

    /// The number that `text` writes, by the grammar of RFC 8259 section 6 and nothing else: no white space, no `+`,
    /// no bare point.
    ///
    /// # Errors
    /// Where the text is no such number, its exponent is beyond [`EXPONENT_MAX`], or it has more than [`DIGITS_MAX`]
    /// digits once the exponent is applied.
    pub fn read(text: &str) -> Result<Self, DecimalError> {
        let (negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (number, exponent) = match rest.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, read_exponent(exponent)?),
            None => (rest, 0),
        };
        let (whole, fraction) = match number.split_once('.') {
            Some((_, "")) => return Err(DecimalError::Grammar),
            Some(parts) => parts,
            None => (number, ""),
        };
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || (whole.len() > 1 && whole.starts_with('0')) || !digits(whole) || !digits(fraction) {
            return Err(DecimalError::Grammar);
        }
        if exponent.abs() > EXPONENT_MAX {
            return Err(DecimalError::Exponent);
        }
        Self::of_digits(negative, whole, fraction, exponent)
    }

    /// The number of these ASCII digits around a decimal point, times ten to `exponent`.
    ///
    /// # Errors
    /// Where anything but a digit stands in them, and for the bounds of [`Decimal::read`].
    pub fn of_digits(negative: bool, whole: &str, fraction: &str, exponent: i64) -> Result<Self, DecimalError> {
        let whole = whole.trim_start_matches('0');
        let written = whole.len().saturating_add(fraction.len());
        if written > DIGITS_MAX {
            return Err(DecimalError::TooLong);
        }
        let mantissa = if written <= SMALL_DIGITS as usize {
            let mut value: i128 = 0;
            for byte in whole.bytes().chain(fraction.bytes()) {
                if !byte.is_ascii_digit() {
                    return Err(DecimalError::Grammar);
                }
                value = value * 10 + i128::from(byte - b'0');
            }
            Mantissa::Small(if negative { -value } else { value })
        } else {
            let value = BigInt::from_str(&[whole, fraction].concat()).map_err(|_| DecimalError::Grammar)?;
            Mantissa::of(if negative { -value } else { value })
        };
        let scale = i64::try_from(fraction.len()).unwrap_or(i64::MAX).saturating_sub(exponent);
        Self { mantissa, scale: 0 }.scaled(scale, DIGITS_MAX)
    }

    /// Digits after the point, as printed: 2 for `1.10`, 7 for `1e-7`, 0 for `1e2`.
    pub fn places(&self) -> u32 {
        self.scale
    }

    /// Half a unit in the last of `places` digits after the point: 0.005 for 2, 0.5 for 0, 500 for -3.
    ///
    /// # Errors
    /// Where the places are beyond the bounds of a number.
    pub fn half_unit(places: i32) -> Result<Self, DecimalError> {
        Self { mantissa: Mantissa::Small(5), scale: 0 }.scaled(i64::from(places) + 1, DIGITS_MAX)
    }

    /// This number times ten to `power`, so `12.5` by 3 is `12500`.
    ///
    /// # Errors
    /// Where the result has more digits than are calculated with.
    pub fn shifted(&self, power: i32) -> Result<Self, DecimalError> {
        self.clone().scaled(i64::from(self.scale) - i64::from(power), RESULT_DIGITS_MAX)
    }

    /// The sum.
    ///
    /// # Errors
    /// Where it has more digits than are calculated with.
    pub fn add(&self, other: &Self) -> Result<Self, DecimalError> {
        let scale = self.scale.max(other.scale);
        if let (Some(a), Some(b)) = (self.small_at(scale), other.small_at(scale))
            && let Some(sum) = a.checked_add(b)
        {
            return Ok(Self { mantissa: Mantissa::Small(sum), scale });
        }
        Self { mantissa: Mantissa::of(self.big_at(scale) + other.big_at(scale)), scale }.bounded()
    }

    /// The difference.
    ///
    /// # Errors
    /// Where it has more digits than are calculated with.
    pub fn sub(&self, other: &Self) -> Result<Self, DecimalError> {
        self.add(&other.neg())
    }

    /// The product; its places are those of both factors.
    ///
    /// # Errors
    /// Where it has more digits than are calculated with.
    pub fn mul(&self, other: &Self) -> Result<Self, DecimalError> {
        let scale = self.scale.saturating_add(other.scale);
        if let (Mantissa::Small(a), Mantissa::Small(b)) = (&self.mantissa, &other.mantissa)
            && let Some(product) = a.checked_mul(*b)
        {
            return Self { mantissa: Mantissa::Small(product), scale }.bounded();
        }
        Self { mantissa: Mantissa::of(self.mantissa.big() * other.mantissa.big()), scale }.bounded()
    }

    /// The quotient, where it has an exact decimal; with as few places as it needs.
    ///
    /// # Errors
    /// For a division by zero, and where the digits do not end within the bound.
    pub fn div(&self, other: &Self) -> Result<Self, DecimalError> {
        if other.is_zero() {
            return Err(DecimalError::DivideByZero);
        }
        let mut left = other.mantissa.big();
        let (mut twos, mut fives) = (0_u32, 0_u32);
        for (factor, count) in [(2_u32, &mut twos), (5, &mut fives)] {
            while (&left % factor) == BigInt::ZERO {
                left /= factor;
                *count += 1;
            }
        }
        let power = twos.max(fives);
        let numerator = self.mantissa.big();
        if power as usize > 4 * RESULT_DIGITS_MAX || (&numerator % &left) != BigInt::ZERO {
            return Err(DecimalError::Endless);
        }
        let mut mantissa = numerator * ten_to(power) / other.mantissa.big();
        let mut scale = i64::from(self.scale) - i64::from(other.scale) + i64::from(power);
        while scale > 0 && (&mantissa % 10_u32) == BigInt::ZERO {
            mantissa /= 10_u32;
            scale -= 1;
        }
        Self { mantissa: Mantissa::of(mantissa), scale: 0 }.scaled(scale, RESULT_DIGITS_MAX)
    }

    /// What a division to a whole quotient leaves, with the sign of this number: `-7 rem 2` is `-1`.
    ///
    /// # Errors
    /// For a division by zero.
    pub fn rem(&self, other: &Self) -> Result<Self, DecimalError> {
        if other.is_zero() {
            return Err(DecimalError::DivideByZero);
        }
        let scale = self.scale.max(other.scale);
        Self { mantissa: Mantissa::of(self.big_at(scale) % other.big_at(scale)), scale }.bounded()
    }

    /// The same number with the other sign.
    #[must_use]
    pub fn neg(&self) -> Self {
        let mantissa = match &self.mantissa {
            Mantissa::Small(value) => match value.checked_neg() {
                Some(value) => Mantissa::Small(value),
                None => Mantissa::of(-BigInt::from(*value)),
            },
            Mantissa::Big(value) => Mantissa::of(-value),
        };
        Self { mantissa, scale: self.scale }
    }

    /// The number without its sign.
    #[must_use]
    pub fn abs(&self) -> Self {
        if self.is_negative() { self.neg() } else { self.clone() }
    }

    /// Whether it is below zero.
    pub fn is_negative(&self) -> bool {
        match &self.mantissa {
            Mantissa::Small(value) => *value < 0,
            Mantissa::Big(value) => value.sign() == Sign::Minus,
        }
    }

    /// Whether it is zero.
    pub fn is_zero(&self) -> bool {
        matches!(self.mantissa, Mantissa::Small(0))
    }

    /// The whole number that this is by value, `4` for `4.00`; none where it has a fraction or does not fit.
    pub fn to_i64(&self) -> Option<i64> {
        let (mantissa, scale) = self.shortest();
        match mantissa {
            Mantissa::Small(value) if scale == 0 => i64::try_from(value).ok(),
            _ => None,
        }
    }

    /// Whether it has nothing but zeros after the point.
    pub fn is_whole(&self) -> bool {
        self.shortest().1 == 0
    }

    /// The same value with `scale` digits after the point, where a negative scale appends zeros.
    fn scaled(self, scale: i64, digits_max: usize) -> Result<Self, DecimalError> {
        if let Ok(scale) = u32::try_from(scale) {
            return if self.is_zero() && scale as usize > digits_max {
                Err(DecimalError::TooLong)
            } else {
                Self { scale, ..self }.bounded_to(digits_max)
            };
        }
        if self.is_zero() {
            return Ok(Self::ZERO);
        }
        let power = u32::try_from(scale.unsigned_abs()).map_err(|_| DecimalError::TooLong)?;
        if power as usize > digits_max {
            return Err(DecimalError::TooLong);
        }
        let mantissa = match self.mantissa {
            Mantissa::Small(value) => power_of_ten(power).and_then(|factor| value.checked_mul(factor)),
            Mantissa::Big(_) => None,
        };
        let mantissa = match mantissa {
            Some(value) => Mantissa::Small(value),
            None => Mantissa::of(self.mantissa.big() * ten_to(power)),
        };
        Self { mantissa, scale: 0 }.bounded_to(digits_max)
    }

    fn bounded(self) -> Result<Self, DecimalError> {
        self.bounded_to(RESULT_DIGITS_MAX)
    }

    /// Refuses a number of more than `max` digits, written out.
    fn bounded_to(self, max: usize) -> Result<Self, DecimalError> {
        let long = match &self.mantissa {
            Mantissa::Small(_) => false, // at most 39 digits
            // A digit takes more than 3.3219 bits, so most numbers are decided without being written out.
            Mantissa::Big(value) => {
                value.bits() > 4 * max as u64 || (value.bits() > 3 * max as u64 && digits_of(value) > max)
            }
        };
        if long || self.scale as usize > max { Err(DecimalError::TooLong) } else { Ok(self) }
    }

    /// The mantissa at a scale of no fewer digits, where it fits a machine word.
    fn small_at(&self, scale: u32) -> Option<i128> {
        let Mantissa::Small(value) = self.mantissa else { return None };
        value.checked_mul(power_of_ten(scale.checked_sub(self.scale)?)?)
    }

    /// The mantissa at a scale of no fewer digits.
    fn big_at(&self, scale: u32) -> BigInt {
        self.mantissa.big() * ten_to(scale.saturating_sub(self.scale))
    }

    /// The one form of this value: no zero at the end of its fraction.
    fn shortest(&self) -> (Mantissa, u32) {
        let mut scale = self.scale;
        let mantissa = match &self.mantissa {
            Mantissa::Small(value) => {
                let mut value = *value;
                while scale > 0 && value % 10 == 0 {
                    value /= 10;
                    scale -= 1;
                }
                Mantissa::Small(value)
            }
            Mantissa::Big(value) => {
                let mut value = value.clone();
                while scale > 0 && (&value % 10_u32) == BigInt::ZERO {
                    value /= 10_u32;
                    scale -= 1;
                }
                Mantissa::of(value)
            }
        };
        (mantissa, scale)
    }
}

impl Mantissa {
    fn of(value: BigInt) -> Self {
        match i128::try_from(&value) {
            Ok(small) => Self::Small(small),
            Err(_) => Self::Big(value),
        }
    }

    fn big(&self) -> BigInt {
        match self {
            Self::Small(value) => BigInt::from(*value),
            Self::Big(value) => value.clone(),
        }
    }
}

fn power_of_ten(power: u32) -> Option<i128> {
    10_i128.checked_pow(power)
}

fn ten_to(power: u32) -> BigInt {
    power_of_ten(power).map_or_else(|| BigInt::from(10_u32).pow(power), BigInt::from)
}

fn digits_of(value: &BigInt) -> usize {
    value.magnitude().to_string().len()
}

/// The exponent after `e`, saturating far beyond the bound.
fn read_exponent(text: &str) -> Result<i64, DecimalError> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, text.get(1..).unwrap_or_default()),
        Some(b'+') => (false, text.get(1..).unwrap_or_default()),
        _ => (false, text),
    };
    if digits.is_empty() {
        return Err(DecimalError::Grammar);
    }
    let mut value: i64 = 0;
    for byte in digits.bytes() {
        if !byte.is_ascii_digit() {
            return Err(DecimalError::Grammar);
        }
        value = (value * 10 + i64::from(byte - b'0')).min(EXPONENT_MAX * 10);
    }
    Ok(if negative { -value } else { value })
}

impl From<i64> for Decimal {
    fn from(value: i64) -> Self {
        Self { mantissa: Mantissa::Small(i128::from(value)), scale: 0 }
    }
}

impl From<u64> for Decimal {
    fn from(value: u64) -> Self {
        Self { mantissa: Mantissa::Small(i128::from(value)), scale: 0 }
    }
}

impl FromStr for Decimal {
    type Err = DecimalError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::read(text)
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Decimal {}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let scale = self.scale.max(other.scale);
        match (self.small_at(scale), other.small_at(scale)) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => self.big_at(scale).cmp(&other.big_at(scale)),
        }
    }
}

impl Hash for Decimal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (mantissa, scale) = self.shortest();
        scale.hash(state);
        match mantissa {
            Mantissa::Small(value) => value.hash(state),
            Mantissa::Big(value) => value.hash(state),
        }
    }
}

/// Plain digits with the places that it has, never an exponent: `0.0000001`.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = match &self.mantissa {
            Mantissa::Small(value) => value.unsigned_abs().to_string(),
            Mantissa::Big(value) => value.magnitude().to_string(),
        };
        let places = self.scale as usize;
        let padded = format!("{digits:0>width$}", width = places + 1);
        let (whole, fraction) = padded.split_at_checked(padded.len() - places).unwrap_or((&padded, ""));
        let point = if fraction.is_empty() { "" } else { "." };
        f.pad_integral(!self.is_negative(), "", &format!("{whole}{point}{fraction}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::json::compare::same_number;

    fn dec(text: &str) -> Decimal {
        Decimal::read(text).unwrap()
    }

    #[test]
    fn a_tenth_and_two_tenths_are_three_tenths() {
        assert_eq!(dec("0.1").add(&dec("0.2")).unwrap(), dec("0.3")); // gate-021
        assert_eq!(dec("12345678901234567890.10").add(&dec("0.01")).unwrap().to_string(), "12345678901234567890.11");
        assert_eq!(dec("3").mul(&dec("0.10")).unwrap().to_string(), "0.30");
        assert_eq!(dec("1").sub(&dec("1e-7")).unwrap().to_string(), "0.9999999");
    }

    #[test]
    fn the_grammar_is_that_of_json() {
        for text in ["0", "-0", "10", "-1.50", "1e2", "1E+2", "1e-7", "0.0", "0e5", "12.5e1"] {
            assert!(Decimal::read(text).is_ok(), "{text}");
        }
        for text in [
            "", "-", "+1", "01", "-01", ".5", "1.", "1.e2", "1e", "1e+", "1e1.5", "1_000", "1,000", " 1", "1 ", "0x1",
            "NaN", "Infinity", "--1", "1-", "1.2.3", "1e2e3", "٣", "1\u{a0}", "1\n", "½",
        ] {
            assert_eq!(Decimal::read(text), Err(DecimalError::Grammar), "{text}");
        }
    }

    #[test]
    fn a_thousand_digits_are_the_bound_and_an_exponent_counts() {
        assert!(Decimal::read(&"9".repeat(1_000)).is_ok());
        assert_eq!(Decimal::read(&"9".repeat(1_001)), Err(DecimalError::TooLong));
        assert!(Decimal::read(&format!("0.{}", "1".repeat(1_000))).is_ok());
        assert_eq!(Decimal::read(&format!("0.{}", "1".repeat(1_001))), Err(DecimalError::TooLong));
        assert!(Decimal::read(&format!("{}e400", "9".repeat(600))).is_ok());
        assert_eq!(Decimal::read(&format!("{}e400", "9".repeat(601))), Err(DecimalError::TooLong));
        assert!(Decimal::read(&format!("0.{}e-400", "1".repeat(600))).is_ok());
        assert_eq!(Decimal::read(&format!("0.{}e-400", "1".repeat(601))), Err(DecimalError::TooLong));
        assert!(Decimal::read("1e400").is_ok());
        assert_eq!(Decimal::read("1e401"), Err(DecimalError::Exponent));
        assert_eq!(Decimal::read("1e-401"), Err(DecimalError::Exponent));
        assert_eq!(Decimal::read(&format!("1e{}", "9".repeat(5_000))), Err(DecimalError::Exponent));
        assert_eq!(Decimal::read(&format!("1e{}7", "0".repeat(5_000))).unwrap(), dec("1e7"));
        assert_eq!(dec("0e400"), Decimal::ZERO);
    }

    #[test]
    fn results_are_bounded_too() {
        let long = dec(&"9".repeat(1_000));
        let square = long.mul(&long).unwrap();
        assert!(long.add(&dec(&format!("0.{}", "9".repeat(1_000)))).is_ok());
        assert_eq!(square.mul(&dec("10")), Err(DecimalError::TooLong));
        assert_eq!(square.add(&square.clone()).and_then(|sum| sum.mul(&dec("10"))), Err(DecimalError::TooLong));
        let small = dec(&format!("0.{}1", "0".repeat(999)));
        assert_eq!(small.mul(&small).and_then(|tiny| tiny.mul(&small)), Err(DecimalError::TooLong));
    }

    #[test]
    fn value_decides_and_places_stay() {
        assert_eq!(dec("1.10"), dec("1.1"));
        assert_eq!(dec("-0.0"), Decimal::ZERO);
        assert!(dec("-2") < dec("-1.5") && dec("9007199254740993") > dec("9007199254740992"));
        assert!(dec(&"9".repeat(60)) > dec(&"9".repeat(59)));
        assert_eq!(["1.10", "1e-7", "1e2", "1.5e1", "1.50e1"].map(|text| dec(text).places()), [2, 7, 0, 0, 1]);
        assert_eq!(HashSet::from([dec("1.10"), dec("1.1"), dec("11e-1")]).len(), 1);
    }

    #[test]
    fn half_a_unit_in_the_last_place() {
        let half = |places| Decimal::half_unit(places).unwrap().to_string();
        assert_eq!([half(2), half(0), half(-3), half(-1)], ["0.005", "0.5", "500", "5"]);
        assert!(Decimal::half_unit(i32::MAX).is_err() && Decimal::half_unit(i32::MIN).is_err());
    }

    #[test]
    fn a_quotient_is_exact_or_none() {
        let quotient = |a: &str, b: &str| dec(a).div(&dec(b)).map(|value| value.to_string());
        assert_eq!(quotient("1", "8").unwrap(), "0.125");
        assert_eq!(quotient("90.00", "3").unwrap(), "30");
        assert_eq!(quotient("1", "0.05").unwrap(), "20");
        assert_eq!(quotient("-7.5", "2.5").unwrap(), "-3");
        assert_eq!(quotient("1", "3"), Err(DecimalError::Endless));
        assert_eq!(quotient("1", "0.00"), Err(DecimalError::DivideByZero));
        assert_eq!(dec("-7").rem(&dec("2")).unwrap(), dec("-1"));
        assert_eq!(dec("7.5").rem(&dec("2")).unwrap(), dec("1.5"));
    }

    #[test]
    fn whole_numbers_are_known_by_value() {
        assert_eq!(dec("4.00").to_i64(), Some(4));
        assert_eq!(dec("4.01").to_i64(), None);
        assert_eq!(dec("9223372036854775808").to_i64(), None);
        assert!(dec(&"9".repeat(99)).is_whole() && !dec("0.5").is_whole());
        assert_eq!(dec("1.25").shifted(3).unwrap(), dec("1250"));
        assert_eq!(dec("15").shifted(-2).unwrap().to_string(), "0.15");
    }

    fn number() -> impl Strategy<Value = String> {
        "-?(0|[1-9][0-9]{0,45})(\\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?"
    }

    proptest! {
        #[test]
        fn equality_agrees_with_that_of_json(a in number(), b in number()) {
            prop_assert_eq!(dec(&a) == dec(&b), same_number(&a, &b));
            prop_assert!(same_number(&a, &dec(&a).to_string()), "{} {}", a, dec(&a));
        }

        #[test]
        fn sums_and_products_keep_the_laws(a in number(), b in number(), c in number()) {
            let (a, b, c) = (dec(&a), dec(&b), dec(&c));
            prop_assert_eq!(a.add(&b).unwrap(), b.add(&a).unwrap());
            prop_assert_eq!(a.add(&b).unwrap().sub(&b).unwrap(), a.clone());
            let left = a.mul(&b.add(&c).unwrap()).unwrap();
            prop_assert_eq!(left, a.mul(&b).unwrap().add(&a.mul(&c).unwrap()).unwrap());
            if !b.is_zero() {
                prop_assert_eq!(a.mul(&b).unwrap().div(&b).unwrap(), a.clone());
            }
            prop_assert_eq!(a.cmp(&b), a.sub(&b).unwrap().cmp(&Decimal::ZERO));
        }

        #[test]
        fn words_and_bytes_calculate_alike(a in -1_000_000_000_i64.., b in any::<i64>()) {
            prop_assert_eq!(Decimal::from(a).mul(&Decimal::from(b)).unwrap().to_string(), (i128::from(a) * i128::from(b)).to_string());
            prop_assert_eq!(Decimal::from(a).cmp(&Decimal::from(b)), a.cmp(&b));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-+0-9eE. ]{0,12}") {
            let json = serde_json::from_str::<serde_json::Value>(&text).is_ok() && text.trim() == text;
            match Decimal::read(&text) {
                Ok(_) => prop_assert!(json),
                Err(DecimalError::Grammar) => prop_assert!(!json),
                Err(_) => {}
            }
        }
    }
}
