//! Pieces of a body that are there already, taken in one go.

use std::pin::Pin;
use std::task::Context;
use std::task::Poll;

use bytes::Bytes;
use bytes::BytesMut;
use http_body::Body;
use http_body::Frame;
use http_body::SizeHint;

/// Bytes of a piece that is worth copying: above this, the copy costs more than a write of its own.
const SMALL: usize = 4 << 10;
/// Bytes that are gathered at most.
const MOST: usize = 16 << 10;

/// A body whose small pieces go on together, as far as they are there: a burst of events costs one write
/// downstream and not one each. It never waits for a piece to go with another.
pub(super) struct Gathered<B: Body> {
    body: B,
    /// What came after the pieces that were gathered.
    next: Option<Option<Result<Frame<Bytes>, B::Error>>>,
}

impl<B: Body<Data = Bytes> + Unpin> Gathered<B> {
    /// `body`, gathered.
    pub(super) fn new(body: B) -> Self {
        Self { body, next: None }
    }

    /// Appends to `first` what is there behind it.
    fn gather(&mut self, first: Bytes, context: &mut Context<'_>) -> Bytes {
        let mut only = first;
        let mut all = BytesMut::new();
        while only.len().max(all.len()) < MOST {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(frame))) if frame.data_ref().is_some_and(|data| data.len() <= SMALL) => {
                    let data = frame.into_data().unwrap_or_default();
                    if all.is_empty() {
                        all.reserve(only.len() + data.len() + SMALL);
                        all.extend_from_slice(&std::mem::take(&mut only));
                    }
                    all.extend_from_slice(&data);
                }
                Poll::Ready(other) => {
                    self.next = Some(other);
                    break;
                }
            }
        }
        if all.is_empty() { only } else { all.freeze() }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Gathered<B>
where
    B::Error: Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let frame = match this.next.take() {
            Some(next) => next,
            None => std::task::ready!(Pin::new(&mut this.body).poll_frame(context)),
        };
        let frame = match frame {
            Some(Ok(frame)) if !this.body.is_end_stream() => frame,
            other => return Poll::Ready(other),
        };
        match frame.into_data() {
            Ok(data) if data.len() <= SMALL => Poll::Ready(Some(Ok(Frame::data(this.gather(data, context))))),
            Ok(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
            Err(trailers) => Poll::Ready(Some(Ok(trailers))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.next {
            Some(None) => true,
            Some(Some(_)) => false,
            None => self.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let held = match &self.next {
            Some(Some(Ok(frame))) => frame.data_ref().map_or(0, |data| data.len() as u64),
            _ => 0,
        };
        let mut hint = self.body.size_hint();
        match hint.exact() {
            Some(exact) => hint.set_exact(exact.saturating_add(held)),
            None => hint = SizeHint::default(),
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use http::HeaderMap;
    use http_body_util::BodyExt as _;

    use super::*;

    /// A body by script: `None` is a pause.
    struct Script(VecDeque<Option<Frame<Bytes>>>);

    impl Body for Script {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.0.pop_front() {
                None => Poll::Ready(None),
                Some(Some(frame)) => Poll::Ready(Some(Ok(frame))),
                Some(None) => {
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
            }
        }
    }

    fn data(bytes: impl Into<Bytes>) -> Option<Frame<Bytes>> {
        Some(Frame::data(bytes.into()))
    }

    async fn pieces(script: Vec<Option<Frame<Bytes>>>) -> Vec<usize> {
        let mut body = Gathered::new(Script(script.into()));
        let mut sizes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.unwrap();
            sizes.push(frame.data_ref().map_or(usize::MAX, Bytes::len));
        }
        assert!(body.is_end_stream() || sizes.is_empty() || body.frame().await.is_none());
        sizes
    }

    #[tokio::test]
    async fn what_is_there_goes_together_and_what_is_not_is_not_waited_for() {
        assert_eq!(pieces(vec![data("ab"), data("c"), None, data("d"), data("ef")]).await, [3, 3]);
        assert_eq!(pieces(vec![data("ab"), None, None, data("c")]).await, [2, 1]);
        assert_eq!(pieces(Vec::new()).await, [0usize; 0]);
    }

    #[tokio::test]
    async fn large_pieces_and_trailers_keep_their_place() {
        let large = vec![b'x'; SMALL + 1];
        assert_eq!(pieces(vec![data("a"), data(large.clone()), data("b"), data("c")]).await, [1, SMALL + 1, 2]);
        assert_eq!(pieces(vec![data(large), data("b")]).await, [SMALL + 1, 1]);
        let trailers = Some(Frame::trailers(HeaderMap::new()));
        assert_eq!(pieces(vec![data("a"), data("b"), trailers]).await, [2, usize::MAX]);
    }

    #[tokio::test]
    async fn no_more_is_gathered_than_a_bound() {
        let many = std::iter::repeat_n(vec![b'x'; SMALL], 9).map(data).collect();
        assert_eq!(pieces(many).await, [MOST, MOST, SMALL]);
    }
}
