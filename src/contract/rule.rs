//! Rules: expressions of CEL that must be true of an answer.
//!
//! They are run by the `cel` crate, on exact numbers and in bounded work, neither of which CEL has by itself:
//!
//! - **Numbers.** Integers of 64 bits are CEL's; every other number, an overflowing result among them, is a decimal, by
//!   its own text. `1 == 1.0`, `0.1 + 0.2 == 0.3`, and `7 / 2` is `3.5`: a quotient that never ends, as `1 / 3`, is a
//!   fault. No float is ever calculated with.
//! - **Work.** [`STEPS_MAX`] steps a binding: about one for each part of the expression that is run in a loop, more for
//!   long texts and for lists that are made. An overrun ends the rule with [`RuleFault::WorkLimit`], wherever it happens.
//! - **Errors.** A rule that as a whole ends in an error is a fault. CEL absorbs some: `a && b` is false where one of the
//!   two is false, and `a || b` is true where one of them is true, whatever error the other is; in the same way `all` is
//!   false where one element is found for which it does not hold, and `exists` true where one is found for which it does.
//!   A missing member is an error: ask with `has()` first.

mod compile;
mod functions;
mod operators;
#[cfg(test)]
mod tests;
mod value;
mod work;

use std::cell::Cell;
use std::fmt;

use cel::Context;
use cel::ExecutionError;
use cel::common::value::CowVal;
use cel::common::value::Val;
use cel::context::VariableResolver;
use serde_json::Map;
use serde_json::Number;
use serde_json::Value;

pub use crate::contract::rule::value::RuleValue;

use crate::contract::rule::compile::Compiled;
use crate::contract::rule::value::Read;
use crate::contract::rule::work::Stopped;

/// Steps that the rules run on one [`Bindings`] may take together: about a tenth of a second.
pub const STEPS_MAX: u64 = 500_000;

/// What a rule can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// The answer.
    Output,
    /// The node that the rule runs on.
    This,
    /// The source's pages.
    Source,
    /// The facts, by name.
    Facts,
    /// The reference data, by name.
    Data,
    /// The request: `model`, `team`, `user`, `time`.
    Request,
    /// The usage: `input_tokens`, `output_tokens`, `reasoning_tokens`.
    Usage,
}

impl Variable {
    const ALL: [Self; 7] =
        [Self::Output, Self::This, Self::Source, Self::Facts, Self::Data, Self::Request, Self::Usage];

    /// What rules and templates call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::This => "this",
            Self::Source => "source",
            Self::Facts => "facts",
            Self::Data => "data",
            Self::Request => "request",
            Self::Usage => "usage",
        }
    }
}

/// The names that a rule may use, checked when it is compiled.
#[derive(Clone, Debug, Default)]
pub struct Known {
    facts: Vec<String>,
    data: Vec<String>,
    this: bool,
}

impl Known {
    /// All variables but `this`, with these facts and tables.
    pub fn new<S: Into<String>>(facts: impl IntoIterator<Item = S>, data: impl IntoIterator<Item = S>) -> Self {
        let names = |names: &mut dyn Iterator<Item = String>| names.collect();
        Self {
            facts: names(&mut facts.into_iter().map(Into::into)),
            data: names(&mut data.into_iter().map(Into::into)),
            this: false,
        }
    }

    /// The same with `this`.
    #[must_use]
    pub fn with_this(self) -> Self {
        Self { this: true, ..self }
    }

    /// The variables.
    pub fn names(&self) -> Vec<&'static str> {
        let known = |variable: &Variable| *variable != Variable::This || self.this;
        Variable::ALL.into_iter().filter(known).map(Variable::name).collect()
    }

    /// The members of a variable, where they are known before the answer is.
    pub fn members(&self, variable: &str) -> Option<Vec<&str>> {
        match variable {
            "facts" => Some(self.facts.iter().map(String::as_str).collect()),
            "data" => Some(self.data.iter().map(String::as_str).collect()),
            "request" => Some(vec!["model", "team", "user", "time"]),
            "usage" => Some(vec!["input_tokens", "output_tokens", "reasoning_tokens"]),
            _ => None,
        }
    }
}

