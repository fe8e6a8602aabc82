//! What becomes of a key whose state the store has lost: [`Recovery`].

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::algorithm::{Rule, micros};
use crate::guard;
use crate::key::Key;
use crate::policy::Policy;
use crate::store::{Evidence, Life, Notice, Reserved};

mod quarantine;

/// What becomes of a key whose state the store has lost.
///
/// A store loses state when it is restarted without persistence or emptied, when it evicts a key, and when a
/// replica takes over that had not received the last writes. Set by
/// [`LimiterBuilder::recovery`](crate::LimiterBuilder::recovery).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recovery {
    /// The key starts anew at once. The default.
    ///
    /// What departed before the loss, and what still departs by slots that were handed out before, is not
    /// counted: a window that spans the loss holds up to twice what the quota allows, and while there are
    /// slots from before, as long as the longest wait, others depart beside them.
    #[default]
    Immediate,
    /// The key rests until whatever departed before counts no longer, so that the upstream never sees more
    /// than the quota allows.
    ///
    /// The state of each key has a [life](crate::store::Life). Each process remembers under which it got its
    /// slots, for as long as any of them counts: some 100 bytes for each key of the last window. It tells the store
    /// with each call. A store that does not know of that life has lost it. Then another begins: everybody drops the
    /// slots of the former, nothing departs for a window and the time that it takes until all have been told, 3 s or
    /// 2 s more than the [longest wait](crate::LimiterBuilder::max_wait) where that is shorter, and all go on in
    /// their order.
    ///
    /// A store that knows of nothing at all writes down when it was born, and lets nothing depart for the
    /// same time from then on: so a process that knows of nothing either, as it has just started, cannot run
    /// ahead. That also holds for a store that has never been used; in a cluster, for each hash slot.
    ///
    /// The same is done if the store's clock is set, forward or back, by more than the guard and the buffer,
    /// or if another takes over whose clock differs by that.
    ///
    /// A process that has heard nothing from the store for 3 s, as it was cut off or stopped, does not use the slots
    /// that it holds, as it may have missed the word, until the store has confirmed them.
    ///
    /// What it costs: the scripts take up to three times as long, and each key has one more value of some 70 bytes
    /// and 16 for each process that uses it, up to eight. Both that and the state stay for three windows and some
    /// 12 s after the last departure.
    ///
    /// What it does not see, so that more may depart:
    ///
    /// - The loss of a single key's state, by eviction or a replica that takes over, until one of those asks who
    ///   know of it. The loss of its last writes, if by then slots were handed out to eight other processes.
    /// - A clock that is set forward, for keys of which only others know than those that have noticed; or one that is
    ///   set, besides the guard and the buffer, by less than a 2,000th of the time since it was last read, as it may
    ///   have been slewed: after ten idle minutes, 300 ms.
    /// - In a cluster, what was said by another node than the one that the subscription is to, while the nodes are
    ///   cut off from one another.
    /// - Slots that a process holds for longer than another thinks it may: all that share a key need the same
    ///   `max_wait`, guard and recovery.
    ///
    /// All who use the key need the right to `PUBLISH`: who finds a loss and cannot tell fails.
    ///
    /// A host whose own clock stops while it sleeps, such as a laptop's, takes the store's for one that was set.
    ///
    /// [`Limiter::reset`](crate::Limiter::reset) begins another life at once, without a rest.
    Strict,
}

/// How long it takes at most until all who hold slots have heard that they are not to be used: a
/// subscription that is dead without a word is noticed within three seconds.
pub(crate) const LONGEST_HEARING: Duration = Duration::from_secs(3);

/// The least number of traces for which it looks for those that are over.
const FEW: usize = 64;

/// The lives of the keys of which slots were handed out to this process that still count.
#[derive(Debug)]
pub(crate) struct Traces {
    /// Who it is that knows this.
    process: u32,
    known: Mutex<Known>,
    /// The keys, under these policies, whose loss is being declared.
    declared: Mutex<HashSet<(u64, Key)>>,
    /// Whether all keys are being put to the test.
    sweep: Mutex<Sweep>,
}

/// Whether all keys are being put to the test, and have to be once more afterwards.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Sweep {
    #[default]
    Idle,
    Once,
    Again,
}

#[derive(Debug)]
struct Known {
    /// Under each policy.
    traces: HashMap<Key, SmallVec<[Trace; 1]>>,
    sweep_at: usize,
}

#[derive(Debug, Clone, Copy)]
struct Trace {
    policy: u64,
    life: Life,
    /// At which version of it slots were handed out last.
    granted: u64,
    /// Which server said so, and by which clock: another, once somebody has set it; none if others said so.
    server: u64,
    clock: Option<u64>,
    /// From when on nothing counts any more, for certain.
    over: Instant,
}

/// What an answer tells of the life of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Learnt {
    /// It is the one that is known, if any is.
    Same,
    /// It is another: nothing is to be used that was handed out before.
    Another,
    /// The answer is older than what is known: nothing of it is to be used.
    Over,
}

impl Traces {
    pub(crate) fn new() -> Self {
        Self {
            // Each of these states has its own random seed.
            process: ((RandomState::new().hash_one(0) >> 32) as u32).max(1),
            known: Mutex::new(Known {
                traces: HashMap::new(),
                sweep_at: FEW,
            }),
            declared: Mutex::default(),
            sweep: Mutex::default(),
        }
    }

