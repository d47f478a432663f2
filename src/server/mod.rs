//! The listeners: sockets in, exchanges through, answers out.

pub mod admin;
pub mod edge;
pub mod entry;
pub mod http;
pub mod id;
pub mod idle;
mod intake;
pub mod listen;
mod route;
pub mod socket;
pub mod stream;
mod transport;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use crate::audit::AuditLog;
use crate::exchange::Gateway;
use crate::server::id::Ids;
use crate::telemetry::Metrics;

/// Everything that connections share.
pub struct Server<U> {
    /// The gateway.
    pub gateway: Gateway<U>,
    /// Where exchanges are counted.
    pub metrics: Metrics,
    /// Where they are recorded, if anywhere.
    pub audit: Option<AuditLog>,
    /// Ids of requests.
    pub ids: Ids,
    /// No new work is taken.
    draining: AtomicBool,
}

impl<U> Server<U> {
    /// A server that takes work.
    pub fn new(gateway: Gateway<U>, metrics: Metrics, audit: Option<AuditLog>) -> Self {
        Self { gateway, metrics, audit, ids: Ids::default(), draining: AtomicBool::new(false) }
    }

    /// Whether no new work is taken.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Takes no new work from now on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}
