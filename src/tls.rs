//! Certificates and keys: read from PEM files, and made into what listeners and connections speak TLS with.
//!
//! The provider (aws-lc) is passed everywhere by name: no default of the process is set or asked for. Nothing here
//! shows any part of a key, nor of a file that may hold one.

use std::fmt;
use std::io;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use memchr::memmem;
use rustls::ClientConfig;
use rustls::Error;
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::SupportedProtocolVersion;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::pem::SectionKind;
use rustls::server::ParsedCertificate;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls::sign::SingleCertAndKey;
use secrecy::ExposeSecret as _;
use secrecy::SecretSlice;

use crate::catalog::ClientTls;
use crate::settings::Identity;
use crate::settings::ServerTls;

/// The versions that are spoken.
const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];
/// What the listener offers, the best first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// Bytes of a PEM file; every public authority of the world takes a quarter of it.
const FILE_MAX: u64 = 1 << 20;

/// How the main listener speaks TLS: 1.2 and 1.3, `h2` before `http/1.1`, tickets under a key of its own that no
/// restart survives, and no connection without a certificate of `client_ca` where that is given.
///
/// # Errors
/// Where certificate, key or authorities cannot be used, or the key is not the certificate's.
pub fn server(tls: &ServerTls) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = provider();
    let identity = certified(&tls.identity, &provider)?;
    let clients: Arc<dyn ClientCertVerifier> = match &tls.client_ca {
        None => WebPkiClientVerifier::no_client_auth(),
        Some(authorities) => {
            let roots = Arc::new(roots(authorities)?);
            WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
                .build()
                .map_err(|_| TlsError::NoAuthority)?
        }
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&VERSIONS)
        .map_err(TlsError::Setup)?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(identity)));
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(TlsError::Setup)?;
    Ok(Arc::new(config))
}

/// How a backend is spoken to by TLS, 1.2 and 1.3: the public authorities (Mozilla's, in the binary) are trusted, or
/// those of `tls` in their place; its certificate is shown where the backend asks for one. No ALPN is set: the
/// connector adds its own, and panics over another's.
///
/// # Errors
/// Where certificate, key or authorities cannot be used, or the key is not the certificate's.
pub fn client(tls: Option<&ClientTls>) -> Result<ClientConfig, TlsError> {
    let provider = provider();
    let roots = match tls.and_then(|tls| tls.ca.as_ref()) {
        Some(authorities) => roots(authorities)?,
        None => webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect(),
    };
    let identity = tls.and_then(|tls| tls.identity.as_ref());
    let identity = identity.map(|identity| certified(identity, &provider)).transpose()?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&VERSIONS)
        .map_err(TlsError::Setup)?
        .with_root_certificates(roots);
    Ok(match identity {
        Some(identity) => config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity))),
        None => config.with_no_client_auth(),
    })
}

/// The certificates (DER) of a PEM file, in its order; keys beside them are left where they are.
///
/// # Errors
/// Where the file cannot be read, is no PEM, or holds none.
pub fn certificates(file: &Path) -> Result<Vec<Vec<u8>>, PemError> {
    let bytes = read(file)?;
    let sections = sections(&bytes)?;
    let certificates = sections.into_iter().filter(|(kind, _)| *kind == SectionKind::Certificate);
    let certificates: Vec<_> = certificates.map(|(_, der)| der).collect();
    if certificates.is_empty() {
        return Err(PemError::Missing { wanted: Wanted::Certificate, found: Found::of(&bytes) });
    }
    Ok(certificates)
}

/// The one private key (DER) of a PEM file: PKCS #8, PKCS #1 or SEC 1, not encrypted. Certificates may stand beside it.
///
/// # Errors
/// Where the file cannot be read, is no PEM, or holds no key or several.
pub fn private_key(file: &Path) -> Result<SecretSlice<u8>, PemError> {
    let bytes = read(file)?;
    // An encrypted block of the old kind is not base64, so this must come first to be told.
    if is_encrypted(&bytes) {
        return Err(PemError::Missing { wanted: Wanted::Key, found: Found::Encrypted });
    }
    let keys = sections(&bytes)?.into_iter().filter(|(kind, _)| is_key(*kind));
    let mut keys: Vec<SecretSlice<u8>> = keys.map(|(_, der)| der.into()).collect();
    match (keys.pop(), keys.len()) {
        (Some(key), 0) => Ok(key),
        (Some(_), more) => Err(PemError::SeveralKeys { keys: more + 1 }),
        (None, _) => Err(PemError::Missing { wanted: Wanted::Key, found: Found::of(&bytes) }),
    }
}

