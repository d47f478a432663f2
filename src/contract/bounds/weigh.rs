//! Counts what one instance node can meet, component by component of the reference graph.
//!
//! For a schema `v` and the instance node that it meets:
//! - `same(v)` counts the subschemas on that node; `marking(v)` those that working out its
//!   evaluated children visits once more (`unevaluated...` validates in-place subschemas again, so
//!   a chain of such schemas grows by 2.6 a level);
//! - `Slots` sum up, child by child, what meets the children;
//! - `total(v)` is the most that any one node at or below it meets.
//!
//! A recursive component may return to itself once on each child: then it unfolds in a line. Twice
//! is 2^depth.

use std::rc::Rc;

use crate::contract::bounds::Bounds;
use crate::contract::bounds::BoundsError;
use crate::contract::bounds::INSTANCE_DEPTH;
use crate::contract::bounds::graph::Edge;
use crate::contract::bounds::graph::Graph;
use crate::contract::bounds::graph::Group;
use crate::contract::bounds::graph::Marks;
use crate::contract::bounds::graph::Node;
use crate::contract::bounds::slots::Join;
use crate::contract::bounds::slots::Slots;
use crate::contract::bounds::slots::Weight;
use crate::contract::bounds::unfold::unfold;

/// Slot entries touched in all. Real schemas need some thousands; past this the count itself
/// would be the attack.
const WORK_MAX: usize = 500_000;

/// Schemas inside of each other on one instance node at most. Real ones have a dozen; the compiler
/// recurses through them for `unevaluatedProperties`, and 240 overflowed a stack of 2 MiB in a
/// debug build.
const SAME_LEVELS_MAX: usize = 100;

/// Schemas inside of each other at most, down to the last child of the deepest instance: fifteen a
/// level. 3,200 overflowed a stack of 2 MiB in a debug build.
const ALL_LEVELS_MAX: usize = 15 * INSTANCE_DEPTH;

/// What is known of one schema once it is weighed.
#[derive(Clone, Debug, Default)]
struct Weighed<'a> {
    same: u64,
    marking: u64,
    slots: Rc<Slots<'a>>,
    marking_slots: Rc<Slots<'a>>,
    total: u64,
    height: usize,
    levels: Levels,
}

/// How deep the calls nest: a validator is a tree of closures, and its stack is the thread's.
#[derive(Clone, Copy, Debug, Default)]
struct Levels {
    /// Schemas inside of each other on one instance node.
    same: usize,
    /// The largest such number at or below this schema.
    reach: usize,
    /// Schemas inside of each other in all, down to the last child.
    all: usize,
}

impl Levels {
    /// One level above `self`, on the same instance node.
    fn above(self) -> Self {
        Self { same: self.same + 1, reach: self.reach.max(self.same + 1), all: self.all.saturating_add(1) }
    }

    fn most(self, other: Self) -> Self {
        Self { same: self.same.max(other.same), reach: self.reach.max(other.reach), all: self.all.max(other.all) }
    }

    /// Seen from the parent of the instance node.
    fn child(self) -> Self {
        Self { same: 0, ..self }
    }

    /// No instance is deeper than its limit, whatever the schema allows.
    fn bounded(self, cyclic: bool) -> Self {
        let longest = self.reach.saturating_mul(INSTANCE_DEPTH);
        Self { all: if cyclic { longest } else { self.all.min(longest) }, ..self }
    }
}

struct Scale<'g, 'a> {
    graph: &'g Graph<'a>,
    weighed: Vec<Weighed<'a>>,
    component: Vec<usize>,
    max: usize,
    work: usize,
    marked: u64,
    errors_grow: bool,
}

/// Refuses what grows beyond `max`; tells what the root meets otherwise.
pub(super) fn weigh(graph: &Graph<'_>, max: usize) -> Result<Bounds, BoundsError> {
    let order = in_place_order(graph)?;
    let mut scale = Scale {
        graph,
        weighed: vec![Weighed::default(); graph.nodes.len()],
        component: vec![usize::MAX; graph.nodes.len()],
        max,
        work: 0,
        marked: 0,
        errors_grow: false,
    };
    for (name, mut members) in components(graph).into_iter().enumerate() {
        for at in &members {
            if let Some(slot) = scale.component.get_mut(*at) {
                *slot = name;
            }
        }
        members.sort_by_key(|at| order.get(*at).copied());
        scale.weigh_component(&members, name)?;
    }
    let expanded = scale.weighed.first().map_or(0, |root| root.total);
    Ok(Bounds { expanded: usize::try_from(expanded).unwrap_or(usize::MAX), errors_grow: scale.errors_grow })
}

