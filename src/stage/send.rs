//! The one stage that waits on the network, as a trait: the client implements it, and so does the
//! scripted model.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::Method;
use http::StatusCode;

use crate::catalog::Target;

/// One call to a target.
#[derive(Debug)]
pub struct Call {
    /// Where to.
    pub target: Target,
    /// The method.
    pub method: Method,
    /// The path below the backend's base, with its query: `/chat/completions`.
    pub path: String,
    /// Headers, credentials included.
    pub headers: HeaderMap,
    /// The body.
    pub body: CallBody,
}

/// The body of a call.
pub enum CallBody {
    /// Pieces that go out in their order.
    Pieces(Vec<Bytes>),
    /// A caller's body, as it comes.
    Upload(Upload),
}

impl std::fmt::Debug for CallBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pieces(pieces) => f.debug_tuple("Pieces").field(&pieces.len()).finish(),
            Self::Upload(_) => f.write_str("Upload"),
        }
    }
}

/// A caller's body as it comes.
pub type Upload = Pin<Box<dyn http_body::Body<Data = Bytes, Error = UploadError> + Send>>;

/// Why a caller's body could not be taken on to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UploadError {
    /// It is larger than a body may be.
    #[error("the body has more than {0} bytes")]
    TooLarge(usize),
    /// It paused, or dripped, for too long.
    #[error("the body came too slowly: it may pause for {0:?}")]
    TooSlow(Duration),
    /// It broke HTTP.
    #[error("the body broke off: its chunks are not framed as HTTP/1.1 has them")]
    Broken,
    /// Its sender went away.
    #[error("the caller went away")]
    Gone,
}

/// The head of a backend's answer, and its body as it comes.
pub struct UpstreamReply {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: UpstreamBody,
}

/// A body as it comes. Dropping it ends the call.
pub type UpstreamBody = Pin<Box<dyn http_body::Body<Data = Bytes, Error = UpstreamError> + Send>>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// No connection.
    #[error("cannot connect to the backend `{backend}`")]
    Connect {
        /// The backend's name.
        backend: Arc<str>,
        /// What the network says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The connection broke, or the backend broke HTTP.
    #[error("the connection to the backend `{backend}` broke")]
    Broken {
        /// The backend's name.
        backend: Arc<str>,
        /// What the network says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Nothing came in time.
    #[error("the backend `{backend}` sent nothing for {after:?} ({phase})")]
    Stall {
        /// The backend's name.
        backend: Arc<str>,
        /// What was waited for: `connect`, `first byte` or `idle`.
        phase: Phase,
        /// How long.
        after: Duration,
    },
    /// The body is larger than may be held.
    #[error("the answer of the backend `{backend}` has more than {max} bytes")]
    TooLarge {
        /// The backend's name.
        backend: Arc<str>,
        /// `limits.response`
        max: usize,
    },
    /// The body's coding cannot be read, though identity was asked for.
    #[error("the backend `{backend}` sent an answer in the coding `{coding}`, though none was asked for")]
    Coding {
        /// The backend's name.
        backend: Arc<str>,
        /// The `content-encoding`.
        coding: String,
    },
    /// The caller's own body failed while it went out.
    #[error(transparent)]
    Upload(UploadError),
}

/// What a call was waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The connection, or a place among those that may be under way.
    Connect,
    /// The head of the answer.
    FirstByte,
    /// The next piece of the body.
    Idle,
    /// The end of the exchange.
    Total,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::FirstByte => "first byte",
            Self::Idle => "idle",
            Self::Total => "total",
        })
    }
}

impl UpstreamError {
    /// Whether the next target may be asked. Exhaustive: a new variant waits for a decision.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect { .. } => true,
            Self::Stall { phase: Phase::Connect | Phase::FirstByte, .. } => true,
            Self::Stall { phase: Phase::Idle | Phase::Total, .. } => false,
            Self::Broken { .. } | Self::TooLarge { .. } | Self::Coding { .. } | Self::Upload(_) => false,
        }
    }

    /// The failure in one word, for records and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "connect",
            Self::Broken { .. } => "broken",
            Self::Stall { phase: Phase::Connect, .. } => "connect_timeout",
            Self::Stall { phase: Phase::FirstByte, .. } => "first_byte_timeout",
            Self::Stall { phase: Phase::Idle, .. } => "idle_timeout",
            Self::Stall { phase: Phase::Total, .. } => "deadline",
            Self::TooLarge { .. } => "too_large",
            Self::Coding { .. } => "coding",
            Self::Upload(UploadError::TooLarge(_)) => "upload_too_large",
            Self::Upload(UploadError::TooSlow(_)) => "upload_too_slow",
            Self::Upload(UploadError::Broken) => "upload_broken",
            Self::Upload(UploadError::Gone) => "client_gone",
        }
    }
}

/// What can be called.
pub trait Upstream: Send + Sync + 'static {
    /// Makes one call and waits for the head of the answer.
    fn send(&self, call: Call) -> impl Future<Output = Result<UpstreamReply, UpstreamError>> + Send;
}
