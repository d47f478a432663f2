//! Policies: a platform team's bundles, resolved. What each of them matches, what it demands of an answer, and what a
//! caller gets whose answer does not meet it.

use std::collections::BTreeMap;
use std::sync::Arc;

use regex::Regex;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::contract::PolicyContract;
use crate::contract::Subject;
use crate::contract::assign::Assign;
use crate::contract::schema::CompiledSchema;
use crate::contract::template::ResponseObject;
use crate::digest::Digest;
use crate::extraction;
use crate::json::decimal::Decimal;

/// One policy, ready to judge with.
#[derive(Debug)]
pub struct Policy {
    /// Its name: that of its folder.
    pub name: Arc<str>,
    /// The digest of everything in its bundle that decides.
    pub digest: Digest,
    /// What it is for, in its author's words.
    pub description: String,
    /// What it matches by itself; empty where it is only asked for by name.
    pub matches: Vec<Match>,
    /// The schema of its own; none where the request's schema is judged.
    pub schema: Option<PolicySchema>,
    /// Whether a request without a response format is asked for an answer by `schema`.
    pub structured_output: StructuredOutput,
    /// What becomes of other tools in the request.
    pub tools: OtherTools,
    /// Whether its verdict decides.
    pub mode: Mode,
    /// When the exact schema is written into the prompt.
    pub inject: Inject,
    /// How the backend's native mode is used.
    pub native: NativeUse,
    /// How the answer is cut out of the text.
    pub extraction: extraction::Mode,
    /// What an answer must be grounded in.
    pub source: SourceSpec,
    /// The member that a bare array is wrapped in.
    pub envelope: Option<Arc<str>>,
    /// The fields that code sets and the model must not.
    pub assign: Option<Arc<Assign>>,
    /// What a caller gets whose answer is not accepted.
    pub respond: Respond,
    /// When and how the model is asked once more.
    pub retry: Option<Retry>,
    /// Members of the request that are capped or set.
    pub limits: BTreeMap<String, Limit>,
    /// With `n > 1`: whether those that are accepted go on although others are not.
    pub choices: Choices,
    /// The gates, in their order, and what they look things up in.
    pub contract: Arc<PolicyContract>,
}

/// One entry of `match`: all that it names must hold.
#[derive(Clone, Debug, Default)]
pub struct Match {
    /// Globs of model aliases; empty matches every alias.
    pub models: Vec<Glob>,
    /// Globs of the name of the request's schema (`response_format.json_schema.name`).
    pub schema_names: Vec<Glob>,
    /// A tool that the request offers: the policy then judges calls to it. Empty judges the content.
    pub tools: Vec<String>,
}

/// A pattern in which `*` stands for any characters and `?` for one.
#[derive(Clone, Debug)]
pub struct Glob {
    text: String,
    /// None where the text stands for itself, so that comparing is enough.
    pattern: Option<Regex>,
}

/// What of a request decides which policies match.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The model as the caller named it.
    pub model: &'a str,
    /// The name of the request's schema.
    pub schema_name: Option<&'a str>,
    /// The names of the tools that it offers.
    pub tools: &'a [&'a str],
}

/// The schema that a policy brings.
#[derive(Clone, Debug)]
pub struct PolicySchema {
    /// The whole schema, which the delivered object satisfies.
    pub complete: Arc<CompiledSchema>,
    /// The same without the fields that code assigns: what the model is shown and its part is judged by.
    pub shown: Arc<CompiledSchema>,
    /// What is done where the request has another schema.
    pub on_conflict: OnConflict,
}

/// What is done where request and policy both have a schema, and they differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnConflict {
    /// The answer must satisfy both.
    #[default]
    Both,
    /// The request is refused.
    Reject,
}

/// Whether a request without a response format gets the policy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StructuredOutput {
    /// The policy judges what was asked for as data.
    WhenAsked,
    /// The answer must be data.
    Required,
}

/// What becomes of tools that the policy does not judge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OtherTools {
    /// They are judged by their own parameters.
    #[default]
    Judge,
    /// A request that offers them is refused.
    Deny,
}

