//! `POST /v1/chat/completions`: a request, read once for what it asks and where it says so.
//!
//! Messages are read for role and place alone: a body of megabytes of images is scanned once and
//! copied never.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use crate::api::ingress::request;
use crate::api::ingress::request::Fault;
use crate::api::ingress::request::Own;
use crate::api::ingress::request::RequestError;
use crate::api::ingress::request::json_error;
use crate::json::JsonFault;
use crate::json::JsonFaultKind;
use crate::json::check;
use crate::json::cursor::Begins;
use crate::json::cursor::Cursor;
use crate::json::fault::shown;
use crate::json::string;
use crate::json::string::Spot;
use crate::wire::fault::Code;

/// Messages that a request may have.
const MESSAGES_MAX: usize = 16_384;
/// Tools that a request may offer.
const TOOLS_MAX: usize = 256;

/// A chat request: its bytes, and the places in them that the gateway reads or edits.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// The body as it came.
    pub body: Bytes,
    /// The top-level members: from each key to the end of its value.
    pub members: Vec<Range<usize>>,
    /// The name in `model`.
    pub model: String,
    /// Where that name stands, quotes included.
    pub model_at: Range<usize>,
    /// Whether the answer is to be streamed.
    pub stream: bool,
    /// Whether a stream is to end with a usage chunk.
    pub include_usage: bool,
    /// The conversation.
    pub messages: Messages,
    /// What the answer must look like, if anything is said.
    pub response_format: Option<ResponseFormat>,
    /// The function tools on offer.
    pub tools: Vec<Tool>,
    /// Which of them must be called.
    pub tool_choice: ToolChoice,
    /// The name of the schema of the response format.
    pub schema_name: Option<String>,
    /// What `store` says; none where it is not there.
    pub store: Option<bool>,
    /// Whether the answer is to be made in the background.
    pub background: bool,
    /// The end user that the caller names in `user`.
    pub user: Option<String>,
    /// The gateway's own member, and its place in `members`.
    pub own: Option<(usize, Own)>,
}

/// The conversation, by place.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    /// Where the array stands; empty where the request has none.
    pub at: Range<usize>,
    /// Its messages.
    pub list: Vec<Message>,
}

/// One message, by place.
#[derive(Clone, Debug)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// Its content.
    pub content: Content,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `system`
    System,
    /// `developer`
    Developer,
    /// `user`
    User,
    /// `tool`
    Tool,
    /// `assistant` and whatever else.
    Other,
}

impl Role {
    /// Whether it is the operator of the conversation who speaks.
    pub fn instructs(self) -> bool {
        matches!(self, Self::System | Self::Developer)
    }
}

/// A message's content, by place.
#[derive(Clone, Debug)]
pub enum Content {
    /// A string.
    Text(Spot),
    /// A list of parts; where it stands.
    Parts(Range<usize>),
    /// Null, missing, or nothing that is known.
    None,
}

/// `response_format`
#[derive(Clone, Debug)]
pub struct ResponseFormat {
    /// Its place in [`ChatRequest::members`].
    pub member: usize,
    /// What it asks for.
    pub wants: Wants,
}

/// What a response format asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wants {
    /// `text`, or a type that this gateway leaves alone.
    Anything,
    /// `json_object`
    JsonObject,
    /// A schema: the place of its exact text. `object` tells that it came with `type: json_object`,
    /// as llama.cpp has it.
    Schema {
        /// The schema's exact bytes in the body.
        at: Range<usize>,
        /// It came with `type: json_object`.
        object: bool,
    },
}

/// A function tool.
#[derive(Clone, Debug)]
pub struct Tool {
    /// The function's name.
    pub name: String,
    /// Where its parameters stand.
    pub parameters: Option<Range<usize>>,
    /// It is marked `strict: true`.
    pub strict: bool,
}

