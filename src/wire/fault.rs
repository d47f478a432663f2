//! The `error` object: the codes that callers meet, and the many shapes in which upstreams report theirs.

use std::ops::Range;

use http::StatusCode;

use crate::json::JsonFault;
use crate::json::cursor::Begins;
use crate::json::cursor::Cursor;
use crate::json::string;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal, $status:ident, $kind:ident;)+) => {
        /// A stable code of an error body, with the status and type that go with it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($(#[doc = $doc])+ $name,)+ }

        impl Code {
            /// Every code there is.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The code as callers see it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// The HTTP status it comes with.
            pub fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)+ }
            }

            /// The `type` of the error object.
            pub fn kind(self) -> Kind {
                match self { $(Self::$name => Kind::$kind,)+ }
            }
        }
    };
}

codes! {
    /// The request breaks HTTP in a way that others might read as another request.
    InvalidHttp = "invalid_http", BAD_REQUEST, InvalidRequest;
    /// The request is no JSON, or lacks what it must have.
    InvalidJson = "invalid_json", BAD_REQUEST, InvalidRequest;
    /// A key stands twice in an object that the gateway interprets.
    DuplicateKey = "duplicate_key", BAD_REQUEST, InvalidRequest;
    /// A member of `portcullis` that is not known.
    UnknownField = "unknown_field", BAD_REQUEST, InvalidRequest;
    /// The schema is no JSON Schema.
    SchemaInvalid = "schema_invalid", BAD_REQUEST, InvalidRequest;
    /// A `$ref` leads out of the schema or nowhere.
    SchemaUnresolvableRef = "schema_unresolvable_ref", BAD_REQUEST, InvalidRequest;
    /// The schema is beyond a bound of `limits.schema`.
    SchemaTooLarge = "schema_too_large", BAD_REQUEST, InvalidRequest;
    /// Two schemas claim the same answer.
    SchemaConflict = "schema_conflict", BAD_REQUEST, InvalidRequest;
    /// Two policies claim what can be only one's.
    PolicyConflict = "policy_conflict", BAD_REQUEST, InvalidRequest;
    /// The source holds what cannot be read as text.
    SourceUnreadable = "source_unreadable", BAD_REQUEST, InvalidRequest;
    /// The answer was to be stored where it could be fetched around the gate.
    StoreNotAllowed = "store_not_allowed", BAD_REQUEST, InvalidRequest;
    /// The request offers tools that a policy denies.
    ToolsNotAllowed = "tools_not_allowed", BAD_REQUEST, InvalidRequest;
    /// `portcullis.source` where no policy allows it.
    SourceNotAllowed = "source_not_allowed", BAD_REQUEST, InvalidRequest;
    /// A key is needed and none came.
    MissingKey = "missing_key", UNAUTHORIZED, Authentication;
    /// A browser's origin, or a host name, that this listener does not serve.
    OriginNotAllowed = "origin_not_allowed", FORBIDDEN, Permission;
    /// No alias of that name.
    ModelNotFound = "model_not_found", NOT_FOUND, InvalidRequest;
    /// No policy of that name.
    PolicyNotFound = "policy_not_found", NOT_FOUND, InvalidRequest;
    /// Nothing is served under that path.
    UnknownPath = "unknown_path", NOT_FOUND, InvalidRequest;
    /// The path is served, but not with that method.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, InvalidRequest;
    /// The request did not arrive in time.
    RequestTimeout = "request_timeout", REQUEST_TIMEOUT, InvalidRequest;
    /// The request's head is beyond `limits.headers`.
    HeadersTooLarge = "headers_too_large", REQUEST_HEADER_FIELDS_TOO_LARGE, InvalidRequest;
    /// The request's body is beyond `limits.body`.
    BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE, InvalidRequest;
    /// The text holds no JSON that could be the answer, or broken JSON.
    OutputNotJson = "output_not_json", UNPROCESSABLE_ENTITY, Contract;
    /// The text holds several different answers.
    OutputAmbiguous = "output_ambiguous", UNPROCESSABLE_ENTITY, Contract;
    /// The answer was cut off.
    OutputTruncated = "output_truncated", UNPROCESSABLE_ENTITY, Contract;
    /// A key stands twice in one object of the answer.
    OutputDuplicateKey = "output_duplicate_key", UNPROCESSABLE_ENTITY, Contract;
    /// The answer is nested too deeply.
    OutputTooDeep = "output_too_deep", UNPROCESSABLE_ENTITY, Contract;
    /// A number that no consumer could hold.
    OutputNumberOutOfRange = "output_number_out_of_range", UNPROCESSABLE_ENTITY, Contract;
    /// The answer breaks its schema.
    SchemaViolation = "schema_violation", UNPROCESSABLE_ENTITY, Contract;
    /// A tool call breaks its contract.
    ToolViolation = "tool_violation", UNPROCESSABLE_ENTITY, Contract;
    /// A gate of a policy rejects the answer, or the model set a field that code sets.
    ContractRejected = "contract_rejected", UNPROCESSABLE_ENTITY, Contract;
    /// The caller must be asked back, and the policy says so in an error.
    ClarificationRequired = "clarification_required", UNPROCESSABLE_ENTITY, Contract;
    /// The prompt did not arrive whole.
    ContextTruncated = "context_truncated", UNPROCESSABLE_ENTITY, Contract;
    /// No target can do what a policy demands.
    NoCapableBackend = "no_capable_backend", UNPROCESSABLE_ENTITY, Capability;
    /// A fault of the gateway's own.
    InternalError = "internal_error", INTERNAL_SERVER_ERROR, Internal;
    /// What was asked for is not served.
    NotSupported = "not_supported", NOT_IMPLEMENTED, InvalidRequest;
    /// The backend returned nothing.
    OutputEmpty = "output_empty", BAD_GATEWAY, Upstream;
    /// The backend could not be reached.
    UpstreamUnreachable = "upstream_unreachable", BAD_GATEWAY, Upstream;
    /// The backend refused the operator's credentials.
    UpstreamAuth = "upstream_auth", BAD_GATEWAY, Upstream;
    /// The backend broke its protocol.
    UpstreamProtocol = "upstream_protocol", BAD_GATEWAY, Upstream;
    /// The backend reported an error.
    UpstreamError = "upstream_error", BAD_GATEWAY, Upstream;
    /// The backend was too slow.
    UpstreamTimeout = "upstream_timeout", GATEWAY_TIMEOUT, Upstream;
    /// The backend's answer is beyond `limits.response`.
    UpstreamTooLarge = "upstream_too_large", BAD_GATEWAY, Upstream;
    /// Too much is under way.
    Overloaded = "overloaded", SERVICE_UNAVAILABLE, Overload;
    /// The gateway is ending.
    Draining = "draining", SERVICE_UNAVAILABLE, Overload;
    /// The audit record cannot be written, and it is required.
    AuditUnavailable = "audit_unavailable", SERVICE_UNAVAILABLE, Overload;
}

