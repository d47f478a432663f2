//! From a policy as written to a policy as used.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use serde_json::Number;
use serde_json::Value;

use crate::config::policy::bundle::Files;
use crate::config::policy::bundle::POLICY;
use crate::config::policy::file::EvidenceFile;
use crate::config::policy::file::ExtractionFile;
use crate::config::policy::file::LimitsFile;
use crate::config::policy::file::MatchFile;
use crate::config::policy::file::MatchesFile;
use crate::config::policy::file::OneOrMore;
use crate::config::policy::file::PolicyFile;
use crate::config::policy::file::RegionFile;
use crate::config::policy::file::RequestSourceFile;
use crate::config::policy::file::RespondFile;
use crate::config::policy::file::ResponseFile;
use crate::config::policy::file::SourceFile;
use crate::config::policy::file::UnreadableFile;
use crate::config::policy::gates;
use crate::config::policy::schema;
use crate::config::policy::schema::FROM_REQUEST;
use crate::config::policy::tables;
use crate::config::resolve::Notes;
use crate::contract::PolicyContract;
use crate::contract::assign::Assign;
use crate::contract::fold::Folds;
use crate::contract::gate;
use crate::contract::linear;
use crate::contract::scene::Evidence;
use crate::contract::source::Region;
use crate::contract::template::Names;
use crate::contract::template::ResponseObject;
use crate::contract::template::TemplateContext;
use crate::contract::template::TemplateValue;
use crate::digest::Digest;
use crate::extraction;
use crate::json::fault::shown;
use crate::policy::Glob;
use crate::policy::Limit;
use crate::policy::Match;
use crate::policy::Policy;
use crate::policy::PolicySchema;
use crate::policy::Respond;
use crate::policy::Response;
use crate::policy::SourceRole;
use crate::policy::SourceSpec;
use crate::policy::StructuredOutput;
use crate::settings::SchemaLimits;
use crate::upstream::sample;

