//! The audit record: one JSON line a request, handed to the operating system before a held answer
//! is released. An answer that is relayed or sifted while it comes is recorded at its end.
//!
//! One thread owns the file. Lines come to it through a bounded channel; each is written whole, and
//! whoever waits for it is told.

mod schema;

use std::fs::File;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::sync::oneshot;

pub use crate::audit::schema::schema;

use crate::record::Record;
use crate::settings::Audit;
use crate::settings::AuditContent;

/// Lines that may wait for the disk.
const QUEUE: usize = 1_024;
/// How long a record may take to be written.
const PATIENCE: Duration = Duration::from_secs(5);
/// Lines written in one go.
const BATCH: usize = 128;

/// The writer of the audit file.
pub struct AuditLog {
    settings: Audit,
    lines: Mutex<Option<mpsc::Sender<Line>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    sound: Arc<AtomicBool>,
}

struct Line {
    text: Vec<u8>,
    written: Option<oneshot::Sender<bool>>,
}

/// The audit file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// It cannot be opened.
    #[error("the audit file {path} cannot be opened")]
    Open {
        /// Where it should be.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A line could not be written whole, or the writer has ended.
    #[error("an audit record could not be written")]
    Write,
}

impl AuditLog {
    /// Opens the file, making its folder where it is missing, and starts the writer.
    pub fn open(settings: Audit) -> Result<Self, AuditError> {
        let opened = |source| AuditError::Open { path: settings.path.clone(), source };
        let file = open(&settings.path).map_err(opened)?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        let sound = Arc::new(AtomicBool::new(true));
        let (path, flag) = (settings.path.clone(), Arc::clone(&sound));
        let thread = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || write(file, &path, receiver, &flag))
            .map_err(opened)?;
        Ok(Self { settings, lines: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)), sound })
    }

    /// Whether judged traffic must stop while records cannot be written.
    pub fn is_required(&self) -> bool {
        self.settings.required
    }

    /// Whether the last line was written whole.
    pub fn is_sound(&self) -> bool {
        self.sound.load(Ordering::Relaxed)
    }

    /// Writes a record and waits until it is on its way to the disk. `taken` is called once the writer has
    /// it: from then on it is written whether or not anyone waits.
    pub async fn write(&self, record: &Record, taken: impl FnOnce()) -> Result<(), AuditError> {
        let sender = self.sender().ok_or(AuditError::Write)?;
        let (written, waiting) = oneshot::channel();
        let line = Line { text: line(record, self.settings.content), written: Some(written) };
        let writing = async {
            sender.send(line).await.ok()?;
            taken();
            waiting.await.ok().filter(|written| *written)
        };
        // A disk that hangs must not hang every exchange.
        let Ok(written) = tokio::time::timeout(PATIENCE, writing).await else {
            self.sound.store(false, Ordering::Relaxed);
            return Err(AuditError::Write);
        };
        written.map(|_| ()).ok_or(AuditError::Write)
    }

    /// Hands a record over without waiting: for callers that have gone. Fails where the queue is full.
    pub fn post(&self, record: &Record) -> Result<(), AuditError> {
        let sender = self.sender().ok_or(AuditError::Write)?;
        sender
            .try_send(Line { text: line(record, self.settings.content), written: None })
            .map_err(|_| AuditError::Write)
    }

    fn sender(&self) -> Option<mpsc::Sender<Line>> {
        self.lines.lock().ok()?.clone()
    }

    /// Writes what still waits and ends the writer.
    pub fn close(&self) {
        if let Ok(mut lines) = self.lines.lock() {
            lines.take();
        }
        let thread = self.thread.lock().ok().and_then(|mut thread| thread.take());
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the audit writer ended in a fault of its own");
        }
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

/// The writer: takes what waits, writes it in one go, tells who waits for it.
fn write(mut file: File, path: &Path, mut lines: mpsc::Receiver<Line>, sound: &AtomicBool) {
    let mut batch = Vec::with_capacity(BATCH);
    let mut torn = false;
    while lines.blocking_recv_many(&mut batch, BATCH) > 0 {
        let mut bytes = Vec::new();
        if torn {
            bytes.push(b'\n'); // ends a line that a full disk cut off, so that it spoils no other
        }
        batch.iter().for_each(|line| bytes.extend_from_slice(&line.text));
        let result = file.write_all(&bytes).and_then(|()| file.flush());
        torn = result.is_err();
        if let Err(error) = &result {
            tracing::error!(path = %path.display(), %error, "an audit record could not be written");
        }
        sound.store(result.is_ok(), Ordering::Relaxed);
        for line in batch.drain(..) {
            if let Some(written) = line.written {
                let _ = written.send(result.is_ok()); // a caller that has gone needs no news
            }
        }
    }
}

/// One record as a line.
fn line(record: &Record, content: AuditContent) -> Vec<u8> {
    let mut text = value(record, content).to_string().into_bytes();
    text.push(b'\n');
    text
}