/// Whether a policy's verdict decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It decides.
    #[default]
    Enforce,
    /// It is recorded and counted; the answer goes on as without the policy.
    Monitor,
}

/// When the exact schema is written into the prompt. The later, the stricter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Inject {
    /// Never.
    Never,
    /// Where the backend's native mode does not carry it.
    UnlessNative,
    /// Always.
    #[default]
    Always,
}

/// How the backend's native mode is used. The later, the stricter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NativeUse {
    /// Where the backend has it.
    #[default]
    Prefer,
    /// Not at all.
    Never,
    /// Only backends that have it are asked.
    Require,
}

/// What an answer must be grounded in.
#[derive(Clone, Debug)]
pub struct SourceSpec {
    /// The roles whose messages are the source. Facts are found in what users say besides, whoever is listed.
    pub roles: Vec<SourceRole>,
    /// Only what stands between `<tag>` and `</tag>` in them.
    pub tag: Option<String>,
    /// What parts two pages of one message; each message starts a page.
    pub page_break: Option<Regex>,
    /// Whether the request may bring the source itself (`portcullis.source`).
    pub request: bool,
    /// Whether content that cannot be read as text is passed over, rather than a reason to refuse the request.
    pub ignore_unreadable: bool,
}

/// Whose messages are a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SourceRole {
    /// `user`
    User,
    /// `system`
    System,
    /// `developer`
    Developer,
    /// `tool`
    Tool,
}

impl SourceSpec {
    /// The pages of the source that these messages are: each message starts one.
    pub fn pages<'m>(&self, messages: impl IntoIterator<Item = &'m str>) -> Vec<Arc<str>> {
        let mut pages = Vec::new();
        for message in messages {
            for stretch in self.stretches(message) {
                match &self.page_break {
                    Some(between) => pages.extend(between.split(stretch).map(Arc::from)),
                    None => pages.push(stretch.into()),
                }
            }
        }
        pages
    }

    /// What of a message belongs to the source: all of it, or what stands between the tags. A tag that is never closed
    /// opens nothing.
    fn stretches<'m>(&self, message: &'m str) -> Vec<&'m str> {
        let Some(tag) = &self.tag else { return vec![message] };
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        let mut stretches = Vec::new();
        let mut rest = message;
        while let Some((_, after)) = rest.split_once(&open) {
            let Some((inside, after)) = after.split_once(&close) else { break };
            stretches.push(inside);
            rest = after;
        }
        stretches
    }
}

impl Default for SourceSpec {
    fn default() -> Self {
        Self { roles: vec![SourceRole::User], tag: None, page_break: None, request: false, ignore_unreadable: false }
    }
}

/// What a caller gets whose answer is not accepted.
#[derive(Debug)]
pub struct Respond {
    /// Where gates ask back.
    pub clarify: Response,
    /// Where gates reject.
    pub reject: Response,
}

/// One way to say that an answer is not accepted.
#[derive(Debug)]
pub enum Response {
    /// A refusal, with the question or the reason as its words.
    Refusal,
    /// An error.
    Error,
    /// An object that satisfies the schema, from a template.
    Object(Box<ResponseObject>),
}

impl Default for Respond {
    fn default() -> Self {
        Self { clarify: Response::Refusal, reject: Response::Error }
    }
}

/// When and how the model is asked once more.
#[derive(Clone, Debug)]
pub struct Retry {
    /// How many times more, at the most.
    pub attempts: u32,
    /// The gates whose violations are worth it: names, and `extraction` and `schema`.
    pub on: Vec<Arc<str>>,
    /// The aliases that are asked, one after the other; the request's own where there is none left.
    pub escalate: Vec<Arc<str>>,
}

/// A bound on a member of the request.
#[derive(Clone, Debug, PartialEq)]
pub enum Limit {
    /// The caller's number where it is smaller, else this one; set where the caller has none.
    AtMost(serde_json::Number),
    /// This value, whatever the caller says.
    Set(Value),
}

