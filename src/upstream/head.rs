//! Heads of answers that others would read in another way.

use http::HeaderValue;
use http::Response;
use http::header;

/// Why the head of an answer is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HeadError {
    /// RFC 9112 section 6.3: such an answer ought to be handled as an error.
    #[error("the answer has both `content-length` and `transfer-encoding`")]
    TwoFramings,
    #[error("the answer has more than one `content-length`")]
    ManyContentLengths,
    /// A coding that is not undone here, or two answers in one.
    #[error("the answer's `transfer-encoding` is not just `chunked`")]
    TransferEncoding,
    #[error("the answer switches to another protocol, which nobody asked for")]
    Switched,
}

/// Whether the head of an answer over HTTP/1 says in one way alone where its body ends. The library takes one of several
/// that are there; a proxy or a client behind it may take another, and read what follows as the next answer.
pub(super) fn sound<B>(response: &Response<B>) -> Result<(), HeadError> {
    if response.status().is_informational() {
        return Err(HeadError::Switched);
    }
    let mut lengths = response.headers().get_all(header::CONTENT_LENGTH).iter();
    let mut codings = response.headers().get_all(header::TRANSFER_ENCODING).iter();
    let (length, coding) = (lengths.next(), codings.next());
    if length.is_some() && coding.is_some() {
        return Err(HeadError::TwoFramings);
    }
    if lengths.next().is_some() || length.is_some_and(|length| length.as_bytes().contains(&b',')) {
        return Err(HeadError::ManyContentLengths);
    }
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    if codings.next().is_some() || coding.is_some_and(|coding| !is_chunked(coding)) {
        return Err(HeadError::TransferEncoding);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_answer_is_told_in_one_way() {
        let read = |head: &[(&'static str, &'static str)]| {
            let mut response = Response::new(());
            for (name, value) in head {
                response.headers_mut().append(*name, HeaderValue::from_static(value));
            }
            sound(&response).err()
        };
        const LENGTH: &str = "content-length";
        const CODING: &str = "transfer-encoding";
        for (head, expected) in [
            (&[][..], None),
            (&[(LENGTH, "5")], None),
            (&[(CODING, " Chunked")], None),
            (&[(LENGTH, "5"), (CODING, "chunked")], Some(HeadError::TwoFramings)),
            (&[(LENGTH, "5"), (LENGTH, "5")], Some(HeadError::ManyContentLengths)),
            (&[(LENGTH, "5, 5")], Some(HeadError::ManyContentLengths)),
            (&[(CODING, "gzip, chunked")], Some(HeadError::TransferEncoding)),
            (&[(CODING, "chunked"), (CODING, "chunked")], Some(HeadError::TransferEncoding)),
            (&[(CODING, "identity")], Some(HeadError::TransferEncoding)),
        ] {
            assert_eq!(read(head), expected, "{head:?}");
        }
    }
}
