//! A recorded answer, judged as on the wire: for controls, `check`, `golden` and `replay`.

use std::sync::Arc;

use crate::api::ingress::chat::ChatRequest;
use crate::api::reply::Choice;
use crate::api::reply::Finish;
use crate::api::reply::Reply;
use crate::contract::Contract;
use crate::contract::Scope;
use crate::contract::Subject;
use crate::contract::ground::LazyGround;
use crate::contract::scene::Call;
use crate::contract::schema::CompiledSchema;
use crate::dialect::table::ReasoningTag;
use crate::policy::Policy;
use crate::stage::bind::Bound;
use crate::stage::bind::NotBound;
use crate::stage::judge;
use crate::stage::judge::Judgement;
use crate::stage::judge::Known;
use crate::stage::plan;
use crate::stage::plan::Schemas;

/// What a recorded answer was given to.
#[derive(Clone, Debug)]
pub enum Given<'a> {
    /// A chat request, and the schema of its response format, where it has one.
    Request(&'a ChatRequest, Option<Arc<CompiledSchema>>),
    /// The source, page by page; the messages are the same text.
    Source(Vec<Arc<str>>),
}

/// What the model said, and what is known of the call.
#[derive(Clone, Debug)]
pub struct Said<'a> {
    /// The model's text.
    pub output: &'a str,
    /// Why it stopped, as the backend said: `stop`.
    pub finish_reason: &'a str,
    /// What is known of the call.
    pub call: Call,
}

/// The contract of a policy for a recorded answer. The policy judges the text, whatever it matches.
///
/// # Errors
/// Where the policy would have refused the request.
pub fn contract(policy: &Arc<Policy>, given: Given<'_>) -> Result<Contract, NotBound> {
    let bound = [Bound { policy: Arc::clone(policy), subject: Subject::Content }];
    match given {
        Given::Request(request, content) => plan::contract(request, Schemas { content, tools: Vec::new() }, &bound),
        Given::Source(pages) => {
            let content = plan::with_policies(None, &bound)?;
            let contract = Arc::clone(&policy.contract);
            let ground = Arc::new(LazyGround::new(Arc::clone(&contract), pages.clone(), pages));
            let scopes = vec![Scope { contract, subject: Subject::Content, ground }];
            Ok(Contract { content, scopes, extraction: policy.extraction, ..Contract::default() })
        }
    }
}

/// Judges a recorded answer under a contract.
pub fn judge(contract: &Contract, said: &Said<'_>, reasoning: &[ReasoningTag]) -> Judgement {
    let choice = Choice {
        content: Some(said.output.to_owned()),
        finish: Some(Finish::read(said.finish_reason)),
        ..Choice::default()
    };
    let reply = Reply { choices: vec![choice], usage: said.call.usage };
    judge::judge(contract, &reply, reasoning, &Known { call: said.call.clone(), ..Known::nothing() })
}
