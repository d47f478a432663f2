//! What is seen from outside: metrics and the log. Labels are names of the operator's, never a caller's.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;
use opentelemetry::metrics::Histogram;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::Registry;
use prometheus::TextEncoder;
use tracing_subscriber::EnvFilter;

use crate::record::Native;
use crate::record::Outcome;
use crate::record::Record;
use crate::settings::LogFormat;
use crate::settings::Telemetry;
use crate::stage::admit::Gauge;

/// Seconds at which the histograms of whole requests and upstream calls are cut.
const SECONDS: &[f64] = &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0];
/// Seconds at which the histogram of the gateway's own time is cut.
const OWN_SECONDS: &[f64] =
    &[0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0];

/// The metrics.
pub struct Metrics {
    registry: Registry,
    _provider: SdkMeterProvider,
    requests: Counter<u64>,
    reasons: Counter<u64>,
    extractions: Counter<u64>,
    native: Counter<u64>,
    violations: Counter<u64>,
    gates: Counter<u64>,
    watched: Counter<u64>,
    wrapped: Counter<u64>,
    retries: Counter<u64>,
    upstream_failures: Counter<u64>,
    upstream_calls: Counter<u64>,
    tokens: Counter<u64>,
    loose_tools: Counter<u64>,
    panics: Counter<u64>,
    tls_failures: Counter<u64>,
    audit_failures: Counter<u64>,
    duration: Histogram<f64>,
    upstream_duration: Histogram<f64>,
    own_duration: Histogram<f64>,
}

/// The metrics or the log could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The registry refused the exporter.
    #[error("the metrics cannot be set up: {0}")]
    Metrics(String),
    /// The log's directives cannot be read.
    #[error("`telemetry.log` cannot be read")]
    Log(#[from] tracing_subscriber::filter::ParseError),
}

impl Metrics {
    /// Sets the metrics up. The two gauges are read whenever the metrics are.
    pub fn new(in_flight: Arc<Gauge>, held: Arc<Gauge>) -> Result<Self, TelemetryError> {
        let registry = Registry::new();
        let exporter = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .without_target_info()
            .build()
            .map_err(|error| TelemetryError::Metrics(error.to_string()))?;
        let provider = SdkMeterProvider::builder().with_reader(exporter).build();
        let meter = provider.meter("portcullis");
        let gauge = |name: &'static str, help: &'static str, of: Arc<Gauge>| {
            let read =
                move |into: &dyn opentelemetry::metrics::AsyncInstrument<u64>| into.observe(of.now() as u64, &[]);
            meter.u64_observable_gauge(name).with_description(help).with_callback(read).build()
        };
        gauge("portcullis_in_flight", "Requests under way.", in_flight);
        gauge("portcullis_held_bytes", "Bytes of request and answer bodies held.", held);
        let counter = |name: &'static str, help: &'static str| meter.u64_counter(name).with_description(help).build();
        let seconds = |name: &'static str, help: &'static str, at: &[f64]| {
            meter.f64_histogram(name).with_description(help).with_unit("s").with_boundaries(at.to_vec()).build()
        };
        Ok(Self {
            requests: counter("portcullis_requests", "Requests by outcome, alias and error code."),
            reasons: counter("portcullis_reasons", "Why answers were not accepted, in one word."),
            extractions: counter("portcullis_extractions", "Where on the ladder accepted answers were found."),
            native: counter("portcullis_native_modes", "How the native structured-output mode was used."),
            violations: counter("portcullis_violations", "Violations found, by policy, gate and action."),
            gates: counter("portcullis_gates", "Verdicts of gates, by policy, gate and result."),
            watched: counter("portcullis_watched", "Outcomes under policies that only watch."),
            wrapped: counter("portcullis_wrapped_arrays", "Bare arrays that an envelope was put around."),
            retries: counter("portcullis_retries", "Answers asked for once more, by the outcome in the end."),
            upstream_calls: counter("portcullis_upstream_calls", "Upstream calls by backend."),
            upstream_failures: counter(
                "portcullis_upstream_failures",
                "Upstream calls that gave no answer, by backend and reason.",
            ),
            tokens: counter("portcullis_tokens", "Tokens as backends reported them."),
            loose_tools: counter(
                "portcullis_loose_tool_violations",
                "Calls to unbound tools whose arguments break their parameters.",
            ),
            panics: counter("portcullis_panics", "Requests that ended in a fault of the gateway's own."),
            tls_failures: counter("portcullis_tls_failures", "Connections to the listener that came to no TLS."),
            audit_failures: counter("portcullis_audit_failures", "Audit records that could not be written."),
            duration: seconds("portcullis_request_duration", "From a request's head to its answer's end.", SECONDS),
            upstream_duration: seconds("portcullis_upstream_duration", "Time spent waiting on upstreams.", SECONDS),
            own_duration: seconds("portcullis_own_duration", "Time that the gateway itself took.", OWN_SECONDS),
            registry,
            _provider: provider,
        })
    }

