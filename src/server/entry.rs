//! The record of an exchange under way. However the exchange ends, exactly one record is made of it:
//! where nobody closes it, the caller went away.

use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use bytes::Bytes;
use http::StatusCode;

use crate::audit::AuditError;
use crate::exchange::watch::Watch;
use crate::record::Outcome;
use crate::record::Record;
use crate::server::Server;
use crate::server::edge::EdgeFault;
use crate::server::idle::Activity;
use crate::stage::admit::Share;
use crate::telemetry;
use crate::wire::fault::Code;

/// A record that will be made, whatever happens.
pub struct Entry<U> {
    /// What is known so far.
    pub record: Record,
    server: Arc<Server<U>>,
    started: Instant,
    /// Whether no audit record has been made of it yet.
    open: bool,
    /// Whether it has been counted and logged.
    told: bool,
    /// The exchange's place among those under way: held until its answer is out.
    place: Option<Share>,
    /// The gateway's own time, where the answer's head is out and the rest is waiting for the backend.
    own: Option<Duration>,
    /// The connection that the request's body comes over.
    connection: Option<Arc<Activity>>,
    /// The copy of the answer that policies watch.
    watch: Option<Box<Watch>>,
    /// How long the exchange took, where it ended before its record does.
    took: Option<Duration>,
}

impl<U> Entry<U> {
    /// Opens the record of a request whose head has arrived. In a box from the start: it goes a long way.
    pub fn open(server: Arc<Server<U>>, record: Record, started: Instant) -> Box<Self> {
        let (place, own, connection, watch, took) = (None, None, None, None, None);
        Box::new(Self { record, server, started, open: true, told: false, place, own, connection, watch, took })
    }

    /// Keeps the copy of the answer that policies watch.
    pub fn watch(&mut self, watch: Option<Box<Watch>>) {
        self.watch = watch;
    }

    /// A piece of the answer goes out.
    pub fn passes(&mut self, piece: &Bytes) {
        if let Some(watch) = &mut self.watch {
            watch.take(piece);
        }
    }

    /// Follows the connection that the request's body comes over.
    pub fn follow(&mut self, connection: Arc<Activity>) {
        self.connection = Some(connection);
    }

    /// What the edge found wrong with the body.
    pub fn broken_body(&self) -> Option<EdgeFault> {
        self.connection.as_ref().filter(|_| self.record.code == Some(Code::InvalidHttp))?.refused()
    }

    /// Keeps the exchange's place among those under way until the entry goes.
    pub fn keep(&mut self, place: Share) {
        self.place = Some(place);
    }

    /// Gives the exchange's place away, to be kept until the answer is out.
    pub fn place(&mut self) -> Option<Share> {
        self.place.take()
    }

    /// The answer's head goes out, and the rest as it comes: from here on time is the backend's.
    pub fn begin_relay(&mut self) {
        self.record.total = self.started.elapsed();
        self.own = Some(self.record.own());
    }

    /// Closes it before the answer goes out. Fails where the audit record is required and cannot be written.
    pub async fn close(&mut self) -> Result<(), AuditError> {
        self.record.total = self.started.elapsed();
        let server = Arc::clone(&self.server);
        let written = match &server.audit {
            Some(audit) => audit.write(&self.record, || self.open = false).await,
            None => Ok(()),
        };
        self.open = false;
        if written.is_err() {
            server.metrics.unwritten();
        }
        let required = server.audit.as_ref().is_some_and(|audit| audit.is_required());
        let failed = written.err().filter(|_| required);
        if failed.is_none() {
            self.tell();
        }
        failed.map_or(Ok(()), Err)
    }

    /// Counts and logs the record as it is now.
    pub fn tell(&mut self) {
        self.told = true;
        self.server.metrics.observe(&self.record);
        telemetry::log(&self.record);
    }

    /// Closes it when the last byte of a relayed answer is out, or the caller has gone: nobody waits.
    pub fn close_now(&mut self) {
        if !self.open {
            return;
        }
        self.record.answered();
        self.record.total = self.took.unwrap_or_else(|| self.started.elapsed());
        if let Some(own) = self.own {
            self.record.upstream = self.record.total.saturating_sub(own);
        }
        self.open = false;
        if let Some(audit) = &self.server.audit
            && let Err(error) = audit.post(&self.record)
        {
            self.server.metrics.unwritten();
            tracing::error!(%error, request_id = self.record.request_id, "the record of an exchange is lost");
        }
        self.tell();
    }

    /// What connections share.
    pub fn server(&self) -> &Server<U> {
        &self.server
    }

    /// When the request's head had arrived.
    pub fn started(&self) -> Instant {
        self.started
    }
}

impl<U: Send + Sync + 'static> Entry<U> {
    /// The answer has ended well: its copy is judged, and the record closed. A long copy is judged by another thread, so that
    /// no other exchange waits for it.
    pub fn ended_now(&mut self) {
        match self.watch.take().filter(|_| self.open) {
            Some(watch) if watch.is_long() => {
                let mut later = self.later();
                tokio::task::spawn_blocking(move || {
                    watch.finish(&mut later.record);
                    later.close_now();
                });
            }
            Some(watch) => {
                watch.finish(&mut self.record);
                self.close_now();
            }
            None => self.close_now(),
        }
    }

    /// The same entry, to be closed by somebody else.
    fn later(&mut self) -> Self {
        let Self { record, server, started, own, .. } = &*self;
        let (record, server, started, own) = (record.clone(), Arc::clone(server), *started, *own);
        let (open, told) = (self.open, self.told);
        (self.open, self.told) = (false, true);
        let (place, took) = (self.place.take(), Some(started.elapsed()));
        Self { record, server, started, open, told, place, own, connection: None, watch: None, took }
    }
}

impl<U> Drop for Entry<U> {
    fn drop(&mut self) {
        if !self.open {
            if !self.told {
                self.tell(); // the caller went away while the audit record was being written
            }
            return;
        }
        if std::thread::panicking() {
            self.record.outcome = Outcome::Failed;
            self.record.status = StatusCode::INTERNAL_SERVER_ERROR;
            self.record.code = Some(Code::InternalError);
            self.record.reason = Some("internal");
            return self.close_now();
        }
        self.record.outcome = Outcome::Cancelled;
        self.record.status = StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST);
        self.record.reason = Some("client_gone");
        self.close_now();
    }
}
