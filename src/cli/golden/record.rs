//! One line of a recorded set. What is not known is an error: a misspelt `expect` would pass for a record that expects
//! nothing.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::api::backend::openai;
use crate::api::ingress::chat::ChatRequest;
use crate::api::ingress::request::RequestError;
use crate::api::reply::Finish;
use crate::config;
use crate::contract::scene::Call;
use crate::exchange::recorded::Recorded;
use crate::json::JsonFault;
use crate::json::JsonFaultKind;
use crate::json::cursor::Begins;
use crate::json::cursor::Cursor;
use crate::json::decimal::Decimal;
use crate::json::fault::shown;
use crate::nearest::did_you_mean;
use crate::report::golden::Cause;
use crate::report::golden::Expected;
use crate::report::outcome::Ended;
use crate::wire::fault::Code;

/// The members that a record can have.
const MEMBERS: [&str; 9] = ["name", "source", "request", "output", "finish_reason", "usage", "expect", "gate", "cause"];

/// A record as it is written.
#[derive(Debug)]
pub(super) struct Line<'l> {
    /// Its name.
    pub(super) name: Cow<'l, str>,
    /// What it should come to.
    pub(super) expected: Expected,
    /// Whose fault a rejection is.
    pub(super) cause: Option<Cause>,
    /// What is to be judged.
    pub(super) recorded: Recorded,
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    #[error("column {column}: {fault}")]
    Json { column: usize, fault: JsonFault },
    #[error("column {column}: `{name}` is no member of a record{}", did_you_mean(name, MEMBERS))]
    Unknown { column: usize, name: String },
    #[error("`{0}` is missing")]
    Missing(&'static str),
    #[error("`source` and `request` stand in one record; a request brings its own source")]
    Both,
    #[error("`expect` is `{0}`; it can be `accepted`, `clarified`, `rejected`, `refused` or `failed`")]
    Expect(String),
    #[error("`cause` is `{0}`; it can be `model`, `document` or `contract`")]
    Cause(String),
    #[error("`cost_usd` is `{0}`; expected a decimal in quotes that is not negative, such as \"0.0125\"")]
    Cost(String),
    #[error("`latency` is `{0}`; expected a duration such as \"1m30s\"")]
    Latency(String),
    #[error("`code` is `{name}`, which is no code of the gateway{}", did_you_mean(name, codes()))]
    Code { name: String },
    #[error("`request`: {0}")]
    Request(RequestError),
}

fn codes() -> impl Iterator<Item = &'static str> {
    Code::ALL.iter().map(|code| code.as_str())
}

/// A fault with the place where it was found, before that is turned into a column.
enum Found {
    Json(JsonFault),
    Line(LineError),
}

impl From<JsonFault> for Found {
    fn from(fault: JsonFault) -> Self {
        Self::Json(fault)
    }
}

#[derive(Default)]
struct Members<'l> {
    name: Option<Cow<'l, str>>,
    source: Option<Vec<Arc<str>>>,
    request: Option<Range<usize>>,
    output: Option<Cow<'l, str>>,
    finish: Option<Finish>,
    call: Call,
    expect: Option<Ended>,
    gate: Option<Arc<str>>,
    code: Option<Code>,
    cause: Option<Cause>,
}

/// Reads one line.
pub(super) fn read(line: &str) -> Result<Line<'_>, LineError> {
    let members = members(line).map_err(|found| match found {
        Found::Json(fault) => LineError::Json { column: column(line, fault.at), fault },
        Found::Line(error) => error,
    })?;
    if members.source.is_some() && members.request.is_some() {
        return Err(LineError::Both);
    }
    let request = members.request.map(|at| {
        let text = line.get(at).unwrap_or_default();
        ChatRequest::read(Bytes::copy_from_slice(text.as_bytes())).map_err(LineError::Request)
    });
    Ok(Line {
        name: members.name.ok_or(LineError::Missing("name"))?,
        expected: Expected {
            outcome: members.expect.unwrap_or(Ended::Accepted),
            gate: members.gate,
            code: members.code,
        },
        cause: members.cause,
        recorded: Recorded {
            request: request.transpose()?,
            source: members.source,
            output: members.output.ok_or(LineError::Missing("output"))?.into_owned(),
            finish: members.finish.unwrap_or(Finish::Stop),
            call: members.call,
        },
    })
}

