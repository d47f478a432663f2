//! An answer taken in whole, within the bounds for one and for all.

use std::io::Read as _;
use std::task::Poll;

use bytes::Bytes;
use bytes::BytesMut;
use http_body_util::BodyExt as _;

use crate::api::backend::openai_stream::Collected;
use crate::api::backend::openai_stream::Collector;
use crate::catalog::Backend;
use crate::exchange::missed;
use crate::exchange::missed::Missed;
use crate::stage::admit::Share;
use crate::stage::send::UpstreamBody;
use crate::stage::send::UpstreamError;
use crate::wire::sse::EventReader;

/// What a body may take: bytes of one answer, and a share of what all may hold.
pub(super) struct Hold<'a> {
    pub(super) share: Share,
    taken: usize,
    max: usize,
    backend: &'a Backend,
}

impl<'a> Hold<'a> {
    /// Nothing is taken yet, of `max` bytes.
    pub(super) fn new(share: Share, max: usize, backend: &'a Backend) -> Self {
        Self { share, taken: 0, max, backend }
    }

    fn take(&mut self, bytes: usize) -> Result<(), Missed> {
        self.taken += bytes;
        if self.taken > self.max {
            return Err(missed::unsent(UpstreamError::TooLarge { backend: self.backend.name.clone(), max: self.max }));
        }
        self.share.grow(bytes).map_err(|_| missed::overloaded())
    }
}

pub(super) async fn collect_whole(mut body: UpstreamBody, hold: &mut Hold<'_>) -> Result<Bytes, Missed> {
    let mut first: Option<Bytes> = None;
    let mut more = BytesMut::new();
    while let Some(data) = next(&mut body).await? {
        hold.take(data.len())?;
        match (&mut first, more.is_empty()) {
            (None, true) => first = Some(data),
            (Some(only), true) => {
                more.reserve(only.len() + data.len());
                more.extend_from_slice(only);
                more.extend_from_slice(&data);
            }
            (_, false) => more.extend_from_slice(&data),
        }
    }
    Ok(if more.is_empty() { first.unwrap_or_default() } else { more.freeze() })
}

pub(super) async fn collect_events(mut body: UpstreamBody, hold: &mut Hold<'_>) -> Result<Collected, Missed> {
    let (mut reader, mut collector) = (EventReader::new(), Collector::default());
    let backend = hold.backend;
    while let Some(data) = next(&mut body).await? {
        hold.take(data.len())?;
        reader.feed(&data, |event| collector.take(event)).map_err(|error| missed::unread(backend, error))?;
        if collector.is_done() {
            // What follows `[DONE]` is not waited for; but a body that has ended gives its connection back.
            let _ = std::future::poll_fn(|context| Poll::Ready(body.as_mut().poll_frame(context))).await;
            break;
        }
    }
    reader.finish(|event| collector.take(event)).map_err(|error| missed::unread(backend, error))?;
    collector.finish().map_err(|error| missed::unread(backend, error))
}

/// The next piece of data; trailers are passed over.
async fn next(body: &mut UpstreamBody) -> Result<Option<Bytes>, Missed> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(error)) => return Err(missed::unsent(error)),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// Undoes a coding that came although none was asked for: gzip, no further than one answer may go, and with
/// its share of what all may hold taken as it grows.
pub(super) async fn decoded(
    body: Bytes,
    coding: &str,
    share: Share,
    max: usize,
    backend: &Backend,
) -> Result<(Bytes, Share), Missed> {
    match coding.trim().to_ascii_lowercase().as_str() {
        "identity" | "" => Ok((body, share)),
        "gzip" | "x-gzip" => {
            // Minutes of work can hide in a few kilobytes, so it is not done on a thread that serves others.
            let unpacking = tokio::task::spawn_blocking(move || unpacked(&body, share, max)).await;
            match unpacking.map_err(|error| missed::internal(&error))? {
                Ok(unpacked) => Ok(unpacked),
                Err(Packed::TooLarge) => {
                    Err(missed::unsent(UpstreamError::TooLarge { backend: backend.name.clone(), max }))
                }
                Err(Packed::Full) => Err(missed::overloaded()),
                Err(Packed::Broken) => Err(missed::protocol("the backend's gzip cannot be read", "gzip")),
            }
        }
        other => {
            let coding = crate::json::fault::shown(other);
            Err(missed::unsent(UpstreamError::Coding { backend: backend.name.clone(), coding }))
        }
    }
}

/// Why a packed body could not be unpacked.
enum Packed {
    TooLarge,
    Full,
    Broken,
}

fn unpacked(body: &[u8], mut share: Share, max: usize) -> Result<(Bytes, Share), Packed> {
    let mut reader = flate2::read::MultiGzDecoder::new(body);
    let mut text = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        let length = reader.read(&mut piece).map_err(|_| Packed::Broken)?;
        if length == 0 {
            return Ok((text.into(), share));
        }
        if text.len() + length > max {
            return Err(Packed::TooLarge);
        }
        share.grow(length).map_err(|_| Packed::Full)?;
        text.extend_from_slice(piece.get(..length).unwrap_or_default());
    }
}