/// A file is no PEM file of what was asked for. `Display` goes on after the name of the file, which the caller knows,
/// and how it may be shown.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    /// There is no such file, or it is not for us.
    #[error("cannot be opened")]
    Open(#[source] io::Error),
    /// It is a folder, or the disk failed.
    #[error("cannot be read")]
    Read(#[source] io::Error),
    /// Nobody has so many certificates.
    #[error("is larger than {} MiB", FILE_MAX >> 20)]
    TooLarge,
    /// It starts like PEM and does not go on like it.
    #[error("is broken: {0}")]
    Broken(&'static str),
    /// What was asked for is not in it.
    #[error("holds no {wanted}{found}; expected is {}", wanted.expected())]
    Missing {
        /// What was asked for.
        wanted: Wanted,
        /// What is in it.
        found: Found,
    },
    /// Which of them is meant?
    #[error("holds {keys} private keys; expected is one")]
    SeveralKeys {
        /// How many.
        keys: usize,
    },
}

/// What is asked of a PEM file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// One certificate or more.
    Certificate,
    /// One private key.
    Key,
}

/// What is in a file that does not hold what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No byte.
    Nothing,
    /// The start of a DER structure.
    Der,
    /// Something with no PEM block in it.
    NoPem,
    /// Certificates.
    Certificate,
    /// A private key.
    Key,
    /// A private key that is encrypted.
    Encrypted,
    /// PEM blocks of other kinds.
    Other,
}

/// What TLS cannot be set up with. It says which part is at fault, and holds nothing of a key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate of the chain cannot be read.
    #[error("certificate {number} of the chain cannot be read as X.509")]
    Certificate {
        /// Its place, from 1.
        number: usize,
        /// What was found.
        source: Error,
    },
    /// The key is of no kind that can sign.
    #[error(
        "the key cannot be used; expected is an RSA key of 2048 to 8192 bits, an ECDSA key (P-256, P-384, P-521) or an Ed25519 key"
    )]
    Key,
    /// The key is another certificate's.
    #[error("the key does not fit the certificate; expected is the key of the first certificate of the chain")]
    Mismatch,
    /// A certificate of the authorities cannot be read.
    #[error("certificate {number} of the authorities cannot be read as X.509")]
    Authority {
        /// Its place, from 1.
        number: usize,
        /// What was found.
        source: Error,
    },
    /// There is no authority whose word could be taken.
    #[error("there is no authority to trust")]
    NoAuthority,
    /// The provider does not do what is asked of it.
    #[error("TLS cannot be set up")]
    Setup(#[source] Error),
}

/// What of the key material is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The certificate, or one that leads to its authority.
    Certificate,
    /// The key.
    Key,
    /// The authorities.
    Authority,
}

