//! Ids of requests: in the order of their time, and not to be guessed.

use std::hash::BuildHasher as _;
use std::hash::RandomState;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use uuid::Builder;
use uuid::Uuid;

/// Makes ids. The system is asked for randomness once, not for each of them.
#[derive(Debug, Default)]
pub struct Ids {
    keys: [RandomState; 2],
    made: AtomicU64,
}

impl Ids {
    /// The next id, a UUID of version 7 (RFC 9562 section 5.7).
    pub fn next(&self, now: SystemTime) -> Uuid {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let [first, second] = self.keys.each_ref().map(|key| key.hash_one(number));
        let mut random = [0; 10];
        for (place, byte) in random.iter_mut().zip(first.to_le_bytes().into_iter().chain(second.to_le_bytes())) {
            *place = byte;
        }
        let millis = now.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0));
        Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_carry_their_time() {
        let ids = Ids::default();
        let now = UNIX_EPOCH + std::time::Duration::from_millis(1_764_500_000_123);
        let mut made: Vec<Uuid> = (0..10_000).map(|_| ids.next(now)).collect();
        assert!(made.iter().all(|id| id.get_version_num() == 7));
        assert_eq!(made.first().unwrap().get_timestamp().unwrap().to_unix(), (1_764_500_000, 123_000_000));
        made.sort_unstable();
        made.dedup();
        assert_eq!(made.len(), 10_000);
        assert_ne!(Ids::default().next(now), Ids::default().next(now));
    }
}
