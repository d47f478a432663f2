//! Connections that lie idle, and heads that come drop by drop: each has a clock of its own.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::OnceLock;
use std::sync::PoisonError;
use std::sync::Weak;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;
use std::time::Duration;

use http::Version;
use http_body::Body;
use http_body::Frame;
use http_body::SizeHint;
use tokio::time::Instant;
use tokio::time::Sleep;

use crate::server::edge::EdgeFault;

/// Answers over HTTP/2 that are noted before those that have gone are taken out: more than can be under way.
const STREAMS_KEPT: usize = 512;

/// How long what came before an answer broke off may take to go out over HTTP/2.
const MOMENT: Duration = Duration::from_millis(20);

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
    /// Who reads on once nothing is under way.
    next: Mutex<Option<Waker>>,
    /// Why no more is read of it.
    refused: OnceLock<EdgeFault>,
    /// Over HTTP/2, what its answers wait for: see [`UnderWay`]. Those that have gone are taken out as it is looked at.
    streams: Mutex<Vec<Weak<AtomicU64>>>,
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
            next: Mutex::default(),
            refused: OnceLock::new(),
            streams: Mutex::default(),
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
    pub fn begin(self: &Arc<Self>, version: Version) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        // Over HTTP/1 a caller that takes nothing shows at the socket. Over HTTP/2 the socket serves the others.
        let ready = (version == Version::HTTP_2).then(|| {
            let ready = Arc::new(AtomicU64::new(0));
            let mut streams = self.streams();
            if streams.len() >= STREAMS_KEPT {
                streams.retain(|ready| ready.strong_count() > 0);
            }
            streams.push(Arc::downgrade(&ready));
            ready
        });
        UnderWay { activity: Arc::clone(self), ready }
    }

    /// Whether a request is under way.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 0
    }

    /// Wakes this task once the request under way has been answered.
    pub(super) fn then_wake(&self, context: &Context<'_>) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
    }

    fn streams(&self) -> MutexGuard<'_, Vec<Weak<AtomicU64>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether some caller has taken nothing of an answer that was there for it for so long.
    fn is_left(&self, patience: Duration) -> bool {
        let patience = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let now = self.now();
        let long = |since: u64| since > 0 && now.saturating_sub(since - 1) >= patience;
        let mut left = long(self.stuck.load(Ordering::Relaxed));
        self.streams().retain(|ready| {
            let ready = ready.upgrade();
            left |= ready.as_ref().is_some_and(|ready| long(ready.load(Ordering::Relaxed)));
            ready.is_some()
        });
        left
    }

    /// Waits until the connection has lain idle for too long, a head has taken too long to come, or the
    /// caller has read nothing of an answer for too long.
    pub async fn ended(&self, header_timeout: Duration, idle_timeout: Duration) {
        // What the connection is doing may change at any time, so no wait is longer than the shorter clock.
        let step = header_timeout.min(idle_timeout);
        loop {
            if self.under_way.load(Ordering::Relaxed) > 0 {
                if self.is_left(idle_timeout) {
                    return;
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
pub struct UnderWay {
    activity: Arc<Activity>,
    /// Over HTTP/2: milliseconds after the connection was accepted, plus one, since when a piece of the answer is
    /// there that nobody has asked to be followed; 0 is none.
    ready: Option<Arc<AtomicU64>>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.activity.answered.store(self.activity.now().max(1), Ordering::Relaxed);
        self.activity.under_way.fetch_sub(1, Ordering::Relaxed);
        let next = self.activity.next.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(next) = next {
            next.wake();
        }
    }
}

/// An answer's body that keeps its exchange under way until it is out.
///
/// Where it breaks off, what came before goes out first: the library drops what it has not written yet, and a caller
/// that sees not even the head takes the call for one that was never made, and makes it again.
pub struct Counted<B: Body> {
    body: B,
    exchange: UnderWay,
    broken: Option<Broken<B::Error>>,
}

/// How a body broke off, to be told in a moment.
struct Broken<E> {
    error: E,
    /// Over HTTP/1, the library writes what it has as soon as there is no more. Over HTTP/2 another task does, at its
    /// own time.
    moment: Option<Pin<Box<Sleep>>>,
}

impl<B: Body> Counted<B> {
    /// `body`, counted.
    pub fn new(body: B, exchange: UnderWay) -> Self {
        Self { body, exchange, broken: None }
    }
}

impl<B: Body + Unpin> Body for Counted<B>
where
    B::Error: Unpin,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        if let Some(broken) = &mut self.broken {
            if let Some(moment) = &mut broken.moment {
                std::task::ready!(moment.as_mut().poll(context));
            }
            return Poll::Ready(self.broken.take().map(|broken| Err(broken.error)));
        }
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Err(error))) = frame {
            let moment = self.exchange.ready.is_some().then(|| Box::pin(tokio::time::sleep(MOMENT)));
            self.broken = Some(Broken { error, moment });
            context.waker().wake_by_ref(); // the clock is set when it is looked at next
            return Poll::Pending;
        }
        if let Some(ready) = &self.exchange.ready {
            let since = if frame.is_ready() { self.exchange.activity.now() + 1 } else { 0 };
            ready.store(since, Ordering::Relaxed);
        }
        frame
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
        drop(activity.begin(Version::HTTP_11));
        assert!(ends_after(&activity).await >= IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_reads_nothing_is_let_go() {
        let activity = Activity::new();
        let _exchange = activity.begin(Version::HTTP_11);
        activity.wrote(true);
        let ended = ends_after(&activity).await;
        assert!(ended >= IDLE && ended < IDLE + HEAD * 2, "{ended:?}");
        activity.wrote(false);
        let held = tokio::time::timeout(Duration::from_secs(600), activity.ended(HEAD, IDLE)).await;
        assert!(held.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_asks_for_no_more_is_let_go_over_http2_too() {
        let activity = Activity::new();
        let pieces = http_body_util::Full::new(bytes::Bytes::from_static(b"piece"));
        let mut answer = Counted::new(pieces, activity.begin(Version::HTTP_2));
        let held = tokio::time::timeout(Duration::from_secs(600), activity.ended(HEAD, IDLE)).await;
        assert!(held.is_err(), "nothing is there for it yet");
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(Pin::new(&mut answer).poll_frame(&mut context).is_ready());
        let ended = ends_after(&activity).await;
        assert!(ended >= IDLE && ended < IDLE + HEAD * 2, "{ended:?}");
        assert_eq!(activity.streams().len(), 1);
        drop(answer);
        ends_after(&activity).await;
        activity.is_left(IDLE);
        assert_eq!(activity.streams().len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_exchange_under_way_keeps_it_open() {
        let activity = Activity::new();
        let exchange = activity.begin(Version::HTTP_11);
        let held = tokio::time::timeout(Duration::from_secs(600), activity.ended(HEAD, IDLE)).await;
        assert!(held.is_err());
        drop(exchange);
        let ended = ends_after(&activity).await;
        assert!(ended >= IDLE && ended < IDLE + HEAD, "{ended:?}");
    }
}
