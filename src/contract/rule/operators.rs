//! The operators, on exact numbers. CEL's own would fall back to floats, so rules are compiled to these.

use std::borrow::Cow;
use std::cmp::Ordering;

use cel::ExecutionError;
use cel::common::traits;
use cel::common::types::CelBool;
use cel::common::types::CelInt;
use cel::common::types::CelList;
use cel::common::types::CelMap;
use cel::common::types::CelMapKey;
use cel::common::types::CelString;
use cel::common::value::CowVal;
use cel::common::value::Val;

use super::value::Boxed;
use super::value::Exact;
use super::value::List;
use super::value::Object;
use super::value::Read;
use super::value::fault;
use super::value::kind;
use super::value::read;
use super::value::size;
use super::work;
use crate::json::decimal::Decimal;

pub(super) type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
pub(super) type Yields<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// Steps for an element that is kept.
const KEPT_STEPS: u64 = 4;

/// A number of either form.
pub(super) enum Number<'b> {
    Int(i64),
    Exact(&'b Decimal),
}

impl<'b> Number<'b> {
    /// The number that a value is; none where it is none.
    pub(super) fn of(value: &'b dyn Val) -> Result<Option<Self>, ExecutionError> {
        match read(value) {
            Read::Int(value) => Ok(Some(Self::Int(value))),
            Read::Exact(value) => Ok(Some(Self::Exact(value))),
            Read::Unreadable(error) => Err(fault(error.to_string())),
            _ => Ok(None),
        }
    }

    pub(super) fn decimal(&self) -> Cow<'b, Decimal> {
        match self {
            Self::Int(value) => Cow::Owned(Decimal::from(*value)),
            Self::Exact(value) => Cow::Borrowed(value),
        }
    }

    pub(super) fn compare(&self, other: &Number<'_>) -> Ordering {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => a.cmp(b),
            (a, b) => a.decimal().cmp(&b.decimal()),
        }
    }
}

pub(super) fn arguments<'b, 'v, const N: usize>(args: Args<'b, 'v>) -> Result<[CowVal<'b, 'v>; N], ExecutionError> {
    <[CowVal<'b, 'v>; N]>::try_from(args).map_err(|args| fault(format!("expected {N} arguments, found {}", args.len())))
}

pub(super) fn boolean<'b, 'v>(value: bool) -> CowVal<'b, 'v> {
    CowVal::Borrowed(if value { &CelBool::TRUE } else { &CelBool::FALSE })
}

pub(super) fn integer<'b, 'v>(value: i64) -> CowVal<'b, 'v> {
    CowVal::owned(CelInt::from(value))
}

pub(super) fn text<'b, 'v>(value: String) -> CowVal<'b, 'v> {
    CowVal::owned(CelString::from(value))
}

pub(super) fn list<'b, 'v>(values: Vec<Boxed<'v>>) -> CowVal<'b, 'v> {
    CowVal::owned(List::of(values))
}

pub(super) fn exact<'b, 'v>(value: Result<Decimal, impl std::fmt::Display>) -> Yields<'b, 'v> {
    value.map(|value| CowVal::owned(Exact(value))).map_err(|error| fault(error.to_string()))
}

/// Takes the steps of keeping a copy of a value: containers are shared, strings may have to be copied.
pub(super) fn charge_kept(value: &dyn Val) {
    work::charge(KEPT_STEPS);
    if let Read::Text(text) = read(value)
        && text.as_borrowed().is_none()
    {
        work::charge_written(text.inner().len());
    }
}

/// The elements of an array, or the names of an object's members.
pub(super) fn elements<'b, 'v>(value: &'b (dyn Val + 'v)) -> Option<Vec<&'b (dyn Val + 'v)>> {
    let (Read::List(iterable) | Read::Object(iterable, _)) = read(value) else { return None };
    work::charge_each(size(value), 1);
    let mut elements = Vec::with_capacity(size(value));
    let mut iterator = iterable.iter();
    while let Some(element) = iterator.next() {
        elements.push(element);
    }
    Some(elements)
}