/// Resolves a policy. Worth something only where no problem was added.
pub(super) fn resolve(file: PolicyFile, files: &Files, limits: SchemaLimits, notes: &mut Notes<'_>) -> Option<Policy> {
    let (Some(1) | None) = file.version else { return None };
    let matches = matches(file.r#match, notes);
    let assigned_names: Vec<String> =
        file.assign.iter().flat_map(|fields| &fields.0).map(|(name, _)| name.clone()).collect();
    let own_schema = file.schema.filter(|name| name != FROM_REQUEST);
    let has_schema = own_schema.is_some() || notes.is_broken(&["schema"]);
    let on_conflict = file.on_schema_conflict.unwrap_or_default();
    let policy_schema =
        own_schema.as_ref().and_then(|name| schema::resolve(name, on_conflict, &assigned_names, files, limits, notes));
    without_schema(has_schema, file.structured_output, notes);
    let structured_output = file.structured_output.unwrap_or(match own_schema {
        Some(_) => StructuredOutput::Required,
        None => StructuredOutput::WhenAsked,
    });
    let envelope = file.envelope.and_then(|envelope| envelope.wrap_array);
    let data_files: Vec<String> = file.data.iter().flatten().filter_map(|(_, table)| table.file.clone()).collect();
    let data = tables::data(file.data.unwrap_or_default(), files, notes);
    let folds = folds(&file.folds.unwrap_or_default(), notes);
    let contract = PolicyContract {
        policy: files.name().into(),
        facts: tables::facts(&file.facts.unwrap_or_default(), &data, notes),
        data,
        evidence: file.evidence.and_then(|evidence| self::evidence(evidence, notes)),
        folds,
        regions: regions(file.regions.unwrap_or_default(), folds, notes),
        ..PolicyContract::default()
    };
    let gate_files = file.gates.unwrap_or_default();
    let names: Vec<String> = gate_files.iter().filter_map(|gate| gate.common.name.clone()).collect();
    let built = gates::resolve(gate_files, &contract, notes);
    let fields = file.assign.map(|fields| fields.0).unwrap_or_default();
    let assign = tables::assign(fields, &contract.data, notes);
    tables::not_used_otherwise(&assigned_names, envelope.as_deref(), &assign, &built, notes);
    let retry = file.retry.map(|retry| gates::retry(retry, &built, &names, notes));
    if built.is_empty() && own_schema.is_none() && !notes.is_broken(&["gates"]) {
        notes.warn(&[], "the policy has neither gates nor a schema, so it judges by the request's own schema alone");
    }
    let is_whole = built.iter().all(Option::is_some);
    let contract = PolicyContract { gates: built.into_iter().flatten().collect(), ..contract };
    if is_whole {
        gates::check_beside(&contract, notes);
    }
    let respond = respond(file.respond.unwrap_or_default(), &contract, policy_schema.as_ref(), notes);
    Some(Policy {
        name: files.name().into(),
        digest: digest(files, own_schema.iter().chain(&data_files)),
        description: file.description.unwrap_or_default(),
        matches,
        schema: policy_schema,
        structured_output,
        tools: file.tools.unwrap_or_default(),
        mode: file.mode.unwrap_or_default(),
        inject: file.inject.unwrap_or_default(),
        native: file.native.unwrap_or_default(),
        extraction: match file.extraction {
            Some(ExtractionFile::Strict) => extraction::Mode::Strict,
            Some(ExtractionFile::Ladder) | None => extraction::Mode::Ladder,
        },
        source: source(file.source.unwrap_or_default(), notes),
        envelope: envelope.map(Arc::from),
        assign: (!assign.is_empty()).then(|| Arc::new(Assign { policy: files.name().into(), fields: assign })),
        respond,
        retry,
        limits: self::limits(file.limits.unwrap_or_default()),
        choices: file.choices.unwrap_or_default(),
        contract: Arc::new(contract),
    })
}

fn folds(names: &[String], notes: &mut Notes<'_>) -> Folds {
    Folds::named(names.iter().map(String::as_str)).unwrap_or_else(|error| {
        let index = names.iter().position(|name| *name == error.name).unwrap_or_default();
        notes.error(&["folds", &index.to_string()], error.to_string());
        Folds::NONE
    })
}

fn regions(files: BTreeMap<String, RegionFile>, folds: Folds, notes: &mut Notes<'_>) -> BTreeMap<Arc<str>, Region> {
    let mut all = BTreeMap::new();
    for (name, file) in files {
        let occurrence = file.occurrence.and_then(|nth| NonZeroUsize::new(usize::try_from(nth).ok()?));
        let (from, through) = (file.from.unwrap_or_default(), file.through.unwrap_or_default());
        match Region::read(&from, &through, occurrence) {
            Ok(region) => {
                all.insert(name.as_str().into(), region.folded(folds));
            }
            Err(error) => {
                notes.error(&["regions", &name], format!("region `{name}`: {error}"));
            }
        }
    }
    all
}

/// The answers in the place of one that is not accepted. An object is made of a sample here: it must satisfy the schema.
fn respond(
    file: RespondFile,
    contract: &PolicyContract,
    schema: Option<&PolicySchema>,
    notes: &mut Notes<'_>,
) -> Respond {
    let mut response = |name: &str, written: Option<ResponseFile>, default: Response| match written {
        None => default,
        Some(ResponseFile::Refusal) => Response::Refusal,
        Some(ResponseFile::Error) => Response::Error,
        Some(ResponseFile::Object(value)) => {
            let path = ["respond", name, "object"];
            let names = Names::new(["questions", "violations", "gates", "output"])
                .with_members("facts", contract.facts.iter().map(|fact| fact.name().to_string()))
                .with_members("data", contract.data.0.keys().map(ToString::to_string));
            let Some(schema) = schema else {
                notes.error(&path, "an object needs a schema of the policy's own that it satisfies");
                return default;
            };
            match ResponseObject::compile(&value, &names) {
                Ok(object) => {
                    if let Err(message) = tried(&object, contract, schema) {
                        notes.error(&path, message);
                    }
                    Response::Object(Box::new(object))
                }
                Err(error) => {
                    notes.error(&path, error.to_string());
                    default
                }
            }
        }
    };
    let default = Respond::default();
    Respond {
        clarify: response("clarify", file.clarify, default.clarify),
        reject: response("reject", file.reject, default.reject),
    }
}

/// Makes an object of samples: an answer that the schema accepts, no fact, and one violation. What other answers make of it is
/// looked at each time.
fn tried(object: &ResponseObject, contract: &PolicyContract, schema: &PolicySchema) -> Result<(), String> {
    let none = contract.facts.iter().map(|fact| (fact.name().to_string(), Value::Array(Vec::new())));
    let facts = Value::Object(none.collect());
    let gate = contract.gates.first().map_or("gate", |entry| &entry.name);
    let violation = serde_json::json!({
        "gate": gate, "kind": "rule", "path": "$", "message": "a sample of a violation", "action": "reject",
    });
    let context = TemplateContext::new()
        .with("questions", TemplateValue::from_json(&serde_json::json!(["A sample of a question?"])))
        .with("violations", TemplateValue::from_json(&Value::Array(vec![violation])))
        .with("gates", TemplateValue::from_json(&serde_json::json!([gate])))
        .with("facts", TemplateValue::from_json(&facts))
        .with("data", contract.data_of_templates().clone());
    let output = sample::instance(schema.shown.value(), 0);
    let context = context.with("output", TemplateValue::from_json(&output));
    let made = object.render(&context).map_err(|fault| {
        format!("the object cannot be made of a sample of an answer (`{}`): {fault}", shown(&output.to_string()))
    })?;
    match gate::schema::check(&schema.complete, &made.to_string()) {
        None => Ok(()),
        Some(found) => {
            let told = found.iter().take(3).map(|violation| format!("{}: {}", violation.path, violation.message));
            Err(format!("the object breaks the schema of the policy: {}", told.collect::<Vec<_>>().join("; ")))
        }
    }
}

/// The digest of everything in the bundle that decides: the policy, its schema and its data, each with its name.
fn digest<'n>(files: &Files, named: impl Iterator<Item = &'n String>) -> Digest {
    let mut all = Vec::new();
    for name in std::iter::once(POLICY).chain(named.map(String::as_str)) {
        let bytes = files.read(name).unwrap_or_default();
        all.extend_from_slice(name.as_bytes());
        all.push(0);
        all.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
        all.extend_from_slice(&bytes);
    }
    Digest::of(&all)
}

