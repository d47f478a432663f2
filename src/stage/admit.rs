//! Bounds on what is under way at once: requests in flight, and bytes held.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

/// A number that may rise to a bound and no further.
#[derive(Debug)]
pub struct Gauge {
    now: AtomicUsize,
    max: usize,
}

/// A share of a [`Gauge`], given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    gauge: Arc<Gauge>,
    amount: usize,
}

/// The bound is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bound of {0} is reached")]
pub struct Full(pub usize);

impl Gauge {
    /// A gauge at zero with this bound.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { now: AtomicUsize::new(0), max })
    }

    /// What is taken now.
    pub fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    /// Takes `amount`, if it is there.
    pub fn take(self: &Arc<Self>, amount: usize) -> Result<Share, Full> {
        let mut share = Share { gauge: Arc::clone(self), amount: 0 };
        share.grow(amount)?;
        Ok(share)
    }
}

impl Share {
    /// Takes `more`, if it is there; otherwise the share stays as it was.
    pub fn grow(&mut self, more: usize) -> Result<(), Full> {
        let before = self.gauge.now.fetch_add(more, Ordering::Relaxed);
        if before.saturating_add(more) > self.gauge.max {
            self.gauge.now.fetch_sub(more, Ordering::Relaxed);
            return Err(Full(self.gauge.max));
        }
        self.amount += more;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.gauge.now.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_rises_to_its_bound_and_falls_when_shares_go() {
        let gauge = Gauge::new(10);
        let mut first = gauge.take(4).unwrap();
        let second = gauge.take(6).unwrap();
        assert_eq!(gauge.take(1).unwrap_err(), Full(10));
        assert_eq!(first.grow(1), Err(Full(10)));
        drop(second);
        assert_eq!(first.grow(6), Ok(()));
        assert_eq!(gauge.now(), 10);
        drop(first);
        assert_eq!(gauge.now(), 0);
    }
}