impl Limit {
    /// Takes over what is stricter in another policy's limit: the smaller number. Two settings are the same, or the policies
    /// are in conflict.
    pub fn tighten(&mut self, other: &Self) {
        if let (Self::AtMost(here), Self::AtMost(there)) = (&*self, other)
            && below(there, here)
        {
            *self = other.clone();
        }
    }
}

/// Whether one number of JSON is smaller than another.
pub fn below(one: &serde_json::Number, two: &serde_json::Number) -> bool {
    match (Decimal::read(one.as_str()), Decimal::read(two.as_str())) {
        (Ok(one), Ok(two)) => one < two,
        _ => false,
    }
}

/// With `n > 1`: what goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Choices {
    /// Those that are accepted.
    Passing,
    /// All of them or none.
    #[default]
    All,
}

impl Glob {
    /// Reads a glob. `*` stands for any characters, `?` for one; everything else for itself.
    pub fn new(text: &str) -> Option<Self> {
        if !text.contains(['*', '?']) {
            return Some(Self { text: text.to_owned(), pattern: None });
        }
        let mut pattern = String::with_capacity(text.len() + 8);
        pattern.push('^');
        for c in text.chars() {
            match c {
                '*' => pattern.push_str(".*"),
                '?' => pattern.push('.'),
                c => pattern.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
            }
        }
        pattern.push('$');
        let pattern = regex::RegexBuilder::new(&pattern).dot_matches_new_line(true).build().ok()?;
        Some(Self { text: text.to_owned(), pattern: Some(pattern) })
    }

    /// Whether `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        self.pattern.as_ref().map_or_else(|| self.text == name, |pattern| pattern.is_match(name))
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Policy {
    /// What the policy judges of the answer to such a request, by every entry that matches it; nothing where none does.
    pub fn concerns(&self, asked: Asked<'_>) -> Vec<Subject> {
        let mut subjects = Vec::new();
        for subject in self.matches.iter().flat_map(|entry| entry.subjects(asked)) {
            if !subjects.contains(&subject) {
                subjects.push(subject);
            }
        }
        subjects
    }

    /// What it judges where it is asked for by name, or bound to the caller's key: as where it matches, else the content.
    pub fn named(&self, asked: Asked<'_>) -> Vec<Subject> {
        let subjects = self.concerns(asked);
        if subjects.is_empty() { vec![Subject::Content] } else { subjects }
    }
}

impl Match {
    fn subjects(&self, asked: Asked<'_>) -> Vec<Subject> {
        let model = self.models.is_empty() || self.models.iter().any(|glob| glob.matches(asked.model));
        let schema = self.schema_names.is_empty()
            || asked.schema_name.is_some_and(|name| self.schema_names.iter().any(|glob| glob.matches(name)));
        if !(model && schema) {
            return Vec::new();
        }
        if self.tools.is_empty() {
            return vec![Subject::Content];
        }
        let offered = self.tools.iter().filter(|tool| asked.tools.contains(&tool.as_str()));
        offered.map(|tool| Subject::Tool(tool.as_str().into())).collect()
    }
}

/// Two policies that claim what can be only one's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the policies `{first}` and `{second}` both {what}, and only one of them can")]
pub struct Conflict {
    /// The one.
    pub first: Arc<str>,
    /// The other.
    pub second: Arc<str>,
    /// What both do: `bring a schema`.
    pub what: String,
}

/// The first conflict between policies that judge the same content.
pub fn conflict(policies: &[&Policy]) -> Option<Conflict> {
    first_of(policies, Policy::clash)
}

/// The first conflict between policies that bind one request, whatever they judge of its answer: the request goes out on
/// the same terms for all of them.
pub fn conflict_of_terms(policies: &[&Policy]) -> Option<Conflict> {
    first_of(policies, Policy::clash_of_terms)
}

fn first_of(policies: &[&Policy], clash: impl Fn(&Policy, &Policy) -> Option<String>) -> Option<Conflict> {
    for (index, first) in policies.iter().enumerate() {
        for second in policies.iter().skip(index + 1).filter(|second| second.name != first.name) {
            if let Some(what) = clash(first, second) {
                return Some(Conflict { first: Arc::clone(&first.name), second: Arc::clone(&second.name), what });
            }
        }
    }
    None
}

impl Policy {
    /// What this policy and another cannot both do, where they both do it.
    fn clash(&self, other: &Self) -> Option<String> {
        let rejects = |policy: &Self| policy.schema.as_ref().map(|schema| schema.on_conflict);
        if let (Some(one), Some(two)) = (rejects(self), rejects(other))
            && (one == OnConflict::Reject || two == OnConflict::Reject)
        {
            return Some("bring a schema, one of them with `on_schema_conflict: reject`".to_owned());
        }
        if self.envelope.is_some() && other.envelope.is_some() {
            return Some("wrap a bare array".to_owned());
        }
        let fields = |policy: &Self| {
            policy.assign.clone().map(|assign| assign.fields.iter().map(|f| Arc::clone(&f.name)).collect::<Vec<_>>())
        };
        if let (Some(one), Some(two)) = (fields(self), fields(other)) {
            return Some(match one.iter().find(|name| two.contains(name)) {
                Some(name) => format!("assign `{name}`"),
                None => "assign fields".to_owned(),
            });
        }
        (self.respond.has_object() && other.respond.has_object()).then(|| "respond with an object".to_owned())
    }