impl<'a> Scale<'_, 'a> {
    fn weigh_component(&mut self, members: &[usize], name: usize) -> Result<(), BoundsError> {
        let graph = self.graph;
        let mut cyclic = members.len() > 1;
        let (mut same, mut most, mut height, mut levels) = (0, Weight::default(), 0, Levels::default());
        for at in members {
            let Some(node) = graph.nodes.get(*at) else { continue };
            cyclic |= node.kids.targets().any(|to| to == *at);
            let weighed = self.weigh_node(node, name)?;
            self.refuse_above(weighed.same, &node.path)?;
            let slots = weighed.slots.most();
            // Two ways back on one child, both of which always apply: 2^depth.
            if slots.back_taken > 1 {
                return Err(self.refusal(u64::MAX, &node.path));
            }
            self.errors_grow |= slots.back > 1;
            same = same.max(weighed.same);
            most = Weight {
                outside: most.outside.max(slots.outside),
                back: most.back.max(slots.back),
                back_taken: most.back_taken.max(slots.back_taken),
            };
            height = height.max(weighed.height);
            levels = levels.most(weighed.levels);
            self.put(*at, weighed);
        }
        let total = if cyclic {
            // What one level leaves behind lives for `height` levels more; so many levels overlap.
            let overlap = height.min(INSTANCE_DEPTH) as u64;
            let level = most.outside.saturating_mul(overlap).saturating_add(same).saturating_add(most.back);
            let path = members.first().and_then(|at| graph.nodes.get(*at)).map_or("", |node| &node.path);
            self.spend(members.len(), path)?;
            level.saturating_mul(unfold(graph, members).unwrap_or(u64::MAX))
        } else {
            same.max(most.outside)
        };
        for at in members {
            let path = graph.nodes.get(*at).map_or("", |node| &node.path);
            self.refuse_above(total, path)?;
            let levels = levels.bounded(cyclic);
            for (found, max) in [(levels.reach, SAME_LEVELS_MAX), (levels.all, ALL_LEVELS_MAX)] {
                if found > max {
                    return Err(BoundsError::Depth { path: path.to_owned(), found, max });
                }
            }
            if let Some(weighed) = self.weighed.get_mut(*at) {
                weighed.total = total;
                weighed.levels = Levels { same: weighed.levels.same, ..levels };
                if cyclic {
                    weighed.height = INSTANCE_DEPTH;
                    Rc::make_mut(&mut weighed.slots).settle(total);
                    Rc::make_mut(&mut weighed.marking_slots).settle(total);
                }
            }
        }
        Ok(())
    }

    fn weigh_node(&mut self, node: &Node<'a>, name: usize) -> Result<Weighed<'a>, BoundsError> {
        if let ([edge], 0) = (node.edges.as_slice(), node.kids.targets().count()) {
            return Ok(self.weigh_alias(*edge));
        }
        let mut done = Weighed { same: 1, marking: 1, ..Weighed::default() };
        self.spend(node.kids.named.len().saturating_mul(node.kids.patterns.len()), &node.path)?;
        let mut slots = Slots::of(&node.kids, |to| self.weight(to, name));
        let mut marking = Slots::of_marking(&node.kids, |to| self.weight(to, name));
        self.spend(slots.len() + marking.len(), &node.path)?;
        let mut branches: [Option<Slots<'a>>; 3] = [None, None, None];
        for edge in &node.edges {
            let below = self.weighed.get(edge.to).cloned().unwrap_or_default();
            self.spend(below.slots.len() + below.marking_slots.len() + slots.len() + marking.len(), &node.path)?;
            done.same = done.same.saturating_add(below.same);
            done.height = done.height.max(below.height);
            done.levels = done.levels.most(below.levels);
            match edge.group {
                Group::All => slots.join(&below.slots, Join::And),
                Group::Branch(of) => match branches.get_mut(usize::from(of)) {
                    Some(Some(union)) => {
                        self.spend(union.len(), &node.path)?;
                        union.join(&below.slots, Join::Or);
                    }
                    Some(empty) => *empty = Some((*below.slots).clone()),
                    None => {}
                },
            }
            if edge.marks == Marks::Again {
                done.marking = done.marking.saturating_add(below.same);
                marking.join(&below.slots, Join::Again);
            }
            if edge.marks != Marks::No {
                done.marking = done.marking.saturating_add(below.marking);
                marking.join(&below.marking_slots, Join::Again);
            }
        }
        for union in branches.iter().flatten() {
            self.spend(union.len() + slots.len(), &node.path)?;
            slots.join(union, Join::And);
        }
        for _ in 0..node.markings() {
            done.same = done.same.saturating_add(done.marking);
            slots.join(&marking, Join::Again);
            // The compiler builds a tree of its own for each such keyword.
            self.marked = self.marked.saturating_add(done.marking);
            self.refuse_above(self.marked / 10, &node.path)?;
        }
        for below in node.kids.targets().filter_map(|to| self.outside(to, name)) {
            done.height = done.height.max(below.height + 1);
            done.levels = done.levels.most(below.levels.child());
        }
        done.levels = done.levels.above();
        done.slots = Rc::new(slots);
        done.marking_slots = Rc::new(marking);
        Ok(done)
    }

    /// A schema that is no more than another one, mostly a reference: nothing to copy.
    fn weigh_alias(&self, edge: Edge) -> Weighed<'a> {
        let mut done = self.weighed.get(edge.to).cloned().unwrap_or_default();
        let again = if edge.marks == Marks::Again { done.same } else { 0 };
        done.marking = if edge.marks == Marks::No { 1 } else { done.marking.saturating_add(again).saturating_add(1) };
        done.same = done.same.saturating_add(1);
        done.levels = done.levels.above();
        if edge.marks == Marks::Again && !done.slots.is_empty() {
            let mut marking = (*done.marking_slots).clone();
            marking.join(&done.slots, Join::Again);
            done.marking_slots = Rc::new(marking);
        }
        done
    }

    /// What a child's schema weighs, seen from the component `name`.
    fn weight(&self, to: usize, name: usize) -> Weight {
        match self.outside(to, name) {
            Some(weighed) => Weight { outside: weighed.total, ..Weight::default() },
            None => Weight { back: 1, back_taken: 1, ..Weight::default() },
        }
    }

    fn outside(&self, to: usize, name: usize) -> Option<&Weighed<'a>> {
        if self.component.get(to) == Some(&name) { None } else { self.weighed.get(to) }
    }

    fn put(&mut self, at: usize, weighed: Weighed<'a>) {
        if let Some(slot) = self.weighed.get_mut(at) {
            *slot = weighed;
        }
    }

    fn spend(&mut self, work: usize, path: &str) -> Result<(), BoundsError> {
        self.work = self.work.saturating_add(work);
        if self.work > WORK_MAX { Err(self.refusal(u64::MAX, path)) } else { Ok(()) }
    }

    fn refuse_above(&self, found: u64, path: &str) -> Result<(), BoundsError> {
        if found > self.max as u64 { Err(self.refusal(found, path)) } else { Ok(()) }
    }

    fn refusal(&self, found: u64, path: &str) -> BoundsError {
        let found = usize::try_from(found).unwrap_or(usize::MAX);
        BoundsError::Expansion { path: path.to_owned(), found, max: self.max }
    }
}

