//! A recorded set, judged on as many threads as are asked for. What comes of it is the same for any number of them.

use std::io;
use std::io::BufRead;
use std::io::Read as _;
use std::sync::Arc;

use anyhow::Context as _;

use super::record;
use super::record::Line;
use crate::cli::progress::Progress;
use crate::contract::gate::GateHealth;
use crate::contract::verdict::Violations;
use crate::exchange::recorded::Heard;
use crate::exchange::recorded::Judge;
use crate::json::fault::shown;
use crate::report::golden::Counted;
use crate::report::golden::GateTally;
use crate::report::golden::Record;
use crate::report::golden::Tally;
use crate::report::golden::Unexpected;
use crate::report::html;
use crate::report::junit::Suite;
use crate::report::outcome;
use crate::report::outcome::Ended;
use crate::report::outcome::Judged;
use crate::stage::judge::Verdict;

/// Bytes that one thread judges at a time; a line is never cut.
const BLOCK: u64 = 1 << 18;
/// Bytes that a line may have.
const LINE_MAX: u64 = 64 << 20;
/// What fires without being a gate of a policy.
const IMPLIED: [&str; 4] = ["extraction", "schema", "tools", "assign"];

/// How a set is judged.
pub(super) struct Run<'r> {
    pub(super) judge: &'r Judge,
    /// Its name in messages.
    pub(super) file: &'r str,
    pub(super) threads: usize,
    /// Texts and pages are kept, for a report.
    pub(super) keeps_texts: bool,
    pub(super) writes_junit: bool,
    /// Every record that is not as expected is kept, for a list of them all; else as many as reports show.
    pub(super) lists_all: bool,
}

/// What a part of a set came to.
#[derive(Default)]
pub(super) struct Part {
    pub(super) tally: Tally,
    pub(super) unexpected: Vec<Unexpected>,
    pub(super) suite: Suite,
}

/// Whole lines of the file.
struct Block {
    text: Vec<u8>,
    /// Its first line's number, from 1.
    line: u64,
    lines: u64,
}

