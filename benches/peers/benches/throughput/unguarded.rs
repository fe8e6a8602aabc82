//! A store whose slots are used at once: [`Unguarded`].

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tower_throttle::store::{
    Outcome, Receipt, RedisStore, Release, Reply, Reserve, Reserved, Slot, Store, StoreError,
};
use tower_throttle::test_util::history::History;

use crate::pass_on::pass_on;

/// The least that a departure may be recorded after its slot.
pub(crate) const LEAST: Duration = Duration::from_micros(1);

/// Reserves slots as the store within does, but without the time for a permit to be used in, and
/// says of each slot that it has come.
///
/// So what is measured is how fast slots are handed out, and not how far apart the quota keeps them.
/// The slots that it really reserved are noted, to be judged.
#[derive(Debug, Clone)]
pub(crate) struct Unguarded {
    store: RedisStore,
    slots: Arc<Mutex<Vec<u64>>>,
}

impl Unguarded {
    pub(crate) fn new(store: RedisStore) -> Self {
        Self {
            store,
            slots: Arc::default(),
        }
    }

    /// The most in any window of what was reserved since this was asked the last time.
    pub(crate) fn most_in_any(&self, window: Duration) -> u64 {
        let slots = std::mem::take(&mut *self.slots.lock());
        let history: History = slots.into_iter().map(Duration::from_micros).collect();
        history.most_in_any(window)
    }
}

impl Store for Unguarded {
    pass_on!(store: peek, heed, reset, listen, is_listening, told_until, check, part);

    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        let mut bare = *reserve;
        (bare.guard, bare.least_guard) = (LEAST, LEAST);
        bare.round_trip = Duration::ZERO;
        let reply = self.store.reserve(&bare);
        let slots = self.slots.clone();
        Reply::pending(async move {
            let reserved = reply.await?;
            note(&reserved, &slots)?;
            Ok(come(&reserved))
        })
    }

    /// Nothing is given back: the slot that the limiter knows is not the one that was reserved.
    fn release(&self, _: &Release<'_>) -> Reply<()> {
        Reply::ready(Ok(()))
    }
}

fn note(reserved: &Reserved, slots: &Mutex<Vec<u64>>) -> Result<(), StoreError> {
    let mut slots = slots.lock();
    for outcome in reserved.outcomes() {
        match outcome {
            Outcome::Granted(slot) => slots.push(slot.at),
            Outcome::Refused { .. } => return Err(StoreError::new("nobody may be refused here")),
        }
    }
    Ok(())
}

/// The same, had all slots come and were they good for long.
fn come(reserved: &Reserved) -> Reserved {
    const FAR: u64 = 60_000_000;
    let now = reserved.now();
    let outcomes = reserved.outcomes().iter().map(|_| {
        Outcome::Granted(Slot {
            at: now,
            record: now + FAR,
            cost: 1,
            receipt: Receipt::default(),
        })
    });
    Reserved::new(now, outcomes, reserved.remaining(), reserved.reset())
}
