//! `portcullis serve`

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::signal::unix::SignalKind;
use tokio::signal::unix::signal;
use tokio_util::sync::CancellationToken;

use super::ConfigArgs;
use super::Failure;
use super::configuration;
use super::runtime;
use crate::audit::AuditLog;
use crate::config::Configuration;
use crate::exchange::Gateway;
use crate::server::Server;
use crate::server::listen::Listeners;
use crate::telemetry;
use crate::telemetry::Metrics;
use crate::tls;
use crate::upstream::client::Backends;

pub(super) fn run(arguments: &ConfigArgs) -> Result<ExitCode, Failure> {
    let (configuration, source) = configuration(arguments)?;
    telemetry::start_log(&configuration.settings.telemetry).map_err(Failure::outside)?;
    for warning in &configuration.warnings {
        tracing::warn!("{warning}");
    }
    let runtime = runtime()?;
    runtime.block_on(serve(configuration, &source))
}

async fn serve(configuration: Configuration, source: &str) -> Result<ExitCode, Failure> {
    let settings = &configuration.settings;
    let listeners = Listeners::bind(settings.listen.address, settings.admin.address).await.map_err(Failure::outside)?;
    let tls = settings.listen.tls.as_ref().map(tls::server).transpose().map_err(Failure::outside)?;
    let listeners = listeners.secured(tls);
    let drain = settings.drain;
    let main = listeners.main_address().map_err(Failure::outside)?;
    let admin = listeners.admin_address().map_err(Failure::outside)?;
    let server = server(configuration)?;
    let (ending, at_once) = (CancellationToken::new(), CancellationToken::new());
    // Signals are caught before anyone is told that the gateway listens.
    let signals = Signals::catch().map_err(Failure::outside)?;
    say!("configured by {source}");
    say!("listening on {}://{main}", listeners.main_scheme());
    say!("admin on http://{admin}");
    let serving = listeners.serve(server, ending.clone(), at_once.clone(), drain);
    tokio::select! {
        () = serving => {}
        () = signals.pass_on(ending, at_once) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// A server made of a configuration.
pub(super) fn server(configuration: Configuration) -> Result<Arc<Server<Backends>>, Failure> {
    let Configuration { settings, catalog, policies, .. } = configuration;
    let upstream = Backends::new(&catalog).map_err(Failure::outside)?;
    let audit =
        settings.audit.clone().map(AuditLog::open).transpose().context("the audit record").map_err(Failure::Outside)?;
    let gateway = Gateway::new(settings, catalog, policies, upstream);
    let metrics = Metrics::new(Arc::clone(&gateway.in_flight), Arc::clone(&gateway.held)).map_err(Failure::outside)?;
    Ok(Arc::new(Server::new(gateway, metrics, audit)))
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn catch() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The first signal ends the gateway well, the second at once. Never returns: the serving side does.
    async fn pass_on(mut self, ending: CancellationToken, at_once: CancellationToken) {
        self.next().await;
        ending.cancel();
        self.next().await;
        at_once.cancel();
        std::future::pending::<()>().await;
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