impl TlsError {
    /// The part that a person must mend; none where it is none of theirs.
    pub fn part(&self) -> Option<Part> {
        match self {
            Self::Certificate { .. } => Some(Part::Certificate),
            Self::Key | Self::Mismatch => Some(Part::Key),
            Self::Authority { .. } | Self::NoAuthority => Some(Part::Authority),
            Self::Setup(_) => None,
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// The certificate with its key, once every certificate can be read and the key is that of the first.
fn certified(identity: &Identity, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let chain: Vec<_> = identity.certificates.iter().cloned().map(CertificateDer::from).collect();
    for (index, certificate) in chain.iter().enumerate() {
        ParsedCertificate::try_from(certificate)
            .map_err(|source| TlsError::Certificate { number: index + 1, source })?;
    }
    // What rustls says of a key stays here: no text about one is worth the risk.
    let key = PrivateKeyDer::try_from(identity.key.expose_secret()).map_err(|_| TlsError::Key)?;
    let key = provider.key_provider.load_private_key(key.clone_key()).map_err(|_| TlsError::Key)?;
    let certified = CertifiedKey::new(chain, key);
    // A key whose public half is not told cannot be checked, and so is not taken.
    certified.keys_match().map_err(|_| TlsError::Mismatch)?;
    Ok(certified)
}

fn roots(authorities: &[Vec<u8>]) -> Result<RootCertStore, TlsError> {
    if authorities.is_empty() {
        return Err(TlsError::NoAuthority);
    }
    let mut roots = RootCertStore::empty();
    for (index, der) in authorities.iter().enumerate() {
        roots
            .add(CertificateDer::from(der.as_slice()))
            .map_err(|source| TlsError::Authority { number: index + 1, source })?;
    }
    Ok(roots)
}

/// Bytes to reserve for a file, and one more to see that it ends.
fn capacity(file: &Path) -> usize {
    let size = std::fs::metadata(file).map_or(0, |metadata| metadata.len());
    usize::try_from(size.min(FILE_MAX)).unwrap_or_default() + 2
}

/// The bytes of a file, wiped when dropped.
fn read(file: &Path) -> Result<secrecy::zeroize::Zeroizing<Vec<u8>>, PemError> {
    let open = std::fs::File::open(file).map_err(PemError::Open)?;
    // As large as it may become, so that no copy of it is left behind where it grew.
    let mut bytes = secrecy::zeroize::Zeroizing::new(Vec::with_capacity(capacity(file)));
    open.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(PemError::Read)?;
    if bytes.len() as u64 > FILE_MAX { Err(PemError::TooLarge) } else { Ok(bytes) }
}

/// The PEM blocks of known kinds. What the reader says of a broken one may hold a line of it, so it is not passed on.
fn sections(bytes: &[u8]) -> Result<Vec<(SectionKind, Vec<u8>)>, PemError> {
    let sections: Result<Vec<_>, _> = <(SectionKind, Vec<u8>)>::pem_slice_iter(bytes).collect();
    sections.map_err(|error| {
        PemError::Broken(match error {
            pem::Error::MissingSectionEnd { .. } => "a PEM block has no end (`-----END ...-----`)",
            pem::Error::IllegalSectionStart { .. } => "a line that starts a PEM block does not end with `-----`",
            pem::Error::Base64Decode(_) => "what stands in a PEM block is not base64",
            _ => "it is not PEM",
        })
    })
}

fn is_key(kind: SectionKind) -> bool {
    matches!(kind, SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey)
}

/// Whether a key stands there encrypted, by PKCS #8 or in the old way (RFC 1421 section 4.6.1.1).
fn is_encrypted(bytes: &[u8]) -> bool {
    [&b"BEGIN ENCRYPTED PRIVATE KEY"[..], b"Proc-Type: 4,ENCRYPTED"]
        .iter()
        .any(|mark| memmem::find(bytes, mark).is_some())
}

impl Found {
    fn of(bytes: &[u8]) -> Self {
        let sections = sections(bytes).unwrap_or_default();
        match bytes {
            [] => Self::Nothing,
            [0x30, length, ..] if *length >= 0x80 => Self::Der, // a SEQUENCE of 128 bytes and more
            _ if sections.iter().any(|(kind, _)| is_key(*kind)) => Self::Key,
            _ if sections.iter().any(|(kind, _)| *kind == SectionKind::Certificate) => Self::Certificate,
            _ if is_encrypted(bytes) => Self::Encrypted,
            _ if memmem::find(bytes, b"-----BEGIN").is_some() => Self::Other,
            _ => Self::NoPem,
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => ", for it is empty",
            Self::Der => " in PEM, and looks like DER",
            Self::NoPem => ", and no PEM at all",
            Self::Certificate => ", but a certificate",
            Self::Key => ", but a private key",
            Self::Encrypted => ", but an encrypted key",
            Self::Other => ", but PEM blocks of other kinds",
        })
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificate => "certificate",
            Self::Key => "private key",
        })
    }
}

