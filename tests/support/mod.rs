//! What the black-box tests share: the real binary as a child, a scripted upstream and a client, both on raw sockets.
//!
//! Nothing here outlives its test: a [`Gateway`] kills its process, an [`Upstream`] joins its threads. Where a test
//! fails, the gateway's log is printed with it.
#![allow(dead_code, unreachable_pub)] // every test file uses a part of it
#![allow(clippy::print_stderr)]

pub mod crowd;
pub mod http2;
pub mod proxy;
pub mod secure;

use std::collections::VecDeque;
use std::io::BufRead as _;
use std::io::BufReader;
use std::io::Read as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::net::TcpStream;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use rustls::ClientConnection;
use rustls::ServerConfig;
use rustls::ServerConnection;
use rustls::StreamOwned;
use serde_json::Value;

/// How long anything that must happen may take.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks.
const BEAT: Duration = Duration::from_millis(3);

/// A schema whose key order and required members show whether it went through untouched.
pub const SCHEMA: &str = r#"{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"integer"}},"required":["z","a"],"additionalProperties":false}"#;
/// An answer that satisfies [`SCHEMA`].
pub const GOOD: &str = r#"{"z":"é","a":1}"#;

/// `response_format` with [`SCHEMA`], as a member of a request.
pub fn format() -> String {
    format_of(SCHEMA)
}

/// `response_format` with this schema, as a member of a request.
pub fn format_of(schema: &str) -> String {
    format!(
        r#""response_format":{{"type":"json_schema","json_schema":{{"name":"r","strict":true,"schema":{schema}}}}}"#
    )
}

/// A chat request with these members besides model and messages.
pub fn request(rest: &str) -> String {
    let comma = if rest.is_empty() { "" } else { "," };
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}]{comma}{rest}}}"#)
}

/// A request that is judged against [`SCHEMA`].
pub fn judged() -> String {
    request(&format())
}

