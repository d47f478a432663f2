//! The work that a rule may do, counted in steps.
//!
//! CEL absorbs errors inside `&&`, `||`, `all` and `exists`, so an ordinary error would not end a loop that has done too
//! much. An overrun therefore unwinds, with a marker that [`within`] catches.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::panic::resume_unwind;

/// Bytes that are read in one step.
const READ_BYTES: u64 = 128;
/// Bytes that are written in one step: what is written is also kept.
const WRITTEN_BYTES: u64 = 16;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

/// What an overrun unwinds with.
struct Overrun;

/// Why a rule did not run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// It was out of steps.
    OutOfSteps,
    /// The evaluator gave up on it.
    Broken,
}

/// Runs with `steps` to take, and leaves in them those that were not taken.
pub(super) fn within<T>(steps: &Cell<u64>, run: impl FnOnce() -> T) -> Result<T, Stopped> {
    let outer = LEFT.replace(steps.get());
    let ended = catch_unwind(AssertUnwindSafe(run));
    steps.set(LEFT.replace(outer));
    ended.map_err(|payload| if payload.is::<Overrun>() { Stopped::OutOfSteps } else { Stopped::Broken })
}

/// Takes steps; unwinds to [`within`] where there are not so many left.
pub(super) fn charge(steps: u64) {
    let left = LEFT.get().checked_sub(steps);
    LEFT.set(left.unwrap_or(0));
    if left.is_none() {
        resume_unwind(Box::new(Overrun));
    }
}

/// Takes the steps of going through so many elements.
pub(super) fn charge_each(count: usize, steps: u64) {
    charge((count as u64).saturating_mul(steps).saturating_add(1));
}

/// Takes the steps of reading so many bytes.
pub(super) fn charge_read(bytes: usize) {
    charge(1 + bytes as u64 / READ_BYTES);
}

/// Takes the steps of writing so many bytes.
pub(super) fn charge_written(bytes: usize) {
    charge(1 + bytes as u64 / WRITTEN_BYTES);
}
