//! The verdict: every gate on every choice, every violation collected. Same reply, same contract: same verdict.

mod container;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
mod tools;

use std::collections::HashSet;
use std::sync::Arc;

use crate::api::reply::Around;
use crate::api::reply::Choice;
use crate::api::reply::Passed;
use crate::api::reply::Reply;
use crate::contract::ContentContract;
use crate::contract::Contract;
use crate::contract::OwnedSchema;
use crate::contract::Subject;
use crate::contract::assign::Assign;
use crate::contract::assign::Minter;
use crate::contract::gate;
use crate::contract::gate::GateSeen;
use crate::contract::scene::Answer;
use crate::contract::scene::Call;
use crate::contract::scene::Scene;
use crate::contract::verdict::Action;
use crate::contract::verdict::Violation;
use crate::contract::verdict::Violations;
use crate::dialect::table::ReasoningTag;
use crate::extraction;
use crate::extraction::Admits;
use crate::extraction::Rung;
use crate::json::path::Path;
use crate::json::string;
use crate::record::Stage;
use crate::stage::extract;
use crate::stage::extract::Extraction;
use crate::wire::fault::Code;

/// What the gates concluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every choice satisfies the contract.
    Accept(Accepted),
    /// At least one choice must be asked back about, and none is rejected.
    Clarify(Clarification),
    /// At least one choice breaks it.
    Reject(Rejection),
    /// A choice was refused by the model, or cut by the provider's filter.
    Refuse(Refused),
    /// The backend returned nothing, failed while answering, or did not say that it had ended.
    Fail(Failed),
}

/// A verdict, and what was seen on the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// What was concluded.
    pub verdict: Verdict,
    /// Violations that are recorded and counted and decide nothing.
    pub observed: Option<Violations>,
    /// What each gate of each policy came to, for every choice that they judged.
    pub gates: Vec<GateSeen>,
    /// Gates that were not checked, everywhere or somewhere.
    pub not_checked: Vec<Arc<str>>,
    /// Bare arrays that were wrapped.
    pub wrapped: u32,
}

/// What is known of an exchange besides the reply when it is judged.
#[derive(Clone, Debug)]
pub struct Known {
    /// What the upstream calls came to.
    pub call: Call,
    /// Clock and randomness for the fields that code sets.
    pub minter: Minter,
}

impl Known {
    /// Nothing is known: for recorded answers that tell nothing of their call.
    pub fn nothing() -> Self {
        Self { call: Call::default(), minter: Minter::still() }
    }
}

/// A reply that passed its contract. Only [`judge`] makes one and the answer takes nothing else, so an
/// unjudged reply cannot reach a caller on a held route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    choices: Vec<Passed>,
    /// Calls to tools that no contract binds whose arguments break their parameters: counted, passed on.
    loose: u32,
}

impl Accepted {
    /// What passed of each choice, in the reply's order.
    pub fn choices(&self) -> &[Passed] {
        &self.choices
    }

    /// Calls to unbound tools with arguments that break their parameters.
    pub fn loose(&self) -> u32 {
        self.loose
    }
}

/// Why the caller is asked back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clarification {
    /// The questions, each once, in the order of the gates.
    pub questions: Vec<String>,
    /// Every violation, of every choice.
    pub violations: Violations,
    /// How the answer was found.
    pub rung: Option<Rung>,
    /// The answer of the first choice that is asked back about, as it was judged: for templates.
    pub answer: String,
}

/// Why a reply is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The code for the caller: that of the first choice that is not accepted.
    pub code: Code,
    /// The stage that rejected it: `extract`, `judge` or `tools`.
    pub stage: Stage,
    /// The reason in one word, for records and metrics.
    pub reason: &'static str,
    /// Every violation, of every choice.
    pub violations: Violations,
    /// How the answer was found, where it was.
    pub rung: Option<Rung>,
    /// What the gates that reject say of it.
    pub reasons: Vec<String>,
    /// The answer of the first choice that gates reject, as it was judged: for templates. Empty where none got that far.
    pub answer: String,
}

/// Who declined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The model, in a refusal.
    Model,
    /// The provider's content filter.
    Filter,
}

impl Refused {
    /// The name as records and metrics have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model => "refusal",
            Self::Filter => "content_filter",
        }
    }
}

/// What the backend failed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// It returned nothing.
    Empty,
    /// It reported a failure as its finish reason.
    Reported,
    /// It gave no finish reason, or one that is not known.
    Unfinished,
}

