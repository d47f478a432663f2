//! A request of a path that no contract guards: read for the model that it names, and for the gateway's own member.

use std::ops::Range;

use bytes::Bytes;

use crate::api::ingress::request;
use crate::api::ingress::request::Fault;
use crate::api::ingress::request::Own;
use crate::api::ingress::request::RequestError;
use crate::api::ingress::request::json_error;
use crate::json::cursor::Begins;
use crate::json::cursor::Cursor;
use crate::json::splice::Splice;
use crate::json::splice::SpliceError;
use crate::json::string;

/// A JSON request, by place.
#[derive(Clone, Debug)]
pub struct OpenRequest {
    /// The body as it came.
    pub body: Bytes,
    /// The name in `model`, and where it stands, quotes included.
    pub model: Option<(String, Range<usize>)>,
    /// The gateway's own member, and its place in `members`.
    pub own: Option<(usize, Own)>,
    /// The top-level members: from each key to the end of its value.
    members: Vec<Range<usize>>,
}

impl OpenRequest {
    /// Reads a body. O(len). One that is no object names no model.
    pub fn read(body: Bytes) -> Result<Self, RequestError> {
        request::text(&body)?;
        let mut read = Self { body: Bytes::new(), model: None, own: None, members: Vec::new() };
        match read.members(&body) {
            Ok(()) => Ok(Self { body, ..read }),
            Err(Fault::Request(error)) => Err(error),
            Err(Fault::Json(fault)) => Err(json_error(&body, &fault)),
        }
    }

    fn members(&mut self, body: &[u8]) -> Result<(), Fault> {
        let mut cursor = Cursor::new(body);
        if cursor.begins() != Begins::Object {
            cursor.skip()?;
            return Ok(cursor.end()?);
        }
        cursor.object(|cursor, member| {
            let value = cursor.offset();
            match (&*member.key, cursor.begins()) {
                ("model", Begins::String) => {
                    let (spot, name) = cursor.said()?;
                    self.model = Some((name.into_owned(), spot.open..spot.after()));
                }
                ("portcullis", _) => self.own = Some((self.members.len(), request::own(cursor)?)),
                _ => {
                    cursor.skip()?;
                }
            }
            self.members.push(request::member(body, member.key_at, value..cursor.offset()));
            Ok::<(), Fault>(())
        })?;
        Ok(cursor.end()?)
    }

    /// The body for a target that knows the model as `model`, in pieces: the caller's own but for that name and the
    /// gateway's own member.
    pub fn shaped(&self, model: Option<&str>) -> Result<Vec<Bytes>, SpliceError> {
        let mut splice = Splice::new();
        if let (Some(model), Some((named, at))) = (model, &self.model)
            && model != named
        {
            splice.replace(at.clone(), string::quoted(model));
        }
        let own = self.own.as_ref().map(|(index, _)| *index);
        splice.remove_members(&self.members, |index| Some(index) == own);
        splice.apply(&self.body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::fault::Code;

    fn read(body: &'static str) -> Result<OpenRequest, RequestError> {
        OpenRequest::read(Bytes::from_static(body.as_bytes()))
    }

    #[test]
    fn nothing_changes_but_the_models_name_and_the_gateways_own_member() {
        let body =
            r#" {"input": ["a" ,1e400], "model" : "embedder", "portcullis": {"tags": {"job": "n"}}, "input2": null} "#;
        let request = read(body).unwrap();
        assert_eq!(request.model.as_ref().unwrap().0, "embedder");
        assert_eq!(request.own.as_ref().unwrap().1.tags["job"], "n");
        let shaped = String::from_utf8(request.shaped(Some("text-3")).unwrap().concat()).unwrap();
        assert_eq!(shaped, r#" {"input": ["a" ,1e400], "model" : "text-3", "input2": null} "#);
        let plain = read(r#"{"model":"m","x":{"model":"n","model":"o"}}"#).unwrap();
        assert_eq!(plain.shaped(Some("m")).unwrap().concat(), plain.body);
        assert_eq!(plain.shaped(None).unwrap().concat(), plain.body);
    }

    #[test]
    fn a_body_without_a_model_names_none() {
        for body in ["{}", "[]", "null", r#"{"model":1}"#, r#"{"input_file_id":"f"}"#, "[{\"model\":\"m\"}]"] {
            assert_eq!(read(body).unwrap().model, None, "{body}");
        }
    }

    #[test]
    fn what_two_readers_would_read_differently_is_refused() {
        for (body, code) in [
            (r#"{"model":"a","model":"b"}"#, Code::DuplicateKey),
            (r#"{"model":"a","\u006dodel":"b"}"#, Code::DuplicateKey),
            (r#"{"model":"a""#, Code::InvalidJson),
            ("", Code::InvalidJson),
            ("{} {}", Code::InvalidJson),
            (r#"{"portcullis":1}"#, Code::UnknownField),
        ] {
            assert_eq!(read(body).unwrap_err().code, code, "{body}");
        }
    }
}