impl Wanted {
    fn expected(self) -> &'static str {
        match self {
            Self::Certificate => "at least one `-----BEGIN CERTIFICATE-----`",
            Self::Key => {
                "one that is not encrypted: `-----BEGIN PRIVATE KEY-----`, or `RSA PRIVATE KEY`, or `EC PRIVATE KEY`"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::CertificateParams;
    use rcgen::IsCa;
    use rcgen::Issuer;
    use rcgen::KeyPair;
    use rustls::ClientConnection;
    use rustls::Connection;
    use rustls::ProtocolVersion;
    use rustls::ServerConnection;
    use rustls::pki_types::ServerName;

    use super::*;

    /// An authority, and an identity for `localhost` of it.
    fn made() -> (Vec<u8>, Identity) {
        let mut authority = CertificateParams::new([]).unwrap();
        authority.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let ca = authority.self_signed(&key).unwrap().der().to_vec();
        let issuer = Issuer::new(authority, key);
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        (ca, Identity { certificates: vec![leaf.der().to_vec()], key: key.serialize_der().into() })
    }

    /// Carries a handshake to its end, in memory: what was agreed on, or who was not content.
    fn handshake(client: ClientConfig, server: &Arc<ServerConfig>) -> Result<(ProtocolVersion, Vec<u8>), Error> {
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = Connection::from(ClientConnection::new(Arc::new(client), name).unwrap());
        let mut server = Connection::from(ServerConnection::new(Arc::clone(server)).unwrap());
        for _ in 0..8 {
            carry(&mut client, &mut server)?;
            carry(&mut server, &mut client)?;
        }
        assert!(!client.is_handshaking() && !server.is_handshaking());
        let protocol = server.alpn_protocol().unwrap_or_default().to_vec();
        Ok((server.protocol_version().unwrap(), protocol))
    }

    fn carry(from: &mut Connection, to: &mut Connection) -> Result<(), Error> {
        let mut wire = Vec::new();
        while from.wants_write() {
            from.write_tls(&mut wire).unwrap();
        }
        let mut wire = wire.as_slice();
        while !wire.is_empty() {
            to.read_tls(&mut wire).unwrap();
            to.process_new_packets()?;
        }
        Ok(())
    }

    fn with_ca(ca: &[u8], identity: Option<Identity>) -> ClientTls {
        ClientTls { ca: Some(vec![ca.to_vec()]), identity }
    }

    #[test]
    fn both_sides_agree_on_the_best_that_both_speak() {
        let (ca, identity) = made();
        let server = server(&ServerTls { identity, client_ca: None }).unwrap();
        let mut config = client(Some(&with_ca(&ca, None))).unwrap();
        assert!(config.alpn_protocols.is_empty());
        assert_eq!(handshake(config.clone(), &server), Ok((ProtocolVersion::TLSv1_3, Vec::new())));
        config.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
        assert_eq!(handshake(config.clone(), &server), Ok((ProtocolVersion::TLSv1_3, b"h2".to_vec())));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        assert_eq!(handshake(config, &server), Ok((ProtocolVersion::TLSv1_3, b"http/1.1".to_vec())));
        let old = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .with_root_certificates(roots(&[ca]).unwrap())
            .with_no_client_auth();
        assert_eq!(handshake(old, &server).unwrap().0, ProtocolVersion::TLSv1_2);
        assert!(server.ticketer.enabled());
    }

    #[test]
    fn an_authority_of_ones_own_stands_in_place_of_the_public_ones() {
        let (ca, identity) = made();
        let (other, _) = made();
        let server = server(&ServerTls { identity, client_ca: None }).unwrap();
        assert!(handshake(client(Some(&with_ca(&ca, None))).unwrap(), &server).is_ok());
        assert!(handshake(client(Some(&with_ca(&other, None))).unwrap(), &server).is_err());
        assert!(handshake(client(None).unwrap(), &server).is_err());
        assert!(handshake(client(Some(&ClientTls { ca: None, identity: None })).unwrap(), &server).is_err());
    }

    #[test]
    fn only_clients_of_the_authority_are_let_in() {
        let (ca, identity) = made();
        let (clients, known) = made();
        let (_, unknown) = made();
        let server = server(&ServerTls { identity, client_ca: Some(vec![clients]) }).unwrap();
        let try_as = |identity| handshake(client(Some(&with_ca(&ca, identity))).unwrap(), &server);
        assert!(try_as(Some(known)).is_ok());
        assert_eq!(try_as(None), Err(Error::NoCertificatesPresented));
        assert!(matches!(try_as(Some(unknown)), Err(Error::InvalidCertificate(_))));
    }

    #[test]
    fn what_cannot_be_used_is_told_by_its_part() {
        let (ca, identity) = made();
        let (_, other) = made();
        let bad = || vec![b"0\x03xyz".to_vec()];
        let of = |certificates: &[Vec<u8>], key: &SecretSlice<u8>| Identity {
            certificates: certificates.to_vec(),
            key: key.clone(),
        };
        let chain = [identity.certificates.clone(), bad()].concat();
        for (identity, ca, part, said) in [
            (of(&bad(), &identity.key), None, Part::Certificate, "certificate 1 of the chain"),
            (of(&chain, &identity.key), None, Part::Certificate, "certificate 2 of the chain"),
            (of(&identity.certificates, &other.key), None, Part::Key, "does not fit"),
            (of(&identity.certificates, &vec![1, 2].into()), None, Part::Key, "cannot be used"),
            (
                of(&identity.certificates, &b"0\x06\x02\x01\0\x30\x01x".to_vec().into()),
                None,
                Part::Key,
                "cannot be used",
            ),
            (of(&[], &identity.key), None, Part::Key, "does not fit"),
            (identity.clone(), Some([vec![ca], bad()].concat()), Part::Authority, "certificate 2 of the authorities"),
            (identity.clone(), Some(Vec::new()), Part::Authority, "no authority"),
        ] {
            let of_server = server(&ServerTls { identity: identity.clone(), client_ca: ca.clone() }).unwrap_err();
            let of_client = client(Some(&ClientTls { ca, identity: Some(identity) })).unwrap_err();
            for error in [of_server, of_client] {
                assert_eq!(error.part(), Some(part), "{error}");
                assert!(error.to_string().contains(said), "{error}");
            }
        }
    }

    #[test]
    fn a_file_says_what_it_holds_and_what_is_expected() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([]).unwrap().self_signed(&key).unwrap();
        let (certificate, key) = (certificate.pem(), key.serialize_pem());
        let write = |bytes: &[u8]| std::fs::write(&file, bytes).unwrap();

        write(format!("# the chain\n{certificate}\n{key}\r\n{certificate}").as_bytes());
        assert_eq!(certificates(&file).unwrap().len(), 2);
        assert!(private_key(&file).is_ok());

        let said = |bytes: &[u8]| {
            write(bytes);
            let certificate = certificates(&file).map(|_| ()).map_err(|error| error.to_string());
            (
                certificate.err().unwrap_or_default(),
                private_key(&file).map(|_| ()).map_err(|error| error.to_string()).err().unwrap_or_default(),
            )
        };
        let report: Vec<String> = [
            ("nothing", Vec::new()),
            ("DER", [&[0x30, 0x82, 1, 1][..], &[0; 257]].concat()),
            ("text", b"hello".to_vec()),
            ("a certificate", certificate.clone().into_bytes()),
            ("a key", key.clone().into_bytes()),
            ("two keys", format!("{key}{key}").into_bytes()),
            (
                "an encrypted key",
                b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n".to_vec(),
            ),
            (
                "an old encrypted key",
                b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----\n"
                    .to_vec(),
            ),
            ("a public key", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n".to_vec()),
            ("no end", b"-----BEGIN PRIVATE KEY-----\nhunter2=\n".to_vec()),
            ("no base64", b"-----BEGIN PRIVATE KEY-----\nhunter2!\n-----END PRIVATE KEY-----\n".to_vec()),
            ("a broken start", b"-----BEGIN PRIVATE KEY hunter2\n".to_vec()),
            ("too much", vec![b'x'; (1 << 20) + 1]),
        ]
        .into_iter()
        .map(|(name, bytes)| {
            let (certificate, key) = said(&bytes);
            format!("=== {name}\nas certificates: {certificate}\nas a key: {key}\n")
        })
        .collect();
        let report = report.join("\n");
        assert!(!report.contains("hunter2"), "{report}");
        insta::with_settings!({omit_expression => true}, { insta::assert_snapshot!(report) });
        assert!(matches!(certificates(folder.path()), Err(PemError::Read(_))));
        assert!(matches!(private_key(&folder.path().join("none")), Err(PemError::Open(_))));
    }
}