    /// An answer of this server has come by slots of this life, or without any. What it handed out, if anything,
    /// counts until `over`.
    pub(crate) fn learn(
        &self,
        key: &Key,
        policy: &Policy,
        answer: &Reserved,
        (clock, over): (Option<u64>, Option<Instant>),
    ) -> Learnt {
        let Some(life) = answer.life else {
            return Learnt::Same;
        };
        let server = answer.clock.server;
        let granted = over.map_or(0, |_| life.version);
        let now = Instant::now();
        let mut known = self.known.lock();
        let Some(trace) = known.find(key, policy, now) else {
            if let Some(over) = over {
                let trace = Trace::new(policy, life, (server, clock), over);
                known.add(key, Trace { granted, ..trace }, now);
            }
            return Learnt::Same;
        };
        if life.start < trace.life.start {
            return Learnt::Over;
        }
        if life.start == trace.life.start {
            (trace.server, trace.clock) = (server, clock.or(trace.clock));
            trace.life.version = trace.life.version.max(life.version);
            trace.granted = trace.granted.max(granted);
            trace.over = trace.over.max(over.unwrap_or(now));
            return Learnt::Same;
        }
        let over = over.unwrap_or(now + rest(policy));
        let another = Trace::new(policy, life, (server, clock), over);
        *trace = Trace { granted, ..another };
        Learnt::Another
    }

    /// Somebody says that another life began then; whether that is news.
    pub(crate) fn hear(&self, key: &Key, policy: &Policy, notice: Notice) -> bool {
        let start = notice.since;
        let now = Instant::now();
        let mut known = self.known.lock();
        let Some(trace) = known.find(key, policy, now) else {
            return true;
        };
        if start <= trace.life.start {
            return false;
        }
        let over = now + rest(policy);
        *trace = Trace::new(policy, Life::new(start, 0), (trace.server, None), over);
        true
    }

    /// What is known of a key, while anything of it counts here.
    fn trace(&self, key: &Key, policy: &Policy) -> Option<Trace> {
        let mut known = self.known.lock();
        let trace = known.find(key, policy, Instant::now());
        trace.copied()
    }

    /// When it began, or 0.
    pub(crate) fn start(&self, key: &Key, policy: &Policy) -> u64 {
        let trace = self.trace(key, policy);
        trace.map_or(0, |trace| trace.life.start)
    }

    /// What a store has to know of a key.
    pub(crate) fn evidence(&self, key: &Key, policy: &Policy) -> Evidence {
        let trace = self.trace(key, policy);
        let life = trace.map(|trace| trace.life);
        let evidence = Evidence::new(life, micros(rest(policy)), micros(tolerance(policy)));
        evidence.of_process(self.process, trace.map_or(0, |trace| trace.granted))
    }

    /// The keys of which something counts under this policy, and when their lives began.
    fn keys(&self, policy: &Policy, is_meant: impl Fn(&Trace) -> bool) -> Vec<(Key, u64)> {
        let now = Instant::now();
        let counts = |it: &&Trace| it.policy == policy.id_hash() && now < it.over && is_meant(it);
        let known = self.known.lock();
        let keys = known.traces.iter();
        let keys = keys.filter_map(|(key, traces)| Some((key, traces.iter().find(counts)?)));
        keys.map(|(key, trace)| (key.clone(), trace.life.start))
            .collect()
    }
}

impl Known {
    fn find(&mut self, key: &Key, policy: &Policy, now: Instant) -> Option<&mut Trace> {
        let traces = self.traces.get_mut(key)?.iter_mut();
        let policy = policy.id_hash();
        let mut traces = traces.filter(|trace| trace.policy == policy && now < trace.over);
        traces.next()
    }

    fn add(&mut self, key: &Key, trace: Trace, now: Instant) {
        if self.traces.len() >= self.sweep_at {
            self.traces.retain(|_, traces| {
                traces.retain(|trace| now < trace.over);
                !traces.is_empty()
            });
            self.sweep_at = FEW.max(self.traces.len() * 2);
        }
        let traces = self.traces.entry_ref(key).or_default();
        traces.retain(|it| now < it.over && it.policy != trace.policy);
        traces.push(trace);
    }
}

impl Trace {
    fn new(
        policy: &Policy,
        life: Life,
        (server, clock): (u64, Option<u64>),
        over: Instant,
    ) -> Self {
        Self {
            policy: policy.id_hash(),
            life,
            granted: 0,
            server,
            clock,
            over,
        }
    }
}

/// How long a key rests: until all have heard, and what departed until then counts no longer. Who waits for less than
/// that takes may have an answer on its way, and a guard that has grown with it.
fn rest(policy: &Policy) -> Duration {
    let longest = |max_wait: Duration| max_wait.saturating_add(guard::LONGEST);
    let hearing = policy.max_wait().map_or(LONGEST_HEARING, longest);
    let late = policy.guard() + policy.buffer();
    Duration::from_micros(memory(policy)) + hearing.min(LONGEST_HEARING) + 2 * late
}

/// For how long a departure counts at most, in microseconds, from when it is recorded on.
pub(crate) fn memory(policy: &Policy) -> u64 {
    policy.rules().iter().map(Rule::memory).max().unwrap_or(0)
}

/// By how much a clock has to be off until it was set: less may be drift.
pub(crate) fn tolerance(policy: &Policy) -> Duration {
    policy.guard() + policy.buffer()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quota;
    use crate::policy::PolicyParts;

    #[test]
    fn whatever_the_longest_wait_a_key_rests_no_longer_than_all_take_to_hear() {
        for max_wait in [None, Some(Duration::MAX), Some(LONGEST_HEARING)] {
            let policy = PolicyParts {
                quotas: [Quota::per_second(1)].into_iter().collect(),
                max_wait,
                ..PolicyParts::default()
            };
            let policy = policy.build().unwrap();
            let late = 2 * (policy.guard() + policy.buffer());
            let window = Duration::from_micros(memory(&policy));
            assert_eq!(rest(&policy), window + LONGEST_HEARING + late);
        }
    }
}
