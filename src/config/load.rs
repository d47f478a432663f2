//! From a file to a configuration.

use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::config::Configuration;
use crate::config::check;
use crate::config::check::Checked;
use crate::config::expand;
use crate::config::expand::World;
use crate::config::file::ConfigFile;
use crate::config::policies::Bundles;
use crate::config::policy::bundle::EMBEDDED;
use crate::config::policy::bundle::Files;
use crate::config::problem::ConfigError;
use crate::config::problem::ConfigErrors;
use crate::config::problem::Problems;
use crate::config::resolve;
use crate::config::schema;
use crate::config::schema::CONFIG;
use crate::config::secret;
use crate::config::secret::Found;
use crate::config::source::Shown;
use crate::config::source::Source;
use crate::config::tree;
use crate::config::unavailable;

/// Bytes of a configuration file.
const FILE_MAX: usize = 1 << 20;

/// Reads the configuration in the file `path`. `env` gives environment variables by name.
///
/// # Errors
/// Every error of the file, or one where it cannot be read.
pub fn load(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Configuration, ConfigErrors> {
    let name = path.display().to_string();
    let unplaced = |message: String| ConfigErrors::one(ConfigError { name: name.clone(), message, place: None });
    let open = std::fs::File::open(path).map_err(|error| unplaced(format!("cannot be opened: {error}")))?;
    let mut bytes = Vec::new();
    let most = u64::try_from(FILE_MAX).unwrap_or(u64::MAX) + 1;
    open.take(most).read_to_end(&mut bytes).map_err(|error| unplaced(format!("cannot be read: {error}")))?;
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(unplaced("is UTF-16; save it as UTF-8 without a byte order mark".into()));
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    match std::str::from_utf8(&bytes) {
        Ok(text) => load_text(&name, text, folder, env),
        // A character cut by the limit is not the file's fault.
        Err(_) if bytes.len() > FILE_MAX => Err(unplaced(too_large())),
        Err(error) => {
            let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
            Err(unplaced(format!(
                "is not UTF-8: byte {} (on line {line}) starts no character",
                error.valid_up_to() + 1
            )))
        }
    }
}

/// Reads the configuration in `text`. Errors call it `name`; relative paths in it start at `folder`.
///
/// # Errors
/// Every error of the text.
pub fn load_text(
    name: &str,
    text: &str,
    folder: &Path,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Configuration, ConfigErrors> {
    load_with(name, text, folder, env, &[])
}

/// The same with these policies in force, where the text names no folder of them.
fn load_with(
    name: &str,
    text: &str,
    folder: &Path,
    env: &dyn Fn(&str) -> Option<String>,
    embedded: &[Files],
) -> Result<Configuration, ConfigErrors> {
    if text.len() > FILE_MAX {
        return Err(ConfigErrors::one(ConfigError { name: name.to_owned(), message: too_large(), place: None }));
    }
    let source = Source::new(name, text);
    let mut problems = Problems::default();
    let mut shown = Shown::Words(schema::vocabulary());
    let mut bundles = Bundles { embedded, errors: Vec::new() };
    let configuration = read(&source, &World { env, folder }, &mut shown, &mut problems, &mut bundles);
    let errors = source.report(problems, &shown).into_iter().chain(bundles.errors).collect();
    match (ConfigErrors::joined(errors), configuration) {
        (None, Some(configuration)) => Ok(configuration),
        (Some(errors), _) => Err(errors),
        (None, None) => {
            let message = "could not be read, for a reason the gateway does not know; please report this".into();
            Err(ConfigErrors::one(ConfigError { name: name.to_owned(), message, place: None }))
        }
    }
}

/// The steps of reading, each of which leaves out what an earlier one reported. `Some` is worth something only where no
/// problem was added.
fn read(
    source: &Source<'_>,
    world: &World<'_>,
    shown: &mut Shown,
    problems: &mut Problems,
    bundles: &mut Bundles<'_>,
) -> Option<Configuration> {
    let text = source.text();
    if text.starts_with('\u{feff}') {
        problems.add(&(0..0), "the file starts with a byte order mark; save it as UTF-8 without one");
        return None;
    }
    let tree = tree::parse(text, CONFIG.least, problems)?;
    let found = Found::of(&tree.root, text);
    let mut root = tree.root;
    *shown = Shown::But {
        secrets: secret::merged(found.secrets.into_iter().chain(tree.refused).collect()),
        scalars: secret::merged(found.scalars),
    };
    unavailable::refuse_members(&mut root, problems);
    expand::expand(&mut root, world, problems);
    unavailable::refuse_values(&mut root, problems);
    check::check(&CONFIG, source, &mut root, shown, problems);
    let checked = Checked { source, root: &root };
    let instance = root.to_json()?;
    // The schema has let through only what fits the structs, so this cannot fail; if it does all the same, the reason
    // is not shown, for serde's words hold values.
    let file: ConfigFile = serde_json::from_value(instance).ok()?;
    resolve::resolve(file, &checked, shown, world, problems, bundles)
}

fn too_large() -> String {
    format!("is larger than {} MiB", FILE_MAX >> 20)
}

/// The configuration that serves without any file: the demo backend under `demo` and `demo/<behaviour>` for each of
/// `behaviours`, OpenAI where `OPENAI_API_KEY` is set and not empty, and every other name to OpenAI, else to the demo.
/// The example policies are in force. Loopback only, nobody is asked who they are.
///
/// # Errors
/// Where the key in the environment cannot be sent as a header.
pub fn embedded(env: &dyn Fn(&str) -> Option<String>, behaviours: &[&str]) -> Result<Configuration, ConfigErrors> {
    let openai = env("OPENAI_API_KEY").is_some_and(|key| !key.is_empty());
    let mut text = String::from("version: 1\nauth: {mode: none}\nbackends:\n  demo: {kind: demo}\n");
    if openai {
        text.push_str("  openai: {kind: openai, api_key: \"${env:OPENAI_API_KEY}\"}\n");
    }
    text.push_str("models:\n");
    let scripted = behaviours.iter().map(|behaviour| format!("demo/{behaviour}"));
    for alias in std::iter::once("demo".to_owned()).chain(scripted) {
        let alias = Value::String(alias); // JSON's quotes are YAML's, too
        text.push_str(&format!("  {alias}: {{targets: [{{backend: demo, model: {alias}}}]}}\n"));
    }
    let fallback = if openai { "openai" } else { "demo" };
    text.push_str(&format!("  \"*\": {{targets: [{{backend: {fallback}}}]}}\n"));
    let bundles: Vec<Files> = EMBEDDED.iter().map(|(name, files)| Files::embedded(name, files)).collect();
    load_with("(the embedded configuration)", &text, Path::new(""), env, &bundles)
}
