//! Templates: what is said of violations, and the objects that are answered instead of a rejected one.
//!
//! They are rendered by the `minijinja` crate: plain text, no escaping, no includes, no macros, strict about names that
//! have no value, in bounded fuel and with a bounded result. Numbers come out as they were printed. A number that is no
//! 64-bit integer can be printed and passed on, but not calculated with: that is what rules are for.
//!
//! Fuel does not pay for everything: a list that is kept in a variable and joined with itself, or put twice into another,
//! doubles for free, and turning it into text has no end. So there are no variables but those of loops, a loop goes
//! through what is there and not through a list of its own, and only plain values become text.

mod language;
mod object;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use minijinja::Environment;
use minijinja::ErrorKind;

pub use crate::contract::template::object::ResponseObject;
pub use crate::contract::template::value::TemplateContext;
pub use crate::contract::template::value::TemplateValue;

use crate::contract::template::language::ENVIRONMENT;
use crate::contract::template::language::affordable;
use crate::contract::template::language::environment;
use crate::contract::template::language::tags;
use crate::nearest::did_you_mean;

/// Bytes of a template.
pub const SOURCE_MAX: usize = 4 << 10;
/// Bytes of what a template renders to.
pub const TEXT_MAX: usize = 16 << 10;
/// Values in what a response object renders to.
pub const VALUES_MAX: usize = 20_000;
/// Bytes of the strings in what a response object renders to.
pub const OBJECT_BYTES_MAX: usize = 256 << 10;
/// The name of the one template of an environment.
const NAME: &str = "template";

/// The names that a template may use.
#[derive(Clone, Debug, Default)]
pub struct Names(BTreeMap<String, Option<Vec<String>>>);

impl Names {
    /// These variables.
    pub fn new<'n>(variables: impl IntoIterator<Item = &'n str>) -> Self {
        Self(variables.into_iter().map(|name| (name.to_owned(), None)).collect())
    }

    /// The same with a variable whose members are known at load.
    #[must_use]
    pub fn with_members<S: Into<String>>(mut self, variable: &str, members: impl IntoIterator<Item = S>) -> Self {
        self.0.insert(variable.to_owned(), Some(members.into_iter().map(Into::into).collect()));
        self
    }

    /// Checks names as MiniJinja tells them: `output.total`.
    fn check(&self, found: impl IntoIterator<Item = String>) -> Result<(), TemplateError> {
        let mut found: Vec<String> = found.into_iter().collect();
        found.sort_unstable();
        let functions: Vec<&str> = ENVIRONMENT.globals().map(|(name, _)| name).collect();
        for path in found {
            let mut parts = path.split('.');
            let name = parts.next().unwrap_or_default();
            let Some(members) = self.0.get(name) else {
                if functions.contains(&name) {
                    continue;
                }
                return Err(unknown("variable", name, self.0.keys()));
            };
            if let (Some(members), Some(member)) = (members, parts.next())
                && !members.iter().any(|known| known == member)
            {
                return Err(unknown(&format!("member of `{name}`"), member, members.iter()));
            }
        }
        Ok(())
    }
}

fn unknown<'n>(what: &str, name: &str, known: impl Iterator<Item = &'n String>) -> TemplateError {
    let known: Vec<&str> = known.map(String::as_str).take(40).collect();
    let listed: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    let nearest = did_you_mean(name, known.iter().copied());
    TemplateError::Unknown(format!("unknown {what} `{name}`{nearest}; known: {}", listed.join(", ")))
}

/// Why a template cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// It breaks the template language.
    #[error("line {line}: {message}")]
    Syntax {
        /// The line in the template, from 1.
        line: usize,
        /// What was found.
        message: String,
    },
    /// It names what does not exist.
    #[error("{0}")]
    Unknown(String),
    /// It is too long, or nests too deep.
    #[error("{0}")]
    TooLarge(String),
    /// A part of a response object.
    #[error("at `{path}`: {source}")]
    At {
        /// The members that lead to the part.
        path: String,
        /// What is wrong there.
        source: Box<TemplateError>,
    },
}

/// Why a template rendered to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateFault {
    /// It took more instructions than it may, or nested too deep.
    #[error("work limit: the template does too much")]
    WorkLimit,
    /// What it rendered is too long.
    #[error("the template renders to more than can be said")]
    TooLong,
    /// It ended in an error.
    #[error("{0}")]
    Error(String),
}

impl TemplateError {
    fn of(error: &minijinja::Error) -> Self {
        let message = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
        Self::Syntax { line: error.line().unwrap_or(1), message }
    }
}

impl TemplateFault {
    fn of(error: &minijinja::Error) -> Self {
        let detail = error.detail().unwrap_or_default();
        match error.kind() {
            ErrorKind::OutOfFuel => Self::WorkLimit,
            _ if detail.contains("recursion limit") => Self::WorkLimit,
            ErrorKind::WriteFailure => Self::TooLong,
            kind => {
                let said = if detail.is_empty() { kind.to_string() } else { format!("{kind}: {detail}") };
                let line = error.line().map(|line| format!("line {line}: ")).unwrap_or_default();
                Self::Error(format!("{line}{}", crate::json::fault::shown(&said)))
            }
        }
    }
}

/// A compiled template.
#[derive(Clone)]
pub struct Template(Arc<Environment<'static>>);

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Template")
    }
}

impl Template {
    /// Compiles a template: its syntax and names are checked.
    ///
    /// # Errors
    /// For a template that is too long, breaks the language, or names a variable that is not known.
    pub fn compile(source: &str, names: &Names) -> Result<Self, TemplateError> {
        bounded(source)?;
        affordable(&tags(source))?;
        let mut environment = environment();
        environment.add_template_owned(NAME, source.to_owned()).map_err(|error| TemplateError::of(&error))?;
        let found =
            environment.get_template(NAME).map_err(|error| TemplateError::of(&error))?.undeclared_variables(true);
        names.check(found)?;
        Ok(Self(Arc::new(environment)))
    }

    /// The text that the template says.
    ///
    /// # Errors
    /// Where it names what has no value, does too much, or says more than [`TEXT_MAX`] bytes.
    pub fn render(&self, context: &TemplateContext) -> Result<String, TemplateFault> {
        let template = self.0.get_template(NAME).map_err(|error| TemplateFault::of(&error))?;
        let mut text = Bounded(Vec::new());
        template.render_captured_to(context.value(), &mut text).map_err(|error| TemplateFault::of(&error))?;
        String::from_utf8(text.0).map_err(|_| TemplateFault::Error("the template breaks a character".to_owned()))
    }
}

fn bounded(source: &str) -> Result<(), TemplateError> {
    if source.len() > SOURCE_MAX {
        return Err(TemplateError::TooLarge(format!("a template of {} bytes; at most {SOURCE_MAX}", source.len())));
    }
    Ok(())
}

/// A text that refuses to grow beyond its bound.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len().saturating_add(bytes.len()) > TEXT_MAX {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
