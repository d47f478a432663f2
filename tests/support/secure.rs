//! TLS for tests: authorities, identities of them, and both ends of a connection.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::BasicConstraints;
use rcgen::CertificateParams;
use rcgen::DnType;
use rcgen::IsCa;
use rcgen::Issuer;
use rcgen::KeyPair;
use rustls::ClientConfig;
use rustls::ClientConnection;
use rustls::ProtocolVersion;
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::StreamOwned;
use rustls::SupportedProtocolVersion;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;

use super::*;

/// TLS 1.3 and TLS 1.2.
pub const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// An authority with a folder of its own, which has `ca.pem` and the files of what it signed.
pub struct Authority {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
    root: CertificateDer<'static>,
}

/// A certificate with its key, in memory and as files.
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
    chain: Vec<CertificateDer<'static>>,
    private: PrivateKeyDer<'static>,
}

impl Authority {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, format!("authority {}", folder.path().display()));
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap();
        std::fs::write(folder.path().join("ca.pem"), root.pem()).unwrap();
        Self { root: root.der().clone(), issuer: Issuer::new(params, key), folder }
    }

    /// The PEM file of its certificate.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate for these names.
    pub fn identity(&self, names: &[&str]) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let name = names.concat().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        let file = |end: &str, text: String| {
            let path = self.folder.path().join(format!("{name}.{end}"));
            std::fs::write(&path, text).unwrap();
            path
        };
        Identity {
            certificate: file("pem", certificate.pem()),
            key: file("key", key.serialize_pem()),
            chain: vec![certificate.der().clone()],
            private: PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        }
    }

    /// A certificate for loopback.
    pub fn local(&self) -> Identity {
        self.identity(&["localhost", "127.0.0.1"])
    }

    fn roots(&self) -> Arc<RootCertStore> {
        roots_of(self.root.clone())
    }
}

fn roots_of(root: CertificateDer<'static>) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(root).unwrap();
    Arc::new(roots)
}

impl Identity {
    /// `listen.tls` with it, as a member of `listen`.
    pub fn listener(&self, more: &str) -> String {
        format!("tls: {{certificate: {:?}, key: {:?}{more}}}", self.certificate, self.key)
    }

    /// A server that shows it and speaks these protocols, to clients of `clients` alone where there is one.
    pub fn server(&self, protocols: &[&str], clients: Option<&Authority>) -> Arc<ServerConfig> {
        let verifier = match clients {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(authority) => {
                WebPkiClientVerifier::builder_with_provider(authority.roots(), provider()).build().unwrap()
            }
        };
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&VERSIONS)
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain.clone(), self.private.clone_key())
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// A client of TLS in the making.
pub struct Trust {
    roots: Arc<RootCertStore>,
    versions: Vec<&'static SupportedProtocolVersion>,
    protocols: Vec<Vec<u8>>,
    identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
}

impl Trust {
    /// A client that trusts this authority, speaks every version and names no protocol.
    pub fn in_authority(authority: &Authority) -> Self {
        Self { roots: authority.roots(), versions: VERSIONS.to_vec(), protocols: Vec::new(), identity: None }
    }

    /// The same with the authority of a PEM file.
    pub fn in_file(file: &Path) -> Self {
        let roots = roots_of(CertificateDer::from_pem_file(file).unwrap());
        Self { roots, versions: VERSIONS.to_vec(), protocols: Vec::new(), identity: None }
    }

    pub fn version(mut self, version: &'static SupportedProtocolVersion) -> Self {
        self.versions = vec![version];
        self
    }

    pub fn protocols(mut self, protocols: &[&str]) -> Self {
        self.protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        self
    }

    /// Shows this certificate.
    pub fn showing(mut self, identity: &Identity) -> Self {
        self.identity = Some((identity.chain.clone(), identity.private.clone_key()));
        self
    }

    /// Shows the certificate of these files.
    pub fn showing_files(mut self, certificate: &Path, key: &Path) -> Self {
        let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
        self.identity = Some((chain, PrivateKeyDer::from_pem_file(key).unwrap()));
        self
    }

    pub fn config(self) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&self.versions)
            .unwrap()
            .with_root_certificates(self.roots);
        let mut config = match self.identity {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = self.protocols;
        Arc::new(config)
    }
}

/// `tls` of a backend with this authority, as a further member of it.
pub fn trusting(authority: &Authority) -> String {
    format!(", tls: {{ca: {:?}}}", authority.file())
}

/// The URL of a TLS upstream.
pub fn https(address: SocketAddr) -> String {
    format!("https://{address}")
}

impl Client {
    /// A client that speaks TLS; the handshake is over.
    #[track_caller]
    pub fn secure(address: SocketAddr, config: &Arc<ClientConfig>) -> Self {
        Self::try_secure(address, config).unwrap()
    }

    /// The same, where the handshake may fail.
    pub fn try_secure(address: SocketAddr, config: &Arc<ClientConfig>) -> std::io::Result<Self> {
        let name = ServerName::try_from("localhost").unwrap();
        let mut session = ClientConnection::new(Arc::clone(config), name).unwrap();
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        let stream = Box::new(StreamOwned::new(session, stream));
        Ok(Self { wire: Wire::new(Socket::Client(stream), Arc::default()) })
    }

    /// What was agreed on: the version, and the protocol.
    pub fn agreed(&self) -> (ProtocolVersion, Option<String>) {
        let Socket::Client(stream) = &self.wire.stream else { panic!("no TLS") };
        let protocol = stream.conn.alpn_protocol().map(text);
        (stream.conn.protocol_version().unwrap(), protocol)
    }
}