/// `tool_choice`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides, or nothing is said.
    #[default]
    Auto,
    /// Some tool must be called.
    Required,
    /// This tool must be called.
    Named(String),
}

impl ChatRequest {
    /// Reads a body. O(len); nothing but names is copied.
    pub fn read(body: Bytes) -> Result<Self, RequestError> {
        request::text(&body)?;
        let mut reader = Reader::default();
        match reader.read(&body) {
            Ok(()) => reader.finish(body),
            Err(Fault::Request(error)) => Err(error),
            Err(Fault::Json(fault)) => Err(json_error(&body, &fault)),
        }
    }

    /// The schema's exact text, where the response format has one.
    pub fn schema(&self) -> Option<Bytes> {
        match &self.response_format.as_ref()?.wants {
            Wants::Schema { at, .. } => Some(self.body.slice(at.clone())),
            _ => None,
        }
    }

    /// The top-level member of this name: its place in `members`, and where its value stands.
    pub fn member(&self, name: &str) -> Option<(usize, Range<usize>)> {
        self.members.iter().enumerate().find_map(|(index, whole)| {
            let spot = string::spot(&self.body, whole.start).ok()?;
            let key = string::decode(&self.body, spot).ok()?;
            let colon = check::white(&self.body, spot.after());
            let value = check::white(&self.body, colon + 1);
            (key == name).then_some((index, value..whole.end))
        })
    }

    /// What one message says in text, its text parts parted by line ends; and whether it holds what is no text.
    pub fn said(&self, message: &Message) -> (String, bool) {
        let decoded = |spot: Spot| string::decode(&self.body, spot).unwrap_or_default();
        match &message.content {
            Content::Text(spot) => (decoded(*spot).into_owned(), false),
            Content::Parts(at) => {
                let (texts, unread) = parts(&self.body, at.start);
                let said: Vec<Cow<'_, str>> = texts.iter().copied().map(decoded).collect();
                (said.join("\n"), unread)
            }
            Content::None => (String::new(), false),
        }
    }

    /// The texts of all messages: each a string's place.
    pub fn texts(&self) -> impl Iterator<Item = Spot> {
        self.messages.list.iter().flat_map(|message| match &message.content {
            Content::Text(spot) => vec![*spot],
            Content::Parts(at) => parts(&self.body, at.start).0,
            Content::None => Vec::new(),
        })
    }
}

/// Text parts of a list of content parts, and whether there are parts of other types. Faults were found when the body was read.
fn parts(body: &[u8], at: usize) -> (Vec<Spot>, bool) {
    let (mut texts, mut unread) = (Vec::new(), false);
    let _ = Cursor::at(body, at).array(|cursor| {
        if cursor.begins() != Begins::Object {
            unread = true;
            return cursor.skip().map(|_| ());
        }
        let mut kind = Cow::Borrowed("");
        cursor.object(|cursor, member| match (&*member.key, cursor.begins()) {
            ("text", Begins::String) => cursor.string().map(|spot| texts.push(spot)),
            ("type", Begins::String) => cursor.said().map(|(_, said)| kind = said),
            _ => cursor.skip().map(|_| ()),
        })?;
        unread |= kind != "text";
        Ok::<(), JsonFault>(())
    });
    (texts, unread)
}

#[derive(Default)]
struct Reader {
    members: Vec<Range<usize>>,
    model: Option<(String, Range<usize>)>,
    stream: bool,
    include_usage: bool,
    messages: Messages,
    response_format: Option<ResponseFormat>,
    tools: Vec<Tool>,
    tool_choice: ToolChoice,
    schema_name: Option<String>,
    store: Option<bool>,
    background: bool,
    user: Option<String>,
    own: Option<(usize, Own)>,
}