/// The same, streamed.
pub fn judged_stream() -> String {
    request(&format!(r#"{},"stream":true"#, format()))
}

/// A text as a JSON string.
pub fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// One choice of a chat completion: the members of its message, and why it stopped.
pub fn choice(index: usize, message: &str, finish: &str) -> String {
    format!(
        r#"{{"index":{index},"message":{{"role":"assistant",{message}}},"logprobs":null,"finish_reason":{}}}"#,
        quoted(finish)
    )
}

/// A chat completion with these choices.
pub fn completion_of(choices: &[String]) -> String {
    format!(
        r#"{{"id":"c1","object":"chat.completion", "created":1,"model":"up","choices":[{}],"usage":{{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}},"x_new":1.0,"system_fingerprint":"f"}}"#,
        choices.join(",")
    )
}

/// A chat completion that says this.
pub fn completion(content: &str) -> String {
    finished(content, "stop")
}

/// A chat completion that says this and stopped for this reason.
pub fn finished(content: &str, finish: &str) -> String {
    completion_of(&[choice(0, &format!(r#""content":{},"refusal":null"#, quoted(content)), finish)])
}

/// One event of a streamed answer, its finish reason in JSON.
pub fn chunk(delta: &str, finish: &str) -> String {
    format!(
        "data: {{\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"up\",\"system_fingerprint\":\"f\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
    )
}

/// The events of an answer that says this, a few characters a chunk.
pub fn chunks(content: &str, finish: &str) -> Vec<String> {
    let mut events = vec![chunk(r#"{"role":"assistant","content":""}"#, "null")];
    let characters: Vec<char> = content.chars().collect();
    for piece in characters.chunks(5) {
        let piece: String = piece.iter().collect();
        events.push(chunk(&format!(r#"{{"content":{}}}"#, quoted(&piece)), "null"));
    }
    events.push(chunk("{}", &quoted(finish)));
    events.push("data: [DONE]\n\n".to_owned());
    events
}

/// Waits until `done` says so, and fails the test where it never does.
#[track_caller]
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "did not happen within {PATIENCE:?}: {what}");
        std::thread::sleep(BEAT);
    }
}

// ---------------------------------------------------------------------------------------------- the gateway

/// A configuration in the making. Both listeners take free ports on loopback.
pub struct Setup {
    listen: Vec<String>,
    auth: String,
    token: String,
    names: Vec<String>,
    backends: Vec<String>,
    models: Vec<String>,
    rest: Vec<String>,
    environment: Vec<(String, String)>,
    files: Vec<(String, String)>,
}

impl Setup {
    pub fn new() -> Self {
        Self {
            listen: Vec::new(),
            auth: "none".into(),
            token: String::new(),
            names: Vec::new(),
            backends: Vec::new(),
            models: Vec::new(),
            rest: Vec::new(),
            environment: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Adds a policy: its YAML without `version`.
    pub fn policy(self, name: &str, yaml: &str) -> Self {
        let setup = self.policy_file(name, "policy.yaml", &format!("version: 1\n{yaml}\n"));
        if setup.rest.iter().any(|line| line.starts_with("policies:")) {
            setup
        } else {
            setup.line("policies: policies")
        }
    }

    /// Adds a file to a policy.
    pub fn policy_file(mut self, name: &str, file: &str, content: &str) -> Self {
        self.files.push((format!("policies/{name}/{file}"), content.to_owned()));
        self
    }

    /// A backend of kind `openai` named `up` in front of `upstream`.
    pub fn of(upstream: &Upstream) -> Self {
        Self::new().backend("up", "openai", upstream.address, "")
    }

    /// Adds a backend; `more` is further members as YAML: `, api_key: x`.
    pub fn backend(self, name: &str, kind: &str, at: SocketAddr, more: &str) -> Self {
        self.backend_at(name, kind, &format!("http://{at}"), more)
    }

    /// Adds a backend by its URL.
    pub fn backend_at(mut self, name: &str, kind: &str, url: &str, more: &str) -> Self {
        self.names.push(name.into());
        self.backends.push(format!("  {name}: {{kind: {kind}, base_url: \"{url}\"{more}}}"));
        self
    }

    /// Sets a variable of the gateway's environment, which is empty otherwise.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Adds an alias, its value as YAML. Without any, every name goes to all backends in their order.
    pub fn model(mut self, name: &str, value: &str) -> Self {
        self.models.push(format!("  \"{name}\": {value}"));
        self
    }

    /// Adds a member of `listen`, as YAML.
    pub fn listen(mut self, member: &str) -> Self {
        self.listen.push(member.into());
        self
    }

    /// `auth.mode`
    pub fn auth(mut self, mode: &str) -> Self {
        self.auth = mode.into();
        self
    }

    /// `admin.token`
    pub fn token(mut self, token: &str) -> Self {
        self.token = format!(", token: {token}");
        self
    }

    /// Adds a line at the top level of the file.
    pub fn line(mut self, line: &str) -> Self {
        self.rest.push(line.into());
        self
    }

    /// Writes every exchange to `audit.jsonl` beside the configuration.
    pub fn audited(self) -> Self {
        self.line("audit: {path: audit.jsonl}")
    }

    fn yaml(&self) -> String {
        let listen: String = self.listen.iter().map(|member| format!(", {member}")).collect();
        let all: Vec<String> = self.names.iter().map(|name| format!("{{backend: {name}}}")).collect();
        let everything = vec![format!("  \"*\": {{targets: [{}]}}", all.join(", "))];
        let models = if self.models.is_empty() { &everything } else { &self.models };
        format!(
            "version: 1\nlisten: {{address: \"127.0.0.1:0\"{listen}}}\nadmin: {{address: \"127.0.0.1:0\"{}}}\nauth: {{mode: {}}}\nbackends:\n{}\nmodels:\n{}\n{}\n",
            self.token,
            self.auth,
            self.backends.join("\n"),
            models.join("\n"),
            self.rest.join("\n")
        )
    }

    /// Writes the file and starts the gateway on it.
    #[track_caller]
    pub fn start(self) -> Gateway {
        Gateway::start_with(&self.environment, &self.files, &self.yaml())
    }

    /// Starts a gateway that must not start, and gives what it says.
    #[track_caller]
    pub fn refused(self) -> String {
        let folder = tempfile::tempdir().unwrap();
        lay_out(folder.path(), &self.files, &self.yaml());
        let file = folder.path().join("portcullis.yaml");
        let output = portcullis().args(["serve", "--config"]).arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        text(&output.stderr)
    }
}

/// Writes a configuration and the files beside it.
fn lay_out(folder: &Path, files: &[(String, String)], yaml: &str) {
    std::fs::write(folder.join("portcullis.yaml"), yaml).unwrap();
    for (name, content) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// A running gateway. Dropped, it is killed; where the test fails, its log is printed.
pub struct Gateway {
    /// What the gateway says that its main listener speaks.
    pub scheme: String,
    pub address: SocketAddr,
    pub admin: SocketAddr,
    pub folder: tempfile::TempDir,
    child: Child,
    log: Arc<Mutex<Vec<u8>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Gateway {
    /// Starts the gateway on a file that says this.
    #[track_caller]
    pub fn start(yaml: &str) -> Self {
        Self::start_in(&[], yaml)
    }

    /// The same, in an environment of these variables.
    #[track_caller]
    pub fn start_in(environment: &[(String, String)], yaml: &str) -> Self {
        Self::start_with(environment, &[], yaml)
    }

    /// The same, with files beside the configuration.
    #[track_caller]
    pub fn start_with(environment: &[(String, String)], files: &[(String, String)], yaml: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("portcullis.yaml");
        lay_out(folder.path(), files, yaml);
        let mut child = portcullis()
            .args(["serve", "--config"])
            .arg(&file)
            .envs(environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut errors = child.stderr.take().unwrap();
        let kept = Arc::clone(&log);
        let mut readers = vec![std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = errors.read(&mut piece) {
                kept.lock().unwrap().extend_from_slice(&piece[..length]);
            }
        })];
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut at = |what: &str| {
            let line = lines.by_ref().map_while(Result::ok).find(|line| line.starts_with(what));
            line.and_then(|line| {
                let (scheme, address) = line.rsplit_once(' ')?.1.split_once("://")?;
                Some((scheme.to_owned(), address.parse().ok()?))
            })
        };
        let (main, admin) = (at("listening on"), at("admin on"));
        readers.push(std::thread::spawn(move || lines.for_each(drop)));
        let (Some((scheme, address)), Some((_, admin))) = (main, admin) else {
            let _ = child.wait();
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            panic!("the gateway did not start:\n{}\n{yaml}", text(&log.lock().unwrap()));
        };
        Self { scheme, address, admin, folder, child, log, readers }
    }

    /// Files and sockets that the process has open.
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// One request on a connection of its own.
    #[track_caller]
    pub fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut client = self.client();
        client.ask(self.address, method, path, headers, body);
        client.answer(method == "HEAD")
    }

    #[track_caller]
    pub fn chat(&self, body: &str) -> Answer {
        self.call("POST", "/v1/chat/completions", &[], body.as_bytes())
    }

    #[track_caller]
    pub fn chat_with(&self, headers: &[(&str, &str)], body: &str) -> Answer {
        self.call("POST", "/v1/chat/completions", headers, body.as_bytes())
    }

    /// Asks for a chat completion and leaves the answer to be read.
    #[track_caller]
    pub fn begin_chat(&self, body: &str) -> Client {
        let mut client = self.client();
        client.ask(self.address, "POST", "/v1/chat/completions", &[], body.as_bytes());
        client
    }

    /// `GET` on the admin listener.
    #[track_caller]
    pub fn probe(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut client = Client::connect(self.admin);
        client.ask(self.admin, "GET", path, headers, b"");
        client.answer(false)
    }

    #[track_caller]
    pub fn metrics(&self) -> String {
        self.probe("/metrics", &[]).text()
    }

    /// What the gateway has logged so far.
    pub fn log(&self) -> String {
        text(&self.log.lock().unwrap())
    }

    pub fn audit_file(&self) -> PathBuf {
        self.folder.path().join("audit.jsonl")
    }

    /// The audit file's lines, once there are `count` of them.
    #[track_caller]
    pub fn audit(&self, count: usize) -> Vec<Value> {
        let read = || std::fs::read_to_string(self.audit_file()).unwrap_or_default();
        eventually(&format!("{count} audit lines"), || read().lines().count() >= count);
        let lines = read();
        assert_eq!(lines.lines().count(), count, "{lines}");
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let kill = format!("kill -TERM {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Bytes of memory that it takes up now.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        resident.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Descriptors that it has open.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the process to end by itself.
    #[track_caller]
    pub fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the process ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        if std::thread::panicking() {
            eprintln!("--- the gateway's log\n{}---", text(&self.log.lock().unwrap()));
        }
    }
}

/// The binary, in an environment that says nothing to it.
pub fn portcullis() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    command.env_clear().env("NO_COLOR", "1");
    command
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file of this repository.
pub fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The cases of a file in `tests/cases`.
pub fn cases(file: &str) -> Vec<Value> {
    let lines = std::fs::read_to_string(in_repository("tests/cases").join(file)).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

// ---------------------------------------------------------------------------------------------- messages

/// The head of a request or an answer.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The first line, without its end.
    pub line: String,
    /// Every header, names in small letters, in their order.
    pub headers: Vec<(String, String)>,
}

impl Head {
    fn read(bytes: &[u8]) -> Self {
        let text = text(bytes);
        let mut lines = text.trim_end().split("\r\n");
        let line = lines.next().unwrap().to_owned();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        });
        Self { line, headers: headers.collect() }
    }

    /// The only value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(other, _)| other == name);
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "`{name}` stands twice: {self:?}");
        value
    }

    pub fn status(&self) -> u16 {
        self.line.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

/// An answer as it came.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub head: Head,
    /// Chunks joined, nothing else undone.
    pub body: Vec<u8>,
    /// Whether the body came to the end that its framing promises.
    pub complete: bool,
}

impl Answer {
    pub fn status(&self) -> u16 {
        self.head.status()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    pub fn outcome(&self) -> &str {
        self.header("x-portcullis-outcome").unwrap_or_default()
    }

    pub fn text(&self) -> String {
        text(&self.body)
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// `error.code`
    #[track_caller]
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    /// The text of the first choice.
    #[track_caller]
    pub fn content(&self) -> String {
        self.json()["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
    }

    /// The data of every event, `[DONE]` included.
    #[track_caller]
    pub fn events(&self) -> Vec<String> {
        events(&self.text())
    }

    /// Fails where the answer is not this error, in the shape that every SDK reads.
    #[track_caller]
    pub fn assert_error(&self, status: u16, kind: &str, code: &str) {
        assert_eq!(self.status(), status, "{self}");
        let body = self.json();
        let error = &body["error"];
        assert_eq!((error["type"].as_str(), error["code"].as_str()), (Some(kind), Some(code)), "{self}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{self}");
        assert!(error.get("param").is_some(), "{self}");
        assert_eq!(self.header("content-type"), Some("application/json"), "{self}");
        assert_eq!(self.header("content-length"), Some(self.body.len().to_string().as_str()), "{self}");
        assert_eq!(self.header("x-request-id"), error["portcullis"]["request_id"].as_str(), "{self}");
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = self.text();
        let shown: String = body.chars().take(2_000).collect();
        write!(f, "{} {:?}\n{shown}", self.head.line, self.head.headers)
    }
}

/// The data of every event of a stream that the gateway wrote, comments passed over.
#[track_caller]
pub fn events(stream: &str) -> Vec<String> {
    let blocks = stream.strip_suffix("\n\n").unwrap_or_else(|| panic!("no blank line ends {stream:?}")).split("\n\n");
    let data = blocks.filter(|block| !block.starts_with(':'));
    data.map(|block| block.strip_prefix("data: ").unwrap_or_else(|| panic!("no event: {block:?}")).to_owned()).collect()
}

/// A connection, with TLS or without. With it, it ends with the word that it does.
enum Socket {
    Tcp(TcpStream),
    Client(Box<StreamOwned<ClientConnection, TcpStream>>),
    Server(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Socket {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Tcp(stream) => stream,
            Self::Client(stream) => &stream.sock,
            Self::Server(stream) => &stream.sock,
        }
    }
}

impl std::io::Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Client(stream) => stream.read(buffer),
            Self::Server(stream) => stream.read(buffer),
        }
    }
}

impl std::io::Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Client(stream) => stream.write(bytes),
            Self::Server(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.flush(),
            Self::Client(stream) => stream.flush(),
            Self::Server(stream) => stream.flush(),
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        match self {
            Self::Tcp(_) => return,
            Self::Client(stream) => stream.conn.send_close_notify(),
            Self::Server(stream) => stream.conn.send_close_notify(),
        }
        let _ = self.flush();
    }
}

/// One side of a connection, and what was read of it and not yet used.
struct Wire {
    stream: Socket,
    read: Vec<u8>,
    stop: Arc<AtomicBool>,
    trailers: Vec<(String, String)>,
}

impl Wire {
    fn new(stream: Socket, stop: Arc<AtomicBool>) -> Self {
        stream.tcp().set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        stream.tcp().set_write_timeout(Some(PATIENCE)).unwrap();
        stream.tcp().set_nodelay(true).unwrap();
        Self { stream, read: Vec::new(), trailers: Vec::new(), stop }
    }

    /// Reads more; false at the end of the stream, be it clean or not.
    fn more(&mut self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut piece = [0; 64 << 10];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return false,
                Ok(length) => {
                    self.read.extend_from_slice(&piece[..length]);
                    return true;
                }
                Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                    if self.stop.load(Ordering::Relaxed) || Instant::now() > deadline {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
    }

    /// Everything up to the end of `mark`; none where the stream ends before.
    fn through(&mut self, mark: &[u8], patience: Duration) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.read.windows(mark.len()).position(|window| window == mark) {
                return Some(self.read.drain(..at + mark.len()).collect());
            }
            if !self.more(patience) {
                return None;
            }
        }
    }

    fn exactly(&mut self, length: usize) -> Option<Vec<u8>> {
        while self.read.len() < length {
            if !self.more(PATIENCE) {
                return None;
            }
        }
        Some(self.read.drain(..length).collect())
    }

    /// The next chunk of a chunked body, empty for the last one; none where it is cut off.
    fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.through(b"\r\n", PATIENCE)?;
        let length = usize::from_str_radix(text(&line).split(';').next().unwrap().trim(), 16).unwrap();
        if length == 0 {
            while let Some((name, value)) = text(&self.through(b"\r\n", PATIENCE)?).trim().split_once(':') {
                self.trailers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
            return Some(Vec::new());
        }
        let data = self.exactly(length)?;
        self.exactly(2)?;
        Some(data)
    }

    /// The body that follows this head, and whether it is whole. `sized` tells that without framing there is none.
    fn body(&mut self, head: &Head, sized: bool) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        if head.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk() {
                if chunk.is_empty() {
                    return (body, true);
                }
                body.extend_from_slice(&chunk);
            }
            return (body, false);
        }
        match head.header("content-length") {
            Some(length) => {
                let length = length.parse().unwrap();
                match self.exactly(length) {
                    Some(whole) => (whole, true),
                    None => (std::mem::take(&mut self.read), false),
                }
            }
            None if sized => (body, true),
            None => {
                while self.more(PATIENCE) {}
                (std::mem::take(&mut self.read), true)
            }
        }
    }
}

// ---------------------------------------------------------------------------------------------- the client

/// A client on a raw socket. Dropped, it closes the connection.
pub struct Client {
    wire: Wire,
}

impl Client {
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        Self { wire: Wire::new(Socket::Tcp(stream), Arc::default()) }
    }

    /// Sends bytes as they are. A gateway that has hung up already is met when the answer is read.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.wire.stream.write_all(bytes);
    }

    pub fn ask(&mut self, host: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let has = |name: &str| headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !has("host") {
            head.push_str(&format!("host: {host}\r\n"));
        }
        if !body.is_empty() && !has("content-type") {
            head.push_str("content-type: application/json\r\n");
        }
        if !has("content-length") && !has("transfer-encoding") && (!body.is_empty() || method == "POST") {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(body);
        self.send(&bytes);
    }

    /// The head of the next answer, interim ones included.
    #[track_caller]
    pub fn head(&mut self) -> Head {
        let head = self.wire.through(b"\r\n\r\n", PATIENCE);
        Head::read(&head.unwrap_or_else(|| panic!("no answer, but {:?}", text(&self.wire.read))))
    }

    #[track_caller]
    pub fn answer(&mut self, bodyless: bool) -> Answer {
        let mut head = self.head();
        while head.status() == 100 {
            head = self.head();
        }
        self.rest(head, bodyless)
    }

    /// The next answer, interim ones passed over; none where the connection ends before its head is whole.
    pub fn try_answer(&mut self) -> Option<Answer> {
        loop {
            let head = Head::read(&self.wire.through(b"\r\n\r\n", PATIENCE)?);
            if head.status() != 100 {
                return Some(self.rest(head, false));
            }
        }
    }

    /// Cuts the connection with a RST.
    pub fn reset(self) {
        reset(self.wire.stream.tcp());
    }

    /// Says that nothing more will be sent, and goes on reading.
    pub fn finish(&self) {
        let _ = self.wire.stream.tcp().shutdown(std::net::Shutdown::Write);
    }

    /// Whether the other side ends the connection in good time. What still comes is read and thrown away.
    pub fn is_let_go(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while self.wire.more(deadline.saturating_duration_since(Instant::now())) {
            self.wire.read.clear();
        }
        Instant::now() < deadline
    }

    /// The body that follows `head`.
    pub fn rest(&mut self, head: Head, bodyless: bool) -> Answer {
        if bodyless || matches!(head.status(), 204 | 304) {
            return Answer { head, complete: true, ..Answer::default() };
        }
        let (body, complete) = self.wire.body(&head, false);
        Answer { head, body, complete }
    }

    /// The next chunk of a chunked body.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        self.wire.chunk()
    }

    /// The next bytes, exactly so many; none where the connection ends before.
    pub fn exactly(&mut self, length: usize) -> Option<Vec<u8>> {
        self.wire.exactly(length)
    }

    /// All bytes that come until the other side closes.
    pub fn raw(&mut self) -> Vec<u8> {
        while self.wire.more(PATIENCE) {}
        std::mem::take(&mut self.wire.read)
    }

    /// Whether anything comes, or the connection ends, within `time`.
    pub fn hears_within(&mut self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        let before = self.wire.read.len();
        while Instant::now() < deadline {
            if !self.wire.more(Duration::ZERO) && self.is_closed() || self.wire.read.len() > before {
                return true;
            }
        }
        false
    }

    /// Whether the other side has closed the connection.
    pub fn is_closed(&self) -> bool {
        match self.wire.stream.tcp().peek(&mut [0]) {
            Ok(length) => length == 0,
            Err(error) => !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
        }
    }
}

// ---------------------------------------------------------------------------------------------- the upstream

/// A door that a script waits at until the test opens it.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    pub fn is_open(&self) -> bool {
        *self.0.0.lock().unwrap()
    }

    /// Waits until it is open. False where the other side of `wire` hangs up before.
    fn pass(&self, wire: &Wire) -> bool {
        let deadline = Instant::now() + PATIENCE;
        let mut open = self.0.0.lock().unwrap();
        while !*open && !wire.stop.load(Ordering::Relaxed) && Instant::now() < deadline {
            open = self.0.1.wait_timeout(open, Duration::from_millis(20)).unwrap().0;
            if !*open && has_hung_up(wire.stream.tcp()) {
                return false;
            }
        }
        true
    }
}

