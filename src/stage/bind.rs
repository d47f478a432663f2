//! Which policies bind a request, what each of them judges of its answer, and whether the request is one that they let
//! through at all. Everything that a caller says can only add a policy.

use std::sync::Arc;

use crate::api::ingress::chat::ChatRequest;
use crate::api::ingress::chat::Role;
use crate::api::ingress::chat::Wants;
use crate::contract::Scope;
use crate::contract::Subject;
use crate::contract::ground::LazyGround;
use crate::json::fault::shown;
use crate::policy;
use crate::policy::Asked;
use crate::policy::Mode;
use crate::policy::OtherTools;
use crate::policy::Policies;
use crate::policy::Policy;
use crate::policy::SourceRole;
use crate::policy::SourceSpec;
use crate::policy::StructuredOutput;
use crate::record::PolicyRef;
use crate::wire::fault::Code;

/// A policy that binds a request, and what it judges of the answer.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The policy.
    pub policy: Arc<Policy>,
    /// What it judges.
    pub subject: Subject,
}

/// The policies that bind one request, by name.
#[derive(Clone, Debug, Default)]
pub struct Binding {
    /// Those whose verdict decides.
    pub enforced: Vec<Bound>,
    /// Those that only watch.
    pub watched: Vec<Bound>,
}

impl Binding {
    /// What records tell of these policies.
    pub fn refs(&self) -> Vec<PolicyRef> {
        let of = |enforced: bool| {
            move |bound: &Bound| {
                let policy = &bound.policy;
                PolicyRef { name: Arc::clone(&policy.name), digest: policy.digest, enforced }
            }
        };
        let mut refs: Vec<PolicyRef> =
            self.enforced.iter().map(of(true)).chain(self.watched.iter().map(of(false))).collect();
        refs.dedup(); // one that judges content and tools is one policy
        refs
    }
}

/// Why a request is refused before anything is sent. All of these are the caller's to mend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct NotBound {
    /// The code for the caller.
    pub code: Code,
    /// The member or header that is meant.
    pub param: &'static str,
    /// What was found, and what is allowed.
    pub message: String,
}

impl NotBound {
    fn new(code: Code, param: &'static str, message: String) -> Self {
        Self { code, param, message }
    }
}

/// Finds the policies that bind a request: those that match it, and those that the caller names in the header
/// `x-portcullis-policy` (`by_header`) or in `portcullis.policy`.
pub fn bind(policies: &Policies, request: &ChatRequest, by_header: &[String]) -> Result<Binding, NotBound> {
    let mut binding = Binding::default();
    let in_body = request.own.as_ref().map(|(_, own)| own.policies.as_slice()).unwrap_or_default();
    for (names, param) in [(by_header, "x-portcullis-policy"), (in_body, "portcullis.policy")] {
        if let Some(name) = names.iter().find(|name| policies.get(name).is_none()) {
            let message = format!("no policy is called `{}`", shown(name));
            return Err(NotBound::new(Code::PolicyNotFound, param, message));
        }
    }
    if policies.is_empty() {
        return permitted(binding, request);
    }
    let tools: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    let asked = Asked { model: &request.model, schema_name: request.schema_name.as_deref(), tools: &tools };
    let mut found = Vec::new();
    for policy in policies.iter() {
        let is_named = by_header.iter().chain(in_body).any(|name| **name == *policy.name);
        let subjects = if is_named { policy.named(asked) } else { policy.concerns(asked) };
        found.extend(subjects.into_iter().map(|subject| (Bound { policy: Arc::clone(policy), subject }, is_named)));
    }
    // Who names a policy wants data; so does one policy that demands it, for all that judge the content.
    let demands = |(bound, is_named): &(Bound, bool)| {
        let policy = &bound.policy;
        let required = *is_named || policy.structured_output == StructuredOutput::Required;
        required && policy.mode == Mode::Enforce && bound.subject == Subject::Content
    };
    let wanted = is_asked_for(request) || found.iter().any(demands);
    for (bound, is_named) in found {
        let required = bound.policy.structured_output == StructuredOutput::Required || is_named;
        if bound.subject == Subject::Content && !wanted && !required {
            continue; // nothing was asked for as data, and the policy does not demand any
        }
        match bound.policy.mode {
            Mode::Enforce => binding.enforced.push(bound),
            Mode::Monitor => binding.watched.push(bound),
        }
    }
    permitted(binding, request)
}

/// Whether the request asks for data by itself.
fn is_asked_for(request: &ChatRequest) -> bool {
    request.response_format.as_ref().is_some_and(|format| format.wants != Wants::Anything)
}

