//! The files of a policy: a folder on disk, or what is embedded in the binary.

use std::borrow::Cow;
use std::io::Read as _;
use std::path::Component;
use std::path::Path;
use std::path::PathBuf;

/// The policy itself, in its bundle.
pub const POLICY: &str = "policy.yaml";
/// The controls, in the bundle.
pub const CONTROLS: &str = "controls.jsonl";
/// Bytes that one file of a bundle may have.
const FILE_MAX: u64 = 16 << 20;

/// The files of one example policy, as they are in `policies/`.
macro_rules! embedded {
    ($policy:literal, $($file:literal),+) => {
        ($policy, &[$(($file, include_bytes!(concat!("../../../policies/", $policy, "/", $file)))),+])
    };
}

/// The example policies that are in the binary: of each its name, and its files by name.
pub const EMBEDDED: &[(&str, Embedded)] = &[
    embedded!("entities", "policy.yaml", "controls.jsonl", "entities.schema.json"),
    embedded!("invoices", "policy.yaml", "controls.jsonl", "invoice.schema.json"),
    embedded!("orders", "policy.yaml", "controls.jsonl", "order.schema.json", "menu.json", "parts.json"),
    embedded!("statements", "policy.yaml", "controls.jsonl", "statement.schema.json"),
    embedded!("tickets", "policy.yaml", "controls.jsonl", "ticket.schema.json"),
];

/// The files of one policy in the binary, by name.
pub type Embedded = &'static [(&'static str, &'static [u8])];

/// The files of one policy.
#[derive(Clone, Debug)]
pub struct Files {
    /// The folder as the user named it, for messages.
    shown: String,
    /// The policy's name: that of its folder.
    name: String,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    /// A folder, with every link on the way to it followed.
    Folder(PathBuf),
    Binary(Embedded),
}

/// Why a file of a bundle cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The name leads out of the folder, or nowhere.
    #[error("a file of a policy is named by its path inside of the policy's folder, without `..` and not absolute")]
    Name,
    /// It is reached by a link that leads out of the folder.
    #[error("it is reached by a link that leads out of the policy's folder")]
    Outside,
    /// There is no such file.
    #[error("there is no such file in the policy's folder")]
    Missing,
    /// It is too large.
    #[error("it is larger than {} MiB", FILE_MAX >> 20)]
    Large,
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(std::io::Error),
}

impl Files {
    /// The bundle in a folder.
    ///
    /// # Errors
    /// In words, where there is no such folder or its name cannot be a policy's.
    pub fn folder(path: &Path) -> Result<Self, String> {
        let real = path.canonicalize().map_err(|error| format!("cannot be opened: {error}"))?;
        if !real.is_dir() {
            return Err("is not a folder; a policy is a folder with a `policy.yaml` in it".to_owned());
        }
        // A mounted folder may be a link to one with a version in its name, so the name as written goes first.
        let named = path.file_name().or(real.file_name()).and_then(|name| name.to_str());
        let name = named.filter(|name| is_name(name)).ok_or(
            "has a name that cannot be a policy's: 1 to 64 letters, digits, `-`, `_` or `.`, a letter or digit first",
        )?;
        Ok(Self { shown: path.display().to_string(), name: name.to_owned(), place: Place::Folder(real) })
    }

    /// A bundle in the binary.
    pub fn embedded(name: &str, files: Embedded) -> Self {
        Self { shown: format!("(embedded)/{name}"), name: name.to_owned(), place: Place::Binary(files) }
    }

    /// The policy's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A file's path, for messages.
    pub fn shown(&self, file: &str) -> String {
        format!("{}/{file}", self.shown.trim_end_matches('/'))
    }

    /// Whether there is a file of this name.
    pub fn has(&self, file: &str) -> bool {
        match &self.place {
            Place::Folder(folder) => folder.join(file).is_file(),
            Place::Binary(files) => files.iter().any(|(name, _)| *name == file),
        }
    }

    /// The bytes of a file, which is named by its path inside of the folder.
    ///
    /// # Errors
    /// Where the name or a link leads out of the folder, and where the file cannot be read or is too large.
    pub fn read(&self, file: &str) -> Result<Cow<'static, [u8]>, FileError> {
        let path = Path::new(file);
        let mut steps = path.components().peekable();
        if steps.peek().is_none() || !steps.all(|step| matches!(step, Component::Normal(_))) || file.contains('\\') {
            return Err(FileError::Name);
        }
        match &self.place {
            Place::Binary(files) => {
                let found = files.iter().find(|(name, _)| *name == file).ok_or(FileError::Missing)?;
                Ok(Cow::Borrowed(found.1))
            }
            Place::Folder(folder) => read_in(folder, path).map(Cow::Owned),
        }
    }
}

