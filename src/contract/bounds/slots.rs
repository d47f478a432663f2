//! What meets each child of an instance node: sums kept by child name, so that what meets `left` is
//! not added to what meets `right`.

use std::collections::HashMap;

use crate::contract::bounds::graph::Kids;

/// What meets one child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weight {
    /// Subschemas met on or below the child, outside of the component being weighed.
    pub(super) outside: u64,
    /// Ways back into the component, all branches counted.
    pub(super) back: u64,
    /// Ways back into the component where each union takes one branch.
    pub(super) back_taken: u64,
}

impl Weight {
    fn plus(self, other: Self) -> Self {
        Self {
            outside: self.outside.saturating_add(other.outside),
            back: self.back.saturating_add(other.back),
            back_taken: self.back_taken.saturating_add(other.back_taken),
        }
    }

    fn most(self, other: Self) -> Self {
        Self {
            outside: self.outside.max(other.outside),
            back: self.back.max(other.back),
            back_taken: self.back_taken.max(other.back_taken),
        }
    }

    /// As branches of one union: both are met, one is taken.
    fn or(self, other: Self) -> Self {
        Self { back_taken: self.back_taken.max(other.back_taken), ..self.plus(other) }
    }
}

/// How two sets of slots join.
#[derive(Clone, Copy, Debug)]
pub(super) enum Join {
    /// Both apply.
    And,
    /// They are branches of one union.
    Or,
    /// They are branches of a union of objects, of which one is met.
    OneOf,
    /// The second is validated once more. jsonschema remembers verdicts of recursive references
    /// there, so only what is outside of the component adds up.
    Again,
}

impl Join {
    fn of(self, left: Weight, right: Weight) -> Weight {
        match self {
            Self::And => left.plus(right),
            Self::Or => left.or(right),
            Self::OneOf => left.most(right),
            Self::Again => Weight { outside: left.outside.saturating_add(right.outside), ..left },
        }
    }
}

/// The children of an instance node, and what meets each of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots<'a> {
    named: HashMap<&'a str, Weight>,
    other: Weight,
    names: Weight,
    tuple: Vec<Weight>,
    rest: Weight,
}

impl<'a> Slots<'a> {
    /// Slots of the keywords of one schema; `weigh` tells what a subschema weighs.
    pub(super) fn of(kids: &Kids<'a>, weigh: impl Fn(usize) -> Weight) -> Self {
        let one = |to: &Option<usize>| to.map_or(Weight::default(), &weigh);
        let patterns: Vec<(&str, Weight)> = kids.patterns.iter().map(|(text, to)| (*text, weigh(*to))).collect();
        let contains = one(&kids.contains);
        let named = kids.named.iter().map(|(name, to)| (*name, weigh(*to).plus(matching(&patterns, name)))).collect();
        // A name without a property of its own is met by patterns, or by what is additional, or unevaluated.
        let other = together(&patterns).most(one(&kids.additional)).most(one(&kids.unevaluated));
        let items = kids.items.iter().fold(Weight::default(), |sum, to| sum.plus(weigh(*to)));
        Self {
            named,
            other,
            names: one(&kids.names),
            tuple: kids.prefix.iter().map(|to| weigh(*to).plus(contains)).collect(),
            rest: items.most(one(&kids.unevaluated_items)).plus(contains),
        }
    }

    /// Slots that working out the evaluated children meets once more.
    pub(super) fn of_marking(kids: &Kids<'a>, weigh: impl Fn(usize) -> Weight) -> Self {
        let one = |to: &Option<usize>| to.map_or(Weight::default(), &weigh);
        Self {
            other: one(&kids.unevaluated),
            rest: one(&kids.unevaluated_items).plus(one(&kids.contains)),
            ..Self::default()
        }
    }

    /// Entries to touch when this is joined; the work that `join` does.
    pub(super) fn len(&self) -> usize {
        self.named.len() + self.tuple.len() + 1
    }

    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty() && self.tuple.is_empty() && self.all().all(|weight| weight == Weight::default())
    }

    /// Adds what another schema brings to the same instance node.
    pub(super) fn join(&mut self, right: &Self, how: Join) {
        for (name, weight) in &mut self.named {
            *weight = how.of(*weight, right.named.get(name).copied().unwrap_or(right.other));
        }
        for (name, weight) in &right.named {
            self.named.entry(name).or_insert_with(|| how.of(self.other, *weight));
        }
        self.other = how.of(self.other, right.other);
        self.names = how.of(self.names, right.names);
        self.tuple.resize(self.tuple.len().max(right.tuple.len()), self.rest);
        for (at, weight) in self.tuple.iter_mut().enumerate() {
            *weight = how.of(*weight, right.tuple.get(at).copied().unwrap_or(right.rest));
        }
        self.rest = how.of(self.rest, right.rest);
    }

    /// What meets the child that meets most, measure by measure.
    pub(super) fn most(&self) -> Weight {
        self.all().fold(Weight::default(), Weight::most)
    }

    /// Once a component is weighed, its ways back weigh what it weighs.
    pub(super) fn settle(&mut self, each: u64) {
        let settle = |weight: &mut Weight| {
            let outside = weight.outside.saturating_add(weight.back.saturating_mul(each));
            *weight = Weight { outside, ..Weight::default() };
        };
        self.named.values_mut().for_each(settle);
        self.tuple.iter_mut().for_each(settle);
        [&mut self.other, &mut self.names, &mut self.rest].into_iter().for_each(settle);
    }

    fn all(&self) -> impl Iterator<Item = Weight> {
        self.named.values().chain(&self.tuple).chain([&self.other, &self.names, &self.rest]).copied()
    }
}

/// The literal text that every match of a pattern starts with, if it is anchored.
fn prefix(pattern: &str) -> &str {
    let Some(rest) = pattern.strip_prefix('^') else { return "" };
    // An alternative at the top, or a quantifier after the text, would make the prefix a lie.
    if pattern.contains('|') {
        return "";
    }
    let end = rest.find(|c: char| !(c.is_alphanumeric() || "-_/@#:".contains(c))).unwrap_or(rest.len());
    let (text, after) = rest.split_at(end);
    if after.starts_with(['*', '?', '{']) { shorter(text) } else { text }
}

fn shorter(text: &str) -> &str {
    let mut chars = text.chars();
    chars.next_back();
    chars.as_str()
}

fn matching(patterns: &[(&str, Weight)], name: &str) -> Weight {
    let may = patterns.iter().filter(|(pattern, _)| name.starts_with(prefix(pattern)));
    may.fold(Weight::default(), |sum, (_, weight)| sum.plus(*weight))
}

/// What meets a name that matches as many of the patterns as any name can.
fn together(patterns: &[(&str, Weight)]) -> Weight {
    // Past a few dozen patterns comparing each with each is not worth it: all match.
    if patterns.len() > 64 {
        return patterns.iter().fold(Weight::default(), |sum, (_, weight)| sum.plus(*weight));
    }
    let compatible = |left: &str, right: &str| left.starts_with(right) || right.starts_with(left);
    let sums = patterns.iter().map(|(pivot, _)| {
        let may = patterns.iter().filter(|(pattern, _)| compatible(prefix(pivot), prefix(pattern)));
        may.fold(Weight::default(), |sum, (_, weight)| sum.plus(*weight))
    });
    sums.fold(Weight::default(), Weight::most)
}
