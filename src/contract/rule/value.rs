//! What rules see: JSON values, read in place from an answer's tape or kept as a tree, with exact numbers.
//!
//! Containers are shared, so that binding a value to a name or keeping it in a list never copies what it holds.

use std::any::Any;
use std::borrow::Cow;
use std::collections::HashMap;
use std::slice;
use std::sync::Arc;
use std::sync::OnceLock;

use cel::ExecutionError;
use cel::common::traits;
use cel::common::traits::Container;
use cel::common::traits::Indexer;
use cel::common::traits::Iterable;
use cel::common::traits::Sizer;
use cel::common::types::CelBool;
use cel::common::types::CelInt;
use cel::common::types::CelNull;
use cel::common::types::CelString;
use cel::common::types::Kind;
use cel::common::types::LIST_TYPE;
use cel::common::types::MAP_TYPE;
use cel::common::types::Type;
use cel::common::value::CowVal;
use cel::common::value::StaticVal;
use cel::common::value::Val;
use regex::Regex;
use serde_json::Value;

use super::work;
use crate::json::decimal::Decimal;
use crate::json::decimal::DecimalError;
use crate::json::tape::Place;
use crate::json::tape::What;

/// Objects of more members than this are looked up by hash.
const SCANNED_MAX: usize = 8;

/// A value that rules see. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RuleValue<'v>(pub(super) Boxed<'v>);

pub(super) type Boxed<'v> = Box<dyn Val + 'v>;

impl<'v> RuleValue<'v> {
    /// A value of an answer. Costs nothing: containers are read when a rule looks into them, strings without an escape
    /// are never copied.
    pub fn from_place(place: Place<'v>) -> Self {
        Self(of_place(place))
    }

    /// A text, not copied.
    pub fn from_text(text: &'v str) -> Self {
        Self(Box::new(CelString::from(text)))
    }

    /// A list of values.
    pub fn from_list(values: impl IntoIterator<Item = RuleValue<'v>>) -> Self {
        Self(Box::new(List::of(values.into_iter().map(|value| value.0).collect())))
    }

    /// An object of these members; of two with one name the first counts.
    pub fn from_members(members: impl IntoIterator<Item = (Cow<'v, str>, RuleValue<'v>)>) -> Self {
        Self(Box::new(Object::of(members.into_iter().map(|(name, value)| (CelString::from(name), value.0)).collect())))
    }
}

impl RuleValue<'static> {
    /// A copy of a JSON tree, numbers exact. O(size); the tree is at most [`DEPTH_MAX`](crate::json::DEPTH_MAX) deep.
    pub fn from_json(value: &Value) -> Self {
        Self(of_json(value))
    }
}

fn of_place<'v>(place: Place<'v>) -> Boxed<'v> {
    match place.what() {
        What::Null => Box::new(CelNull),
        What::True => Box::new(CelBool::from(true)),
        What::False => Box::new(CelBool::from(false)),
        What::Number => of_number(place.raw()),
        What::String => Box::new(CelString::from(place.text())),
        What::Array => Box::new(List(Arc::new(Items { place: Some(place), cells: OnceLock::new() }))),
        What::Object => Box::new(Object(Arc::new(Members { kept: Kept::Tape(place), names: OnceLock::new() }))),
    }
}

fn of_json(value: &Value) -> Boxed<'static> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(value) => Box::new(CelBool::from(*value)),
        Value::Number(number) => of_number(number.as_str()),
        Value::String(text) => Box::new(CelString::from(text.clone())),
        Value::Array(items) => Box::new(List::of(items.iter().map(of_json).collect())),
        Value::Object(members) => {
            let entry = |(name, value): (&String, &Value)| (CelString::from(name.clone()), of_json(value));
            Box::new(Object::of(members.iter().map(entry).collect()))
        }
    }
}

/// The number that a text writes: an integer, a decimal, or one that nothing can be calculated with.
fn of_number<'v>(text: &str) -> Boxed<'v> {
    if let Ok(value) = text.parse::<i64>() {
        return Box::new(CelInt::from(value));
    }
    match Decimal::read(text) {
        Ok(value) => Box::new(Exact(value)),
        Err(error) => Box::new(Unreadable(error)),
    }
}