/// Judges a reply. A choice that is not accepted decides for all: first rejections, then failures, then questions, then
/// refusals. Where the contract lets passing choices go on alone, the others are left out, unless none passes.
pub fn judge(contract: &Contract, reply: &Reply, reasoning: &[ReasoningTag], known: &Known) -> Judgement {
    let mut judging = Judging { contract, reasoning, known, seen: Seen::default() };
    let (mut rejection, mut failed, mut asked, mut refused) = (None::<Rejection>, None, None::<Clarification>, None);
    let mut choices = Vec::with_capacity(reply.choices.len());
    for choice in &reply.choices {
        match judging.choice(choice) {
            Ok(passed) => {
                choices.push(passed);
                continue;
            }
            Err(Stopped::Rejected(found)) => match &mut rejection {
                Some(first) => first.violations.extend(found.violations),
                None => rejection = Some(*found),
            },
            Err(Stopped::Asked(found)) => match &mut asked {
                Some(first) => {
                    first.violations.extend(found.violations);
                    first.questions.extend(found.questions);
                }
                None => asked = Some(*found),
            },
            Err(Stopped::Failed(how)) => failed = failed.or(Some(how)),
            Err(Stopped::Refused(who)) => refused = refused.or(Some(who)),
        }
        choices.push(Passed { slice: None, around: None, rung: None, dropped: true });
    }
    let passing = contract.passing && choices.iter().any(|choice| !choice.dropped);
    let accepted = Accepted { choices, loose: judging.seen.loose };
    let verdict = match (rejection, failed, asked, refused) {
        _ if passing => Verdict::Accept(accepted),
        (Some(rejection), _, _, _) => Verdict::Reject(rejection),
        (None, Some(failed), _, _) => Verdict::Fail(failed),
        (None, None, Some(mut asked), _) => {
            let mut told = HashSet::new();
            asked.questions.retain(|question| told.insert(question.clone()));
            Verdict::Clarify(asked)
        }
        (None, None, None, Some(refused)) => Verdict::Refuse(refused),
        (None, None, None, None) if accepted.choices.is_empty() => Verdict::Fail(Failed::Empty),
        (None, None, None, None) => Verdict::Accept(accepted),
    };
    let Seen { observed, gates, not_checked, wrapped, .. } = judging.seen;
    Judgement { verdict, observed, gates, not_checked, wrapped }
}

/// Why one choice is not accepted.
enum Stopped {
    Rejected(Box<Rejection>),
    Asked(Box<Clarification>),
    Failed(Failed),
    Refused(Refused),
}

/// The judging of one reply.
struct Judging<'j> {
    contract: &'j Contract,
    reasoning: &'j [ReasoningTag],
    known: &'j Known,
    seen: Seen,
}

/// What is seen on the way.
#[derive(Default)]
struct Seen {
    loose: u32,
    wrapped: u32,
    observed: Option<Violations>,
    gates: Vec<GateSeen>,
    not_checked: Vec<Arc<str>>,
}

/// What the gates of all policies came to for one text.
#[derive(Default)]
struct Gates {
    found: Option<Violations>,
    action: Option<Action>,
    questions: Vec<String>,
    reasons: Vec<String>,
    truncated: bool,
}

impl Gates {
    fn add(&mut self, more: Option<Violations>) {
        match (&mut self.found, more) {
            (Some(found), Some(more)) => found.extend(more),
            (None, more) => self.found = more,
            (Some(_), None) => {}
        }
    }
}

