//! `portcullis certs`: certificates to try TLS with.

use std::fs;
use std::fs::OpenOptions;
use std::io;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use std::time::SystemTime;

use anyhow::Context as _;
use clap::Args;
use clap::Subcommand;
use jiff::Timestamp;
use rcgen::BasicConstraints;
use rcgen::CertificateParams;
use rcgen::DnType;
use rcgen::ExtendedKeyUsagePurpose;
use rcgen::IsCa;
use rcgen::Issuer;
use rcgen::KeyPair;
use rcgen::KeyUsagePurpose;
use rustls::pki_types::ServerName;
use serde_json::Value;

use super::Failure;

/// How long the certificates hold.
const VALID: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long before now they begin to, for clocks that are behind.
const BACKDATED: Duration = Duration::from_secs(3600);
/// Names of this machine, which the server's certificate always has.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make a throw-away authority, and a server's and a client's certificate of it, valid for 30 days
    #[command(
        after_help = "Example:\n  portcullis certs dev certs\n  portcullis certs dev certs --host gateway.test --force"
    )]
    Dev(Dev),
}

#[derive(Debug, Args)]
struct Dev {
    /// The folder to write ca.pem, server.pem, server.key, client.pem and client.key into; made where it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// A further name or IP address of the server, beside localhost, 127.0.0.1 and ::1
    #[arg(long = "host", value_name = "NAME", value_parser = host)]
    hosts: Vec<String>,
    /// Replace the five files where they are there
    #[arg(long)]
    force: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    match &arguments.what {
        What::Dev(dev) => self::dev(dev),
    }
}

fn dev(arguments: &Dev) -> Result<ExitCode, Failure> {
    let folder = &arguments.folder;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(Failure::outside)?;
    let until = now + VALID;
    let files = made(&arguments.hosts, now - BACKDATED, until).map_err(Failure::outside)?;
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))
        .map_err(Failure::Outside)?;
    write(folder, &files, arguments.force)?;
    let folder = fs::canonicalize(folder).map_err(Failure::outside)?;
    let until = i64::try_from(until.as_secs()).ok().and_then(|until| Timestamp::from_second(until).ok());
    say_on!("{}", told(&folder, &files, until));
    Ok(ExitCode::SUCCESS)
}

/// One file to write.
struct File {
    name: &'static str,
    what: &'static str,
    text: String,
    secret: bool,
}

/// The five files. The authority's key goes when this ends, so nothing else is ever signed by it.
fn made(hosts: &[String], from: Duration, until: Duration) -> Result<[File; 5], rcgen::Error> {
    let params = |name: &str, hosts: Vec<String>| {
        let mut params = CertificateParams::new(hosts)?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, format!("Portcullis throw-away {name}"));
        params.not_before = rcgen::date_time_ymd(1970, 1, 1) + from;
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + until;
        Ok::<_, rcgen::Error>(params)
    };
    let mut authority = params("authority", Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority_key = KeyPair::generate()?;
    let ca = authority.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(authority, authority_key);
    let signed = |name: &str, hosts: Vec<String>, purpose| {
        let mut leaf = params(name, hosts)?;
        leaf.is_ca = IsCa::ExplicitNoCa;
        leaf.use_authority_key_identifier_extension = true;
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![purpose];
        let key = KeyPair::generate()?;
        Ok::<_, rcgen::Error>((leaf.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
    };
    let mut names: Vec<String> = LOCAL.iter().map(|name| (*name).to_owned()).collect();
    for host in hosts {
        if !names.contains(host) {
            names.push(host.clone());
        }
    }
    let (server, server_key) = signed("server", names, ExtendedKeyUsagePurpose::ServerAuth)?;
    let (client, client_key) = signed("client", Vec::new(), ExtendedKeyUsagePurpose::ClientAuth)?;
    let file = |name, what, text, secret| File { name, what, text, secret };
    Ok([
        file("ca.pem", "the authority of both; its key is not kept", ca, false),
        file("server.pem", "the server's certificate", server, false),
        file("server.key", "its key", server_key, true),
        file("client.pem", "a client's certificate", client, false),
        file("client.key", "its key", client_key, true),
    ])
}

/// Writes all files. Where one cannot be made, those that were are taken back; what `--force` has replaced is gone.
fn write(folder: &Path, files: &[File], force: bool) -> Result<(), Failure> {
    let there: Vec<String> = files
        .iter()
        .map(|file| folder.join(file.name))
        .filter(|path| path.symlink_metadata().is_ok())
        .map(|path| path.display().to_string())
        .collect();
    if !force && !there.is_empty() {
        let verb = if there.len() == 1 { "is" } else { "are" };
        let error = anyhow::anyhow!("{} {verb} there already; `--force` replaces all five files", there.join(", "));
        return Err(Failure::Input(error));
    }
    for (index, file) in files.iter().enumerate() {
        let path = folder.join(file.name);
        if let Err(error) = write_one(&path, file, force) {
            for written in files.iter().take(index) {
                let _ = fs::remove_file(folder.join(written.name)); // what cannot be taken back is without its key
            }
            let taken = error.kind() == io::ErrorKind::AlreadyExists;
            let error = anyhow::Error::new(error).context(format!("cannot write {}", path.display()));
            return Err(if taken { Failure::Input(error) } else { Failure::Outside(error) });
        }
    }
    Ok(())
}

/// Makes a file that was not there before, so that no link is followed and no mode is another's; a key is never
/// readable by others, not for a moment.
fn write_one(path: &Path, file: &File, force: bool) -> io::Result<()> {
    if force {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let mode = if file.secret { 0o600 } else { 0o644 };
    let mut open = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    let written = open.write_all(file.text.as_bytes()).and_then(|()| open.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(path); // half a file helps nobody
    }
    written
}

/// What was written, and how it is used.
fn told(folder: &Path, files: &[File], until: Option<Timestamp>) -> String {
    let until = until.map(|until| format!(", valid until {until}")).unwrap_or_default();
    let mut text = format!("written to {}{until}:\n", folder.display());
    for file in files {
        text.push_str(&format!("  {:<11} {}\n", file.name, file.what));
    }
    let path = |name: &str| folder.join(name).display().to_string();
    let quoted = |name| Value::String(path(name)).to_string(); // JSON's quotes are YAML's, too
    let shell = |name| format!("'{}'", path(name).replace('\'', "'\\''"));
    text.push_str(&format!(
        "\nFor the configuration:\n\nlisten:\n  tls:\n    certificate: {}\n    key: {}\n    # client_ca: {}   # lets in \
         only clients with a certificate of this authority\n",
        quoted("server.pem"),
        quoted("server.key"),
        quoted("ca.pem"),
    ));
    text.push_str(&format!(
        "\nTo call it:\n\ncurl --cacert {} https://localhost:8787/v1/models\n\nand with `client_ca`:\n\ncurl --cacert {} \
         --cert {} --key {} https://localhost:8787/v1/models\n",
        shell("ca.pem"),
        shell("ca.pem"),
        shell("client.pem"),
        shell("client.key"),
    ));
    text
}

/// A name that a certificate can be for: a host name, one with `*.` before it, or an IP address.
fn host(text: &str) -> Result<String, String> {
    let name = text.strip_prefix("*.").unwrap_or(text);
    match ServerName::try_from(name) {
        Ok(ServerName::IpAddress(_)) if name != text => Err("no IP address follows `*.`".into()),
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("it is no host name and no IP address".into()),
    }
}