    /// What this policy and another cannot both do to the request, where they both do it.
    fn clash_of_terms(&self, other: &Self) -> Option<String> {
        let escalates =
            |policy: &'_ Self| policy.retry.as_ref().map(|retry| retry.escalate.clone()).unwrap_or_default();
        let (own, others) = (escalates(self), escalates(other));
        if !own.is_empty() && !others.is_empty() && own != others {
            return Some("escalate, each to other models".to_owned());
        }
        let set = |name: &String, limit: &Limit| match (limit, other.limits.get(name)) {
            (Limit::Set(one), Some(Limit::Set(two))) => one != two,
            _ => false,
        };
        let (name, _) = self.limits.iter().find(|(name, limit)| set(name, limit))?;
        Some(format!("set `{name}`, each to another value"))
    }

    /// Whether there can be a request that both match by its model alone. What they match by the name of a
    /// schema or a tool is left to the request, for nobody but the caller knows it.
    pub fn can_match_with(&self, other: &Self) -> bool {
        let binding = |policy: &Self| {
            let enforced = |entry: &&Match| entry.schema_names.is_empty() && entry.tools.is_empty();
            policy.matches.iter().filter(enforced).cloned().collect::<Vec<_>>()
        };
        let (own, others) = (binding(self), binding(other));
        own.iter().any(|one| others.iter().any(|two| one.meets(two)))
    }
}

impl Match {
    fn meets(&self, other: &Self) -> bool {
        let any = |one: usize, two: usize| one == 0 || two == 0;
        any(self.models.len(), other.models.len())
            || self.models.iter().any(|one| other.models.iter().any(|two| one.meets(two)))
    }
}

impl Respond {
    fn has_object(&self) -> bool {
        [&self.clarify, &self.reject].iter().any(|response| matches!(response, Response::Object(_)))
    }
}

impl Glob {
    /// Whether there is a name that both match. Exact; O(len * len).
    pub fn meets(&self, other: &Self) -> bool {
        let (one, two): (Vec<char>, Vec<char>) = (self.text.chars().collect(), other.text.chars().collect());
        // `below[j]`: whether what is left of `one` and `two[j..]` have a name in common.
        let cell = |row: &[bool], at: usize| row.get(at).copied().unwrap_or(false);
        let mut below: Vec<bool> = Vec::new();
        for i in (0..=one.len()).rev() {
            let mut row = vec![false; two.len() + 1];
            for j in (0..=two.len()).rev() {
                let meets = match (one.get(i), two.get(j)) {
                    (None, None) => true,
                    (Some('*'), next) => cell(&below, j) || (next.is_some() && cell(&row, j + 1)),
                    (own, Some('*')) => cell(&row, j + 1) || (own.is_some() && cell(&below, j)),
                    (Some(a), Some(b)) => (a == b || *a == '?' || *b == '?') && cell(&below, j + 1),
                    (None, Some(_)) | (Some(_), None) => false,
                };
                if let Some(cell) = row.get_mut(j) {
                    *cell = meets;
                }
            }
            below = row;
        }
        cell(&below, 0)
    }
}

/// The policies in force, by name.
#[derive(Clone, Debug, Default)]
pub struct Policies(BTreeMap<Arc<str>, Arc<Policy>>);

impl Policies {
    /// These policies; of two with one name the later counts, which the configuration does not let happen.
    pub fn new(all: impl IntoIterator<Item = Policy>) -> Self {
        Self(all.into_iter().map(|policy| (Arc::clone(&policy.name), Arc::new(policy))).collect())
    }

