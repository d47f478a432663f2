//! Connections to a backend that are kept for the next call: idle ones, and the shared one where it speaks HTTP/2.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::Weak;
use std::time::Duration;

use hyper::client::conn::http2;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::upstream::link::Link;
use crate::upstream::outgoing::Outgoing;
use crate::upstream::stream::LastWord;

/// Idle connections are dropped before a server's own keep-alive ends them (15 s and more are usual).
const KEPT: Duration = Duration::from_secs(14);
/// How often they are looked through.
const SWEEP: Duration = Duration::from_secs(2);

/// The connections that are kept. Each is dropped when it has lain idle for long enough, or the backend has closed it.
pub(super) struct Kept {
    inner: Mutex<Inner>,
    most: usize,
    tasks: TaskTracker,
}

#[derive(Default)]
struct Inner {
    /// Those of HTTP/1, the one that was used last at the end.
    links: VecDeque<(Instant, Link)>,
    /// The one of HTTP/2.
    shared: Option<Shared>,
    /// A task looks through them, as long as there are any.
    swept: bool,
}

/// An HTTP/2 connection, which carries many calls at once. Its task ends when its last sender and call are gone.
#[derive(Clone)]
pub(super) struct Shared {
    sender: http2::SendRequest<Outgoing>,
    last_word: LastWord,
    calls: Arc<Mutex<Calls>>,
}

/// What a shared connection carries.
struct Calls {
    under_way: usize,
    /// When the last of them ended.
    ended: Instant,
}

/// A call under way on a shared connection.
pub(super) struct Call(Arc<Mutex<Calls>>);

impl Drop for Call {
    fn drop(&mut self) {
        let mut calls = locked(&self.0);
        calls.under_way -= 1;
        calls.ended = Instant::now();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// A connection that carries nothing yet.
    pub(super) fn new(sender: http2::SendRequest<Outgoing>, last_word: LastWord) -> Self {
        let calls = Arc::new(Mutex::new(Calls { under_way: 0, ended: Instant::now() }));
        Self { sender, last_word, calls }
    }

    /// Begins a call, which is under way until what is returned goes.
    pub(super) fn begin(self) -> (http2::SendRequest<Outgoing>, LastWord, Call) {
        locked(&self.calls).under_way += 1;
        (self.sender, self.last_word, Call(self.calls))
    }

    /// Whether it may carry another call: it stands, and the other side is not about to close it.
    fn stands(&self) -> bool {
        let calls = locked(&self.calls);
        !self.sender.is_closed() && (calls.under_way > 0 || calls.ended.elapsed() < KEPT)
    }
}

impl Kept {
    /// Nothing is kept yet; of HTTP/1, no more than `most` connections ever will be.
    pub(super) fn new(most: usize, tasks: TaskTracker) -> Self {
        Self { inner: Mutex::default(), most, tasks }
    }

    /// Connections of HTTP/1 that are kept at most.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Takes the connection of HTTP/1 that was used last.
    pub(super) fn take(&self) -> Option<Link> {
        let mut inner = locked(&self.inner);
        let (since, link) = inner.links.pop_back()?;
        if since.elapsed() < KEPT {
            return Some(link);
        }
        let old = std::mem::take(&mut inner.links); // all others are older
        drop(inner);
        drop(old);
        None
    }

    /// Puts one back.
    pub(super) fn put(self: &Arc<Self>, link: Link) {
        let mut inner = locked(&self.inner);
        inner.links.push_back((Instant::now(), link));
        let surplus = if inner.links.len() > self.most { inner.links.pop_front() } else { None };
        self.look_after(inner);
        drop(surplus);
    }

    /// The connection that calls share, if there is one that stands.
    pub(super) fn shared(&self) -> Option<Shared> {
        let mut inner = locked(&self.inner);
        let gone = inner.shared.take_if(|shared| !shared.stands());
        let shared = inner.shared.clone();
        drop(inner);
        drop(gone);
        shared
    }

    /// Lets calls share a connection from now on.
    pub(super) fn share(self: &Arc<Self>, shared: Shared) {
        let mut inner = locked(&self.inner);
        let before = inner.shared.replace(shared);
        self.look_after(inner);
        drop(before);
    }

    /// Shares a connection no longer, be it the one that is shared.
    pub(super) fn forget(&self, of: &LastWord) {
        let gone = locked(&self.inner).shared.take_if(|shared| shared.last_word.is_of(of));
        drop(gone);
    }

    /// Sees to it that a task looks through what is kept.
    fn look_after(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>) {
        let begin = !std::mem::replace(&mut inner.swept, true);
        drop(inner);
        if begin {
            self.tasks.spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Drops connections that have lain idle for long enough or have ended. False where none is left to look after.
    fn swept(&self) -> bool {
        let mut inner = locked(&self.inner);
        let shared = inner.shared.take_if(|shared| !shared.stands());
        let links = std::mem::take(&mut inner.links);
        let mut ended = Vec::new();
        for (since, mut link) in links {
            if since.elapsed() < KEPT && link.rests() {
                inner.links.push_back((since, link));
            } else {
                ended.push(link);
            }
        }
        inner.swept = !inner.links.is_empty() || inner.shared.is_some();
        let more = inner.swept;
        drop(inner);
        drop((ended, shared));
        more
    }
}

/// Looks through what is kept until there is nothing, or the pool is gone.
async fn sweep(kept: Weak<Kept>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(kept) = kept.upgrade() else { return };
        if !kept.swept() {
            return;
        }
    }
}
