//! What rules can call.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::LazyLock;

use cel::Env;
use cel::ExecutionError;
use cel::common::functions::Function;
use cel::common::types::CelString;
use cel::common::types::DYN_TYPE;
use cel::common::value::CowVal;
use cel::common::value::Val;
use regex::Regex;
use regex::RegexBuilder;

use super::operators as op;
use super::operators::Args;
use super::operators::Number;
use super::operators::Yields;
use super::operators::arguments;
use super::operators::boolean;
use super::operators::charge_kept;
use super::operators::elements;
use super::operators::exact;
use super::operators::integer;
use super::operators::list;
use super::operators::text;
use super::value::Pattern;
use super::value::Read;
use super::value::fault;
use super::value::kind;
use super::value::read;
use super::value::size;
use super::work;
use crate::json::decimal::Decimal;

/// Bytes that a pattern in a rule may come to, compiled.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// The same for a pattern that is put together while the rule runs.
const LATE_PATTERN_BYTES_MAX: usize = 1 << 17;
/// Characters of a pattern that is put together while the rule runs.
const LATE_PATTERN_MAX: usize = 256;
/// Steps for compiling one.
const LATE_PATTERN_STEPS: u64 = 10_000;

/// A function of rules.
pub(super) struct Entry {
    /// Its name; those that begin with `@` stand for operators and cannot be written.
    pub(super) name: &'static str,
    /// Whether it is called on a value: `x.lower()`.
    pub(super) member: bool,
    /// Its arguments, with the value that it is called on.
    pub(super) arity: usize,
    run: Function,
}

macro_rules! entries {
    ($($style:ident $name:literal/$arity:literal => $run:path;)*) => {
        &[$(Entry { name: $name, member: entries!(@$style), arity: $arity, run: $run }),*]
    };
    (@call) => { false };
    (@on) => { true };
}

/// All of them.
pub(super) const ENTRIES: &[Entry] = entries! {
    call "@add"/2 => op::add;
    call "@subtract"/2 => op::subtract;
    call "@multiply"/2 => op::multiply;
    call "@divide"/2 => op::divide;
    call "@remainder"/2 => op::remainder;
    call "@negate"/1 => op::negate;
    call "@equal"/2 => op::equal;
    call "@unequal"/2 => op::unequal;
    call "@less"/2 => op::less;
    call "@at_most"/2 => op::at_most;
    call "@greater"/2 => op::greater;
    call "@at_least"/2 => op::at_least;
    call "@within"/2 => op::within;
    call "@range"/2 => op::range;
    call "@hold"/1 => op::hold;
    call "@share"/1 => op::share;
    call "size"/1 => length;
    on "size"/1 => length;
    call "decimal"/1 => decimal;
    call "int"/1 => whole;
    call "string"/1 => string;
    call "abs"/1 => absolute;
    on "lower"/1 => lower;
    on "trim"/1 => trim;
    on "split"/2 => split;
    on "words"/1 => words;
    on "contains"/2 => contains;
    on "startsWith"/2 => starts_with;
    on "endsWith"/2 => ends_with;
    on "matches"/2 => matches;
    call "matches"/2 => matches;
    on "find"/2 => find;
    on "replace"/3 => replace;
    on "distinct"/1 => distinct;
    on "sum"/1 => sum;
    on "min"/1 => least;
    on "max"/1 => greatest;
    on "sorted"/1 => sorted;
    on "join"/1 => join_bare;
    on "join"/2 => join;
    on "indexOf"/2 => index_of;
};

/// The environment that rules run in: these functions and no others.
pub(super) static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut environment = Env::default();
    for entry in ENTRIES {
        let id = format!("{}_{}_{}", entry.name, entry.member, entry.arity);
        let mut types = (0..entry.arity).map(|_| DYN_TYPE);
        // A name declared twice would be refused; a test calls each of them.
        let _ = if entry.member {
            let target = types.next().unwrap_or(DYN_TYPE);
            environment.add_member_overload(entry.name, &id, target, types.collect(), entry.run)
        } else {
            environment.add_overload(entry.name, &id, types.collect(), entry.run)
        };
    }
    Arc::new(environment)
});

/// A pattern, compiled; of linear time.
pub(super) fn pattern(source: &str) -> Result<Pattern, String> {
    compiled(source, PATTERN_BYTES_MAX)
}

