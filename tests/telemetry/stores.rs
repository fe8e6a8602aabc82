//! A remote store whose shards can be out: [`Sharded`].

use tower_throttle::test_util::ManualClock;

use crate::prelude::*;

/// The first letter of a key is its shard.
#[derive(Debug, Clone)]
pub(crate) struct Sharded(Arc<[FailingStore]>);

impl Default for Sharded {
    fn default() -> Self {
        let clock = ManualClock::running();
        let shard = |_| FailingStore::new(MemoryStore::with_clock(clock.clone())).latency(MS);
        Self((0..=u8::MAX).map(shard).collect())
    }
}

impl Sharded {
    /// The shards of these keys are out, and no others.
    pub(crate) fn out(&self, keys: &[&str]) {
        self.0.iter().for_each(FailingStore::recover);
        for key in keys {
            self.0[shard(key)].fail_with(Fault::Unreachable);
        }
    }
}

fn shard(key: &str) -> usize {
    key.bytes().next().unwrap_or_default().into()
}

impl Store for Sharded {
    fn call(&self, calls: Vec<Call>) -> Reply {
        let of = |call: &Call| shard(call.key().as_str());
        assert!(calls.iter().all(|call| of(call) == of(&calls[0])));
        self.0[of(&calls[0])].call(calls)
    }

    fn ping(&self, key: &Key) -> Reply {
        self.0[shard(key.as_str())].ping(key)
    }

    fn shard(&self, key: &Key) -> u64 {
        shard(key.as_str()) as u64
    }
}