/// What the variables stand for, and the work that rules may still do on them.
#[derive(Debug)]
pub struct Bindings<'v> {
    values: [Option<RuleValue<'v>>; Variable::ALL.len()],
    steps: Cell<u64>,
}

impl Default for Bindings<'_> {
    fn default() -> Self {
        Self { values: Default::default(), steps: Cell::new(STEPS_MAX) }
    }
}

impl<'v> Bindings<'v> {
    /// Nothing is bound: a rule that names what is not bound is a fault.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with no more than `steps` steps left.
    #[must_use]
    pub fn with_steps(self, steps: u64) -> Self {
        self.steps.set(steps.min(self.steps.get()));
        self
    }

    /// Binds a variable.
    pub fn set(&mut self, variable: Variable, value: RuleValue<'v>) {
        if let Some(slot) = self.values.get_mut(variable as usize) {
            *slot = Some(value);
        }
    }

    /// The same with a variable bound.
    #[must_use]
    pub fn with(mut self, variable: Variable, value: RuleValue<'v>) -> Self {
        self.set(variable, value);
        self
    }

    /// Steps that are left.
    pub fn steps(&self) -> u64 {
        self.steps.get()
    }
}

/// A compiled rule.
pub struct Rule {
    source: String,
    compiled: Compiled,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rule").field(&self.source).finish()
    }
}

/// Why a rule cannot be compiled, and where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// What was found and what was expected.
    pub message: String,
    /// The line in the rule, from 1.
    pub line: usize,
    /// The column in that line, in characters from 1.
    pub column: usize,
    text: String,
}

impl std::error::Error for RuleError {}

/// The message, then the line of the rule with a caret under the place.
impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if self.text.is_empty() {
            return Ok(());
        }
        write!(f, "\n  | {}\n  | {:>width$}", self.text, "^", width = self.column)
    }
}

impl RuleError {
    /// An error at a byte of the rule.
    fn new(source: &str, at: usize, message: String) -> Self {
        let before = source.get(..at).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Self::shown(source, line, column, message)
    }

    /// An error at a line and column as the parser tells them.
    fn at_line(source: &str, (line, column): (isize, isize), message: String) -> Self {
        let line = usize::try_from(line).unwrap_or(1).max(1);
        Self::shown(source, line, usize::try_from(column).unwrap_or(1).max(1), message)
    }

    fn shown(source: &str, line: usize, column: usize, message: String) -> Self {
        // Tabs would move the caret.
        let text = source.lines().nth(line - 1).unwrap_or_default().replace('\t', " ");
        Self { message, line, column, text }
    }
}

/// Why a rule came to no verdict. It is a violation all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    /// It took more steps than it may.
    #[error("work limit: the rule took more than {STEPS_MAX} steps")]
    WorkLimit,
    /// It ended in an error.
    #[error("{0}")]
    Error(String),
    /// It came to something else than true or false.
    #[error("expected true or false, found {0}")]
    NotBoolean(&'static str),
}

impl Rule {
    /// Compiles a rule: its syntax, names and patterns are checked.
    ///
    /// # Errors
    /// For a rule of more than 4 KB, one that nests too deep, one that is no CEL, and one with an unknown name.
    pub fn compile(source: &str, known: &Known) -> Result<Self, RuleError> {
        Ok(Self { source: source.to_owned(), compiled: compile::compile(source, known)? })
    }

    /// The rule as written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the rule names a variable.
    pub fn reads(&self, variable: Variable) -> bool {
        self.compiled.expression.references().has_variable(variable.name())
    }

    /// What the rule comes to, as JSON; numbers exact.
    ///
    /// # Errors
    /// Where the rule ends in an error, or is out of steps.
    pub fn eval(&self, bindings: &Bindings<'_>) -> Result<Value, RuleFault> {
        self.run(bindings, |value| json(value).map_err(told))?
    }

