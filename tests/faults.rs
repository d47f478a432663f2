//! A fault of the gateway's own: it ends one request, and nothing else. The gateway runs in the test, on a real socket,
//! with an upstream that panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::HeaderValue;
use http::StatusCode;
use http::header;
use http_body::Body;
use http_body::Frame;
use portcullis::config;
use portcullis::exchange::Gateway;
use portcullis::server::Server;
use portcullis::server::listen::Listeners;
use portcullis::stage::send::Call;
use portcullis::stage::send::CallBody;
use portcullis::stage::send::Upstream;
use portcullis::stage::send::UpstreamError;
use portcullis::stage::send::UpstreamReply;
use portcullis::telemetry::Metrics;
use portcullis::upstream::scripted::BEHAVIOURS;
use portcullis::upstream::scripted::Scripted;
use support::Client;
use support::format;
use support::text;
use tokio_util::sync::CancellationToken;

const CHAT: &str = "/v1/chat/completions";

/// The scripted model, but for requests that say `panic`.
struct Faulty(Scripted);

impl Upstream for Faulty {
    async fn send(&self, call: Call) -> Result<UpstreamReply, UpstreamError> {
        let CallBody::Pieces(pieces) = &call.body else { panic!("no upload is expected") };
        let said = text(&pieces.concat());
        if said.contains("panic at once") {
            panic!("as was asked");
        }
        if said.contains("panic soon") {
            tokio::time::sleep(Duration::from_millis(300)).await;
            panic!("as was asked");
        }
        if said.contains("panic later") {
            let kind = (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            let body = Box::pin(Later(None));
            return Ok(UpstreamReply { status: StatusCode::OK, headers: HeaderMap::from_iter([kind]), body });
        }
        self.0.send(call).await
    }
}

/// A body that panics a while after its first event.
struct Later(Option<Pin<Box<tokio::time::Sleep>>>);

impl Body for Later {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        let Some(pause) = &mut self.0 else {
            self.0 = Some(Box::pin(tokio::time::sleep(Duration::from_millis(100))));
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"data: {}\n\n")))));
        };
        std::task::ready!(pause.as_mut().poll(context));
        panic!("as was asked");
    }
}

/// Runs the gateway while `asking` asks it; gives its metrics at the end.
fn with_gateway(asking: impl FnOnce(SocketAddr) + Send + 'static) -> String {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let behaviours: Vec<&str> = BEHAVIOURS.iter().map(|(name, _)| *name).collect();
        let mut configuration = config::embedded(&|_| None, &behaviours).unwrap();
        configuration.settings.listen.keepalive_after = Duration::from_millis(50);
        let gateway = Gateway::new(
            configuration.settings,
            configuration.catalog,
            configuration.policies,
            Faulty(Scripted::default()),
        );
        let metrics = Metrics::new(Arc::clone(&gateway.in_flight), Arc::clone(&gateway.held)).unwrap();
        let server = Arc::new(Server::new(gateway, metrics, None));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listeners = Listeners::bind(any, any).await.unwrap();
        let address = listeners.main_address().unwrap();
        let (ending, at_once) = (CancellationToken::new(), CancellationToken::new());
        let serving = listeners.serve(Arc::clone(&server), ending.clone(), at_once, Duration::from_secs(5));
        let asked = async {
            tokio::task::spawn_blocking(move || asking(address)).await.unwrap();
            ending.cancel();
        };
        tokio::join!(serving, asked);
        server.metrics.text().unwrap()
    })
}

fn ask(client: &mut Client, address: SocketAddr, says: &str, rest: &str) {
    let rest = if rest.is_empty() { String::new() } else { format!(",{rest}") };
    let body = format!(r#"{{"model":"demo","messages":[{{"role":"user","content":"{says}"}}]{rest}}}"#);
    client.ask(address, "POST", CHAT, &[], body.as_bytes());
}

#[test]
fn a_panic_is_a_500_for_its_request_alone_and_is_counted() {
    let metrics = with_gateway(|address| {
        let mut client = Client::connect(address);
        for _ in 0..2 {
            ask(&mut client, address, "panic at once", "");
            client.answer(false).assert_error(500, "internal_error", "internal_error");
            ask(&mut client, address, "hello", &format());
            assert_eq!(client.answer(false).outcome(), "accepted", "on the same connection");
        }
    });
    assert!(metrics.contains("portcullis_panics_total 2"), "{metrics}");
    assert!(metrics.contains(r#"portcullis_requests_total{alias="demo",code="internal_error",outcome="failed"} 2"#));
    assert!(metrics.contains("portcullis_in_flight 0"), "{metrics}");
}

#[test]
fn a_panic_in_the_middle_of_an_answer_cuts_it() {
    let metrics = with_gateway(|address| {
        let mut client = Client::connect(address);
        ask(&mut client, address, "panic later", r#""stream":true"#);
        let answer = client.answer(false);
        assert_eq!((answer.text().as_str(), answer.complete), ("data: {}\n\n", false), "{answer}");
    });
    assert!(metrics.contains("portcullis_panics_total 1"), "{metrics}");
    assert!(metrics.contains(r#"portcullis_requests_total{alias="demo",code="internal_error",outcome="failed"} 1"#));
    assert!(metrics.contains("portcullis_in_flight 0"), "{metrics}");
}

#[test]
fn a_panic_behind_a_held_stream_ends_it_with_an_error() {
    let metrics = with_gateway(|address| {
        let mut client = Client::connect(address);
        ask(&mut client, address, "panic soon", &format!(r#""stream":true,{}"#, format()));
        let answer = client.answer(false);
        assert!(answer.complete && answer.text().starts_with(": portcullis"), "{answer}");
        assert!(answer.text().contains(r#""code":"internal_error""#), "{answer}");
    });
    assert!(metrics.contains("portcullis_panics_total 1"), "{metrics}");
    assert!(metrics.contains(r#"portcullis_requests_total{alias="demo",code="internal_error",outcome="failed"} 1"#));
}