/// A number that is no 64-bit integer.
#[derive(Clone, Debug)]
pub(super) struct Exact(pub(super) Decimal);

/// A number that is too long to calculate with. Whatever is done with it is a fault.
#[derive(Clone, Debug)]
pub(super) struct Unreadable(pub(super) DecimalError);

/// A pattern, compiled when the rule was.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub(super) regex: Arc<Regex>,
    /// Steps for what another pattern takes one for.
    pub(super) weight: u64,
}

static NUMBER_TYPE: Type = Type::simple_type(Kind::Opaque, "number");
static UNREADABLE_TYPE: Type = Type::simple_type(Kind::Opaque, "number that is too long");
static PATTERN_TYPE: Type = Type::simple_type(Kind::Opaque, "pattern");

macro_rules! opaque {
    ($($name:ident, $type:ident;)*) => {$(
        impl Val for $name {
            fn get_type(&self) -> &Type {
                &$type
            }

            fn cel_type() -> &'static Type {
                &$type
            }

            fn clone_as_boxed<'v>(&self) -> Boxed<'v>
            where
                Self: 'v,
            {
                Box::new(self.clone())
            }

            fn as_any(&self) -> Option<&dyn Any> {
                Some(self)
            }
        }

        impl StaticVal for $name {}
    )*};
}

opaque! {
    Exact, NUMBER_TYPE;
    Unreadable, UNREADABLE_TYPE;
    Pattern, PATTERN_TYPE;
}

/// An array.
#[derive(Clone, Debug)]
pub(super) struct List<'v>(Arc<Items<'v>>);

#[derive(Debug)]
struct Items<'v> {
    /// Where it stands in an answer, if it does.
    place: Option<Place<'v>>,
    cells: OnceLock<Vec<Boxed<'v>>>,
}

impl<'v> List<'v> {
    pub(super) fn of(cells: Vec<Boxed<'v>>) -> Self {
        Self(Arc::new(Items { place: None, cells: OnceLock::from(cells) }))
    }

    fn len(&self) -> usize {
        self.0.cells.get().map_or_else(|| self.0.place.map_or(0, |place| place.count()), Vec::len)
    }

    fn cells(&self) -> &[Boxed<'v>] {
        let read = || self.0.place.map(|place| place.elements().map(of_place).collect()).unwrap_or_default();
        self.0.cells.get_or_init(read)
    }
}

/// An object.
#[derive(Clone, Debug)]
pub(super) struct Object<'v>(Arc<Members<'v>>);

#[derive(Debug)]
struct Members<'v> {
    kept: Kept<'v>,
    /// The names of an answer's object.
    names: OnceLock<Vec<CelString<'v>>>,
}

#[derive(Debug)]
enum Kept<'v> {
    Tape(Place<'v>),
    Tree { values: Vec<Boxed<'v>>, index: HashMap<String, usize, ahash::RandomState> },
}

impl<'v> Object<'v> {
    pub(super) fn of(entries: Vec<(CelString<'v>, Boxed<'v>)>) -> Self {
        let (names, values): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
        let mut index = HashMap::default();
        if names.len() > SCANNED_MAX {
            for (at, name) in names.iter().enumerate() {
                index.entry(name.inner().to_owned()).or_insert(at);
            }
        }
        Self(Arc::new(Members { kept: Kept::Tree { values, index }, names: OnceLock::from(names) }))
    }

    fn names(&self) -> &[CelString<'v>] {
        let read = || match self.0.kept {
            Kept::Tape(place) => place.members().map(|(name, _)| CelString::from(name.text())).collect(),
            Kept::Tree { .. } => Vec::new(),
        };
        self.0.names.get_or_init(read)
    }

    fn find<'b>(&'b self, name: &str) -> Option<CowVal<'b, 'v>> {
        match &self.0.kept {
            Kept::Tape(place) => {
                work::charge(1 + place.count().min(16) as u64 / 4);
                let value = place.get(name)?;
                if value.what() == What::String {
                    work::charge_read(value.raw().len());
                }
                Some(CowVal::Owned(of_place(value)))
            }
            Kept::Tree { values, index } => {
                let names = self.names();
                let at = if names.len() > SCANNED_MAX {
                    index.get(name).copied()
                } else {
                    names.iter().position(|other| other.inner() == name)
                };
                at.and_then(|at| values.get(at)).map(|value| CowVal::Borrowed(value.as_ref()))
            }
        }
    }
}

