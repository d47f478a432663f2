//! Certificates and keys that the configuration names: read, and tried out, so that none that cannot be used starts.

use std::path::Path;

use crate::catalog::ClientTls;
use crate::config::check;
use crate::config::file::ClientTlsFile;
use crate::config::file::ServerTlsFile;
use crate::config::resolve::Notes;
use crate::settings::Identity;
use crate::settings::ServerTls;
use crate::tls;
use crate::tls::Part;
use crate::tls::PemError;
use crate::tls::TlsError;

/// What `listen.tls` stands for.
pub(super) fn server(file: ServerTlsFile, folder: &Path, notes: &mut Notes<'_>) -> Option<ServerTls> {
    let at = |member| ["listen", "tls", member];
    let certificates = load(&at("certificate"), file.certificate.as_deref(), folder, tls::certificates, notes);
    let key = load(&at("key"), file.key.as_deref(), folder, tls::private_key, notes);
    let client_ca = load(&at("client_ca"), file.client_ca.as_deref(), folder, tls::certificates, notes);
    // One that cannot be read was reported; the others are tried out all the same.
    let tls = ServerTls { identity: Identity { certificates: certificates?, key: key? }, client_ca };
    tls::server(&tls).map_err(|error| report(&["listen", "tls"], "client_ca", &error, notes)).ok()?;
    Some(tls)
}

/// What the `tls` of a backend stands for.
pub(super) fn client(name: &str, file: ClientTlsFile, folder: &Path, notes: &mut Notes<'_>) -> Option<ClientTls> {
    let at = |member| ["backends", name, "tls", member];
    for (one, other) in [("certificate", "key"), ("key", "certificate")] {
        if notes.is_written(&at(one)) && !notes.is_written(&at(other)) {
            let message = format!(
                "{} has no `{other}` beside it; a certificate and its key are written together",
                check::name(&at(one), None)
            );
            notes.error_at_name(&at(one), message);
        }
    }
    let ca = load(&at("ca"), file.ca.as_deref(), folder, tls::certificates, notes);
    let certificates = load(&at("certificate"), file.certificate.as_deref(), folder, tls::certificates, notes);
    let key = load(&at("key"), file.key.as_deref(), folder, tls::private_key, notes);
    let identity = certificates.zip(key).map(|(certificates, key)| Identity { certificates, key });
    let tls = ClientTls { ca, identity };
    tls::client(Some(&tls)).map_err(|error| report(&["backends", name, "tls"], "ca", &error, notes)).ok()?;
    Some(tls)
}

/// Reads the file that the member at `path` names, by `read`; what is wrong with it is in `notes`.
fn load<T>(
    path: &[&str],
    written: Option<&str>,
    folder: &Path,
    read: impl Fn(&Path) -> Result<T, PemError>,
    notes: &mut Notes<'_>,
) -> Option<T> {
    let text = written?;
    if text.contains("-----BEGIN") || text.contains('\n') {
        let name = check::name(path, None);
        notes.error(path, format!("{name} must be the path of a PEM file, not what stands in one"));
        return None;
    }
    let error = match read(&folder.join(text)) {
        Ok(read) => return Some(read),
        Err(error) => error,
    };
    // Only what the system says of a file is worth its place; nothing of what is in the file is said.
    let why = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
    let message = format!("the file {} of {} {error}{why}", notes.quoted(path), check::name(path, None));
    notes.error(path, message);
    None
}

/// Reports material that was read and cannot be used, at the member that brought it. `authority` is the one for them.
fn report(path: &[&str], authority: &str, error: &TlsError, notes: &mut Notes<'_>) {
    let member = match error.part() {
        None => return notes.error(path, format!("{}: {error}", check::name(path, None))),
        Some(Part::Certificate) => "certificate",
        Some(Part::Key) => "key",
        Some(Part::Authority) => authority,
    };
    let path = [path, &[member]].concat();
    let message = format!("the file {} of {}: {error}", notes.quoted(&path), check::name(&path, None));
    notes.error(&path, message);
}