impl Judging<'_> {
    fn choice(&mut self, choice: &Choice) -> Result<Passed, Stopped> {
        let passed = match extract::extract(choice, self.contract, self.reasoning) {
            Extraction::Refusal => return Err(Stopped::Refused(Refused::Model)),
            Extraction::ContentFilter => return Err(Stopped::Refused(Refused::Filter)),
            Extraction::Empty => return Err(Stopped::Failed(Failed::Empty)),
            Extraction::Failed => return Err(Stopped::Failed(Failed::Reported)),
            Extraction::Unfinished => return Err(Stopped::Failed(Failed::Unfinished)),
            Extraction::Truncated => {
                return Err(container::truncated());
            }
            Extraction::Not(not) => {
                return Err(container::not_extracted(&not, choice.content.as_deref().unwrap_or_default()));
            }
            Extraction::Json(found) => self.content(choice, &found)?,
            Extraction::ToolCalls | Extraction::Unbound => {
                Passed { slice: None, around: None, rung: None, dropped: false }
            }
        };
        self.tools(choice)?;
        Ok(passed)
    }

    /// Judges what was cut out of a choice's text.
    fn content(&mut self, choice: &Choice, found: &extraction::Extracted) -> Result<Passed, Stopped> {
        let text = choice.content.as_deref().unwrap_or_default();
        let slice = text.get(found.range.clone()).unwrap_or_default();
        let mut passed =
            Passed { slice: Some(found.range.clone()), around: None, rung: Some(found.rung), dropped: false };
        let Some(content) = &self.contract.content else { return Ok(passed) };
        let mut around = Around::default();
        if let Some(name) = content.wrap_array.as_ref().filter(|_| slice.starts_with('['))
            && content.admits() == Admits::OBJECT
        {
            let name = String::from_utf8(string::quoted(name)).unwrap_or_default();
            around = Around { before: format!("{{{name}:"), fields: String::new(), after: "}".to_owned() };
            self.seen.wrapped += 1;
        }
        let wrapped;
        let judged = if around.before.is_empty() {
            slice
        } else {
            wrapped = around.around(slice);
            &wrapped
        };
        // Where a violation lies in the model's text, whatever code puts before the slice.
        let place = Offset { start: found.range.start, before: around.before.len(), length: slice.len() };
        let stopped = |code, reason, violations: Violations| {
            let mut violations = violations;
            place.shift(&mut violations);
            let (reasons, answer) = (Vec::new(), judged.to_owned());
            let rung = Some(found.rung);
            Stopped::Rejected(Box::new(Rejection {
                code,
                stage: Stage::Judge,
                reason,
                violations,
                rung,
                reasons,
                answer,
            }))
        };
        let answer = read(judged)?;
        if let Some(violations) = assigned_is_there(content, &answer) {
            return Err(stopped(Code::ContractRejected, "assigned_field_present", violations));
        }
        let broken = match content.schemas.is_empty() {
            true if content.complete.is_empty() => not_object(judged).map(Violations::one),
            _ => schemas(&content.schemas, &answer),
        };
        if let Some(violations) = broken {
            return Err(stopped(Code::SchemaViolation, "schema", violations));
        }
        let gates = self.gates(&Subject::Content, &answer);
        self.decided(gates, &place, found.rung, judged)?;
        if let Some(assign) = &content.assign {
            let set = self.assigned(content, assign, choice.index, &answer);
            around.fields = set.map_err(|violations| stopped(Code::ContractRejected, "assign", *violations))?;
        }
        passed.around = (around != Around::default()).then_some(around);
        Ok(passed)
    }

    /// Runs the gates of every policy that judges this part of the answer.
    fn gates(&mut self, subject: &Subject, answer: &Answer<'_>) -> Gates {
        let mut gates = Gates::default();
        if !self.contract.scopes.iter().any(|scope| scope.subject == *subject) {
            return gates;
        }
        let schemas = self.contract.schemas(subject);
        for scope in self.contract.scopes.iter().filter(|scope| scope.subject == *subject) {
            let ground = scope.ground.get();
            let scene = Scene { answer, contract: &scope.contract, ground, call: &self.known.call, schemas: &schemas };
            let judged = gate::run(&scene);
            let seen = scope.contract.gates.iter().zip(judged.health).map(|(entry, health)| GateSeen {
                policy: Arc::clone(&scope.contract.policy),
                gate: Arc::clone(&entry.name),
                health,
            });
            self.seen.gates.extend(seen);
            self.seen.not_checked.extend(judged.not_checked);
            gates.questions.extend(judged.questions);
            gates.reasons.extend(judged.reasons);
            gates.action = gates.action.max(judged.action);
            gates.truncated |= judged.violations.iter().any(|violation| violation.kind == gate::CONTEXT_TRUNCATED);
            gates.add(Violations::listed(judged.violations, judged.total));
        }
        gates
    }

    /// What follows from what the gates found.
    fn decided(&mut self, gates: Gates, place: &Offset, rung: Rung, judged: &str) -> Result<(), Stopped> {
        let Gates { found, action, questions, reasons, truncated } = gates;
        let Some(mut violations) = found else { return Ok(()) };
        place.shift(&mut violations);
        let (rung, answer) = (Some(rung), judged.to_owned());
        match action {
            None | Some(Action::Monitor) => {
                match &mut self.seen.observed {
                    Some(observed) => observed.extend(violations),
                    None => self.seen.observed = Some(violations),
                }
                Ok(())
            }
            Some(Action::Clarify) => {
                Err(Stopped::Asked(Box::new(Clarification { questions, violations, rung, answer })))
            }
            Some(Action::Reject) => {
                let (code, reason) = match truncated {
                    true => (Code::ContextTruncated, gate::CONTEXT_TRUNCATED),
                    false => (Code::ContractRejected, "contract"),
                };
                let stage = Stage::Judge;
                Err(Stopped::Rejected(Box::new(Rejection { code, stage, reason, violations, rung, reasons, answer })))
            }
        }
    }

    /// The fields that code sets, once the model's part is accepted: the whole must then satisfy the complete schema.
    fn assigned(
        &self,
        content: &ContentContract,
        assign: &Assign,
        choice: u64,
        judged: &Answer<'_>,
    ) -> Result<String, Box<Violations>> {
        let own = |path: Path, message: String| {
            let violation = Violation::own("assign", "assign", path, message, None);
            Violation { policy: Some(Arc::clone(&assign.policy)), ..violation }
        };
        let fields = assign.members(judged.root(), choice, &self.known.minter).map_err(|missing| {
            let named = missing.into_iter().map(|one| own(Path::root().key(&*one.name), one.message));
            let none = || Violations::one(own(Path::root(), "no field can be set".to_owned()));
            Box::new(Violations::of(named).unwrap_or_else(none))
        })?;
        // `judged` has the envelope already.
        let text = Around { before: String::new(), fields: fields.clone(), after: String::new() }.around(judged.text());
        let whole =
            Answer::read(&text).map_err(|fault| Box::new(Violations::one(own(Path::root(), fault.to_string()))))?;
        match schemas(&content.complete, &whole) {
            Some(violations) => Err(Box::new(violations.without_places())),
            None => Ok(fields),
        }
    }
}