#[derive(Clone)]
enum Step {
    Send(Vec<u8>),
    Wait(Duration),
    Gate(Gate),
    Drain,
    Stall,
    Endless(Vec<u8>),
    Drip(Vec<u8>, Duration),
    Deaf,
    Close,
    Reset,
}

/// What an upstream does with one request, once it has read it.
#[derive(Clone, Default)]
pub struct Script {
    steps: Vec<Step>,
    /// The request's body is left unread.
    hasty: bool,
}

impl Script {
    /// Does nothing, yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// A whole answer of this status; `headers` is lines with their ends.
    pub fn answer(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let mut bytes = format!("HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n", body.len()).into_bytes();
        bytes.extend_from_slice(body);
        Self::new().send(bytes)
    }

    pub fn json(status: u16, body: impl AsRef<[u8]>) -> Self {
        Self::answer(status, "content-type: application/json\r\n", body)
    }

    /// A chat completion that says this.
    pub fn says(content: &str) -> Self {
        Self::json(200, completion(content))
    }

    /// The head of a chunked event stream.
    pub fn stream() -> Self {
        Self::new().send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    }

    /// A whole event stream, one chunk a piece.
    pub fn streams<P: AsRef<[u8]>>(pieces: &[P]) -> Self {
        pieces.iter().fold(Self::stream(), |script, piece| script.chunk(piece)).end()
    }