fn without_schema(has_schema: bool, structured: Option<StructuredOutput>, notes: &mut Notes<'_>) {
    if has_schema {
        return;
    }
    if structured == Some(StructuredOutput::Required) {
        let message = "`structured_output: required` asks for answers by the policy's schema; `schema` names no file";
        notes.error(&["structured_output"], message);
    }
    if notes.is_written(&["on_schema_conflict"]) {
        notes.error_at_name(&["on_schema_conflict"], "`on_schema_conflict` says nothing here: `schema` names no file");
    }
}

fn matches(file: Option<MatchesFile>, notes: &mut Notes<'_>) -> Vec<Match> {
    let Some(MatchesFile::Any(entries)) = file else { return Vec::new() };
    let mut all = Vec::with_capacity(entries.len());
    for (index, entry) in entries.into_iter().enumerate() {
        let index = index.to_string();
        let MatchFile { model, schema_name, tool } = entry;
        let texts = |written: Option<OneOrMore>| written.unwrap_or_default().0;
        let models = globs(&["match", &index, "model"], texts(model), notes);
        let schema_names = globs(&["match", &index, "schema_name"], texts(schema_name), notes);
        all.push(Match { models, schema_names, tools: texts(tool) });
    }
    all
}

fn globs(path: &[&str], texts: Vec<String>, notes: &mut Notes<'_>) -> Vec<Glob> {
    let mut globs = Vec::with_capacity(texts.len());
    for text in texts {
        match Glob::new(&text) {
            Some(glob) => globs.push(glob),
            None => notes.error(path, format!("{} is too long for a pattern", notes.quoted(path))),
        }
    }
    globs
}

fn source(file: SourceFile, notes: &mut Notes<'_>) -> SourceSpec {
    let roles = file.roles.unwrap_or_else(|| vec![SourceRole::User]);
    let tag = file.tag;
    if let Some(tag) = &tag {
        let plain = tag.chars().all(|c| c.is_alphanumeric() || "-_.:".contains(c));
        if !plain {
            let path = ["source", "tag"];
            let message =
                format!("`source.tag` is the name of a tag without its brackets; found {}", notes.quoted(&path));
            notes.error(&path, message);
        }
    }
    let page_break = file.page_break.and_then(|text| {
        let path = ["source", "page_break"];
        match linear::pattern(&text) {
            Ok(pattern) if pattern.is_match("") => {
                notes.error(&path, "`source.page_break` matches the empty text, so it would part every two letters");
                None
            }
            Ok(pattern) => Some(pattern),
            Err(message) => {
                notes.error(&path, format!("`source.page_break`: {message}"));
                None
            }
        }
    });
    SourceSpec {
        roles,
        tag,
        page_break,
        request: file.request == Some(RequestSourceFile::Allowed),
        ignore_unreadable: file.unreadable == Some(UnreadableFile::Ignore),
    }
}

fn evidence(file: EvidenceFile, notes: &mut Notes<'_>) -> Option<Evidence> {
    let mut read = |member: &str, written: Option<String>| {
        let path = ["evidence", member];
        let text = written?;
        let dotted = || format!("${}", text.split('.').map(|name| format!("['{name}']")).collect::<String>());
        let plain = text
            .split('.')
            .all(|name| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-'));
        let query = if plain { gates::query(&path, &dotted(), notes) } else { gates::query(&path, &text, notes) }?;
        if !query.is_singular() {
            notes.error(&path, format!("`evidence.{member}` must lead to one value; found {}", notes.quoted(&path)));
            return None;
        }
        Some(query)
    };
    let (value, quote, page) = (read("value", file.value), read("quote", file.quote), read("page", file.page));
    Some(Evidence { value: value?, quote: quote?, page: page? })
}

fn limits(file: LimitsFile) -> BTreeMap<String, Limit> {
    let LimitsFile { max_output_tokens, temperature, top_p, n, seed, reasoning_effort, parallel_tool_calls } = file;
    let most = |name: &str, number: Option<Number>| number.map(|number| (name.to_owned(), Limit::AtMost(number)));
    let set = |name: &str, value: Option<Value>| value.map(|value| (name.to_owned(), Limit::Set(value)));
    let all = [
        most("max_output_tokens", max_output_tokens.map(Number::from)),
        most("temperature", temperature),
        most("top_p", top_p),
        most("n", n.map(Number::from)),
        set("seed", seed.map(Value::from)),
        set("reasoning_effort", reasoning_effort.map(Value::from)),
        set("parallel_tool_calls", parallel_tool_calls.map(Value::from)),
    ];
    all.into_iter().flatten().collect()
}