/// Where the judged text lies in the model's.
struct Offset {
    /// Where the slice begins in the model's text.
    start: usize,
    /// Bytes that code has put before the slice.
    before: usize,
    /// Bytes of the slice.
    length: usize,
}

impl Offset {
    fn shift(&self, violations: &mut Violations) {
        violations.place(|at| {
            let start = at.start.checked_sub(self.before)?.min(self.length);
            let end = at.end.saturating_sub(self.before).min(self.length);
            Some(start + self.start..end + self.start)
        });
    }
}

/// Reads what strict extraction has accepted.
fn read(text: &str) -> Result<Answer<'_>, Stopped> {
    Answer::read(text).map_err(|fault| {
        let message = format!("not checked: {fault}");
        let violation = Violation::own(gate::schema::NAME, gate::schema::NAME, Path::root(), message, None);
        reject(Code::SchemaViolation, Stage::Judge, "schema", Violations::one(violation))
    })
}

fn reject(code: Code, stage: Stage, reason: &'static str, violations: Violations) -> Stopped {
    let (reasons, answer) = (Vec::new(), String::new());
    Stopped::Rejected(Box::new(Rejection { code, stage, reason, violations, rung: None, reasons, answer }))
}

/// What schemas say, each its owner's; none means that all are satisfied.
fn schemas(schemas: &[OwnedSchema], answer: &Answer<'_>) -> Option<Violations> {
    let mut all: Option<Violations> = None;
    for own in schemas {
        let found = gate::schema::check_tape(&own.schema, answer.tape());
        let found = found.map(|found| match &own.policy {
            Some(policy) => found.of_policy(policy),
            None => found,
        });
        match (&mut all, found) {
            (Some(all), Some(found)) => all.extend(found),
            (None, found) => all = found,
            (Some(_), None) => {}
        }
    }
    all
}

/// A field that code sets stands in the answer.
fn assigned_is_there(content: &ContentContract, answer: &Answer<'_>) -> Option<Violations> {
    let assign = content.assign.as_ref()?;
    let named = assign.present(answer.root()).into_iter().map(|name| {
        let path = Path::root().key(&*name);
        let at = path.locate(answer.text().as_bytes());
        let message = format!("code sets `{name}`; the model must not");
        let violation = Violation::own("assign", "assigned_field_present", path, message, at);
        Violation { policy: Some(Arc::clone(&assign.policy)), ..violation }
    });
    Violations::of(named)
}

fn not_object(slice: &str) -> Option<Violation> {
    if slice.starts_with('{') {
        return None;
    }
    let message = "expected an object, as `response_format` says".to_owned();
    Some(Violation::own(gate::schema::NAME, gate::schema::NAME, Path::root(), message, Some(0..slice.len())))
}
