//! Connections that lie idle, and heads that come drop by drop: each has a clock of its own.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use http_body::Body;
use http_body::Frame;
use http_body::SizeHint;
use tokio::time::Instant;

use crate::server::edge::EdgeFault;

/// What a connection is doing.
#[derive(Debug)]
pub struct Activity {
    accepted: Instant,
    /// Requests whose answer is not out yet.
    under_way: AtomicUsize,
    /// Milliseconds after `accepted` at which the last answer was out; none yet is 0.
    answered: AtomicU64,
    /// Milliseconds after `accepted`, plus one, at which the head that is coming in began; 0 is none.
    head: AtomicU64,
    /// Milliseconds after `accepted`, plus one, since when the socket takes nothing more; 0 is none.
    stuck: AtomicU64,
    /// Why no more is read of it.
    refused: OnceLock<EdgeFault>,
}

impl Activity {
    /// A connection that was just accepted.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            accepted: Instant::now(),
            under_way: AtomicUsize::new(0),
            answered: AtomicU64::new(0),
            head: AtomicU64::new(0),
            stuck: AtomicU64::new(0),
            refused: OnceLock::new(),
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.accepted.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Bytes came: `in_head` tells that a head has begun with them that is not whole.
    pub(super) fn read(&self, in_head: bool) {
        match (in_head, self.head.load(Ordering::Relaxed)) {
            (true, 0) => self.head.store(self.now() + 1, Ordering::Relaxed),
            (false, begun) if begun > 0 => self.head.store(0, Ordering::Relaxed),
            _ => {}
        }
    }

    /// The client speaks HTTP/2: from here on the library follows its heads, and the connection is idle between them.
    pub(super) fn speaks_http2(&self) {
        self.read(false);
        self.answered.store(self.now().max(1), Ordering::Relaxed);
    }

    /// What the client said next is refused; nothing else of it is read.
    pub(super) fn refuse(&self, fault: EdgeFault) {
        let _ = self.refused.set(fault); // the first fault is the last one
    }

    /// Why the request that was put in the place of what the client said is refused.
    pub fn refused(&self) -> Option<EdgeFault> {
        self.refused.get().copied()
    }

    /// Bytes were offered to the socket; `stuck` tells that it took none.
    pub(super) fn wrote(&self, stuck: bool) {
        match (stuck, self.stuck.load(Ordering::Relaxed)) {
            (true, 0) => self.stuck.store(self.now() + 1, Ordering::Relaxed),
            (false, since) if since > 0 => self.stuck.store(0, Ordering::Relaxed),
            _ => {}
        }
    }

    /// A request's head is whole. The exchange is under way until what is returned goes.
    pub fn begin(self: &Arc<Self>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(Arc::clone(self))
    }

    /// Waits until the connection has lain idle for too long, a head has taken too long to come, or the
    /// caller has read nothing of an answer for too long.
    pub async fn ended(&self, header_timeout: Duration, idle_timeout: Duration) {
        // What the connection is doing may change at any time, so no wait is longer than the shorter clock.
        let step = header_timeout.min(idle_timeout);
        loop {
            if self.under_way.load(Ordering::Relaxed) > 0 {
                let stuck = self.stuck.load(Ordering::Relaxed);
                let patience = u64::try_from(idle_timeout.as_millis()).unwrap_or(u64::MAX);
                if stuck > 0 && self.now().saturating_sub(stuck - 1) >= patience {
                    return; // the caller reads nothing of its answer
                }
                tokio::time::sleep(step).await;
                continue;
            }
            let after =
                |milliseconds: u64, patience: Duration| self.accepted + Duration::from_millis(milliseconds) + patience;
            let deadline = match (self.head.load(Ordering::Relaxed), self.answered.load(Ordering::Relaxed)) {
                (0, 0) => after(0, header_timeout),
                (0, answered) => after(answered, idle_timeout),
                (head, _) => after(head - 1, header_timeout),
            };
            let now = Instant::now();
            if deadline <= now {
                return;
            }
            tokio::time::sleep_until(deadline.min(now + step)).await;
        }
    }
}

/// An exchange under way on a connection.
#[derive(Debug)]
pub struct UnderWay(Arc<Activity>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.answered.store(self.0.now().max(1), Ordering::Relaxed);
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An answer's body that keeps its exchange under way until it is out.
pub struct Counted<B> {
    body: B,
    _exchange: UnderWay,
}

impl<B> Counted<B> {
    /// `body`, counted.
    pub fn new(body: B, exchange: UnderWay) -> Self {
        Self { body, _exchange: exchange }
    }
}

impl<B: Body + Unpin> Body for Counted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Duration = Duration::from_secs(10);
    const IDLE: Duration = Duration::from_secs(75);

    async fn ends_after(activity: &Activity) -> Duration {
        let start = Instant::now();
        activity.ended(HEAD, IDLE).await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_says_nothing_ends_after_the_time_for_a_head() {
        assert_eq!(ends_after(&Activity::new()).await, HEAD);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_was_answered_may_lie_idle_for_longer() {
        let activity = Activity::new();
        drop(activity.begin());
        assert!(ends_after(&activity).await >= IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_reads_nothing_is_let_go() {
        let activity = Activity::new();
        let _exchange = activity.begin();
        activity.wrote(true);
        let ended = ends_after(&activity).await;
        assert!(ended >= IDLE && ended < IDLE + HEAD * 2, "{ended:?}");
        activity.wrote(false);
        let held = tokio::time::timeout(Duration::from_secs(600), activity.ended(HEAD, IDLE)).await;
        assert!(held.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_exchange_under_way_keeps_it_open() {
        let activity = Activity::new();
        let exchange = activity.begin();
        let held = tokio::time::timeout(Duration::from_secs(600), activity.ended(HEAD, IDLE)).await;
        assert!(held.is_err());
        drop(exchange);
        let ended = ends_after(&activity).await;
        assert!(ended >= IDLE && ended < IDLE + HEAD, "{ended:?}");
    }
}