fn calculate<'b, 'v>(
    sign: &str,
    args: Args<'b, 'v>,
    of_integers: fn(i64, i64) -> Option<i64>,
    of_decimals: fn(&Decimal, &Decimal) -> Result<Decimal, crate::json::decimal::DecimalError>,
) -> Yields<'b, 'v> {
    let [a, b] = arguments(args)?;
    let (Some(left), Some(right)) = (Number::of(a.as_ref())?, Number::of(b.as_ref())?) else {
        return Err(fault(format!("`{sign}` cannot join {} and {}", kind(a.as_ref()), kind(b.as_ref()))));
    };
    if let (Number::Int(a), Number::Int(b)) = (&left, &right)
        && let Some(value) = of_integers(*a, *b)
    {
        return Ok(integer(value));
    }
    work::charge(4);
    exact(of_decimals(&left.decimal(), &right.decimal()))
}

pub(super) fn add<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [a, b] = arguments(args)?;
    match (read(a.as_ref()), read(b.as_ref())) {
        (Read::Text(left), Read::Text(right)) => {
            work::charge_written(left.inner().len().saturating_add(right.inner().len()));
            return Ok(text([left.inner(), right.inner()].concat()));
        }
        (Read::List(_), Read::List(_)) => {
            let mut joined: Vec<Boxed<'v>> = Vec::new();
            for side in [&a, &b] {
                for element in elements(side.as_ref()).unwrap_or_default() {
                    charge_kept(element);
                    joined.push(element.clone_as_boxed());
                }
            }
            return Ok(list(joined));
        }
        _ => {}
    }
    calculate("+", vec![a, b], i64::checked_add, Decimal::add)
}

pub(super) fn subtract<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    calculate("-", args, i64::checked_sub, Decimal::sub)
}

pub(super) fn multiply<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    calculate("*", args, i64::checked_mul, Decimal::mul)
}

/// `7 / 2` is `3.5`: whether a number was printed with a point must not change a verdict.
pub(super) fn divide<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    work::charge(64); // it may have to write many digits
    let whole = |a: i64, b: i64| if a.checked_rem(b) == Some(0) { a.checked_div(b) } else { None };
    calculate("/", args, whole, Decimal::div)
}

pub(super) fn remainder<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    calculate("%", args, i64::checked_rem, Decimal::rem)
}

pub(super) fn negate<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [a] = arguments(args)?;
    match Number::of(a.as_ref())? {
        Some(Number::Int(value)) if value != i64::MIN => Ok(integer(-value)),
        Some(number) => Ok(CowVal::owned(Exact(number.decimal().neg()))),
        None => Err(fault(format!("`-` cannot stand before {}", kind(a.as_ref())))),
    }
}

/// Whether two values are equal as JSON, in depth: numbers by value, members in any order, different types never.
pub(super) fn same(a: &dyn Val, b: &dyn Val) -> Result<bool, ExecutionError> {
    work::charge(1);
    Ok(match (read(a), read(b)) {
        (Read::Unreadable(error), _) | (_, Read::Unreadable(error)) => return Err(fault(error.to_string())),
        (Read::Null, Read::Null) => true,
        (Read::Bool(a), Read::Bool(b)) => a == b,
        (Read::Text(a), Read::Text(b)) => {
            work::charge_read(a.inner().len().min(b.inner().len()));
            a.inner() == b.inner()
        }
        (Read::List(left), Read::List(right)) => {
            if size(a) != size(b) {
                return Ok(false);
            }
            let (mut left, mut right) = (left.iter(), right.iter());
            while let (Some(a), Some(b)) = (left.next(), right.next()) {
                if !same(a, b)? {
                    return Ok(false);
                }
            }
            true
        }
        (Read::Object(names, left), Read::Object(_, right)) => {
            if size(a) != size(b) {
                return Ok(false);
            }
            let mut names = names.iter();
            while let Some(name) = names.next() {
                let Ok(other) = right.get(name) else { return Ok(false) };
                if !same(left.get(name)?.as_ref(), other.as_ref())? {
                    return Ok(false);
                }
            }
            true
        }
        _ => match (Number::of(a)?, Number::of(b)?) {
            (Some(a), Some(b)) => a.compare(&b) == Ordering::Equal,
            _ => false,
        },
    })
}

pub(super) fn equal<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [a, b] = arguments(args)?;
    same(a.as_ref(), b.as_ref()).map(boolean)
}

pub(super) fn unequal<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [a, b] = arguments(args)?;
    same(a.as_ref(), b.as_ref()).map(|same| boolean(!same))
}

