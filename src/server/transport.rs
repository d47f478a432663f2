//! What a connection of the main listener runs over: TCP, or TLS on it.

use std::io;
use std::pin::Pin;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::io::AsyncReadExt as _;
use tokio::io::AsyncWrite;
use tokio::io::AsyncWriteExt as _;
use tokio::io::ReadBuf;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The first byte of a TLS handshake (RFC 8446 section 5.1).
const HANDSHAKE: u8 = 22;
/// What a client is told that speaks plain HTTP to a listener with TLS.
const PLAIN: &str = "{\"error\":{\"message\":\"this port speaks TLS; write `https://`\",\"type\":\"invalid_request_error\",\
                     \"code\":\"invalid_http\",\"param\":null}}";
/// How long such a client may take to hear it.
const HEARING: Duration = Duration::from_secs(2);

/// A connection as it was accepted.
pub(super) enum Transport {
    /// Without TLS.
    Tcp(TcpStream),
    /// With TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

/// No TLS stands.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    /// The client spoke plain HTTP, and was told so.
    #[error("the client spoke plain HTTP")]
    Plain,
    /// The client went away before it said anything, as those do that only look whether the port is open.
    #[error("the client said nothing")]
    Silent,
    /// The handshake failed.
    #[error("the TLS handshake failed")]
    Failed(#[from] io::Error),
    /// The handshake did not end in time.
    #[error("the TLS handshake took longer than {0:?}")]
    Late(Duration),
}

/// What a client speaks, as far as its first bytes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaks {
    /// HTTP/1.
    Http1,
    /// HTTP/2, or something that begins like it.
    PerhapsHttp2,
}

impl Transport {
    /// Shakes hands where the listener has TLS, within `patience`.
    pub(super) async fn open(
        stream: TcpStream,
        tls: Option<TlsAcceptor>,
        patience: Duration,
    ) -> Result<Self, HandshakeError> {
        let Some(tls) = tls else {
            return Ok(Self::Tcp(stream));
        };
        let shaking = async {
            let mut first = [HANDSHAKE];
            if stream.peek(&mut first).await? == 0 {
                return Err(HandshakeError::Silent);
            }
            if first != [HANDSHAKE] {
                let _ = tokio::time::timeout(HEARING, tell(stream)).await; // it may not want to hear it
                return Err(HandshakeError::Plain);
            }
            Ok(Self::Tls(Box::new(tls.accept(stream).await?)))
        };
        tokio::time::timeout(patience, shaking).await.unwrap_or(Err(HandshakeError::Late(patience)))
    }
}

impl Transport {
    /// Waits for the first bytes and tells what is spoken. Most connections are plain HTTP/1, and need no look at each
    /// read for what they might still turn out to be.
    pub(super) async fn speaks(&self) -> io::Result<Speaks> {
        match self {
            Self::Tcp(stream) => {
                let mut first = [0; 2];
                let length = stream.peek(&mut first).await?;
                // `PRI * HTTP/2.0`: no method of HTTP/1 that is in use begins so (RFC 9113 section 3.4).
                let perhaps = length > 0 && b"PR".starts_with(first.get(..length).unwrap_or_default());
                Ok(if perhaps { Speaks::PerhapsHttp2 } else { Speaks::Http1 })
            }
            Self::Tls(stream) => Ok(match stream.get_ref().1.alpn_protocol() {
                Some(b"http/1.1") => Speaks::Http1,
                _ => Speaks::PerhapsHttp2,
            }),
        }
    }
}

/// Answers a request that came without TLS, and reads the rest of it away.
async fn tell(mut stream: TcpStream) -> io::Result<()> {
    let length = PLAIN.len();
    let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n";
    stream.write_all(format!("{head}content-length: {length}\r\n\r\n{PLAIN}").as_bytes()).await?;
    stream.shutdown().await?;
    let mut rest = [0; 4096];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
