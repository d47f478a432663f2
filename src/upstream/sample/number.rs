//! Numbers within their bounds, exactly: 0.1 is not a double here.

use serde_json::Map;
use serde_json::Number;
use serde_json::Value;

/// Digits after the point that are kept at most.
const SCALE_MAX: u32 = 12;

/// `units` / 10^`scale`.
#[derive(Clone, Copy)]
struct Decimal {
    units: i128,
    scale: u32,
}

impl Decimal {
    fn parse(value: &Value) -> Option<Self> {
        let text = value.as_number()?.to_string();
        let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let fraction = fraction.trim_end_matches('0');
        let units: i128 =
            format!("{whole}{fraction}").parse().ok().filter(|units: &i128| units.unsigned_abs() < 10_u128.pow(20))?;
        let scale = i32::try_from(fraction.len()).ok()?.checked_sub(exponent.parse().ok()?)?;
        match u32::try_from(scale) {
            Ok(scale) if scale <= SCALE_MAX => Some(Self { units, scale }),
            Ok(_) => None,
            Err(_) => Some(Self { units: units.checked_mul(power(scale.unsigned_abs())?)?, scale: 0 }),
        }
    }

    fn at(self, scale: u32) -> Option<i128> {
        self.units.checked_mul(power(scale.checked_sub(self.scale)?)?)
    }

    fn value(self) -> Value {
        let sign = if self.units < 0 { "-" } else { "" };
        let digits = format!("{:0>width$}", self.units.unsigned_abs(), width = self.scale as usize + 1);
        let (whole, fraction) = digits.split_at(digits.len() - self.scale as usize);
        let fraction = fraction.trim_end_matches('0');
        let text = if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") };
        text.parse::<Number>().map_or(Value::from(0), Value::Number)
    }
}

fn power(exponent: u32) -> Option<i128> {
    if exponent > 18 { None } else { 10_i128.checked_pow(exponent) }
}

/// A number that the bounds of `shape` allow, likely for a property of that name.
pub(super) fn number(shape: &Map<String, Value>, integer: bool, name: &str, pick: u64) -> Value {
    within(shape, integer, likely(name, integer, pick)).unwrap_or_else(|| Value::from(1))
}

fn within(shape: &Map<String, Value>, integer: bool, likely: Decimal) -> Option<Value> {
    let bound = |name: &str| shape.get(name).and_then(Decimal::parse);
    let flag = |name: &str| shape.get(name) == Some(&Value::Bool(true));
    let multiple = bound("multipleOf").filter(|step| step.units > 0);
    let (least, most) = (bound("minimum"), bound("maximum"));
    // Draft 4 writes `exclusiveMinimum: true` beside the minimum.
    let above = bound("exclusiveMinimum").or(if flag("exclusiveMinimum") { least } else { None });
    let below = bound("exclusiveMaximum").or(if flag("exclusiveMaximum") { most } else { None });
    let given = [multiple, least, most, above, below].into_iter().flatten().chain([likely]);
    // Two digits more than anything says, so that there is room between two bounds.
    let scale = given.map(|decimal| decimal.scale).max()? + if integer || multiple.is_some() { 0 } else { 2 };
    let at = |decimal: Option<Decimal>| decimal.and_then(|decimal| decimal.at(scale));
    let low = at(least).into_iter().chain(at(above).map(|units| units + 1)).max();
    let high = at(most).into_iter().chain(at(below).map(|units| units - 1)).min();
    let mut step = at(multiple).unwrap_or(1);
    if integer {
        let one = power(scale)?;
        step = (step / gcd(step, one)).checked_mul(one)?;
    }
    let mut units = likely.at(scale)?;
    if let Some(high) = high.filter(|high| units > *high) {
        units = low.map_or(high, |low| low.max(high - (high - low) / 3));
    }
    units = low.map_or(units, |low| units.max(low));
    units = units.div_euclid(step).checked_mul(step)?;
    if low.is_some_and(|low| units < low) {
        units = units.checked_add(step)?;
    }
    Some(Decimal { units, scale }.value())
}

fn gcd(left: i128, right: i128) -> i128 {
    let (mut left, mut right) = (left, right);
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left
}

/// A number that one expects under such a name.
fn likely(name: &str, integer: bool, pick: u64) -> Decimal {
    let name = name.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let pick = i128::from(pick % 7);
    let (units, scale) = if has(&["confidence", "probability", "ratio", "score"]) {
        (92 - pick, 2)
    } else if has(&["latitude"]) || name == "lat" {
        (387_223, 4)
    } else if has(&["longitude"]) || name == "lon" || name == "lng" {
        (-91_393, 4)
    } else if has(&["price", "amount", "total", "cost", "balance", "tax"]) {
        (1_250 + 375 * pick, 2)
    } else if has(&["year"]) && !has(&["years"]) {
        (2_024 + pick, 0)
    } else if has(&["page", "version"]) {
        (1 + pick, 0)
    } else if name == "age" || name.ends_with("_age") {
        (36 + pick, 0)
    } else if has(&["percent"]) {
        (75 - pick, 0)
    } else if has(&["index", "offset"]) {
        (pick, 0)
    } else if has(&["quantity", "count", "number", "qty"]) {
        (2 + pick, 0)
    } else if integer {
        (3 + pick, 0)
    } else {
        (25 + 10 * pick, 1)
    };
    if integer && scale > 0 {
        let whole = power(scale).map_or(1, |power| units / power);
        return Decimal { units: whole, scale: 0 };
    }
    Decimal { units, scale }
}