    /// Bytes as they are.
    pub fn send(self, bytes: impl AsRef<[u8]>) -> Self {
        self.then(Step::Send(bytes.as_ref().to_vec()))
    }

    /// One chunk of a chunked body.
    pub fn chunk(self, data: impl AsRef<[u8]>) -> Self {
        let data = data.as_ref();
        self.send([format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat())
    }

    /// The end of a chunked body.
    pub fn end(self) -> Self {
        self.send("0\r\n\r\n")
    }

    pub fn wait(self, time: Duration) -> Self {
        self.then(Step::Wait(time))
    }

    /// Waits until the test opens the gate.
    pub fn gate(self, gate: &Gate) -> Self {
        self.then(Step::Gate(gate.clone()))
    }

    /// Reads the request's body, which [`Self::hastily`] had left.
    pub fn drain(self) -> Self {
        self.then(Step::Drain)
    }

    /// Does nothing until the caller hangs up.
    pub fn stall(self) -> Self {
        self.then(Step::Stall)
    }

    /// Sends the same piece for ever.
    pub fn endless(self, piece: impl AsRef<[u8]>) -> Self {
        self.then(Step::Endless(piece.as_ref().to_vec()))
    }

    /// Sends the same piece again and again, with a pause after each.
    pub fn drip(self, piece: impl AsRef<[u8]>, pause: Duration) -> Self {
        self.then(Step::Drip(piece.as_ref().to_vec(), pause))
    }

    /// Does nothing until the caller hangs up, and reads nothing meanwhile.
    pub fn deaf(self) -> Self {
        self.then(Step::Deaf)
    }

    /// Closes the connection.
    pub fn close(self) -> Self {
        self.then(Step::Close)
    }

    /// Cuts the connection with a RST.
    pub fn reset(self) -> Self {
        self.then(Step::Reset)
    }

    /// Does not read the request's body first.
    pub fn hastily(mut self) -> Self {
        self.hasty = true;
        self
    }
}

/// A request that an upstream got.
#[derive(Clone, Debug)]
pub struct Call {
    pub head: Head,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    closed: Arc<AtomicBool>,
}

impl Call {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    pub fn text(&self) -> String {
        text(&self.body)
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Whether the gateway has hung up on it.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

/// A server that does as it is told and remembers what it was sent. Dropped, it ends.
pub struct Upstream {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    next: Mutex<VecDeque<Script>>,
    otherwise: Mutex<Script>,
    calls: Mutex<Vec<Call>>,
    connections: AtomicUsize,
    open: AtomicUsize,
    tls: Option<Arc<ServerConfig>>,
    stop: Arc<AtomicBool>,
}

impl Upstream {
    /// A server that does this with every request, unless [`Self::next`] says otherwise.
    pub fn that(script: Script) -> Self {
        Self::over(None, script)
    }