/// Each node's place in an order where a schema comes after all that it applies in place.
fn in_place_order(graph: &Graph<'_>) -> Result<Vec<usize>, BoundsError> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Not,
        Open,
        Done,
    }
    let mut seen = vec![Seen::Not; graph.nodes.len()];
    let mut order = vec![0; graph.nodes.len()];
    let mut next = 0;
    for root in 0..graph.nodes.len() {
        let mut open = vec![(root, 0)];
        while let Some((at, edge)) = open.pop() {
            let (Some(state), Some(node)) = (seen.get_mut(at), graph.nodes.get(at)) else { continue };
            match (*state, edge) {
                (Seen::Open, 0) => return Err(BoundsError::Cycle { path: node.path.clone() }),
                (Seen::Done, _) => continue,
                _ => *state = Seen::Open,
            }
            if let Some(to) = node.edges.get(edge) {
                open.push((at, edge + 1));
                open.push((to.to, 0));
                continue;
            }
            *state = Seen::Done;
            if let Some(place) = order.get_mut(at) {
                *place = next;
            }
            next += 1;
        }
    }
    Ok(order)
}

/// Strongly connected components over all edges, each after those that it leads to (Tarjan, with a
/// stack of its own because chains of references may be long).
fn components(graph: &Graph<'_>) -> Vec<Vec<usize>> {
    let successors: Vec<Vec<usize>> = graph
        .nodes
        .iter()
        .map(|node| node.edges.iter().map(|edge| edge.to).chain(node.kids.targets()).collect())
        .collect();
    let count = successors.len();
    // Zero is "not numbered yet".
    let (mut number, mut low, mut held) = (vec![0_usize; count], vec![0_usize; count], vec![false; count]);
    let (mut stack, mut found, mut next) = (Vec::new(), Vec::new(), 1);
    for root in 0..count {
        let mut open = vec![(root, 0_usize)];
        while let Some((at, edge)) = open.pop() {
            if edge == 0 {
                if number.get(at).is_none_or(|number| *number > 0) {
                    continue;
                }
                set(&mut number, at, next);
                set(&mut low, at, next);
                set(&mut held, at, true);
                stack.push(at);
                next += 1;
            }
            if let Some(to) = edge.checked_sub(1).and_then(|before| successor(&successors, at, before)) {
                // Back from `to`; it counts while it is not part of a finished component.
                if get(&held, to) {
                    let least = get(&low, at).min(get(&low, to));
                    set(&mut low, at, least);
                }
            }
            if let Some(to) = successor(&successors, at, edge) {
                open.push((at, edge + 1));
                open.push((to, 0));
            } else if get(&low, at) == get(&number, at) {
                let start = stack.iter().rposition(|node| *node == at).unwrap_or_default();
                let members = stack.split_off(start);
                members.iter().for_each(|node| set(&mut held, *node, false));
                found.push(members);
            }
        }
    }
    found
}

fn successor(successors: &[Vec<usize>], at: usize, edge: usize) -> Option<usize> {
    successors.get(at).and_then(|list| list.get(edge)).copied()
}

fn get<T: Copy + Default>(list: &[T], at: usize) -> T {
    list.get(at).copied().unwrap_or_default()
}

fn set<T>(list: &mut [T], at: usize, value: T) {
    if let Some(slot) = list.get_mut(at) {
        *slot = value;
    }
}
