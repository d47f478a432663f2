//! Many streams at once: none is lost, none gets another's events, and nothing of them is left behind.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]
#![allow(clippy::print_stderr)]

mod support;

use support::crowd::Crowd;
use support::*;

const STREAMS: usize = 2_000;
/// Bytes of memory that a stream may cost while it waits. Without optimization its parts take more than twice as much.
const MOST: u64 = if cfg!(debug_assertions) { 128 << 10 } else { 64 << 10 };

#[test]
fn a_thousand_slow_streams() {
    let mut crowd = Crowd::new();
    let gateway = Setup::new().backend("up", "openai", crowd.upstream, ", concurrency: 4096").start();
    gateway.metrics();
    let (resident, descriptors) = (gateway.resident(), gateway.descriptors());
    crowd.begin(gateway.address, STREAMS);
    assert!(gateway.metrics().contains(&format!("portcullis_in_flight {STREAMS}")), "{}", gateway.metrics());
    let each = gateway.resident().saturating_sub(resident) / STREAMS as u64;
    eprintln!(
        "{} descriptors and {each} bytes of memory for each of {STREAMS} streams that wait",
        gateway.descriptors()
    );
    assert!(each < MOST, "{each} bytes a stream");
    let wrong = crowd.end();
    assert!(wrong.is_empty(), "{} streams are not whole, among them {}", wrong.len(), wrong[0]);
    eventually("nothing is under way", || gateway.metrics().contains("portcullis_in_flight 0"));
    drop(crowd);
    eventually("the descriptors are back", || gateway.descriptors() <= descriptors + 16);
    let served = format!(r#"portcullis_requests_total{{alias="*",code="",outcome="unchecked"}} {STREAMS}"#);
    assert!(gateway.metrics().contains(&served), "{}", gateway.metrics());
    assert!(gateway.metrics().contains("portcullis_held_bytes 0"));
    eprintln!(
        "{} bytes of memory are kept of each afterwards",
        gateway.resident().saturating_sub(resident) / STREAMS as u64
    );
}
