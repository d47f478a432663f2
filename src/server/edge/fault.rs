//! What can be wrong with the bytes of a client.

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident = $reason:literal, $text:literal;)+) => {
        /// Why bytes of a client are refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
        pub enum EdgeFault { $($(#[doc = $doc])+ #[error($text)] $name,)+ }

        impl EdgeFault {
            /// Every fault there is.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The fault in one word, for counters and the log.
            pub fn reason(self) -> &'static str {
                match self { $(Self::$name => $reason,)+ }
            }
        }
    };
}

faults! {
    /// A head of more bytes than a head may have.
    HeadTooLarge = "head_too_large", "the request's head has more bytes than are allowed";
    /// More header lines than a head may have.
    TooManyHeaders = "too_many_headers", "the request's head has more header lines than are allowed";
    /// A line ends with LF alone (RFC 9112 section 2.2).
    BareLf = "bare_lf", "a line ends with LF alone, lines of HTTP/1 end with CRLF";
    /// A CR that no LF follows (RFC 9112 section 2.2).
    BareCr = "bare_cr", "a CR is not followed by LF, lines of HTTP/1 end with CRLF";
    /// More empty lines before a request than a client's mistake explains (RFC 9112 section 2.2).
    EmptyLines = "empty_lines", "more than two empty lines stand before a request";
    /// The first line is no request line of HTTP/1.0 or HTTP/1.1 (RFC 9112 section 3).
    RequestLine = "request_line", "the first line is not `method target HTTP/1.1` with one space between each";
    /// A line that continues the one before it (RFC 9112 section 5.2), or would if there were one.
    ObsFold = "obs_fold", "a header line begins with white space, folded lines are not read";
    /// A header line that has no colon.
    NoColon = "no_colon", "a header line has no colon after its name";
    /// The name is empty, is no token (RFC 9110 section 5.6.2) or has white space before its colon.
    HeaderName = "header_name", "a header's name is not a token that ends right at its colon";
    /// NUL or another control character but HTAB (RFC 9110 section 5.5).
    ControlCharacter = "control_character", "a header's value has a control character, only HTAB is allowed";
    /// Both `content-length` and `transfer-encoding` (RFC 9112 section 6.3).
    TwoFramings = "two_framings", "both `content-length` and `transfer-encoding` are there, at most one may be";
    /// More than one `content-length`, be they equal, be they on one line.
    ManyContentLengths = "many_content_lengths", "`content-length` is there more than once, it may be once";
    /// `content-length` is no plain number of 64 bits.
    ContentLength = "content_length", "`content-length` is not a number in decimal digits that fits in 64 bits";
    /// `transfer-encoding` that is anything but one line `chunked`.
    TransferEncoding = "transfer_encoding", "`transfer-encoding` is not just `chunked`, on one line";
    /// HTTP/1.0 knows no `transfer-encoding` (RFC 9112 section 6.1).
    OldTransferEncoding = "old_transfer_encoding", "`transfer-encoding` is there, which HTTP/1.0 does not have";
    /// More than one `host` (RFC 9112 section 3.2).
    ManyHosts = "many_hosts", "`host` is there more than once, it may be once";
    /// No `host` in a request of HTTP/1.1 (RFC 9112 section 3.2).
    NoHost = "no_host", "`host` is missing, every request of HTTP/1.1 has it";
    /// A chunk's size is not 1 to 16 hexadecimal digits.
    ChunkSize = "chunk_size", "a chunk's size is not 1 to 16 hexadecimal digits";
    /// What follows a chunk's size is no extension, or has control characters or a quote that does not close.
    ChunkExtension = "chunk_extension", "what follows a chunk's size is not a sound chunk extension";
    /// The extensions of one body take too many bytes.
    ChunkExtensions = "chunk_extensions", "the chunk extensions of the body have more than 1024 bytes";
    /// A chunk's data is not followed by CRLF: its size was wrong.
    ChunkEnd = "chunk_end", "a chunk's data is not followed by CRLF";
    /// Trailers of more bytes than a head may have.
    TrailersTooLarge = "trailers_too_large", "the body's trailers have more bytes than are allowed";
    /// A trailer that would frame or route the request over again (RFC 9110 section 6.5.1).
    TrailerName = "trailer_name", "`content-length`, `transfer-encoding` or `host` is among the trailers";
}

impl EdgeFault {
    /// Whether it is the size of a head that is refused (status 431, RFC 6585 section 5), and not its form.
    pub fn is_size(self) -> bool {
        matches!(self, Self::HeadTooLarge | Self::TooManyHeaders)
    }
}
