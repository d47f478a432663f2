//! From a bundle to a policy.

use std::path::Path;
use std::sync::LazyLock;

use crate::config::check;
use crate::config::check::Checked;
use crate::config::policy::bundle;
use crate::config::policy::bundle::CONTROLS;
use crate::config::policy::bundle::Files;
use crate::config::policy::bundle::POLICY;
use crate::config::policy::controls;
use crate::config::policy::controls::Control;
use crate::config::policy::file::PolicyFile;
use crate::config::policy::resolve;
use crate::config::problem::ConfigError;
use crate::config::problem::ConfigErrors;
use crate::config::problem::Problems;
use crate::config::resolve::Notes;
use crate::config::schema::Format;
use crate::config::source::Shown;
use crate::config::source::Source;
use crate::config::tree;
use crate::config::unavailable;
use crate::policy::Policy;
use crate::settings::SchemaLimits;

/// Bytes of a policy's own file.
const FILE_MAX: usize = 1 << 20;

/// `policy.yaml`.
pub(super) static POLICY_FORMAT: LazyLock<Format> =
    LazyLock::new(|| Format::of::<PolicyFile>("the policy", "`version` and `match`"));

/// Members of a policy that this version does not have.
const UNAVAILABLE: [&[&str]; 2] = [&["cache"], &["match", "*", "team"]];

/// A policy with what its bundle holds beside it.
#[derive(Debug)]
pub struct Loaded {
    /// The policy.
    pub policy: Policy,
    /// Its file, for messages.
    pub file: String,
    /// Its controls, in the order of their file.
    pub controls: Vec<Control>,
    /// The controls' file, for messages.
    pub controls_file: String,
    /// What is allowed but probably not meant, each with its place.
    pub warnings: Vec<String>,
}

/// Reads one policy with everything that it names, and its controls.
///
/// # Errors
/// Every error of `policy.yaml` and of `controls.jsonl`.
pub fn load(files: &Files, limits: SchemaLimits) -> Result<Loaded, ConfigErrors> {
    let shown = files.shown(POLICY);
    let unplaced = |message: String| ConfigErrors::one(ConfigError { name: shown.clone(), message, place: None });
    let bytes = files.read(POLICY).map_err(|error| unplaced(error.to_string()))?;
    if bytes.len() > FILE_MAX {
        return Err(unplaced(format!("is larger than {} MiB", FILE_MAX >> 20)));
    }
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        unplaced(format!("is not UTF-8: byte {} (on line {line}) starts no character", error.valid_up_to() + 1))
    })?;
    let source = Source::new(&shown, text);
    let mut problems = Problems::default();
    let mut warnings = Vec::new();
    let policy = read(&source, files, limits, &mut problems, &mut warnings);
    let mut errors: Vec<ConfigErrors> = source.report(problems, &Shown::All).into_iter().collect();
    // Where a gate could not be built, a control that names it is not at fault.
    let controls = controls::read(files, policy.as_ref().filter(|_| errors.is_empty()));
    match (errors.is_empty(), policy, controls) {
        (true, Some(policy), Ok(controls)) => {
            Ok(Loaded { policy, file: shown.clone(), controls, controls_file: files.shown(CONTROLS), warnings })
        }
        (no_error, policy, controls) => {
            if no_error && policy.is_none() {
                let message = "could not be read, for a reason the gateway does not know; please report this";
                errors.push(unplaced(message.to_owned()));
            }
            errors.extend(controls.err());
            Err(ConfigErrors::joined(errors).unwrap_or_else(|| unplaced("could not be read".to_owned())))
        }
    }
}

/// The steps of reading, as in the configuration. `Some` is worth something only where no problem was added.
fn read(
    source: &Source<'_>,
    files: &Files,
    limits: SchemaLimits,
    problems: &mut Problems,
    warnings: &mut Vec<String>,
) -> Option<Policy> {
    let text = source.text();
    if text.starts_with('\u{feff}') {
        problems.add(&(0..0), "the file starts with a byte order mark; save it as UTF-8 without one");
        return None;
    }
    let mut root = tree::parse(text, POLICY_FORMAT.least, problems)?.root;
    let mut shown = Shown::All;
    unavailable::refuse(&UNAVAILABLE, &mut root, problems);
    check::check(&POLICY_FORMAT, source, &mut root, &mut shown, problems);
    let checked = Checked { source, root: &root };
    let file: PolicyFile = serde_json::from_value(root.to_json()?).ok()?;
    let mut notes = Notes::new(&checked, &shown, problems);
    let policy = resolve::resolve(file, files, limits, &mut notes);
    *warnings = notes.into_warnings();
    policy
}

/// Every policy in a folder.
///
/// # Errors
/// Every error of every policy.
pub(in crate::config) fn in_folder(folder: &Path, limits: SchemaLimits) -> Result<Vec<Loaded>, ConfigErrors> {
    let (bundles, wrong) = bundle::all_in(folder);
    let wrong = wrong.into_iter().map(|(path, message)| {
        ConfigErrors::one(ConfigError { name: path.display().to_string(), message, place: None })
    });
    let mut errors: Vec<ConfigErrors> = wrong.collect();
    match together(&bundles, limits) {
        Ok(all) if errors.is_empty() => return Ok(all),
        Ok(_) => {}
        Err(found) => errors.push(found),
    }
    Err(ConfigErrors::joined(errors).unwrap_or_else(|| {
        let message = "cannot be read".to_owned();
        ConfigErrors::one(ConfigError { name: folder.display().to_string(), message, place: None })
    }))
}

/// Loads these bundles, each whatever the others came to.
pub(in crate::config) fn together(bundles: &[Files], limits: SchemaLimits) -> Result<Vec<Loaded>, ConfigErrors> {
    let (mut all, mut errors) = (Vec::new(), Vec::new());
    for files in bundles {
        match load(files, limits) {
            Ok(loaded) => all.push((loaded, files)),
            Err(found) => errors.push(found),
        }
    }
    for (index, (one, files)) in all.iter().enumerate() {
        for (other, _) in all.iter().take(index) {
            let (first, second) = (&other.policy, &one.policy);
            let pair = [first, second];
            let conflict = || crate::policy::conflict(&pair).or_else(|| crate::policy::conflict_of_terms(&pair));
            if let Some(conflict) = first.can_match_with(second).then(conflict).flatten() {
                let message = format!("{conflict}, and both can match one request by its model");
                errors.push(ConfigErrors::one(ConfigError { name: files.shown(POLICY), message, place: None }));
            }
        }
    }
    match ConfigErrors::joined(errors) {
        Some(errors) => Err(errors),
        None => Ok(all.into_iter().map(|(loaded, _)| loaded).collect()),
    }
}
