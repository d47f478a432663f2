//! Any bytes as a chat request: what is read of it stands where it is said to stand.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use portcullis::api::ingress::chat::{ChatRequest, Content};
use serde::de::IgnoredAny;

fuzz_target!(|body: &[u8]| {
    let Ok(request) = ChatRequest::read(Bytes::copy_from_slice(body)) else { return };
    serde_json::from_slice::<IgnoredAny>(body).expect("another parser agrees on the grammar");

    let mut end = 0;
    for member in &request.members {
        assert!(end < member.start && member.start < member.end && member.end < body.len(), "members stand in order");
        assert_eq!(body[member.start], b'"');
        end = member.end;
    }
    if let Ok(model) = serde_json::from_slice::<String>(&body[request.model_at.clone()]) {
        assert_eq!(model, request.model);
    } else {
        panic!("the model's name is a string");
    }
    assert_eq!((body[request.messages.at.start], body[request.messages.at.end - 1]), (b'[', b']'));
    let mut end = request.messages.at.start;
    for message in &request.messages.list {
        let inside = match &message.content {
            Content::Text(spot) => spot.open..spot.after(),
            Content::Parts(at) => at.clone(),
            Content::None => continue,
        };
        assert!(end < inside.start && inside.end < request.messages.at.end, "contents stand in order");
        end = inside.end;
    }
    for text in request.texts() {
        assert_eq!((body[text.open], body[text.close]), (b'"', b'"'));
    }
    for place in request
        .schema()
        .iter()
        .map(Bytes::as_ref)
        .chain(request.tools.iter().filter_map(|tool| body.get(tool.parameters.clone()?)))
    {
        serde_json::from_slice::<IgnoredAny>(place).expect("a schema is one JSON value");
    }
    if let Some((index, own)) = &request.own {
        assert!(*index < request.members.len() && own.tags.len() <= 16);
    }
});