    /// Enters one exchange.
    pub fn observe(&self, record: &Record) {
        let outcome = KeyValue::new("outcome", record.outcome.as_str());
        let alias = match &record.alias {
            Some(alias) => KeyValue::new("alias", Arc::clone(alias)),
            None => KeyValue::new("alias", ""),
        };
        let code = KeyValue::new("code", record.code.map_or("", |code| code.as_str()));
        self.requests.add(1, &[outcome.clone(), alias, code]);
        if let Some(reason) = record.reason {
            self.reasons.add(1, &[KeyValue::new("reason", reason)]);
        }
        if let Some(rung) = record.rung.filter(|_| record.outcome == Outcome::Accepted) {
            self.extractions.add(1, &[KeyValue::new("rung", rung.as_str())]);
        }
        let all = record.violations.iter().chain(&record.observed).flat_map(|violations| violations.iter());
        for violation in all {
            let policy = KeyValue::new("policy", violation.policy.as_deref().unwrap_or_default().to_owned());
            let gate = KeyValue::new("gate", violation.gate.to_string());
            self.violations.add(1, &[policy, gate, KeyValue::new("action", violation.action.as_str())]);
        }
        for seen in &record.gates {
            let policy = KeyValue::new("policy", Arc::clone(&seen.policy));
            let gate = KeyValue::new("gate", Arc::clone(&seen.gate));
            self.gates.add(1, &[policy, gate, KeyValue::new("result", seen.health.as_str())]);
        }
        if let Some(outcome) = record.watched {
            self.watched.add(1, &[KeyValue::new("outcome", outcome.as_str())]);
        } else if record.unwatched {
            self.watched.add(1, &[KeyValue::new("outcome", "unjudged")]);
        }
        if record.wrapped > 0 {
            self.wrapped.add(u64::from(record.wrapped), &[]);
        }
        if record.rounds > 1 {
            self.retries.add(u64::from(record.rounds) - 1, std::slice::from_ref(&outcome));
        }
        if record.loose_tool_violations > 0 {
            self.loose_tools.add(u64::from(record.loose_tool_violations), &[]);
        }
        if let Some(backend) = &record.backend {
            self.upstream(record, backend);
        }
        self.duration.record(record.total.as_secs_f64(), std::slice::from_ref(&outcome));
        self.own_duration.record(record.own().as_secs_f64(), &[]);
    }