impl Reader {
    fn read(&mut self, body: &[u8]) -> Result<(), Fault> {
        let mut cursor = Cursor::new(body);
        cursor.object(|cursor, member| {
            let value = cursor.offset();
            let index = self.members.len();
            match &*member.key {
                "model" if cursor.begins() == Begins::String => {
                    let spot = cursor.string()?;
                    let name = string::decode(body, spot)?.into_owned();
                    self.model = Some((name, spot.open..spot.after()));
                }
                "stream" => self.stream = cursor.bool_or_null()?.unwrap_or_default(),
                "stream_options" if cursor.begins() == Begins::Object => {
                    cursor.object(|cursor, member| match &*member.key {
                        "include_usage" => {
                            cursor.bool_or_null().map(|flag| self.include_usage = flag.unwrap_or_default())
                        }
                        _ => cursor.skip().map(|_| ()),
                    })?;
                }
                "messages" if cursor.begins() == Begins::Array => {
                    let list = &mut self.messages.list;
                    self.messages.at = cursor.array(|cursor| {
                        if list.len() >= MESSAGES_MAX {
                            return Err(too_many("messages", MESSAGES_MAX));
                        }
                        list.push(message(cursor)?);
                        Ok(())
                    })?;
                }
                "response_format" if cursor.begins() != Begins::Null => {
                    let (wants, name) = response_format(cursor)?;
                    self.schema_name = name;
                    self.response_format = Some(ResponseFormat { member: index, wants });
                }
                "tools" if cursor.begins() == Begins::Array => {
                    let tools = &mut self.tools;
                    cursor.array(|cursor| {
                        if tools.len() >= TOOLS_MAX {
                            return Err(too_many("tools", TOOLS_MAX));
                        }
                        tools.extend(tool(cursor)?);
                        Ok(())
                    })?;
                }
                "tool_choice" => self.tool_choice = tool_choice(cursor)?,
                "store" => self.store = cursor.bool_or_null()?,
                "background" => self.background = cursor.bool_or_null()?.unwrap_or_default(),
                "user" if cursor.begins() == Begins::String => {
                    let (_, said) = cursor.said()?;
                    self.user = Some(said.into_owned());
                }
                "portcullis" => self.own = Some((index, request::own(cursor)?)),
                _ => {
                    cursor.skip()?;
                }
            }
            self.members.push(request::member(body, member.key_at, value..cursor.offset()));
            Ok::<(), Fault>(())
        })?;
        cursor.end()?;
        Ok(())
    }

    fn finish(self, body: Bytes) -> Result<ChatRequest, RequestError> {
        let missing = |name: &'static str, what: &str| {
            RequestError::new(Code::InvalidJson, Some(name), format!("`{name}` is missing or is no {what}"))
        };
        let (model, model_at) = self.model.ok_or_else(|| missing("model", "string"))?;
        if self.messages.at.is_empty() {
            return Err(missing("messages", "array"));
        }
        let mut names: Vec<&str> = self.tools.iter().map(|tool| tool.name.as_str()).collect();
        names.sort_unstable();
        if let Some([twice, _]) = names.windows(2).find(|pair| matches!(pair, [a, b] if a == b)) {
            let message = format!("two tools are called `{}`", shown(twice));
            return Err(RequestError::new(Code::SchemaConflict, Some("tools"), message));
        }
        if let ToolChoice::Named(name) = &self.tool_choice
            && !self.tools.iter().any(|tool| tool.name == *name)
        {
            let message = format!("`tool_choice` names `{}`, which is not among `tools`", shown(name));
            return Err(RequestError::new(Code::InvalidJson, Some("tool_choice"), message));
        }
        Ok(ChatRequest {
            body,
            members: self.members,
            model,
            model_at,
            stream: self.stream,
            include_usage: self.include_usage,
            messages: self.messages,
            response_format: self.response_format,
            tools: self.tools,
            tool_choice: self.tool_choice,
            schema_name: self.schema_name,
            store: self.store,
            background: self.background,
            user: self.user,
            own: self.own,
        })
    }
}