    /// The same, where others hold them too.
    pub fn of(all: impl IntoIterator<Item = Arc<Policy>>) -> Self {
        Self(all.into_iter().map(|policy| (Arc::clone(&policy.name), policy)).collect())
    }

    /// The policy of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Policy>> {
        self.0.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.0.values()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(text: &str) -> Vec<Glob> {
        vec![Glob::new(text).unwrap()]
    }

    const ASKED: Asked<'_> = Asked { model: "order-desk", schema_name: Some("order"), tools: &["place_order"] };

    #[test]
    fn within_an_entry_all_conditions_hold() {
        let entry = Match { models: glob("order-*"), schema_names: glob("order"), ..Match::default() };
        assert_eq!(entry.subjects(ASKED), [Subject::Content]);
        assert_eq!(entry.subjects(Asked { schema_name: Some("web"), ..ASKED }), []);
        assert_eq!(entry.subjects(Asked { schema_name: None, ..ASKED }), []);
        assert_eq!(entry.subjects(Asked { model: "chat", ..ASKED }), []);
    }

    #[test]
    fn a_tool_is_judged_where_it_is_offered() {
        let entry = Match { tools: vec!["place_order".into()], ..Match::default() };
        assert_eq!(entry.subjects(ASKED), [Subject::Tool("place_order".into())]);
        assert_eq!(entry.subjects(Asked { tools: &[], ..ASKED }), []);
        let schema = Match { schema_names: glob("ord?r"), ..Match::default() };
        assert_eq!(schema.subjects(ASKED), [Subject::Content]);
        assert_eq!(schema.subjects(Asked { schema_name: None, ..ASKED }), []);
    }

    #[test]
    fn globs_meet_where_one_name_fits_both() {
        for (one, two, meet) in [
            ("order-*", "order-desk", true),
            ("order-*", "*-desk", true),
            ("order-*", "orders", false),
            ("a*c", "a?c", true),
            ("a?", "a", false),
            ("*", "?", true),
            ("*a*", "b*", true),
            ("x*a", "x*b", false),
            ("", "*", true),
            ("", "?", false),
            ("ä?", "?b", true),
        ] {
            let (a, b) = (Glob::new(one).unwrap(), Glob::new(two).unwrap());
            assert_eq!((a.meets(&b), b.meets(&a)), (meet, meet), "{one} {two}");
        }
    }

    proptest::proptest! {
        #[test]
        fn globs_that_match_one_name_meet(name in "[ab]{0,5}", one in "[ab*?]{0,5}", two in "[ab*?]{0,5}") {
            let (one, two) = (Glob::new(&one).unwrap(), Glob::new(&two).unwrap());
            if one.matches(&name) && two.matches(&name) {
                proptest::prop_assert!(one.meets(&two));
            }
        }
    }

    #[test]
    fn a_glob_is_no_regex() {
        for (pattern, name, matches) in [
            ("order-*", "order-", true),
            ("order-*", "reorder-1", false),
            ("a.c", "abc", false),
            ("*", "anything\nat all", true),
            ("g?t-[1]", "gpt-[1]", true),
        ] {
            assert_eq!(Glob::new(pattern).unwrap().matches(name), matches, "{pattern} {name}");
        }
    }
}