    /// Whether the rule holds.
    ///
    /// # Errors
    /// Where the rule ends in an error, is out of steps, or comes to something else than true or false.
    pub fn holds(&self, bindings: &Bindings<'_>) -> Result<bool, RuleFault> {
        self.run(bindings, |value| match value::read(value) {
            Read::Bool(holds) => Ok(holds),
            _ => Err(RuleFault::NotBoolean(value::kind(value))),
        })?
    }

    fn run<T>(&self, bindings: &Bindings<'_>, look: impl FnOnce(&dyn Val) -> T) -> Result<T, RuleFault> {
        let names = Names { values: &bindings.values, constants: &self.compiled.constants };
        let run = || {
            let mut context = Context::with_env(functions::ENVIRONMENT.clone());
            context.set_variable_resolver(&names);
            cel::Value::resolve_val(&self.compiled.expression, &context).map(|value| look(value.as_ref())).map_err(told)
        };
        match work::within(&bindings.steps, run) {
            Ok(ended) => ended,
            Err(Stopped::OutOfSteps) => Err(RuleFault::WorkLimit),
            Err(Stopped::Broken) => Err(RuleFault::Error("the rule could not be evaluated".to_owned())),
        }
    }
}

struct Names<'n, 'v> {
    values: &'n [Option<RuleValue<'v>>],
    constants: &'n [value::Boxed<'static>],
}

impl VariableResolver for Names<'_, '_> {
    fn resolve<'b>(&'b self, name: &str) -> Option<CowVal<'b, 'b>> {
        if let Some(place) = name.strip_prefix('@') {
            let place: usize = place.parse().ok()?;
            return self.constants.get(place).map(|value| CowVal::Borrowed(value.as_ref()));
        }
        let variable = Variable::ALL.into_iter().find(|variable| variable.name() == name)?;
        self.values.get(variable as usize)?.as_ref().map(|value| CowVal::Borrowed(value.0.as_ref()))
    }
}

/// An error of the evaluator in our words; its own may quote whole values.
fn told(error: ExecutionError) -> RuleFault {
    RuleFault::Error(match error {
        ExecutionError::FunctionError { message, .. } => message,
        ExecutionError::NoSuchKey(name) => format!("no member `{name}`"),
        ExecutionError::UndeclaredReference(name) => format!("`{name}` has no value here"),
        ExecutionError::UnexpectedType { got, want } => format!("expected {want}, found {got}"),
        ExecutionError::NoSuchOverload(overload) => {
            let types = overload.argument_types().join(" and ");
            match overload.function() {
                "_._" | "_[_]" => format!("no members or elements in {types}"),
                function => format!("`{}` cannot be applied to {types}", function.trim_matches('_')),
            }
        }
        ExecutionError::DuplicateKey(_) => "a member that stands twice".to_owned(),
        ExecutionError::UnsupportedKeyType(_) => "members are named by strings".to_owned(),
        _ => "the rule ends in an error".to_owned(),
    })
}

/// A value as JSON. Values may share their parts, so every visit takes a step.
fn json(value: &dyn Val) -> Result<Value, ExecutionError> {
    work::charge(4);
    let number = |text: String| text.parse::<Number>().map(Value::Number).map_err(|_| value::fault("no number"));
    Ok(match value::read(value) {
        Read::Null => Value::Null,
        Read::Bool(value) => Value::Bool(value),
        Read::Int(value) => Value::from(value),
        Read::Exact(value) => number(value.to_string())?,
        Read::Text(text) => {
            work::charge_written(text.inner().len());
            Value::String(text.inner().to_owned())
        }
        Read::List(_) => {
            let elements = operators::elements(value).unwrap_or_default();
            Value::Array(elements.into_iter().map(json).collect::<Result<_, _>>()?)
        }
        Read::Object(names, values) => {
            let (mut names, mut members) = (names.iter(), Map::new());
            while let Some(name) = names.next() {
                if let Read::Text(text) = value::read(name) {
                    members.insert(text.inner().to_owned(), json(values.get(name)?.as_ref())?);
                }
            }
            Value::Object(members)
        }
        Read::Unreadable(error) => return Err(value::fault(error.to_string())),
        Read::Other => return Err(value::fault("no JSON value")),
    })
}