fn too_many(name: &'static str, max: usize) -> Fault {
    RequestError::new(Code::InvalidJson, Some(name), format!("`{name}` has more than {max} entries")).into()
}

fn message(cursor: &mut Cursor<'_>) -> Result<Message, JsonFault> {
    let text = cursor.text();
    let mut role = Role::Other;
    let mut content = Content::None;
    cursor.object(|cursor, member| match (&*member.key, cursor.begins()) {
        ("role", Begins::String) => {
            let spot = cursor.string()?;
            // A backend may mind neither case nor white space, and what it takes for a user's words is a source.
            role = match string::decode(text, spot)?.trim().to_ascii_lowercase().as_str() {
                "system" => Role::System,
                "developer" => Role::Developer,
                "user" => Role::User,
                "tool" => Role::Tool,
                _ => Role::Other,
            };
            Ok(())
        }
        ("content", Begins::String) => cursor.string().map(|spot| content = Content::Text(spot)),
        ("content", Begins::Array) => cursor.skip().map(|at| content = Content::Parts(at)),
        _ => cursor.skip().map(|_| ()),
    })?;
    Ok(Message { role, content })
}

/// What it asks for, and the name of its schema.
fn response_format(cursor: &mut Cursor<'_>) -> Result<(Wants, Option<String>), Fault> {
    let text = cursor.text();
    let mut kind = String::new();
    let mut name = None;
    let mut nested: Option<Range<usize>> = None;
    let mut flat: Option<Range<usize>> = None;
    cursor.object(|cursor, member| {
        match (&*member.key, cursor.begins()) {
            ("type", Begins::String) => {
                let spot = cursor.string()?;
                kind = string::decode(text, spot)?.into_owned();
            }
            ("json_schema", Begins::Object) => {
                cursor.object(|cursor, member| match (&*member.key, cursor.begins()) {
                    ("schema", _) => cursor.skip().map(|at| nested = Some(at)),
                    ("name", Begins::String) => cursor.said().map(|(_, said)| name = Some(said.into_owned())),
                    _ => cursor.skip().map(|_| ()),
                })?;
            }
            ("schema", _) => flat = Some(cursor.skip()?),
            _ => {
                cursor.skip()?;
            }
        }
        Ok::<(), JsonFault>(())
    })?;
    let unread = |message: &str| RequestError::new(Code::InvalidJson, Some("response_format"), message);
    match kind.as_str() {
        "json_schema" => match nested {
            Some(at) => Ok((Wants::Schema { at, object: false }, name)),
            None => {
                let message = "`response_format.json_schema.schema` is missing";
                Err(RequestError::new(Code::SchemaInvalid, Some("response_format"), message).into())
            }
        },
        "json_object" => Ok((flat.map_or(Wants::JsonObject, |at| Wants::Schema { at, object: true }), None)),
        // What means a contract and cannot be read as one must not pass as none.
        "" => Err(unread("`response_format.type` is missing or is no string").into()),
        near if ["json_schema", "json_object"].iter().any(|known| near.trim().eq_ignore_ascii_case(known)) => {
            Err(unread("`response_format.type` is neither `json_schema` nor `json_object` to the letter").into())
        }
        _ if nested.is_some() => {
            Err(unread("`response_format` has a schema, but its type is not `json_schema`").into())
        }
        _ => Ok((Wants::Anything, None)),
    }
}

