//! How often a recursive schema is validated before jsonschema remembers that it was.
//!
//! In `is_valid` it remembers the verdict of a recursive reference per instance node, and that is
//! all that keeps recursive unions from exponential time. But on each cycle of references it does
//! so for one of them only, and which one depends on the order of compilation. Measured: a cycle of
//! eighteen definitions, each a union that meets the next one twice on one child, visits 2^18
//! subschemas before it comes to the reference that is remembered.
//!
//! So between two remembered references every definition of the component may be met once on any
//! way, and each may lead on several times: the product bounds them all, whatever the order. A
//! reference from inside of its own target always is a remembered one, and counts for nothing.
//!
//! Working out evaluated children (`unevaluated...`) goes through references without remembering
//! anything: a cycle of that kind has no bound.

use std::collections::HashMap;
use std::collections::HashSet;
use std::rc::Rc;

use crate::contract::bounds::graph::Graph;
use crate::contract::bounds::graph::Group;
use crate::contract::bounds::graph::Marks;
use crate::contract::bounds::graph::Node;
use crate::contract::bounds::slots::Join;
use crate::contract::bounds::slots::Slots;
use crate::contract::bounds::slots::Weight;

/// Steps inside of each other at most: what is written in place is shallow.
const STEPS_MAX: usize = 200;

/// Slot entries touched in all, for one component.
const WORK_MAX: usize = 200_000;

/// What a schema leads to before anything is remembered.
#[derive(Debug, Default)]
struct Reach<'a> {
    /// References met on the same instance node.
    here: u64,
    slots: Slots<'a>,
    /// References met there and down to one child.
    all: u64,
}

struct Unfolding<'g, 'a> {
    graph: &'g Graph<'a>,
    members: Rc<HashSet<usize>>,
    /// By schema and whether it is marking; `None` while it is being worked out.
    known: HashMap<(usize, bool), Option<Rc<Reach<'a>>>>,
    work: usize,
}

/// The times that a component multiplies what one level of it costs; `None` where there is no bound.
pub(super) fn unfold(graph: &Graph<'_>, members: &[usize]) -> Option<u64> {
    let mut unfolding =
        Unfolding { graph, members: Rc::new(members.iter().copied().collect()), known: HashMap::new(), work: 0 };
    let mut product = 1_u64;
    for at in members {
        let reach = unfolding.validating(*at, 0)?;
        // Each text by which it is referred to is compiled on its own.
        for _ in 0..graph.aliases.get(at).map_or(0, HashSet::len) {
            product = product.saturating_mul(reach.all.max(1));
        }
    }
    Some(product)
}

impl<'a> Unfolding<'_, 'a> {
    /// What validating a schema leads to.
    fn validating(&mut self, at: usize, steps: usize) -> Option<Rc<Reach<'a>>> {
        self.remembered(at, false, steps, Self::validate)
    }

    /// What working out the children that a schema evaluates leads to.
    fn marking(&mut self, at: usize, steps: usize) -> Option<Rc<Reach<'a>>> {
        self.remembered(at, true, steps, Self::mark)
    }

    fn remembered(
        &mut self,
        at: usize,
        marking: bool,
        steps: usize,
        work: impl Fn(&mut Self, usize, &Node<'a>, usize) -> Option<Reach<'a>>,
    ) -> Option<Rc<Reach<'a>>> {
        if let Some(known) = self.known.get(&(at, marking)) {
            return known.clone();
        }
        let graph = self.graph;
        let node = graph.nodes.get(at).filter(|_| steps < STEPS_MAX)?;
        self.known.insert((at, marking), None);
        let mut reach = work(self, at, node, steps + 1)?;
        reach.all = reach.here.saturating_add(reach.slots.most().outside);
        self.work = self.work.saturating_add(reach.slots.len());
        let reach = Rc::new(reach);
        self.known.insert((at, marking), Some(Rc::clone(&reach)));
        if self.work > WORK_MAX { None } else { Some(reach) }
    }

    fn validate(&mut self, at: usize, node: &Node<'a>, steps: usize) -> Option<Reach<'a>> {
        let weights = self.weights(node, steps)?;
        let weigh = |to: usize| weights.get(&to).copied().unwrap_or_default();
        let mut reach = Reach { slots: Slots::of(&node.kids, weigh), ..Reach::default() };
        let mut unions: [Option<Reach<'a>>; 3] = [None, None, None];
        let members = Rc::clone(&self.members);
        for edge in node.edges.iter().filter(|edge| members.contains(&edge.to)) {
            if edge.reference {
                reach.here = reach.here.saturating_add(u64::from(!self.is_inside(at, edge.to)));
                continue;
            }
            let below = self.validating(edge.to, steps)?;
            self.work = self.work.saturating_add(below.slots.len() + reach.slots.len());
            match edge.group {
                Group::All => reach.add(&below, Join::And),
                Group::Branch(of) => {
                    let how = if self.graph.dispatches(node, of) { Join::OneOf } else { Join::And };
                    if let Some(union) = unions.get_mut(usize::from(of)) {
                        union.get_or_insert_default().add(&below, how);
                    }
                }
            }
        }
        unions.iter().flatten().for_each(|union| reach.add(union, Join::And));
        for _ in 0..node.markings() {
            let marking = self.marking(at, steps)?;
            reach.add(&marking, Join::And);
        }
        Some(reach)
    }

    fn mark(&mut self, _: usize, node: &Node<'a>, steps: usize) -> Option<Reach<'a>> {
        let weights = self.weights(node, steps)?;
        let weigh = |to: usize| weights.get(&to).copied().unwrap_or_default();
        let mut reach = Reach { slots: Slots::of_marking(&node.kids, weigh), ..Reach::default() };
        let members = Rc::clone(&self.members);
        for edge in node.edges.iter().filter(|edge| members.contains(&edge.to)) {
            if edge.marks == Marks::Again {
                let below = self.validating(edge.to, steps)?;
                self.work = self.work.saturating_add(below.slots.len() + reach.slots.len());
                reach.add(&below, Join::And);
            }
            if edge.marks != Marks::No {
                let below = self.marking(edge.to, steps)?;
                self.work = self.work.saturating_add(below.slots.len() + reach.slots.len());
                reach.add(&below, Join::And);
            }
        }
        Some(reach)
    }

    /// What the schemas of the children lead to.
    fn weights(&mut self, node: &Node<'a>, steps: usize) -> Option<HashMap<usize, Weight>> {
        let mut weights = HashMap::new();
        for to in node.kids.targets() {
            if self.members.contains(&to) {
                let outside = self.validating(to, steps)?.all;
                weights.insert(to, Weight { outside, ..Weight::default() });
            }
        }
        Some(weights)
    }

    /// Whether a reference stands inside of its own target, which has no other name.
    fn is_inside(&self, at: usize, target: usize) -> bool {
        if self.graph.aliases.get(&target).is_none_or(|names| names.len() != 1) {
            return false;
        }
        let mut here = Some(at);
        while let Some(at) = here {
            if at == target {
                return true;
            }
            here = self.graph.nodes.get(at).and_then(|node| node.parent);
        }
        false
    }
}

impl<'a> Reach<'a> {
    fn add(&mut self, other: &Self, how: Join) {
        self.here = match how {
            Join::OneOf => self.here.max(other.here),
            _ => self.here.saturating_add(other.here),
        };
        self.slots.join(&other.slots, how);
    }
}
