//! Any chat request, shaped for two backends that differ most: every byte outside the edits is kept.
#![no_main]

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use portcullis::api::ingress::chat::ChatRequest;
use portcullis::catalog::{Alias, Backend, Credentials, Target, Timeouts};
use portcullis::contract::{ContentContract, Contract};
use portcullis::dialect::table::{BackendKind, Capabilities};
use portcullis::json::string;
use portcullis::record::Native;
use portcullis::stage::bind::Binding;
use portcullis::stage::{plan, prompt, shape};
use serde::de::IgnoredAny;

fuzz_target!(|body: &[u8]| {
    let Ok(request) = ChatRequest::read(Bytes::copy_from_slice(body)) else { return };
    for (kind, model, system_role) in [
        (BackendKind::Openai, None, true),
        (BackendKind::OpenaiCompatible, Some("k2 \"é\""), true),
        (BackendKind::OpenaiCompatible, None, false),
    ] {
        for content in [Some(ContentContract::object()), None] {
            let contract = Contract { content, ..Contract::default() };
            shaped(&request, contract, kind, model, system_role);
        }
    }
});

fn shaped(request: &ChatRequest, contract: Contract, kind: BackendKind, model: Option<&str>, system_role: bool) {
    let backend = Arc::new(Backend {
        name: "b".into(),
        kind,
        base: None,
        tls: None,
        proxy: None,
        credentials: Credentials::None,
        headers: Vec::new(),
        timeouts: Timeouts::default(),
        concurrency: 1,
        capabilities: Capabilities { system_role, ..Capabilities::of(kind) },
    });
    let target = Target { backend, model: model.map(str::to_owned), price: None };
    let alias = Arc::new(Alias { name: "a".into(), targets: vec![target], upstream_calls_max: 1 });
    let plan = plan::plan(alias, contract, None, Binding::default(), request).expect("no policy requires anything");
    let native = plan.targets[0].native;
    let shaped =
        shape::shape(request, &plan.contract, &plan.terms, &plan.targets[0], None).expect("edits never overlap");
    let out = Bytes::from(shaped.body.concat());
    serde_json::from_slice::<IgnoredAny>(&out).expect("the result is JSON");
    let again = ChatRequest::read(out.clone()).expect("the result is a chat request");

    let dropped = |index: usize| {
        let own = request.own.as_ref().is_some_and(|(own, _)| *own == index);
        let format = request.response_format.as_ref().is_some_and(|format| format.member == index);
        own || (format && plan.contract.content.is_some() && native == Native::Prompt)
    };
    let kept: Vec<_> = (0..request.members.len()).filter(|index| !dropped(*index)).collect();
    let mut added = usize::from(native == Native::JsonObject && request.response_format.is_none());
    added += usize::from(
        plan.targets[0].target.backend.capabilities.store && plan.terms.unstored && request.store.is_none(),
    );
    assert_eq!(kept.len() + added, again.members.len(), "no member comes or goes but for those that are dropped");
    for (index, after) in kept.iter().zip(&again.members) {
        let (before, after) = (&request.body[request.members[*index].clone()], &out[after.clone()]);
        if request.members[*index].contains(&request.model_at.start) {
            assert!(before == after || model.is_some());
        } else if request.members[*index].contains(&request.messages.at.start) {
            assert!(is_insertion(before, after), "messages only gain");
        } else if request.response_format.as_ref().is_some_and(|format| format.member == *index)
            && native == Native::JsonObject
        {
            assert!(before == after || after == br#""response_format":{"type":"json_object"}"#);
        } else {
            assert_eq!(before, after, "a member that nothing concerns is kept");
        }
    }
    assert_eq!(again.model, model.unwrap_or(&request.model));
    if kept.len() == request.members.len() && model.is_none() && native != Native::JsonObject {
        assert!(is_insertion(&request.body, &out), "without the text that came in, the result is the request");
        if plan.contract.content.is_none() {
            assert_eq!(request.body, out);
        }
    }
    // Half a surrogate pair is the caller's and goes on; a text with one cannot be looked into.
    let readable = |spot| string::decode(&out, spot).is_ok();
    if let Some(content) = plan.contract.content.as_ref().filter(|_| again.texts().all(readable)) {
        assert!(prompt::is_there(&again, content), "the model is told of the contract");
    }
}

/// Whether `after` is `before` with one stretch of bytes put in.
fn is_insertion(before: &[u8], after: &[u8]) -> bool {
    let head = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let tail: Range<usize> = head..before.len();
    after.len() >= before.len() && after.ends_with(&before[tail])
}