fn compiled(source: &str, bytes_max: usize) -> Result<Pattern, String> {
    let regex = RegexBuilder::new(source).size_limit(bytes_max).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "the pattern is too large".to_owned(),
        error => {
            let told = error.to_string();
            let last = told.lines().last().unwrap_or_default().trim_start_matches("error: ");
            format!("the pattern cannot be read: {last}")
        }
    })?;
    Ok(Pattern { regex: Arc::new(regex), weight: 1 + source.len() as u64 / 64 })
}

impl Pattern {
    fn of(value: &dyn Val) -> Result<Self, ExecutionError> {
        if let Some(pattern) = value.downcast_ref::<Self>() {
            return Ok(pattern.clone());
        }
        let source = said("a pattern", value)?;
        if source.len() > LATE_PATTERN_MAX {
            return Err(fault(format!("a pattern of at most {LATE_PATTERN_MAX} bytes, found {}", source.len())));
        }
        work::charge(LATE_PATTERN_STEPS);
        compiled(source, LATE_PATTERN_BYTES_MAX).map_err(fault)
    }

    /// Takes the steps of one search through so many bytes: it may have to see all of them.
    fn charge(&self, bytes: usize) {
        work::charge_each(bytes / 128, self.weight);
    }

    fn regex(&self) -> &Regex {
        &self.regex
    }
}

/// The string that a value is.
fn said<'b>(what: &str, value: &'b dyn Val) -> Result<&'b str, ExecutionError> {
    match read(value) {
        Read::Text(text) => Ok(text.inner()),
        _ => Err(fault(format!("expected {what} that is a string, found {}", kind(value)))),
    }
}

fn text_of<'b>(name: &str, value: &'b dyn Val) -> Result<&'b str, ExecutionError> {
    match read(value) {
        Read::Text(text) => {
            work::charge_read(text.inner().len());
            Ok(text.inner())
        }
        _ => Err(fault(format!("`{name}` is for strings, found {}", kind(value)))),
    }
}

fn cells_of<'b, 'v>(name: &str, value: &'b (dyn Val + 'v)) -> Result<Vec<&'b (dyn Val + 'v)>, ExecutionError> {
    match read(value) {
        Read::List(_) => Ok(elements(value).unwrap_or_default()),
        _ => Err(fault(format!("`{name}` is for arrays, found {}", kind(value)))),
    }
}

/// Part of a string: without a copy where the string itself is lent.
fn part<'b, 'v>(whole: &CowVal<'b, 'v>, cut: impl for<'s> Fn(&'s str) -> &'s str) -> CowVal<'b, 'v> {
    let Some(string) = whole.downcast_ref::<CelString<'v>>() else { return whole.clone() };
    match string.as_borrowed() {
        Some(lent) => CowVal::owned(CelString::from(cut(lent))),
        None => written(cut(string.inner()).to_owned()),
    }
}

fn written<'b, 'v>(made: String) -> CowVal<'b, 'v> {
    work::charge_written(made.len());
    text(made)
}

fn texts<'b, 'v, S: AsRef<str>>(parts: impl IntoIterator<Item = S>) -> CowVal<'b, 'v> {
    let mut made = Vec::new();
    for part in parts {
        work::charge(4);
        made.push(written(part.as_ref().to_owned()).into_owned());
    }
    list(made)
}

fn length<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value] = arguments(args)?;
    match read(value.as_ref()) {
        Read::Text(text) => {
            work::charge_read(text.inner().len());
            Ok(integer(i64::try_from(text.inner().chars().count()).unwrap_or(i64::MAX)))
        }
        Read::List(_) | Read::Object(..) => Ok(integer(i64::try_from(size(value.as_ref())).unwrap_or(i64::MAX))),
        _ => Err(fault(format!("`size` is for strings, arrays and objects, found {}", kind(value.as_ref())))),
    }
}

fn decimal<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value] = arguments(args)?;
    if Number::of(value.as_ref())?.is_some() {
        return Ok(value);
    }
    let text = text_of("decimal", value.as_ref())?;
    exact(Decimal::read(text).map_err(|error| format!("`{}` is {error}", crate::json::fault::shown(text))))
}

fn whole<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value] = arguments(args)?;
    let number = match Number::of(value.as_ref())? {
        Some(Number::Int(_)) => return Ok(value),
        Some(Number::Exact(number)) => number.clone(),
        None => {
            let text = text_of("int", value.as_ref())?;
            let read = Decimal::read(text).ok().filter(|number| number.places() == 0);
            let Some(number) = read else {
                return Err(fault(format!("`{}` is no whole number", crate::json::fault::shown(text))));
            };
            number
        }
    };
    let cut = number.rem(&Decimal::from(1_i64)).and_then(|rest| number.sub(&rest));
    let cut = cut.map_err(|error| fault(error.to_string()))?;
    Ok(cut.to_i64().map_or_else(|| CowVal::owned(super::value::Exact(cut)), integer))
}