fn read_in(folder: &Path, path: &Path) -> Result<Vec<u8>, FileError> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => FileError::Missing,
        _ => FileError::Unreadable(error),
    };
    let real = folder.join(path).canonicalize().map_err(failed)?;
    if !real.starts_with(folder) {
        return Err(FileError::Outside);
    }
    if !real.is_file() {
        return Err(FileError::Missing); // a pipe would be waited for
    }
    let open = std::fs::File::open(&real).map_err(failed)?;
    let mut bytes = Vec::new();
    open.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_MAX { Err(FileError::Large) } else { Ok(bytes) }
}

fn is_name(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    starts && name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// The bundles in a folder of policies, by name, and what is wrong with what else is there.
///
/// Files beside the policies and folders whose name begins with a dot are passed over; any other folder must be a
/// policy, for one that is passed over would not be in force.
pub fn all_in(folder: &Path) -> (Vec<Files>, Vec<(PathBuf, String)>) {
    let paths = folders_in(folder).map_err(|error| (folder.to_owned(), format!("cannot be read: {error}")));
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    let paths = paths.unwrap_or_else(|error| {
        wrong.push(error);
        Vec::new()
    });
    for path in paths {
        match Files::folder(&path) {
            Ok(files) if files.has(POLICY) => all.push(files),
            Ok(_) => wrong.push((path, format!("holds no `{POLICY}`; every folder beside policies must be one"))),
            Err(message) => wrong.push((path, message)),
        }
    }
    (all, wrong)
}

fn folders_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if !hidden && path.is_dir() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_policy_is_embedded_once() {
        let (all, wrong) = all_in(Path::new("policies"));
        assert!(wrong.is_empty(), "{wrong:?}");
        let names: Vec<&str> = EMBEDDED.iter().map(|(name, _)| *name).collect();
        assert_eq!(all.iter().map(Files::name).collect::<Vec<_>>(), names);
    }

    #[test]
    fn nothing_outside_of_the_folder_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let bundle = folder.path().join("orders");
        std::fs::create_dir_all(bundle.join("data")).unwrap();
        std::fs::write(folder.path().join("secret.json"), "[]").unwrap();
        std::fs::write(bundle.join("data/menu.json"), "[1]").unwrap();
        std::os::unix::fs::symlink("../secret.json", bundle.join("out.json")).unwrap();
        std::os::unix::fs::symlink("..", bundle.join("up")).unwrap();
        std::os::unix::fs::symlink("data/menu.json", bundle.join("in.json")).unwrap();
        let files = Files::folder(&bundle).unwrap();
        assert_eq!(files.name(), "orders");
        assert_eq!(&*files.read("data/menu.json").unwrap(), b"[1]");
        assert_eq!(&*files.read("in.json").unwrap(), b"[1]");
        for (name, expected) in [
            ("../secret.json", "named by its path"),
            ("data/../../secret.json", "named by its path"),
            ("/etc/hostname", "named by its path"),
            ("", "named by its path"),
            ("./x", "named by its path"),
            ("a\\b", "named by its path"),
            ("out.json", "leads out"),
            ("up/secret.json", "leads out"),
            ("data", "no such file"),
            ("data/menu.json/x", "no such file"),
            ("none.json", "no such file"),
        ] {
            let told = files.read(name).map(|_| ()).unwrap_err().to_string();
            assert!(told.contains(expected), "{name}: {told}");
        }
    }

    /// Each once: a policy that stands beside itself is refused, and with it every command that has no configuration.
    #[test]
    fn every_example_policy_is_embedded_once_with_all_its_files() {
        let (folders, wrong) = all_in(Path::new("policies"));
        assert!(wrong.is_empty());
        let mut names: Vec<&str> = folders.iter().map(Files::name).collect();
        names.sort_unstable();
        assert_eq!(EMBEDDED.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
        for (name, files) in EMBEDDED {
            let mut own: Vec<String> = std::fs::read_dir(Path::new("policies").join(name))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter(|file| file != "README.md")
                .collect();
            own.sort_unstable();
            let mut embedded: Vec<&str> = files.iter().map(|(file, _)| *file).collect();
            embedded.sort_unstable();
            assert_eq!(embedded, own, "{name}");
        }
    }

    #[test]
    fn a_folder_that_is_no_policy_is_told_of() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b", ".git"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("README.md"), "").unwrap();
        std::fs::write(folder.path().join("a/policy.yaml"), "").unwrap();
        let (all, wrong) = all_in(folder.path());
        assert_eq!((all.len(), wrong.len()), (1, 1));
        assert!(wrong[0].0.ends_with("b"));
        std::fs::remove_dir(folder.path().join("b")).unwrap();
        let (all, wrong) = all_in(folder.path());
        assert!(wrong.is_empty());
        assert_eq!(all.iter().map(Files::name).collect::<Vec<_>>(), ["a"]);
        assert_eq!(all_in(&folder.path().join("none")).1.len(), 1);
    }
}