macro_rules! container {
    ($name:ident, $type:ident) => {
        impl<'v> Val for $name<'v> {
            fn get_type(&self) -> &Type {
                &$type
            }

            fn cel_type() -> &'static Type {
                &$type
            }

            fn as_container(&self) -> Option<&dyn Container> {
                Some(self)
            }

            fn as_indexer<'b, 'w>(&'b self) -> Option<&'b (dyn Indexer + 'w)>
            where
                Self: 'w,
            {
                Some(self)
            }

            fn as_iterable<'b, 'w>(&'b self) -> Option<&'b (dyn Iterable + 'w)>
            where
                Self: 'w,
            {
                Some(self)
            }

            fn as_sizer(&self) -> Option<&dyn Sizer> {
                Some(self)
            }

            fn clone_as_boxed<'w>(&self) -> Boxed<'w>
            where
                Self: 'w,
            {
                Box::new(self.clone())
            }
        }
    };
}

container!(List, LIST_TYPE);
container!(Object, MAP_TYPE);

impl Sizer for List<'_> {
    fn size(&self) -> CelInt {
        CelInt::from(i64::try_from(self.len()).unwrap_or(i64::MAX))
    }
}

impl Sizer for Object<'_> {
    fn size(&self) -> CelInt {
        let count = match self.0.kept {
            Kept::Tape(place) => place.count(),
            Kept::Tree { .. } => self.names().len(),
        };
        CelInt::from(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

/// Elements, lent.
struct Cells<'b, 'v>(slice::Iter<'b, Boxed<'v>>);

impl<'b, 'v: 'w, 'w> traits::Iterator<'b, 'w> for Cells<'b, 'v> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'w)> {
        match self.0.next() {
            Some(cell) => Some(cell.as_ref()),
            None => None,
        }
    }
}

/// Names of members, lent.
struct Names<'b, 'v>(slice::Iter<'b, CelString<'v>>);

impl<'b, 'v: 'w, 'w> traits::Iterator<'b, 'w> for Names<'b, 'v> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'w)> {
        match self.0.next() {
            Some(name) => Some(name),
            None => None,
        }
    }
}

impl<'v> Iterable for List<'v> {
    fn iter<'b, 'w>(&'b self) -> Box<dyn traits::Iterator<'b, 'w> + 'b>
    where
        Self: 'w,
    {
        Box::new(Cells(self.cells().iter()))
    }
}

impl<'v> Iterable for Object<'v> {
    fn iter<'b, 'w>(&'b self) -> Box<dyn traits::Iterator<'b, 'w> + 'b>
    where
        Self: 'w,
    {
        Box::new(Names(self.names().iter()))
    }
}

impl Container for List<'_> {
    /// CEL's own `in`, which rules are not compiled to: see `operators::within`.
    fn contains(&self, value: &dyn Val) -> Result<bool, ExecutionError> {
        Ok(self.cells().iter().any(|cell| cell.equals(value)))
    }
}

impl Container for Object<'_> {
    fn contains(&self, key: &dyn Val) -> Result<bool, ExecutionError> {
        let name = name_of_member(key)?;
        Ok(match self.0.kept {
            Kept::Tape(place) => place.get(name).is_some(),
            Kept::Tree { .. } => self.find(name).is_some(),
        })
    }
}