/// The `type` of an error object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `invalid_request_error`
    InvalidRequest,
    /// `authentication_error`
    Authentication,
    /// `permission_error`
    Permission,
    /// `contract_violation`
    Contract,
    /// `capability_error`
    Capability,
    /// `internal_error`
    Internal,
    /// `upstream_error`
    Upstream,
    /// `overloaded_error`
    Overload,
}

impl Kind {
    /// The type as callers see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request_error",
            Self::Authentication => "authentication_error",
            Self::Permission => "permission_error",
            Self::Contract => "contract_violation",
            Self::Capability => "capability_error",
            Self::Internal => "internal_error",
            Self::Upstream => "upstream_error",
            Self::Overload => "overloaded_error",
        }
    }
}

/// What an upstream said was wrong, whatever the shape it said it in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Its message; empty where it gave none.
    pub message: String,
    /// Its `type`, where it is a string.
    pub kind: Option<String>,
    /// Its `param`, where it is a string.
    pub param: Option<String>,
    /// Its `code`, as text; some servers give a number.
    pub code: Option<String>,
}

/// Characters of an upstream's `type`, `param` or `code` that are passed on.
const WORD_MAX: usize = 200;
/// Characters of an upstream's message that are passed on.
const MESSAGE_MAX: usize = 2_000;

impl Reported {
    /// Reads an error body: OpenAI's object, an `error` that is a string, a flat object, a list of one of
    /// these, `detail`, or plain text. Only the four members are taken, so nothing else a body holds
    /// (a `failed_generation`, say) gets any further.
    pub fn read(body: &[u8]) -> Self {
        let mut found = Self::default();
        let read = found.value(&mut Cursor::new(body), 0);
        let begins_like_json = matches!(body.trim_ascii_start().first(), Some(b'{' | b'['));
        if begins_like_json && read.is_err() {
            found = Self::default(); // cut or broken: what it holds cannot be told from what it quotes
        } else if !begins_like_json {
            let text = String::from_utf8_lossy(body);
            found = Self { message: text.trim().to_owned(), ..Self::default() };
        }
        found
    }

    fn value(&mut self, cursor: &mut Cursor<'_>, depth: usize) -> Result<(), JsonFault> {
        match cursor.begins() {
            Begins::Array if depth < 3 => cursor.array(|cursor| self.value(cursor, depth + 1)).map(|_| ()),
            Begins::Object if depth < 3 => {
                cursor.object(|cursor, member| self.member(cursor, &member.key, depth)).map(|_| ())
            }
            _ => cursor.skip().map(|_| ()),
        }
    }

