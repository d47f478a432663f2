//! A connection to a backend that notes why the backend ended it, where that was about who calls.
//!
//! In TLS 1.3 the handshake is over on this side before the backend has looked at the certificate that it asked for
//! (RFC 8446 section 4.4.2.4). Its word that it refuses comes where the answer is waited for, and looks like an answer
//! that broke; but nothing of the request was taken.

use std::io;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::OnceLock;
use std::task::Context;
use std::task::Poll;
use std::task::ready;

use hyper::rt::Read;
use hyper::rt::ReadBuf;
use hyper::rt::ReadBufCursor;
use hyper::rt::Write;
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use rustls::AlertDescription;
use tokio::net::TcpStream;

/// Reads of what a backend said before it went.
const LAST_READS: usize = 64;

/// A connection, with TLS or without.
pub(super) struct Stream {
    inner: MaybeHttpsStream<TokioIo<TcpStream>>,
    last_word: LastWord,
    /// Why a write failed, until what the backend said before is heard.
    failed: Option<io::Error>,
    /// Whoever uses it reads on after a write has failed.
    read_on: bool,
}

/// Where it is noted that a backend refused who calls.
#[derive(Clone, Default)]
pub(super) struct LastWord(Arc<OnceLock<String>>);

impl LastWord {
    /// What the backend said.
    pub(super) fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    /// Whether both are of one connection.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn note(&self, error: &io::Error) {
        let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(rustls::Error::AlertReceived(alert)) = cause
            && is_about_certificates(*alert)
        {
            let _ = self.0.set(format!("the backend refused the client certificate, or the lack of one ({alert:?})"));
        }
    }
}

/// Alerts that a server ends a handshake with over what the client showed (RFC 8446 section 6.2).
fn is_about_certificates(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError
    )
}

impl Stream {
    /// `inner`, watched.
    pub(super) fn new(inner: MaybeHttpsStream<TokioIo<TcpStream>>) -> Self {
        Self { inner, last_word: LastWord::default(), failed: None, read_on: false }
    }

    /// The same for one who reads on after a write has failed, and so hears the backend's last word without help.
    pub(super) fn read_on(self) -> Self {
        Self { read_on: true, ..self }
    }

    /// The connection beneath.
    pub(super) fn tcp(&self) -> &TcpStream {
        match &self.inner {
            MaybeHttpsStream::Http(tcp) => tcp.inner(),
            MaybeHttpsStream::Https(tls) => tls.inner().get_ref().0.inner().inner(),
        }
    }

    /// Where a last_word is noted, should there be one.
    pub(super) fn last_word(&self) -> LastWord {
        self.last_word.clone()
    }

    /// What became of a write. Where it failed because the backend is gone, its last word is heard first: it may have
    /// come before, and nobody would read it.
    fn wrote<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let secure = matches!(self.inner, MaybeHttpsStream::Https(_)) && !self.read_on;
        let gone = |error: &io::Error| matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset);
        match written {
            Poll::Ready(Err(error)) if secure && gone(&error) => {
                self.failed = Some(error);
                self.hear_out(context).map(Err)
            }
            written => written,
        }
    }

    /// Reads to the end of a connection that has failed, and gives why it has.
    fn hear_out(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        for _ in 0..LAST_READS {
            let mut piece = [MaybeUninit::uninit(); 1024];
            let mut buffer = ReadBuf::uninit(&mut piece);
            match ready!(Pin::new(&mut self.inner).poll_read(context, buffer.unfilled())) {
                Ok(()) if !buffer.filled().is_empty() => {}
                Ok(()) => break,
                Err(error) => {
                    self.last_word.note(&error);
                    break;
                }
            }
        }
        Poll::Ready(self.failed.take().unwrap_or_else(|| ErrorKind::BrokenPipe.into()))
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if let Poll::Ready(Err(error)) = &read {
            self.last_word.note(error);
        }
        read
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.failed.is_some() {
            return self.hear_out(context).map(Err);
        }
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.wrote(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.failed.is_some() {
            return self.hear_out(context).map(Err);
        }
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, pieces);
        self.wrote(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.failed.is_some() {
            return self.hear_out(context).map(Err);
        }
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        self.wrote(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