fn string<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value] = arguments(args)?;
    match read(value.as_ref()) {
        Read::Text(_) => Ok(value),
        Read::Int(number) => Ok(written(number.to_string())),
        Read::Exact(number) => Ok(written(number.to_string())),
        Read::Bool(value) => Ok(written(value.to_string())),
        Read::Unreadable(error) => Err(fault(error.to_string())),
        _ => Err(fault(format!("`string` is for strings, numbers and booleans, found {}", kind(value.as_ref())))),
    }
}

fn absolute<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value] = arguments(args)?;
    match Number::of(value.as_ref())? {
        Some(Number::Int(number)) if number >= 0 => Ok(value),
        Some(number) => exact::<'b, 'v>(Ok::<_, String>(number.decimal().abs())),
        None => Err(fault(format!("`abs` is for numbers, found {}", kind(value.as_ref())))),
    }
}

fn lower<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value] = arguments(args)?;
    Ok(written(text_of("lower", value.as_ref())?.to_lowercase()))
}

fn trim<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value] = arguments(args)?;
    text_of("trim", value.as_ref())?;
    Ok(part(&value, str::trim))
}

fn split<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value, separator] = arguments(args)?;
    let separator = said("a separator", separator.as_ref())?;
    if separator.is_empty() {
        return Err(fault("`split` at an empty separator"));
    }
    Ok(texts(text_of("split", value.as_ref())?.split(separator)))
}

/// The words in lower case: runs of letters and digits; an apostrophe between two of them is part of the word.
fn words<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value] = arguments(args)?;
    let text = text_of("words", value.as_ref())?;
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '\'' || c == '\u{2019}'));
    let words = words.map(|word| word.trim_matches(['\'', '\u{2019}'])).filter(|word| !word.is_empty());
    Ok(texts(words.map(str::to_lowercase)))
}

fn contains<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value, sought] = arguments(args)?;
    Ok(boolean(text_of("contains", value.as_ref())?.contains(said("a text", sought.as_ref())?)))
}

fn starts_with<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value, sought] = arguments(args)?;
    Ok(boolean(text_of("startsWith", value.as_ref())?.starts_with(said("a text", sought.as_ref())?)))
}

fn ends_with<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value, sought] = arguments(args)?;
    Ok(boolean(text_of("endsWith", value.as_ref())?.ends_with(said("a text", sought.as_ref())?)))
}

fn matches<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value, pattern] = arguments(args)?;
    let pattern = Pattern::of(pattern.as_ref())?;
    let text = text_of("matches", value.as_ref())?;
    pattern.charge(text.len());
    Ok(boolean(pattern.regex().is_match(text)))
}

/// All matches: of each its first group, where the pattern has one, else the whole of it.
fn find<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value, pattern] = arguments(args)?;
    let pattern = Pattern::of(pattern.as_ref())?;
    let text = text_of("find", value.as_ref())?;
    let mut found = Vec::new();
    pattern.charge(text.len());
    for captures in pattern.regex().captures_iter(text) {
        let whole = captures.get(0).map_or(0..0, |whole| whole.range());
        work::charge(4);
        pattern.charge(text.len().saturating_sub(whole.end));
        let group = if pattern.regex().captures_len() > 1 { captures.get(1) } else { captures.get(0) };
        found.extend(group.map(|group| written(group.as_str().to_owned()).into_owned()));
    }
    Ok(list(found))
}

/// The text with every match replaced; `$1` stands for a group.
fn replace<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value, pattern, by] = arguments(args)?;
    let pattern = Pattern::of(pattern.as_ref())?;
    let by = said("a replacement", by.as_ref())?;
    let source = text_of("replace", value.as_ref())?;
    let (mut made, mut at) = (String::new(), 0);
    pattern.charge(source.len());
    for captures in pattern.regex().captures_iter(source) {
        let whole = captures.get(0).map_or(0..0, |whole| whole.range());
        work::charge(4);
        pattern.charge(source.len().saturating_sub(whole.end));
        // A replacement may name a group many times over.
        work::charge_written(by.len().saturating_mul(whole.len().saturating_add(1)));
        made.push_str(source.get(at..whole.start).unwrap_or_default());
        captures.expand(by, &mut made);
        at = whole.end;
    }
    made.push_str(source.get(at..).unwrap_or_default());
    Ok(written(made))
}

