//! The rejection of a text that no answer could be cut out of.

use crate::contract::verdict::Violation;
use crate::contract::verdict::Violations;
use crate::extraction::NotExtracted;
use crate::extraction::Reason;
use crate::json::JsonFault;
use crate::json::JsonFaultKind;
use crate::json::path::Path;
use crate::record::Stage;
use crate::stage::judge::Stopped;
use crate::stage::judge::reject;
use crate::wire::fault::Code;

/// The rejection of an answer that a token limit has cut off.
pub(super) fn truncated() -> Stopped {
    let violation = plain("truncated", "the answer was cut off by a token limit".to_owned());
    reject(Code::OutputTruncated, Stage::Extract, "truncated", Violations::one(violation))
}

/// A violation of the container, at no place in particular.
pub(super) fn plain(kind: &'static str, message: String) -> Violation {
    Violation::own("extraction", kind, Path::root(), message, None)
}

/// The rejection of a text that nothing could be cut out of. The text itself is not quoted.
pub(super) fn not_extracted(not: &NotExtracted, text: &str) -> Stopped {
    let code = match not.reason {
        Reason::Empty | Reason::NoJson | Reason::Invalid | Reason::TrailingText => Code::OutputNotJson,
        Reason::Ambiguous => Code::OutputAmbiguous,
        Reason::Truncated => Code::OutputTruncated,
        Reason::DuplicateKey => Code::OutputDuplicateKey,
        Reason::TooDeep => Code::OutputTooDeep,
        Reason::NumberOutOfRange => Code::OutputNumberOutOfRange,
    };
    let violation = Violation::own(
        "extraction",
        not.reason.as_str(),
        not.path.clone().unwrap_or_default(),
        told(not, text),
        Some(not.at..not.at),
    );
    reject(code, Stage::Extract, not.reason.as_str(), Violations::one(violation))
}

/// What is said of a text that nothing could be cut out of.
fn told(not: &NotExtracted, text: &str) -> String {
    let place = |at: usize| {
        let (line, column) = JsonFault::new(JsonFaultKind::TrailingText, at).position(text.as_bytes());
        format!("line {line}, column {column}")
    };
    match (not.reason, &not.fault) {
        (Reason::Empty, _) => "the text is empty".to_owned(),
        (Reason::NoJson, _) => "the text holds nothing that begins like JSON".to_owned(),
        (Reason::Ambiguous, _) => {
            format!("the text holds several JSON values that differ; the second begins at {}", place(not.at))
        }
        (Reason::Truncated, _) => format!("the text stops inside what begins at {}", place(not.at)),
        (_, Some(fault)) => format!("{}: {fault}", place(fault.at)),
        (Reason::TooDeep, None) => format!("{}: more than 127 containers are open", place(not.at)),
        (reason, None) => format!("{}: {}", place(not.at), reason.as_str()),
    }
}