/// A function tool; none for tools of other types, which are the backend's business.
fn tool(cursor: &mut Cursor<'_>) -> Result<Option<Tool>, JsonFault> {
    let text = cursor.text();
    let mut function = false;
    let mut tool = Tool { name: String::new(), parameters: None, strict: false };
    cursor.object(|cursor, member| match (&*member.key, cursor.begins()) {
        ("function", Begins::Object) => {
            function = true;
            cursor
                .object(|cursor, member| match (&*member.key, cursor.begins()) {
                    ("name", Begins::String) => {
                        let spot = cursor.string()?;
                        tool.name = string::decode(text, spot).map(Cow::into_owned)?;
                        Ok(())
                    }
                    ("parameters", begins) if begins != Begins::Null => {
                        cursor.skip().map(|at| tool.parameters = Some(at))
                    }
                    ("strict", _) => cursor.bool_or_null().map(|flag| tool.strict = flag.unwrap_or_default()),
                    _ => cursor.skip().map(|_| ()),
                })
                .map(|_| ())
        }
        _ => cursor.skip().map(|_| ()),
    })?;
    Ok(function.then_some(tool))
}

fn tool_choice(cursor: &mut Cursor<'_>) -> Result<ToolChoice, JsonFault> {
    let text = cursor.text();
    match cursor.begins() {
        Begins::String => {
            let spot = cursor.string()?;
            Ok(match &*string::decode(text, spot)? {
                "required" | "any" => ToolChoice::Required,
                _ => ToolChoice::Auto,
            })
        }
        Begins::Object => {
            let at = cursor.offset();
            let (mut named, mut function) = (None, false);
            cursor.object(|cursor, member| match (&*member.key, cursor.begins()) {
                ("type", Begins::String) => {
                    let (_, kind) = cursor.said()?;
                    function = kind == "function";
                    Ok(())
                }
                ("function", Begins::Object) => cursor
                    .object(|cursor, member| match (&*member.key, cursor.begins()) {
                        ("name", Begins::String) => {
                            let spot = cursor.string()?;
                            named = Some(string::decode(text, spot)?.into_owned());
                            Ok(())
                        }
                        _ => cursor.skip().map(|_| ()),
                    })
                    .map(|_| ()),
                _ => cursor.skip().map(|_| ()),
            })?;
            match (named, function) {
                (Some(name), _) => Ok(ToolChoice::Named(name)),
                (None, true) => Err(JsonFault::new(JsonFaultKind::WrongType("`function.name` in `tool_choice`"), at)),
                (None, false) => Ok(ToolChoice::Auto),
            }
        }
        _ => cursor.skip().map(|_| ToolChoice::Auto),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<ChatRequest, RequestError> {
        ChatRequest::read(Bytes::copy_from_slice(body.as_bytes()))
    }

    #[test]
    fn what_a_request_asks_is_read_with_its_places() {
        let body = r#"{ "model" : "m", "n":1.0, "messages":[{"role":"system","content":"s"},{"content":[{"type":"text","text":"t"}],"role":"user"}] ,
            "response_format":{"type":"json_schema","json_schema":{"name":"r","schema": {"type" : "object"} ,"strict":true}},
            "tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object"}}},{"type":"custom"}],
            "tool_choice":{"type":"function","function":{"name":"f"}},"stream":true,"stream_options":{"include_usage":true},
            "portcullis":{"tags":{"job":"nightly"}} }"#;
        let request = read(body).unwrap();
        assert_eq!((request.model.as_str(), &body[request.model_at.clone()]), ("m", "\"m\""));
        assert_eq!(request.schema().unwrap(), r#"{"type" : "object"}"#);
        assert_eq!((request.stream, request.include_usage), (true, true));
        assert_eq!(request.tool_choice, ToolChoice::Named("f".into()));
        assert_eq!((request.tools.len(), request.tools[0].strict), (1, true));
        assert_eq!(request.messages.list.iter().map(|m| m.role).collect::<Vec<_>>(), [Role::System, Role::User]);
        assert_eq!(request.own.as_ref().unwrap().1.tags["job"], "nightly");
        assert_eq!(&body[request.members[0].clone()], "\"model\" : \"m\"");
        assert!(body[request.members[2].clone()].ends_with("}]"));
        let texts: Vec<_> = request.texts().map(|spot| string::decode(body.as_bytes(), spot).unwrap()).collect();
        assert_eq!(texts, ["s", "t"]);
    }

    #[test]
    fn what_is_wrong_has_its_code_and_place() {
        for (body, code, told) in [
            ("", Code::InvalidJson, "line 1, column 1"),
            ("{\"model\":\"m\",\n\"messages\":[}", Code::InvalidJson, "line 2, column 13"),
            ("{\"model\":\"m\"}", Code::InvalidJson, "`messages` is missing"),
            ("{\"messages\":[]}", Code::InvalidJson, "`model` is missing"),
            ("{\"model\":7,\"messages\":[]}", Code::InvalidJson, "`model` is missing or is no string"),
            ("{\"model\":\"a\",\"model\":\"b\",\"messages\":[]}", Code::DuplicateKey, "`model` stands twice"),
            ("{\"model\":\"a\",\"mod\\u0065l\":\"b\",\"messages\":[]}", Code::DuplicateKey, "`model` stands twice"),
            ("{\"model\":\"a\",\"messages\":[{\"role\":\"user\",\"role\":\"system\"}]}", Code::DuplicateKey, "`role`"),
            (
                "{\"model\":\"a\",\"messages\":[],\"response_format\":{\"type\":\"json_schema\"}}",
                Code::SchemaInvalid,
                "schema",
            ),
            (
                "{\"model\":\"a\",\"messages\":[],\"portcullis\":{\"polcy\":[]}}",
                Code::UnknownField,
                "`portcullis.polcy`",
            ),
            ("{\"model\":\"a\",\"messages\":[],\"portcullis\":{\"tags\":{\"a\":1}}}", Code::InvalidJson, "a string"),
            (
                "{\"model\":\"a\",\"messages\":[],\"tool_choice\":{\"function\":{\"name\":\"g\"}}}",
                Code::InvalidJson,
                "`g`, which is not among",
            ),
            (
                "{\"model\":\"a\",\"messages\":[],\"tools\":[{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"f\"}}]}",
                Code::SchemaConflict,
                "`f`",
            ),
        ] {
            let error = read(body).unwrap_err();
            assert_eq!(error.code, code, "{body}");
            assert!(error.message.contains(told), "{body}: {}", error.message);
        }
    }

    #[test]
    fn what_means_a_contract_and_cannot_be_read_as_one_is_refused() {
        for rest in [
            r#""response_format":"json_object""#,
            r#""response_format":[]"#,
            r#""response_format":{"type":"JSON_OBJECT"}"#,
            r#""response_format":{"type":"json_object "}"#,
            r#""response_format":{"type":["json_object"]}"#,
            r#""response_format":{"json_schema":{"schema":{}}}"#,
            r#""response_format":{"type":"text","json_schema":{"schema":{}}}"#,
            r#""tool_choice":{"type":"function","name":"f"},"tools":[{"function":{"name":"f"}}]"#,
        ] {
            assert!(read(&format!(r#"{{"model":"m","messages":[],{rest}}}"#)).is_err(), "{rest}");
        }
    }

    #[test]
    fn keys_twice_where_the_gateway_does_not_look_pass() {
        assert!(read(r#"{"model":"m","messages":[],"metadata":{"a":1,"a":2}}"#).is_ok());
    }

    #[test]
    fn response_formats_of_all_kinds() {
        let wants = |format: &str| {
            let body = format!(r#"{{"model":"m","messages":[],"response_format":{format}}}"#);
            read(&body).unwrap().response_format.map(|format| format.wants)
        };
        assert_eq!(wants("null"), None);
        assert_eq!(wants(r#"{"type":"text"}"#), Some(Wants::Anything));
        assert_eq!(wants(r#"{"type":"json_object"}"#), Some(Wants::JsonObject));
        assert!(matches!(wants(r#"{"type":"json_object","schema":{}}"#), Some(Wants::Schema { object: true, .. })));
        assert_eq!(wants(r#"{"type":"structural_tag"}"#), Some(Wants::Anything));
    }
}
