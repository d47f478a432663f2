//! `portcullis health`

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::bail;
use clap::Args;
use http::Request;
use http::Uri;
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::Failure;
use super::runtime;

/// How long the gateway may take to say that it is ready.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// What to ask
    #[arg(default_value = "http://127.0.0.1:8788/readyz")]
    url: Uri,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let runtime = runtime()?;
    let asked = runtime.block_on(async { tokio::time::timeout(PATIENCE, ask(&arguments.url)).await });
    match asked {
        Ok(Ok(())) => {
            say!("ready");
            Ok(ExitCode::SUCCESS)
        }
        Ok(Err(error)) => Err(Failure::Outside(error)),
        Err(_) => Err(Failure::Outside(anyhow::anyhow!("no answer within {PATIENCE:?}"))),
    }
}

async fn ask(url: &Uri) -> anyhow::Result<()> {
    if url.scheme_str() != Some("http") {
        bail!("`{url}` is no http:// address; the admin listener is asked in the clear");
    }
    let authority = url.authority().context("the address has no host")?;
    let port = authority.port_u16().unwrap_or(80);
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, port)).await.with_context(|| format!("cannot connect to {authority}"))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path).header("host", authority.as_str()).body(Empty::<bytes::Bytes>::new())?;
    let answer = tokio::select! {
        answer = sender.send_request(request) => answer?,
        ended = connection => {
            ended?;
            bail!("the connection ended before an answer came");
        }
    };
    if !answer.status().is_success() {
        bail!("the gateway is not ready: {}", answer.status());
    }
    Ok(())
}