/// The binding, where the policies in it let such a request through.
///
/// # Errors
/// Where they do not: a source of its own that none allows, an answer that would be stored, other tools, a conflict.
pub fn permitted(binding: Binding, request: &ChatRequest) -> Result<Binding, NotBound> {
    let source = request.own.as_ref().and_then(|(_, own)| own.source.as_ref());
    let allowed = |bound: &Bound| bound.policy.source.request;
    if source.is_some() && !binding.enforced.iter().chain(&binding.watched).any(allowed) {
        let message =
            "`portcullis.source` is allowed only where a policy says so, and none that applies does".to_owned();
        return Err(NotBound::new(Code::SourceNotAllowed, "portcullis.source", message));
    }
    let Some(first) = binding.enforced.first() else { return Ok(binding) };
    for (is_so, param) in [(request.store == Some(true), "store"), (request.background, "background")] {
        if is_so {
            let name = &first.policy.name;
            let message = format!(
                "`{param}: true` is refused where a policy applies (`{name}`): the answer could be fetched around the gate"
            );
            return Err(NotBound::new(Code::StoreNotAllowed, param, message));
        }
    }
    for bound in binding.enforced.iter().filter(|bound| bound.policy.tools == OtherTools::Deny) {
        let own = || binding.enforced.iter().filter(|other| other.policy.name == bound.policy.name);
        let judged = |name: &str| own().any(|other| matches!(&other.subject, Subject::Tool(own) if **own == *name));
        if let Some(tool) = request.tools.iter().find(|tool| !judged(&tool.name)) {
            let message = format!(
                "the policy `{}` takes no tools but its own, and the request offers `{}`",
                bound.policy.name,
                shown(&tool.name)
            );
            return Err(NotBound::new(Code::ToolsNotAllowed, "tools", message));
        }
    }
    let all: Vec<&Policy> = binding.enforced.iter().map(|bound| &*bound.policy).collect();
    let content = binding.enforced.iter().filter(|bound| bound.subject == Subject::Content);
    let content: Vec<&Policy> = content.map(|bound| &*bound.policy).collect();
    if let Some(conflict) = policy::conflict(&content).or_else(|| policy::conflict_of_terms(&all)) {
        return Err(NotBound::new(Code::PolicyConflict, "x-portcullis-policy", conflict.to_string()));
    }
    Ok(binding)
}

/// The scope of a policy in this request: its gates, and the source and messages that they are tied to.
///
/// # Errors
/// Where a gate is tied to the source or to facts, and a message that belongs to them holds what cannot be read as text.
pub fn scope(bound: &Bound, request: &ChatRequest) -> Result<Scope, NotBound> {
    let policy = &bound.policy;
    let contract = Arc::clone(&policy.contract);
    let spec = &policy.source;
    let mut messages = Vec::new();
    let mut unreadable = None;
    if contract.reads_source() {
        for (index, message) in request.messages.list.iter().enumerate() {
            // Facts always read what users say, whatever else is the source.
            let (is_source, states) = (is_source(spec, message.role), message.role == Role::User);
            if !is_source && !states {
                continue;
            }
            let (text, unread) = request.said(message);
            messages.push((is_source, text));
            if unread && ((is_source && contract.is_tied_to_source()) || (states && contract.is_tied_to_facts())) {
                unreadable.get_or_insert(index);
            }
        }
    }
    let own = request.own.as_ref().and_then(|(_, own)| own.source.as_ref()).filter(|_| spec.request);
    if let Some(index) = unreadable.filter(|_| !spec.ignore_unreadable) {
        let message = format!(
            "`messages[{index}].content` holds parts that are no text, and the policy `{}` has gates that are tied to the \
             source",
            policy.name
        );
        return Err(NotBound::new(Code::SourceUnreadable, "messages", message));
    }
    let source = messages.iter().filter(|(is_source, _)| *is_source).map(|(_, text)| text.as_str());
    let pages = own.map_or_else(|| spec.pages(source), |pages| pages.iter().map(|page| page.as_str().into()).collect());
    let said = messages.iter().map(|(_, text)| text.as_str());
    let messages = SourceSpec { tag: None, ..spec.clone() }.pages(said);
    let ground = Arc::new(LazyGround::new(Arc::clone(&contract), pages, messages));
    Ok(Scope { contract, subject: bound.subject.clone(), ground })
}

fn is_source(spec: &SourceSpec, role: Role) -> bool {
    spec.roles.iter().any(|own| match own {
        SourceRole::User => role == Role::User,
        SourceRole::System => role == Role::System,
        SourceRole::Developer => role == Role::Developer,
        SourceRole::Tool => role == Role::Tool,
    })
}