    fn upstream(&self, record: &Record, backend: &Arc<str>) {
        let named = KeyValue::new("backend", Arc::clone(backend));
        // Most of what is relayed has no native mode, and is in the requests already.
        if record.native != Native::None {
            self.native.add(1, &[KeyValue::new("native", record.native.as_str()), named.clone()]);
        }
        for (backend, reason) in &record.failures {
            let backend = KeyValue::new("backend", Arc::clone(backend));
            self.upstream_calls.add(1, std::slice::from_ref(&backend));
            self.upstream_failures.add(1, &[backend, KeyValue::new("reason", *reason)]);
        }
        let failed = u32::try_from(record.failures.len()).unwrap_or(u32::MAX);
        if record.attempts > failed {
            self.upstream_calls.add(1, std::slice::from_ref(&named));
        }
        let usage = record.usage.unwrap_or_default();
        for (direction, tokens) in [("input", usage.input_tokens), ("output", usage.output_tokens)] {
            if let Some(tokens) = tokens {
                self.tokens.add(tokens, &[named.clone(), KeyValue::new("direction", direction)]);
            }
        }
        if record.upstream > Duration::ZERO {
            self.upstream_duration.record(record.upstream.as_secs_f64(), &[named]);
        }
    }

    /// Counts a fault of the gateway's own.
    pub fn panicked(&self) {
        self.panics.add(1, &[]);
    }

    /// Counts a connection to the main listener that came to no TLS.
    pub fn no_tls(&self) {
        self.tls_failures.add(1, &[]);
    }

    /// Counts an audit record that could not be written.
    pub fn unwritten(&self) {
        self.audit_failures.add(1, &[]);
    }

    /// The metrics in Prometheus' text format; none where they cannot be written.
    pub fn text(&self) -> Option<String> {
        let written = TextEncoder::new().encode_to_string(&self.registry.gather());
        written.inspect_err(|error| tracing::error!(%error, "the metrics cannot be written")).ok()
    }
}

/// Starts the log, on standard error.
pub fn start_log(telemetry: &Telemetry) -> Result<(), TelemetryError> {
    let filter = EnvFilter::try_new(&telemetry.log)?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    // A second start, as in tests of the commands, leaves the first log in place.
    let _ = match telemetry.format {
        LogFormat::Text => log.with_ansi(false).try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    Ok(())
}

/// Writes the line of one exchange. It holds no body, no key and no name that a caller made up.
pub fn log(record: &Record) {
    let fields = tracing::field::display;
    tracing::info!(
        request_id = record.request_id,
        client = record.client.map(tracing::field::display),
        trace_id = record.trace_id,
        outcome = record.outcome.as_str(),
        status = record.status.as_u16(),
        code = record.code.map(|code| code.as_str()),
        reason = record.reason,
        alias = record.alias.as_deref(),
        backend = record.backend.as_deref(),
        native = record.native.as_str(),
        rung = record.rung.map(|rung| rung.as_str()),
        attempts = record.attempts,
        stream = record.stream,
        total_ms = fields(format_args!("{:.3}", record.total.as_secs_f64() * 1e3)),
        own_us = u64::try_from(record.own().as_micros()).unwrap_or(u64::MAX),
        "exchange"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_shows_in_the_metrics() {
        let (in_flight, held) = (Gauge::new(10), Gauge::new(100));
        let _one = in_flight.take(1).unwrap();
        let metrics = Metrics::new(in_flight, held).unwrap();
        let mut record = Record::new("id".into(), std::time::SystemTime::now(), "/v1/chat/completions".into());
        record.outcome = Outcome::Accepted;
        record.alias = Some("order-desk".into());
        record.backend = Some("fast".into());
        record.attempts = 2;
        record.failures = vec![("openai".into(), "rate_limited")];
        record.rung = Some(crate::extraction::Rung::Fence);
        record.total = Duration::from_millis(30);
        record.upstream = Duration::from_millis(29);
        metrics.observe(&record);
        metrics.panicked();
        let text = metrics.text().unwrap();
        for line in [
            r#"portcullis_requests_total{alias="order-desk",code="",outcome="accepted"} 1"#,
            r#"portcullis_extractions_total{rung="fence"} 1"#,
            r#"portcullis_upstream_calls_total{backend="fast"} 1"#,
            r#"portcullis_upstream_failures_total{backend="openai",reason="rate_limited"} 1"#,
            "portcullis_in_flight 1",
            "portcullis_held_bytes 0",
            "portcullis_panics_total 1",
            r#"portcullis_own_duration_seconds_bucket{le="0.001"} 1"#,
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
