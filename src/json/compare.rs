//! Equality of JSON values: by type and exact number, object keys in any order.

use serde_json::Value;

/// Whether two values are equal as JSON: `1`, `1.0` and `10e-1` are one number, `1` and `true` are not.
///
/// O(size); numbers are compared by their digits, never as floats.
pub fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::String(a), Value::String(b)) => a == b,
        (Value::Number(a), Value::Number(b)) => same_number(a.as_str(), b.as_str()),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
        }
        _ => false,
    }
}

/// Whether two number texts write the same number.
pub fn same_number(a: &str, b: &str) -> bool {
    a == b || Plain::of(a) == Plain::of(b)
}

/// A number as sign, digits without zeros at either end, and the power of ten of its last digit.
#[derive(PartialEq, Eq)]
struct Plain {
    negative: bool,
    digits: Vec<u8>,
    power: i64,
}

impl Plain {
    fn of(text: &str) -> Self {
        let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).skip_while(|digit| *digit == b'0').collect();
        let mut power = exponent
            .parse::<i64>()
            .unwrap_or(i64::from(i32::MAX))
            .saturating_sub(i64::try_from(fraction.len()).unwrap_or(0));
        while digits.last() == Some(&b'0') {
            digits.pop();
            power += 1;
        }
        if digits.is_empty() {
            return Self { negative: false, digits, power: 0 };
        }
        Self { negative, digits, power }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::tree::parse;

    #[test]
    fn numbers_are_equal_by_value_and_never_by_rounding() {
        for (a, b) in [("1", "1.0"), ("1e2", "100"), ("0.10", "1e-1"), ("-0", "0"), ("0e9", "0"), ("1E+2", "10e1")] {
            assert!(same_number(a, b), "{a} {b}");
        }
        for (a, b) in [("9007199254740993", "9007199254740992"), ("1", "-1"), ("1", "10"), ("0.1", "0.10000000001")] {
            assert!(!same_number(a, b), "{a} {b}");
        }
    }

    #[test]
    fn types_and_members_decide() {
        let same = |a: &str, b: &str| equal(&parse(a).unwrap(), &parse(b).unwrap());
        assert!(same(r#"{"a":1,"b":[2]}"#, r#"{"b":[2.0],"a":1e0}"#));
        assert!(!same("1", "true"));
        assert!(!same("[1,2]", "[2,1]"));
        assert!(!same(r#"{"a":1}"#, r#"{"a":1,"b":1}"#));
        assert!(!same(r#"{"a":null}"#, r#"{"b":null}"#));
    }
}
