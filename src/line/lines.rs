//! The lines of a limiter, by key: [`Lines`].

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;

use hashbrown::{DefaultHashBuilder, HashMap};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::bound::Bound;
use super::held::Held;
use super::queue::{Queue, WaiterId, Wakes};
use super::{Line, Who};
use crate::epoch::Epoch;
use crate::key::Key;
use crate::store::{Notice, StoreError};

const SHARDS: usize = 16;

/// The lines in which somebody waits.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    shards: [Mutex<HashMap<Key, Arc<Line>>>; SHARDS],
    hasher: DefaultHashBuilder,
    /// How many there are, so that nobody takes a lock to find that there is none.
    count: AtomicUsize,
    /// How many waiters have arrived, here and in the lines that stand in.
    arrivals: Arc<AtomicU64>,
}

/// Who wants to join a line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Newcomer {
    pub(crate) cost: u32,
    pub(crate) bound: Bound,
    /// The arrival of a request whose permit has expired: it keeps its place.
    pub(crate) arrival: Option<u64>,
    /// The longest line it may join.
    pub(crate) max_waiting: usize,
}

/// Who has joined a line.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) line: Arc<Line>,
    pub(crate) id: WaiterId,
    /// It may have to drive the line, and so has to look at once.
    pub(crate) is_alone: bool,
}

impl Lines {
    /// Others, to and from which waiters move in their order of arrival.
    pub(crate) fn beside(&self) -> Self {
        Self {
            arrivals: self.arrivals.clone(),
            ..Self::default()
        }
    }

    /// Whether waiters move to and from these in their order of arrival.
    pub(crate) fn are_beside(&self, others: &Self) -> bool {
        Arc::ptr_eq(&self.arrivals, &others.arrivals)
    }

    /// Whether anybody waits for this key.
    #[inline]
    pub(crate) fn contain(&self, key: &Key) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.find(key)
    }

    #[cold]
    fn find(&self, key: &Key) -> bool {
        self.shard(key).lock().contains_key(key)
    }

    /// How many lines there are.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Lets a waiter join the line of its key, or says how many wait there already.
    pub(crate) fn join(
        &self,
        epoch: &Arc<Epoch>,
        key: &Key,
        newcomer: Newcomer,
        waker: &Waker,
    ) -> Result<Joined, usize> {
        let Newcomer { cost, bound, .. } = newcomer;
        let (line, joined) = self.with_line(epoch, key, Who::Newcomer, |line, queue, _| {
            line.adopt(epoch, queue);
            let id = match newcomer.arrival {
                Some(arrival) => queue.push_again(arrival, cost, bound),
                None if queue.len() >= newcomer.max_waiting => return Err(queue.len()),
                // Under the line's lock, so that arrivals are in order there.
                None => queue.push(self.arrive(), cost, bound),
            };
            queue.set_waker(id, waker);
            Ok((id, queue.len() == 1))
        });
        joined.map(|(id, is_alone)| Joined { line, id, is_alone })
    }

    /// The arrival of a request, beyond all others'.
    pub(crate) fn arrive(&self) -> u64 {
        self.arrivals.fetch_add(1, Ordering::Relaxed)
    }

    /// Gives a slot to whoever waits first for its key, or else back to the store.
    pub(crate) fn give(&self, epoch: &Arc<Epoch>, key: &Key, held: Held) {
        let mut held = Some(held);
        self.with_line(epoch, key, Who::Other, |_, queue, wakes| {
            if let Some(held) = held.take() {
                queue.give(held, Instant::now(), wakes);
            }
        });
    }

    /// Something was said of a key.
    pub(crate) fn hear(&self, key: &Key, notice: Notice) {
        let line = self.shard(key).lock().get(key).cloned();
        if let Some(line) = line {
            line.change_open(Who::Other, |queue, wakes| {
                queue.hear(notice, Instant::now(), wakes);
            });
        }
    }

    /// A pause of this key, which was believed in until now, has ended before its time.
    pub(crate) fn ask_anew(&self, key: &Key) {
        let line = self.shard(key).lock().get(key).cloned();
        if let Some(line) = line {
            line.change_open(Who::Other, |queue, wakes| {
                queue.ask_anew(Instant::now(), wakes);
            });
        }
    }

    /// Whoever waits for this key is not to go by what is held there, or by what comes soon.
    pub(crate) fn fail(&self, key: &Key, error: &StoreError) {
        let line = self.shard(key).lock().get(key).cloned();
        if let Some(line) = line {
            line.change_open(Who::Other, |queue, wakes| queue.fail_all(error, wakes));
        }
    }

    /// Something may have been said of any key.
    pub(crate) fn miss(&self) {
        self.each(|_| true, |queue, _| queue.miss());
    }

    /// The store may be back, or a part of it.
    pub(crate) fn look_again(&self) {
        self.each(|_| true, |queue, _| queue.look_again());
    }

    /// All who wait for these keys are to go elsewhere.
    pub(crate) fn evict(&self, keys: impl Fn(&Key) -> bool) {
        self.each(keys, Queue::evict);
    }

    /// All who wait for this key are to go elsewhere.
    pub(crate) fn evict_from(&self, key: &Key) {
        let line = self.shard(key).lock().get(key).cloned();
        if let Some(line) = line {
            line.change_open(Who::Other, Queue::evict);
        }
    }

    fn each(&self, keys: impl Fn(&Key) -> bool, change: impl Fn(&mut Queue, &mut Wakes)) {
        for shard in &self.shards {
            let shard = shard.lock();
            let lines = shard.iter().filter(|(key, _)| keys(key));
            let lines: Vec<_> = lines.map(|(_, line)| line.clone()).collect();
            // Each line is locked before the shard where one is closed.
            drop(shard);
            for line in lines {
                line.change_open(Who::Other, &change);
            }
        }
    }

    /// Takes a line away in which nobody waits and nothing is left to do.
    pub(super) fn close(&self, line: &Arc<Line>) -> bool {
        let mut shard = self.shard(&line.key).lock();
        let mut state = line.state.lock();
        if !state.closed && state.queue.is_idle() {
            state.closed = true;
            shard.remove(&line.key);
            line.epoch.load().telemetry.closed();
            self.count.fetch_sub(1, Ordering::Release);
        }
        state.closed
    }

    fn with_line<T>(
        &self,
        epoch: &Arc<Epoch>,
        key: &Key,
        who: Who,
        mut change: impl FnMut(&Line, &mut Queue, &mut Wakes) -> T,
    ) -> (Arc<Line>, T) {
        loop {
            let line = {
                let mut shard = self.shard(key).lock();
                let line = shard.entry_ref(key).or_insert_with(|| {
                    self.count.fetch_add(1, Ordering::Release);
                    epoch.telemetry.opened();
                    Arc::new(Line::new(key.clone(), epoch.clone()))
                });
                line.clone()
            };
            if let Some(done) = line.change_open(who, |queue, wakes| change(&line, queue, wakes)) {
                return (line, done);
            }
        }
    }

    fn shard(&self, key: &Key) -> &Mutex<HashMap<Key, Arc<Line>>> {
        // The map uses the lowest and the highest bits.
        &self.shards[(self.hasher.hash_one(key) >> 32) as usize % SHARDS]
    }
}
