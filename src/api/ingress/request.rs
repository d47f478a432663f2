//! What requests have in common: the gateway's own member, and why one cannot be read.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::json::JsonFault;
use crate::json::JsonFaultKind;
use crate::json::cursor::Begins;
use crate::json::cursor::Cursor;
use crate::json::fault::shown;
use crate::json::string;
use crate::wire::fault::Code;

/// Tags that a caller may give a request for the audit record.
const TAGS_MAX: usize = 16;
/// Bytes of one tag's key or value.
const TAG_BYTES_MAX: usize = 256;

/// The member `portcullis`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Policies asked for by name.
    pub policies: Vec<String>,
    /// The pages of the source that came with the request.
    pub source: Option<Vec<String>>,
    /// Tags for the audit record.
    pub tags: BTreeMap<String, String>,
}

/// Why a request cannot be read. All of these are the caller's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    /// The code for the caller.
    pub code: Code,
    /// What was found, what was expected, and where.
    pub message: String,
    /// The member that is meant.
    pub param: Option<&'static str>,
}

impl RequestError {
    /// A request error about one member.
    pub fn new(code: Code, param: Option<&'static str>, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), param }
    }
}

/// The faults of reading, before lines and columns are worked out.
pub(super) enum Fault {
    Json(JsonFault),
    Request(RequestError),
}

impl From<JsonFault> for Fault {
    fn from(fault: JsonFault) -> Self {
        Self::Json(fault)
    }
}

impl From<RequestError> for Fault {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

/// The body as text, where it is UTF-8.
pub(super) fn text(body: &[u8]) -> Result<&str, RequestError> {
    std::str::from_utf8(body).map_err(|error| {
        let message = format!("the body is not UTF-8 at byte {}", error.valid_up_to());
        RequestError::new(Code::InvalidJson, None, message)
    })
}

/// The request error for a fault of the JSON.
pub(super) fn json_error(body: &[u8], fault: &JsonFault) -> RequestError {
    let (line, column) = fault.position(body);
    let code = match fault.kind {
        JsonFaultKind::DuplicateKey(_) => Code::DuplicateKey,
        _ => Code::InvalidJson,
    };
    RequestError::new(code, None, format!("the request's body, line {line}, column {column}: {fault}"))
}

/// A member, from its key to the end of its value. A cursor that has read the value stands past the white space after it,
/// at the end of `read`.
pub(super) fn member(body: &[u8], key_at: usize, read: Range<usize>) -> Range<usize> {
    let text = body.get(read.clone()).unwrap_or_default();
    key_at..read.start + text.trim_ascii_end().len()
}

/// Reads the member `portcullis`.
pub(super) fn own(cursor: &mut Cursor<'_>) -> Result<Own, Fault> {
    let text = cursor.text();
    let mut own = Own::default();
    let wrong = |message: String| RequestError::new(Code::UnknownField, Some("portcullis"), message);
    if cursor.begins() != Begins::Object {
        return Err(wrong("`portcullis` is no object".to_owned()).into());
    }
    cursor.object(|cursor, member| {
        match (&*member.key, cursor.begins()) {
            ("policy", Begins::Array) => {
                cursor.array(|cursor| {
                    let spot = cursor.string()?;
                    own.policies.push(string::decode(text, spot)?.into_owned());
                    Ok::<(), JsonFault>(())
                })?;
            }
            ("source", Begins::Array) => {
                let mut pages = Vec::new();
                cursor.array(|cursor| {
                    let spot = cursor.string()?;
                    pages.push(string::decode(text, spot)?.into_owned());
                    Ok::<(), JsonFault>(())
                })?;
                own.source = Some(pages);
            }
            ("tags", Begins::Object) => {
                cursor.object(|cursor, member| {
                    let spot = cursor.string()?;
                    let value = string::decode(text, spot)?.into_owned();
                    if own.tags.len() >= TAGS_MAX || value.len() > TAG_BYTES_MAX || member.key.len() > TAG_BYTES_MAX {
                        let message =
                            format!("`portcullis.tags` takes {TAGS_MAX} tags of {TAG_BYTES_MAX} bytes at the most");
                        return Err(Fault::from(wrong(message)));
                    }
                    own.tags.insert(member.key.into_owned(), value);
                    Ok(())
                })?;
            }
            ("policy" | "source", _) => {
                return Err(wrong(format!("`portcullis.{}` is no array of strings", member.key)).into());
            }
            ("tags", _) => return Err(wrong("`portcullis.tags` is no object of strings".to_owned()).into()),
            (unknown, _) => {
                let message =
                    format!("`portcullis.{}` is not known; known are `policy`, `source` and `tags`", shown(unknown));
                return Err(wrong(message).into());
            }
        }
        Ok::<(), Fault>(())
    })?;
    Ok(own)
}