impl<'v> Indexer for List<'v> {
    fn get<'b, 'w>(&'b self, index: &dyn Val) -> Result<CowVal<'b, 'w>, ExecutionError>
    where
        Self: 'w,
    {
        let whole = match read(index) {
            Read::Int(value) => Some(value),
            Read::Exact(value) => value.to_i64(),
            _ => None,
        };
        let Some(whole) = whole else {
            return Err(fault(format!("an array is indexed by a whole number, found {}", kind(index))));
        };
        let lacking = || fault(format!("no element {whole}: the array has {}", self.len()));
        let at = usize::try_from(whole).map_err(|_| lacking())?;
        work::charge_each(at.min(self.len()) / 16, 1);
        if let (None, Some(place)) = (self.0.cells.get(), self.0.place) {
            return place.elements().nth(at).map(|place| CowVal::Owned(of_place(place))).ok_or_else(lacking);
        }
        match self.cells().get(at) {
            Some(cell) => Ok(CowVal::Borrowed(cell.as_ref())),
            None => Err(lacking()),
        }
    }

    fn steal<'w>(self: Box<Self>, index: &dyn Val) -> Result<Boxed<'w>, ExecutionError>
    where
        Self: 'w,
    {
        self.get(index).map(CowVal::into_owned)
    }
}

impl<'v> Indexer for Object<'v> {
    fn get<'b, 'w>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'w>, ExecutionError>
    where
        Self: 'w,
    {
        let name = name_of_member(key)?;
        match self.find(name) {
            Some(CowVal::Borrowed(value)) => Ok(CowVal::Borrowed(value)),
            Some(CowVal::Owned(value)) => Ok(CowVal::Owned(value)),
            None => Err(ExecutionError::no_such_key(&crate::json::fault::shown(name))),
        }
    }

    fn steal<'w>(self: Box<Self>, key: &dyn Val) -> Result<Boxed<'w>, ExecutionError>
    where
        Self: 'w,
    {
        self.get(key).map(CowVal::into_owned)
    }
}

fn name_of_member(key: &dyn Val) -> Result<&str, ExecutionError> {
    match key.downcast_ref::<CelString<'_>>() {
        Some(name) => Ok(name.inner()),
        None => Err(fault(format!("members are named by strings, found {}", kind(key)))),
    }
}

/// A value as the functions see it.
pub(super) enum Read<'b, 'v> {
    Null,
    Bool(bool),
    Int(i64),
    Exact(&'b Decimal),
    Text(&'b CelString<'v>),
    List(&'b (dyn Iterable + 'v)),
    Object(&'b (dyn Iterable + 'v), &'b (dyn Indexer + 'v)),
    Unreadable(&'b DecimalError),
    Other,
}

/// Looks at a value.
pub(super) fn read<'b, 'v>(value: &'b (dyn Val + 'v)) -> Read<'b, 'v> {
    let seen = match value.get_type().kind() {
        Kind::NullType => Some(Read::Null),
        Kind::Boolean => value.downcast_ref::<CelBool>().map(|value| Read::Bool(*value.inner())),
        Kind::Int => value.downcast_ref::<CelInt>().map(|value| Read::Int(*value.inner())),
        Kind::String => value.downcast_ref::<CelString<'v>>().map(Read::Text),
        Kind::List => value.as_iterable().map(Read::List),
        Kind::Map => value.as_iterable().zip(value.as_indexer()).map(|(names, values)| Read::Object(names, values)),
        Kind::Opaque => match value.downcast_ref::<Exact>() {
            Some(exact) => Some(Read::Exact(&exact.0)),
            None => value.downcast_ref::<Unreadable>().map(|unreadable| Read::Unreadable(&unreadable.0)),
        },
        _ => None,
    };
    seen.unwrap_or(Read::Other)
}

/// The JSON word for what a value is.
pub(super) fn kind(value: &dyn Val) -> &'static str {
    match read(value) {
        Read::Null => "null",
        Read::Bool(_) => "a boolean",
        Read::Int(_) | Read::Exact(_) => "a number",
        Read::Unreadable(_) => "a number that is too long",
        Read::Text(_) => "a string",
        Read::List(_) => "an array",
        Read::Object(..) => "an object",
        Read::Other => "a pattern",
    }
}

/// Elements or members.
pub(super) fn size(value: &dyn Val) -> usize {
    value.as_sizer().map_or(0, |sizer| usize::try_from(*sizer.size().inner()).unwrap_or(0))
}

/// An error with this text.
pub(super) fn fault(message: impl Into<String>) -> ExecutionError {
    ExecutionError::FunctionError { function: String::new(), message: message.into() }
}