    /// The same with TLS.
    pub fn secured(tls: &Arc<ServerConfig>, script: Script) -> Self {
        Self::over(Some(Arc::clone(tls)), script)
    }

    fn over(tls: Option<Arc<ServerConfig>>, script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            next: Mutex::default(),
            otherwise: Mutex::new(script),
            calls: Mutex::default(),
            connections: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            tls,
            stop: Arc::default(),
        });
        let served = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || accept(&listener, &served));
        Self { address, shared, acceptor: Some(acceptor) }
    }

    /// A server whose every answer satisfies [`SCHEMA`].
    pub fn good() -> Self {
        Self::that(Script::says(GOOD))
    }

    /// What to do with the next request that has no script yet.
    pub fn next(&self, script: Script) {
        self.shared.next.lock().unwrap().push_back(script);
    }

    /// What to do with every request from now on.
    pub fn always(&self, script: Script) {
        *self.shared.otherwise.lock().unwrap() = script;
    }

    /// Drops the scripts that no request came for.
    pub fn forget(&self) {
        self.shared.next.lock().unwrap().clear();
    }

    pub fn calls(&self) -> Vec<Call> {
        self.shared.calls.lock().unwrap().clone()
    }

    /// Connections that were made to it so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Of those, how many are open on this side.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    pub fn count(&self) -> usize {
        self.shared.calls.lock().unwrap().len()
    }

    /// The last request.
    #[track_caller]
    pub fn call(&self) -> Call {
        self.calls().pop().expect("no request came")
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address); // wakes the acceptor
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