fn members(line: &str) -> Result<Members<'_>, Found> {
    let mut found = Members::default();
    let mut cursor = Cursor::of(line);
    cursor.object(|cursor, member| {
        match &*member.key {
            "name" => found.name = Some(text(cursor)?),
            "output" => found.output = Some(text(cursor)?),
            "finish_reason" => found.finish = Some(Finish::read(&text(cursor)?)),
            "gate" => found.gate = Some(text(cursor)?.into()),
            "expect" => {
                let said = text(cursor)?;
                found.expect = Some(Ended::named(&said).ok_or_else(|| Found::Line(LineError::Expect(shown(&said))))?);
            }
            "cause" => {
                let said = text(cursor)?;
                found.cause = Some(Cause::named(&said).ok_or_else(|| Found::Line(LineError::Cause(shown(&said))))?);
            }
            "source" => {
                let mut pages = Vec::with_capacity(1);
                cursor.array(|cursor| {
                    pages.push(text(cursor)?.into());
                    Ok::<(), JsonFault>(())
                })?;
                found.source = Some(pages);
            }
            "cost_usd" => {
                let said = text(cursor)?;
                let cost = Decimal::read(&said).ok().filter(|cost| !cost.is_negative());
                found.call.cost_usd = Some(cost.ok_or_else(|| Found::Line(LineError::Cost(shown(&said))))?);
            }
            "latency" => {
                let said = text(cursor)?;
                let latency = config::duration(&said);
                found.call.latency = Some(latency.ok_or_else(|| Found::Line(LineError::Latency(shown(&said))))?);
            }
            "code" => {
                let said = text(cursor)?;
                let code = Code::ALL.iter().find(|code| code.as_str() == said);
                found.code = Some(*code.ok_or_else(|| Found::Line(LineError::Code { name: shown(&said) }))?);
            }
            "request" => found.request = Some(object(cursor)?),
            "usage" => {
                let at = cursor.offset();
                if cursor.begins() != Begins::Object {
                    return Err(JsonFault::new(JsonFaultKind::WrongType("an object"), at).into());
                }
                openai::usage(cursor, &mut found.call.usage)?;
            }
            unknown => {
                let (column, name) = (column(line, member.key_at), shown(unknown));
                return Err(Found::Line(LineError::Unknown { column, name }));
            }
        }
        Ok(())
    })?;
    cursor.end()?;
    Ok(found)
}

fn text<'l>(cursor: &mut Cursor<'l>) -> Result<Cow<'l, str>, JsonFault> {
    cursor.said().map(|(_, said)| said)
}

fn object(cursor: &mut Cursor<'_>) -> Result<Range<usize>, JsonFault> {
    if cursor.begins() != Begins::Object {
        return Err(JsonFault::new(JsonFaultKind::WrongType("an object"), cursor.offset()));
    }
    cursor.skip()
}

/// The column of a byte, from 1, in characters.
fn column(line: &str, at: usize) -> usize {
    line.as_bytes().iter().take(at).filter(|byte| (**byte & 0xC0) != 0x80).count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_record_is_read() {
        let line = r#"{"name":"é","source":["p1","p\n2"],"output":"{\"a\":1}","finish_reason":"length","usage":{"prompt_tokens":7,"x":1},"cost_usd":"0.02","latency":"1m30s","expect":"rejected","gate":"sum","code":"contract_rejected","cause":"document"}"#;
        let line = read(line).unwrap();
        assert_eq!((&*line.name, line.cause), ("é", Some(Cause::Document)));
        assert_eq!(
            line.expected,
            Expected { outcome: Ended::Rejected, gate: Some("sum".into()), code: Some(Code::ContractRejected) }
        );
        assert_eq!(line.recorded.call.latency, Some(std::time::Duration::from_secs(90)));
        assert_eq!((line.recorded.output.as_str(), &line.recorded.finish), ("{\"a\":1}", &Finish::Length));
        assert_eq!(line.recorded.call.usage.unwrap().input_tokens, Some(7));
        assert_eq!(line.recorded.source.unwrap(), vec!["p1".into(), "p\n2".into()] as Vec<Arc<str>>);
        let least = read(r#"{"name":"","output":""}"#).unwrap();
        assert_eq!((least.expected, least.recorded.finish), (Expected::default(), Finish::Stop));
        let asked = read(r#"{"name":"n","output":"","request":{"model":"m","messages":[]}}"#).unwrap();
        assert_eq!(asked.recorded.request.unwrap().model, "m");
    }

    #[test]
    fn whatever_is_not_a_record_is_told() {
        let lines = [
            "",
            "[]",
            "{\"name\":\"n\"",
            r#"{"name":"n","output":"o"} x"#,
            r#"{"name":"n","output":"o","é":1,"expct":"rejected"}"#,
            r#"{"name":"n","output":"o","name":"m"}"#,
            r#"{"name":"n","output":"o","expect":"ok"}"#,
            r#"{"name":"n","output":"o","cause":"nobody"}"#,
            r#"{"name":"n"}"#,
            r#"{"output":"o"}"#,
            r#"{"name":7,"output":"o"}"#,
            r#"{"name":"n","output":null}"#,
            r#"{"name":"n","output":"o","source":"page"}"#,
            r#"{"name":"n","output":"o","source":[1]}"#,
            r#"{"name":"n","output":"o","source":[],"request":{"model":"m","messages":[]}}"#,
            r#"{"name":"n","output":"o","request":{"messages":[]}}"#,
            r#"{"name":"n","output":"o","request":7}"#,
            r#"{"name":"n","output":"o","usage":3}"#,
            r#"{"name":"n","output":"o","usage":{"prompt_tokens":-3}}"#,
            r#"{"name":"\ud800","output":"o"}"#,
            r#"{"name":"n","output":"o",}"#,
            r#"{"name":"n","output":"o","cost_usd":"-1"}"#,
            r#"{"name":"n","output":"o","cost_usd":0.1}"#,
            r#"{"name":"n","output":"o","latency":"1 minute"}"#,
            r#"{"name":"n","output":"o","latency":""}"#,
            r#"{"name":"n","output":"o","code":"contract_reject"}"#,
        ];
        let told = lines.map(|line| format!("{line}\n  {}", read(line).unwrap_err()));
        insta::assert_snapshot!(told.join("\n"));
    }
}
