//! The body of an answer as it comes off a connection.

use std::pin::Pin;
use std::task::Context;
use std::task::Poll;

use bytes::Bytes;
use http_body::Body;
use http_body::Frame;
use http_body::SizeHint;
use hyper::body::Incoming;

use crate::upstream::kept::Call;
use crate::upstream::link::LinkBody;

/// The body of an answer as it comes off a connection.
pub(super) enum ReplyBody {
    /// Off a connection of its own.
    Link(LinkBody),
    /// Off a shared one.
    Shared { body: Incoming, _call: Call },
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Link(body) => Pin::new(body).poll_frame(context),
            Self::Shared { body, .. } => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Link(body) => body.is_end_stream(),
            Self::Shared { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Link(body) => body.size_hint(),
            Self::Shared { body, .. } => body.size_hint(),
        }
    }
}