/// The order of two numbers, strings or booleans; other values have none.
pub(super) fn order(a: &dyn Val, b: &dyn Val) -> Result<Ordering, ExecutionError> {
    work::charge(1);
    match (read(a), read(b)) {
        (Read::Text(a), Read::Text(b)) => {
            work::charge_read(a.inner().len().min(b.inner().len()));
            Ok(a.inner().cmp(b.inner()))
        }
        (Read::Bool(a), Read::Bool(b)) => Ok(a.cmp(&b)),
        _ => match (Number::of(a)?, Number::of(b)?) {
            (Some(a), Some(b)) => Ok(a.compare(&b)),
            _ => Err(fault(format!("{} and {} have no order", kind(a), kind(b)))),
        },
    }
}

fn ordered<'b, 'v>(args: Args<'b, 'v>, holds: fn(Ordering) -> bool) -> Yields<'b, 'v> {
    let [a, b] = arguments(args)?;
    order(a.as_ref(), b.as_ref()).map(|order| boolean(holds(order)))
}

pub(super) fn less<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    ordered(args, Ordering::is_lt)
}

pub(super) fn at_most<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    ordered(args, Ordering::is_le)
}

pub(super) fn greater<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    ordered(args, Ordering::is_gt)
}

pub(super) fn at_least<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    ordered(args, Ordering::is_ge)
}

/// `in`: an element of an array, or the name of a member.
pub(super) fn within<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [sought, holder] = arguments(args)?;
    match read(holder.as_ref()) {
        Read::List(iterable) => {
            let mut iterator = iterable.iter();
            while let Some(element) = iterator.next() {
                if same(element, sought.as_ref())? {
                    return Ok(boolean(true));
                }
            }
            Ok(boolean(false))
        }
        Read::Object(..) => {
            work::charge(1 + size(holder.as_ref()).min(16) as u64 / 4);
            let names = holder.as_container().ok_or_else(|| fault("an object without names"))?;
            names.contains(sought.as_ref()).map(boolean)
        }
        _ => Err(fault(format!("`in` looks into an array or an object, found {}", kind(holder.as_ref())))),
    }
}

/// What a loop goes through; `weight` is what one turn of it costs.
pub(super) fn range<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [through, weight] = arguments(args)?;
    let Read::Int(weight) = read(weight.as_ref()) else { return Err(fault("a loop without a weight")) };
    let (Read::List(iterable) | Read::Object(iterable, _)) = read(through.as_ref()) else {
        let found = kind(through.as_ref());
        return Err(fault(format!("expected an array or an object to go through, found {found}")));
    };
    work::charge_each(size(through.as_ref()), weight.unsigned_abs());
    let mut iterator: Box<dyn traits::Iterator<'_, '_>> = iterable.iter();
    while let Some(element) = iterator.next() {
        if let Read::Text(text) = read(element)
            && text.as_borrowed().is_none()
        {
            work::charge_written(text.inner().len());
        }
    }
    drop(iterator);
    Ok(through)
}

/// A value that is about to be kept in a list.
pub(super) fn hold<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value] = arguments(args)?;
    charge_kept(value.as_ref());
    Ok(value)
}

/// A list or map that CEL has built, in a form that is shared and not copied.
pub(super) fn share<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value] = arguments(args)?;
    if let Some(built) = value.downcast_ref::<CelList<'_>>() {
        work::charge_each(built.inner().len(), 1);
        return Ok(match value {
            CowVal::Owned(built) => match Vec::try_from(built) {
                Ok(cells) => list(cells),
                Err(other) => CowVal::Owned(other),
            },
            CowVal::Borrowed(built) => {
                list(elements(built).unwrap_or_default().into_iter().map(Val::clone_as_boxed).collect())
            }
        });
    }
    if let Some(built) = value.downcast_ref::<CelMap<'_>>() {
        let mut entries = Vec::with_capacity(built.inner().len());
        for (key, value) in built.inner() {
            let CelMapKey::String(name) = key else {
                return Err(fault(format!("members are named by strings, found {}", kind(key.inner()))));
            };
            work::charge_written(name.inner().len());
            charge_kept(value.as_ref());
            entries.push((name.clone(), value.clone()));
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0)); // CEL keeps no order, and a verdict must not depend on chance
        return Ok(CowVal::owned(Object::of(entries)));
    }
    Ok(value)
}