fn value(record: &Record, content: AuditContent) -> Value {
    let all = record.violations.iter().chain(&record.observed).flat_map(|violations| violations.iter());
    let violations: Vec<Value> = all
        .map(|violation| {
            let message = match content {
                AuditContent::Full => violation.message.as_str(),
                AuditContent::None => "", // it may quote the answer
            };
            json!({"policy": violation.policy.as_deref(), "gate": &*violation.gate, "kind": violation.kind, "path": violation.path.to_string(), "message": message, "action": violation.action.as_str()})
        })
        .collect();
    let time = jiff::Timestamp::try_from(record.arrived).map(|time| time.to_string()).unwrap_or_default();
    let failures: Vec<Value> =
        record.failures.iter().map(|(backend, reason)| json!({"backend": &**backend, "reason": reason})).collect();
    let policies: Vec<Value> = (record.policies.iter())
        .map(|policy| {
            let mode = if policy.enforced { "enforce" } else { "monitor" };
            json!({"name": &*policy.name, "digest": policy.digest.to_string(), "mode": mode})
        })
        .collect();
    let questions: &[String] = if content == AuditContent::Full { &record.questions } else { &[] }; // they may quote the answer
    let changed: Vec<String> = record.retry_changed_paths.iter().map(ToString::to_string).collect();
    let text = record.text.as_ref().filter(|_| content == AuditContent::Full);
    json!({
        "time": time,
        "request_id": record.request_id,
        "client": record.client,
        "trace_id": record.trace_id,
        "path": record.path,
        "outcome": record.outcome.as_str(),
        "status": record.status.as_u16(),
        "code": record.code.map(|code| code.as_str()),
        "reason": record.reason,
        "alias": record.alias.as_deref(),
        "backend": record.backend.as_deref(),
        "upstream_model": record.upstream_model,
        "upstream_request_id": record.upstream_request_id,
        "policies": policies,
        "native": record.native.as_str(),
        "schema": record.schema.map(|digest| digest.to_string()),
        "rung": record.rung.map(|rung| rung.as_str()),
        "stream": record.stream,
        "attempts": record.attempts,
        "failures": failures,
        "violations_total": record.violations.iter().chain(&record.observed).map(|violations| violations.total()).sum::<usize>(),
        "violations": violations,
        "questions": questions,
        "watched": record.watched.map(|outcome| outcome.as_str()),
        "unwatched": record.unwatched,
        "retry_changed_paths": changed,
        "wrapped_arrays": record.wrapped,
        "dropped": record.dropped,
        "usage_total": record.usage_total.map(|usage| json!({"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens})),
        "usage": record.usage.map(|usage| json!({"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens})),
        "tags": record.tags,
        "text": text,
        "total_us": u64::try_from(record.total.as_micros()).unwrap_or(u64::MAX),
        "upstream_us": u64::try_from(record.upstream.as_micros()).unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn record(id: &str) -> Record {
        let mut record = Record::new(
            id.into(),
            SystemTime::UNIX_EPOCH + Duration::from_millis(1_500),
            "/v1/chat/completions".into(),
        );
        record.text = Some("{\"ssn\":1}".into());
        record
    }

    #[tokio::test]
    async fn a_record_is_one_whole_line_on_disk_before_its_write_returns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("var/audit.jsonl");
        let log = AuditLog::open(Audit { path: path.clone(), content: AuditContent::Full, required: true }).unwrap();
        log.write(&record("one"), || ()).await.unwrap();
        let read: Value = serde_json::from_str(std::fs::read_to_string(&path).unwrap().trim_end()).unwrap();
        assert_eq!((read["request_id"].as_str(), read["time"].as_str()), (Some("one"), Some("1970-01-01T00:00:01.5Z")));
        assert_eq!(read["text"], "{\"ssn\":1}");
        log.post(&record("two")).unwrap();
        log.close();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
        assert!(log.write(&record("three"), || ()).await.is_err());
    }

    #[test]
    fn every_record_is_as_the_schema_says() {
        let schema = jsonschema::options().build(&schema()).unwrap();
        let mut full = record("x");
        full.violations = Some(crate::contract::verdict::Violations::one(crate::contract::verdict::Violation::own(
            "schema",
            "schema",
            crate::json::path::Path::root(),
            "found `1`".into(),
            None,
        )));
        full.failures = vec![("a".into(), "timeout")];
        full.usage = Some(crate::api::reply::Usage { input_tokens: Some(3), ..Default::default() });
        full.tags = [("team".to_owned(), "pos".to_owned())].into();
        for (record, content) in [(record("y"), AuditContent::None), (full, AuditContent::Full)] {
            let value = value(&record, content);
            let faults: Vec<String> = schema.iter_errors(&value).map(|fault| fault.to_string()).collect();
            assert!(faults.is_empty(), "{faults:?} in {value}");
        }
    }

    #[test]
    fn without_content_no_text_is_kept() {
        let mut record = record("x");
        record.violations = Some(crate::contract::verdict::Violations::one(crate::contract::verdict::Violation::own(
            "schema",
            "schema",
            crate::json::path::Path::root(),
            "found `\"078-05\"`".into(),
            None,
        )));
        let text = String::from_utf8(line(&record, AuditContent::None)).unwrap();
        assert!(!text.contains("ssn") && !text.contains("078-05"));
        assert!(String::from_utf8(line(&record, AuditContent::Full)).unwrap().contains("078-05"));
    }

    #[tokio::test]
    async fn a_disk_that_takes_nothing_is_told() {
        let log =
            AuditLog::open(Audit { path: "/dev/full".into(), content: AuditContent::Full, required: true }).unwrap();
        assert!(log.write(&record("one"), || ()).await.is_err());
        assert!(!log.is_sound());
        log.close();
    }

    #[test]
    fn a_path_that_cannot_be_opened_is_an_error() {
        assert!(
            AuditLog::open(Audit { path: "/proc/nowhere/a.jsonl".into(), content: AuditContent::Full, required: true })
                .is_err()
        );
    }
}