/// An address where nobody listens.
pub fn nowhere() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut connections = Vec::new();
    for stream in listener.incoming() {
        if shared.stop.load(Ordering::Relaxed) {
            break;
        }
        let (Ok(stream), shared) = (stream, Arc::clone(shared)) else { continue };
        shared.connections.fetch_add(1, Ordering::Relaxed);
        shared.open.fetch_add(1, Ordering::Relaxed);
        connections.push(std::thread::spawn(move || {
            serve(stream, &shared);
            shared.open.fetch_sub(1, Ordering::Relaxed);
        }));
    }
    connections.into_iter().for_each(|connection| drop(connection.join()));
}

/// Serves one connection until its end.
fn serve(stream: TcpStream, shared: &Shared) {
    let stream = match &shared.tls {
        None => Socket::Tcp(stream),
        Some(tls) => {
            let session = ServerConnection::new(Arc::clone(tls)).unwrap();
            Socket::Server(Box::new(StreamOwned::new(session, stream)))
        }
    };
    let mut wire = Wire::new(stream, Arc::clone(&shared.stop));
    let mut last: Option<Arc<AtomicBool>> = None;
    while let Some(head) = wire.through(b"\r\n\r\n", Duration::from_secs(60)) {
        let head = Head::read(&head);
        let script = shared.next.lock().unwrap().pop_front();
        let script = script.unwrap_or_else(|| shared.otherwise.lock().unwrap().clone());
        let body = if script.hasty { Vec::new() } else { wire.body(&head, true).0 };
        let closed = Arc::<AtomicBool>::default();
        shared.calls.lock().unwrap().push(Call {
            head: head.clone(),
            body,
            trailers: std::mem::take(&mut wire.trailers),
            closed: Arc::clone(&closed),
        });
        let goes_on = perform(&mut wire, &head, &script);
        last = Some(closed);
        if !goes_on {
            break;
        }
    }
    if let Some(closed) = last {
        closed.store(true, Ordering::Relaxed);
    }
}