    fn member(&mut self, cursor: &mut Cursor<'_>, key: &str, depth: usize) -> Result<(), JsonFault> {
        match (key, cursor.begins()) {
            ("error", Begins::Object | Begins::Array) => self.value(cursor, depth + 1),
            ("error" | "message" | "detail", Begins::String) => {
                let text = text(cursor)?;
                if self.message.is_empty() || key == "message" {
                    self.message = text;
                }
                Ok(())
            }
            ("type", Begins::String) => text(cursor).map(|text| self.kind = Some(text)),
            ("param", Begins::String) => text(cursor).map(|text| self.param = Some(text)),
            ("code" | "status", Begins::String) => {
                let text = text(cursor)?;
                if self.code.is_none() || key == "code" {
                    self.code = Some(text);
                }
                Ok(())
            }
            ("code", Begins::Other) => {
                let range = cursor.skip()?;
                self.code = Some(self::raw(cursor, range));
                Ok(())
            }
            _ => cursor.skip().map(|_| ()),
        }
    }

    /// The numeric status that an error body in a 200 names as its code, if it is one of an error.
    pub fn status(&self) -> Option<StatusCode> {
        let number: u16 = self.code.as_deref()?.parse().ok()?;
        StatusCode::from_u16(number).ok().filter(|status| status.is_client_error() || status.is_server_error())
    }

    /// This report with every secret blotted out by `blot`, and no longer than it may be passed on. In this
    /// order: a secret that is cut is no longer found.
    pub fn passed_on(mut self, blot: impl Fn(String) -> String) -> Self {
        let others = [&mut self.kind, &mut self.param, &mut self.code].into_iter().flatten();
        for said in others.chain([&mut self.message]) {
            *said = blot(std::mem::take(said));
        }
        self.message = clipped(&self.message);
        for said in [&mut self.kind, &mut self.param, &mut self.code].into_iter().flatten() {
            *said = said.chars().take(WORD_MAX).collect();
        }
        self
    }
}

fn text(cursor: &mut Cursor<'_>) -> Result<String, JsonFault> {
    let spot = cursor.string()?;
    Ok(string::decode(cursor.text(), spot)?.into_owned())
}

fn raw(cursor: &Cursor<'_>, range: Range<usize>) -> String {
    String::from_utf8_lossy(cursor.text().get(range).unwrap_or_default()).into_owned()
}

fn clipped(text: &str) -> String {
    text.chars().take(MESSAGE_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_of_an_upstreams_error_is_read() {
        for (body, message, kind, code) in [
            (r#"{"error":{"message":"m","type":"t","param":null,"code":"c"}}"#, "m", Some("t"), Some("c")),
            (
                r#"{"error":{"code":400,"message":"m","type":"invalid_request_error"}}"#,
                "m",
                Some("invalid_request_error"),
                Some("400"),
            ),
            (r#"{"error":"'response_format.type' must be x"}"#, "'response_format.type' must be x", None, None),
            (r#"{"code":"The service","error":"busy"}"#, "busy", None, Some("The service")),
            (
                r#"{"object":"error","message":"flat","type":"BadRequestError","code":400}"#,
                "flat",
                Some("BadRequestError"),
                Some("400"),
            ),
            (r#"[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"m"}}]"#, "m", None, Some("429")),
            (r#"{"detail":"Not Found"}"#, "Not Found", None, None),
            ("bad model", "bad model", None, None),
            ("<html>502</html>", "<html>502</html>", None, None),
            ("", "", None, None),
        ] {
            let found = Reported::read(body.as_bytes());
            assert_eq!(
                (found.message.as_str(), found.kind.as_deref(), found.code.as_deref()),
                (message, kind, code),
                "{body}"
            );
        }
    }

    #[test]
    fn a_failed_generation_is_left_behind() {
        let found = Reported::read(br#"{"error":{"message":"m","failed_generation":"{\"ssn\":1}"}}"#);
        assert_eq!(found, Reported { message: "m".into(), ..Default::default() });
    }

    #[test]
    fn a_broken_body_is_not_quoted_and_a_secret_is_blotted_before_it_is_cut() {
        let broken = br#"{"error":{"failed_generation":"{\"ssn\":1}"#;
        assert_eq!(Reported::read(broken), Reported::default());
        assert_eq!(Reported::read(br#"{"failed_generation":"x"}"#), Reported::default());
        let long = format!("{}sk-operator", "x".repeat(MESSAGE_MAX - 3));
        let passed = Reported::read(long.as_bytes()).passed_on(|said| said.replace("sk-operator", "***"));
        assert!(!passed.message.contains("sk-") && passed.message.chars().count() <= MESSAGE_MAX);
    }

    #[test]
    fn codes_are_pairwise_different() {
        let mut seen: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), Code::ALL.len());
    }
}