/// What makes two plain values the same.
#[derive(PartialEq, Eq, Hash)]
enum Plain {
    Null,
    Bool(bool),
    Number(Decimal),
    Text(String),
}

/// The values without those that stand before already, in their order.
fn distinct<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value] = arguments(args)?;
    let mut seen = HashSet::new();
    let mut kept: Vec<&(dyn Val + 'v)> = Vec::new();
    let mut deep: Vec<&(dyn Val + 'v)> = Vec::new();
    for element in cells_of("distinct", value.as_ref())? {
        let plain = match read(element) {
            Read::Null => Some(Plain::Null),
            Read::Bool(value) => Some(Plain::Bool(value)),
            Read::Text(text) => {
                work::charge_written(text.inner().len());
                Some(Plain::Text(text.inner().to_owned()))
            }
            _ => Number::of(element)?.map(|number| Plain::Number(number.decimal().into_owned())),
        };
        let new = match plain {
            Some(plain) => seen.insert(plain),
            None => {
                let mut new = true;
                for other in &deep {
                    new = new && !op::same(*other, element)?;
                }
                if new {
                    deep.push(element);
                }
                new
            }
        };
        if new {
            kept.push(element);
        }
    }
    Ok(copied(&kept))
}

fn copied<'b, 'v>(kept: &[&(dyn Val + 'v)]) -> CowVal<'b, 'v> {
    let copy = |element: &&(dyn Val + 'v)| {
        charge_kept(*element);
        element.clone_as_boxed()
    };
    list(kept.iter().map(copy).collect())
}

fn sum<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value] = arguments(args)?;
    let mut total = Decimal::ZERO;
    for element in cells_of("sum", value.as_ref())? {
        work::charge(4);
        let Some(number) = Number::of(element)? else {
            return Err(fault(format!("`sum` is for arrays of numbers, found {} in one", kind(element))));
        };
        total = total.add(&number.decimal()).map_err(|error| fault(error.to_string()))?;
    }
    exact(Ok::<_, String>(total))
}

fn outermost<'b, 'v>(name: &str, args: Args<'b, 'v>, wanted: Ordering) -> Yields<'b, 'v> {
    let [value] = arguments(args)?;
    let mut best: Option<&(dyn Val + 'v)> = None;
    for element in cells_of(name, value.as_ref())? {
        let better = match best {
            Some(best) => op::order(element, best)? == wanted,
            None => op::order(element, element).map(|_| true)?,
        };
        if better {
            best = Some(element);
        }
    }
    match best {
        Some(best) => {
            charge_kept(best);
            Ok(CowVal::Owned(best.clone_as_boxed()))
        }
        None => Err(fault(format!("`{name}` of an empty array"))),
    }
}

fn least<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    outermost("min", args, Ordering::Less)
}

fn greatest<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    outermost("max", args, Ordering::Greater)
}

fn sorted<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value] = arguments(args)?;
    let mut cells = cells_of("sorted", value.as_ref())?;
    for element in &cells {
        if let Some(first) = cells.first() {
            op::order(*first, *element)?; // all of them have an order, so that sorting cannot fail
        }
    }
    cells.sort_by(|a, b| op::order(*a, *b).unwrap_or(Ordering::Equal));
    Ok(copied(&cells))
}

fn joined<'b, 'v>(value: &CowVal<'b, 'v>, separator: &str) -> Yields<'b, 'v> {
    let mut made = String::new();
    for (at, element) in cells_of("join", value.as_ref())?.into_iter().enumerate() {
        let part = match read(element) {
            Read::Text(text) => text.inner(),
            _ => return Err(fault(format!("`join` is for arrays of strings, found {} in one", kind(element)))),
        };
        work::charge_written(part.len().saturating_add(separator.len()));
        if at > 0 {
            made.push_str(separator);
        }
        made.push_str(part);
    }
    Ok(text(made))
}

fn join_bare<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value] = arguments(args)?;
    joined(&value, "")
}

fn join<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value, separator] = arguments(args)?;
    joined(&value, said("a separator", separator.as_ref())?)
}

/// Where an element stands in an array, from 0; -1 where it does not.
fn index_of<'b, 'v>(args: Args<'b, 'v>) -> Yields<'b, 'v> {
    let [value, sought] = arguments(args)?;
    for (at, element) in cells_of("indexOf", value.as_ref())?.into_iter().enumerate() {
        if op::same(element, sought.as_ref())? {
            return Ok(integer(i64::try_from(at).unwrap_or(i64::MAX)));
        }
    }
    Ok(integer(-1))
}