impl Run<'_> {
    /// Judges all of `from`, of which `whole` is the length, where that is known.
    pub(super) fn all(&self, from: &mut impl BufRead, whole: Option<u64>) -> anyhow::Result<Part> {
        let mut progress = Progress::new(whole);
        let mut all = self.part();
        let (mut line, mut bytes) = (1, 0);
        loop {
            let mut blocks = Vec::with_capacity(self.threads);
            while blocks.len() < self.threads {
                let Some(block) = self.block(from, line)? else { break };
                line += block.lines;
                bytes += block.text.len() as u64;
                blocks.push(block);
            }
            if blocks.is_empty() {
                progress.done();
                return Ok(all);
            }
            for part in self.parts(&blocks) {
                let part = part?;
                all.tally.extend(&part.tally);
                self.keep(&mut all.unexpected, part.unexpected);
                all.suite.extend(&part.suite);
            }
            progress.at(bytes, all.tally.records);
        }
    }

    /// Keeps what is told of: a set may be large and all of it wrong.
    fn keep(&self, all: &mut Vec<Unexpected>, more: Vec<Unexpected>) {
        let room = html::RECORDS_MAX.saturating_sub(all.len());
        let kept = if self.lists_all { usize::MAX } else { room };
        all.extend(
            more.into_iter()
                .take(kept)
                .enumerate()
                .map(|(index, one)| Unexpected { shown: one.shown.filter(|_| index < room), ..one }),
        );
    }

    /// The next lines; none at the end.
    fn block(&self, from: &mut impl BufRead, line: u64) -> anyhow::Result<Option<Block>> {
        let unread = || format!("cannot read {}", self.file);
        let mut text = Vec::new();
        io::Read::by_ref(from).take(BLOCK).read_to_end(&mut text).with_context(unread)?;
        if text.is_empty() {
            return Ok(None);
        }
        if text.last() != Some(&b'\n') {
            let more = io::Read::by_ref(from).take(LINE_MAX).read_until(b'\n', &mut text).with_context(unread)?;
            if more as u64 == LINE_MAX && text.last() != Some(&b'\n') {
                anyhow::bail!("{}: a line is longer than {} MiB", self.file, LINE_MAX >> 20);
            }
        }
        let lines = memchr::memchr_iter(b'\n', &text).count() as u64;
        Ok(Some(Block { text, line, lines }))
    }

    /// What each block came to, in their order.
    fn parts(&self, blocks: &[Block]) -> Vec<anyhow::Result<Part>> {
        if let [block] = blocks {
            return vec![self.judged(block)];
        }
        std::thread::scope(|scope| {
            let all: Vec<_> = blocks.iter().map(|block| scope.spawn(|| self.judged(block))).collect();
            let joined = |thread: std::thread::ScopedJoinHandle<'_, anyhow::Result<Part>>| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(anyhow::anyhow!("{}: a thread that judged ended in a fault", self.file)))
            };
            all.into_iter().map(joined).collect()
        })
    }

    fn part(&self) -> Part {
        let gates = self.judge.policy().map(|policy| policy.contract.gates.as_slice()).unwrap_or_default();
        let gates = gates.iter().map(|entry| GateTally {
            name: Arc::clone(&entry.name),
            kind: entry.kind,
            declared: Arc::clone(&entry.declared),
            ..GateTally::default()
        });
        Part { tally: Tally { gates: gates.collect(), ..Tally::default() }, ..Part::default() }
    }

    fn judged(&self, block: &Block) -> anyhow::Result<Part> {
        let mut part = self.part();
        let text = std::str::from_utf8(&block.text).map_err(|error| {
            let before = block.text.get(..error.valid_up_to()).unwrap_or_default();
            let line = block.line + memchr::memchr_iter(b'\n', before).count() as u64;
            anyhow::anyhow!("{}:{line}: this line is not UTF-8", self.file)
        })?;
        for (number, line) in (block.line..).zip(text.lines()) {
            if !line.trim_ascii().is_empty() {
                self.line(number, line, &mut part).with_context(|| format!("{}:{number}", self.file))?;
            }
        }
        Ok(part)
    }

    fn line(&self, number: u64, line: &str, part: &mut Part) -> anyhow::Result<()> {
        let Line { name, expected, cause, recorded } = record::read(line)?;
        if let Some(gate) = &expected.gate {
            self.knows(gate)?;
        }
        let heard = self.judge.judge(recorded)?;
        let outcome = Ended::of(&heard.judgement.verdict);
        let own = own(&heard);
        let class = outcome::class(&heard, self.judge);
        let as_expected = outcome == expected.outcome
            && expected.code.is_none_or(|code| code.as_str() == class)
            && expected.gate.as_ref().is_none_or(|gate| fired(&heard, gate));
        let gates = &heard.judgement.gates;
        part.tally.add(Counted { outcome, class, as_expected, cause, own: &own, gates });
        let judged = (!as_expected).then(|| Judged::of(&heard, self.judge));
        if self.writes_junit {
            let class = self.judge.policy().map_or("golden", |policy| &policy.name);
            let record = Record { line: number, name: &name, expected: expected.clone(), cause };
            part.suite.add(class, &record, judged.as_ref());
        }
        if let Some(judged) = judged {
            // Of any part no more than so many can be among those that a report shows.
            let is_shown = part.unexpected.len() < html::RECORDS_MAX;
            if !is_shown && !self.lists_all {
                return Ok(());
            }
            let shown = (self.keeps_texts && is_shown).then(|| (heard.text().to_owned(), heard.pages().to_vec()));
            part.unexpected.push(Unexpected { line: number, name: name.into_owned(), expected, cause, judged, shown });
        }
        Ok(())
    }

    /// Whether a gate of this name can fire.
    fn knows(&self, gate: &str) -> anyhow::Result<()> {
        let gates = self.judge.policy().map(|policy| policy.contract.gates.as_slice()).unwrap_or_default();
        if IMPLIED.contains(&gate) || gates.iter().any(|entry| *entry.name == *gate) {
            return Ok(());
        }
        let names: Vec<String> = gates.iter().map(|entry| format!("`{}`", entry.name)).collect();
        anyhow::bail!(
            "`gate` is `{}`; the policy has {}, and `{}` fire without one",
            shown(gate),
            names.join(", "),
            IMPLIED.join("`, `")
        )
    }
}

/// Everything that was found, decisive or not.
fn violations(heard: &Heard) -> impl Iterator<Item = &Violations> {
    let decisive = match &heard.judgement.verdict {
        Verdict::Reject(rejection) => Some(&rejection.violations),
        Verdict::Clarify(asked) => Some(&asked.violations),
        Verdict::Accept(_) | Verdict::Refuse(_) | Verdict::Fail(_) => None,
    };
    decisive.into_iter().chain(&heard.judgement.observed)
}

fn fired(heard: &Heard, gate: &str) -> bool {
    let seen = heard.judgement.gates.iter().any(|seen| *seen.gate == *gate && seen.health == GateHealth::Fired);
    seen || violations(heard).flat_map(Violations::iter).any(|violation| *violation.gate == *gate)
}

/// What fired without being a gate of a policy: such a violation is written in no policy.
fn own(heard: &Heard) -> Vec<Arc<str>> {
    let mut names: Vec<Arc<str>> = Vec::new();
    for violation in violations(heard).flat_map(Violations::iter).filter(|violation| violation.declared.is_none()) {
        if !names.contains(&violation.gate) {
            names.push(Arc::clone(&violation.gate));
        }
    }
    names
}