/// Performs a script. False where the connection is at its end.
fn perform(wire: &mut Wire, head: &Head, script: &Script) -> bool {
    for step in &script.steps {
        match step {
            Step::Send(bytes) => {
                if wire.stream.write_all(bytes).is_err() {
                    return false;
                }
            }
            Step::Wait(time) => std::thread::sleep(*time),
            Step::Gate(gate) => {
                if !gate.pass(wire) {
                    return false;
                }
            }
            Step::Drain => {
                wire.body(head, true);
            }
            Step::Stall => {
                while wire.more(Duration::from_secs(60)) {}
                return false;
            }
            Step::Endless(piece) => {
                while !wire.stop.load(Ordering::Relaxed) && wire.stream.write_all(piece).is_ok() {}
                return false;
            }
            Step::Drip(piece, pause) => {
                while !wire.stop.load(Ordering::Relaxed) && wire.stream.write_all(piece).is_ok() {
                    std::thread::sleep(*pause);
                }
                return false;
            }
            Step::Deaf => {
                while !wire.stop.load(Ordering::Relaxed) && !has_hung_up(wire.stream.tcp()) {
                    std::thread::sleep(BEAT);
                }
                return false;
            }
            Step::Close => return false,
            Step::Reset => {
                reset(wire.stream.tcp());
                return false;
            }
        }
    }
    true
}

/// Makes the close of a connection a RST.
pub fn reset(stream: &TcpStream) {
    with_tokio(stream, |stream, _| stream.set_zero_linger().unwrap());
}

/// Whether the other side has closed, though what it sent before may be unread.
fn has_hung_up(stream: &TcpStream) -> bool {
    with_tokio(stream, |stream, runtime| {
        runtime.block_on(async {
            let ready = tokio::time::timeout(BEAT, stream.ready(tokio::io::Interest::READABLE)).await;
            ready.is_ok_and(|ready| ready.is_ok_and(|ready| ready.is_read_closed()))
        })
    })
}

/// Does with a socket what the standard library cannot.
fn with_tokio<T>(stream: &TcpStream, act: impl FnOnce(&tokio::net::TcpStream, &tokio::runtime::Runtime) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    let stream = stream.try_clone().unwrap();
    stream.set_nonblocking(true).unwrap();
    let stream = tokio::net::TcpStream::from_std(stream).unwrap();
    let done = act(&stream, &runtime);
    let stream = stream.into_std().unwrap();
    stream.set_nonblocking(false).unwrap(); // the flag is shared with the socket that was given
    done
}
