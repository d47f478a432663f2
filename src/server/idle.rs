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
    /// Over HTTP/2, its answers. Those that have gone are taken out as it is looked at.
    streams: Mutex<Vec<Weak<dyn Stream>>>,
}

/// An answer over HTTP/2, which shares its connection with others.
trait Stream: Send + Sync + std::fmt::Debug {
    /// Milliseconds after the connection was accepted, plus one, since when a piece of it is there that nobody has asked
    /// to be followed; 0 is none.
    fn ready(&self) -> u64;

    /// Ends it: nobody takes it, and what it holds is free again.
    fn let_go(&self);

    /// Whether it was let go.
    fn is_let_go(&self) -> bool;
}

/// The body of such an answer.
struct Slot<B> {
    ready: AtomicU64,
    /// None once it was let go.
    body: Mutex<Option<B>>,
}

impl<B> std::fmt::Debug for Slot<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("ready", &self.ready).finish_non_exhaustive()
    }
}

impl<B: Send> Stream for Slot<B> {
    fn ready(&self) -> u64 {
        self.ready.load(Ordering::Relaxed)
    }

    fn let_go(&self) {
        drop(locked(&self.body).take());
    }

    fn is_let_go(&self) -> bool {
        locked(&self.body).is_none()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nobody took an answer, and it was let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the caller took nothing of the answer")]
pub struct LetGo;

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
        UnderWay { activity: Arc::clone(self), shares: version == Version::HTTP_2 }
    }

    /// Notes an answer that shares its connection with others.
    fn note(&self, stream: Weak<dyn Stream>) {
        let mut streams = locked(&self.streams);
        if streams.len() >= STREAMS_KEPT {
            streams.retain(|stream| stream.strong_count() > 0);
        }
        streams.push(stream);
    }

    /// Whether a request is under way.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 0
    }

    /// Wakes this task once the request under way has been answered.
    pub(super) fn then_wake(&self, context: &Context<'_>) {
        *locked(&self.next) = Some(context.waker().clone());
    }

    /// Whether the caller has taken nothing of its answer for so long. Of several answers over one connection, those of
    /// which that is true are let go, and the others live on, and the connection as long as there are others.
    fn is_left(&self, patience: Duration) -> bool {
        let patience = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let now = self.now();
        let long = |since: u64| since > 0 && now.saturating_sub(since - 1) >= patience;
        let streams: Vec<Arc<dyn Stream>> = {
            let mut streams = locked(&self.streams);
            streams.retain(|stream| stream.strong_count() > 0);
            streams.iter().filter_map(Weak::upgrade).collect()
        };
        streams.iter().filter(|stream| long(stream.ready())).for_each(|stream| stream.let_go());
        let gone = streams.iter().filter(|stream| stream.is_let_go()).count();
        long(self.stuck.load(Ordering::Relaxed)) || (gone > 0 && gone >= self.under_way.load(Ordering::Relaxed))
    }

    /// Waits until the connection has lain idle for too long, a head has taken too long to come, or the
    /// caller has read nothing of an answer for too long.
    pub async fn ended(&self, header_timeout: Duration, idle_timeout: Duration) {
        // What the connection is doing may change at any time, so no wait is longer than the shorter clock.
        let step = header_timeout.min(idle_timeout);
        loop {
            if self.under_way.load(Ordering::Acquire) > 0 {
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
    /// It shares its connection with others.
    shares: bool,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.activity.answered.store(self.activity.now().max(1), Ordering::Relaxed);
        self.activity.under_way.fetch_sub(1, Ordering::Release); // whoever sees this sees when it was answered
        let next = locked(&self.activity.next).take();
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
    body: Inner<B>,
    exchange: UnderWay,
    broken: Option<Broken<B::Error>>,
}

enum Inner<B> {
    /// Over HTTP/1 a caller that takes nothing shows at the socket.
    Own(B),
    /// Over HTTP/2 the socket serves the others, too.
    Shared(Arc<Slot<B>>),
}

/// How a body broke off, to be told in a moment.
struct Broken<E> {
    error: E,
    /// Over HTTP/1, the library writes what it has as soon as there is no more. Over HTTP/2 another task does, at its
    /// own time.
    moment: Option<Pin<Box<Sleep>>>,
}

impl<B: Body + Send + 'static> Counted<B> {
    /// `body`, counted.
    pub fn new(body: B, exchange: UnderWay) -> Self {
        if !exchange.shares {
            return Self { body: Inner::Own(body), exchange, broken: None };
        }
        let slot = Arc::new(Slot { ready: AtomicU64::new(0), body: Mutex::new(Some(body)) });
        let stream: Arc<dyn Stream> = Arc::<Slot<B>>::clone(&slot);
        exchange.activity.note(Arc::downgrade(&stream));
        Self { body: Inner::Shared(slot), exchange, broken: None }
    }
}

/// What comes of asking a body for more.
type Polled<B> = Poll<Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>>;

impl<B: Body + Unpin> Counted<B>
where
    B::Error: From<LetGo>,
{
    fn poll_inner(&mut self, context: &mut Context<'_>) -> Polled<B> {
        match &mut self.body {
            Inner::Own(body) => Pin::new(body).poll_frame(context),
            Inner::Shared(slot) => {
                let mut body = locked(&slot.body);
                let Some(body) = body.as_mut() else { return Poll::Ready(Some(Err(LetGo.into()))) };
                let frame = Pin::new(body).poll_frame(context);
                let since = if frame.is_ready() { self.exchange.activity.now() + 1 } else { 0 };
                slot.ready.store(since, Ordering::Relaxed);
                frame
            }
        }
    }
}

impl<B: Body + Unpin> Body for Counted<B>
where
    B::Error: Unpin + From<LetGo>,
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
        let frame = self.poll_inner(context);
        if let Poll::Ready(Some(Err(error))) = frame {
            let moment = self.exchange.shares.then(|| Box::pin(tokio::time::sleep(MOMENT)));
            self.broken = Some(Broken { error, moment });
            context.waker().wake_by_ref(); // the clock is set when it is looked at next
            return Poll::Pending;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Inner::Own(body) => self.broken.is_none() && body.is_end_stream(),
            Inner::Shared(slot) => {
                self.broken.is_none() && locked(&slot.body).as_ref().is_some_and(|body| body.is_end_stream())
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Inner::Own(body) => body.size_hint(),
            Inner::Shared(slot) => locked(&slot.body).as_ref().map_or_else(SizeHint::default, |body| body.size_hint()),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

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
    async fn an_answer_that_nobody_takes_is_let_go_over_http2_and_no_other_with_it() {
        let activity = Activity::new();
        let body = || http_body_util::Full::new(bytes::Bytes::from_static(b"piece")).map_err(|_| LetGo);
        let mut left = Counted::new(body(), activity.begin(Version::HTTP_2));
        let mut other = Counted::new(body(), activity.begin(Version::HTTP_2));
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(Pin::new(&mut left).poll_frame(&mut context).is_ready());
        let held = tokio::time::timeout(IDLE * 3, activity.ended(HEAD, IDLE)).await;
        assert!(held.is_err(), "the connection lives on");
        assert!(!left.is_end_stream());
        assert!(matches!(left.frame().await, Some(Err(LetGo))));
        assert!(matches!(other.frame().await, Some(Ok(_))));
        drop(other);
        ends_after(&activity).await; // nothing else is under way
        drop(left);
        activity.is_left(IDLE);
        assert_eq!(locked(&activity.streams).len(), 0);
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
