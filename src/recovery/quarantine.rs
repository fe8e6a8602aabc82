//! Lets all know that a life of a key is over.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{Learnt, Sweep, Traces, memory, rest};
use crate::algorithm::micros;
use crate::clock::Offset;
use crate::epoch::{Epoch, Shared};
use crate::key::Key;
use crate::policy::Policy;
use crate::store::{Notice, Outcome, Reserve, Reserved, StoreError, Word};

/// For how long it is declared at least until it is left to who asks next, and the pause in between.
const LONG: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(250);

/// How many calls there are at once, and how long it takes at least until all keys are put to the test again.
const TOGETHER: usize = 64;
const SELDOM: Duration = Duration::from_secs(1);

impl Epoch {
    /// What an answer tells of the life of this key. If it began as the store has found something lacking, all
    /// are told.
    pub(crate) fn learn(
        self: &Arc<Self>,
        key: &Key,
        answer: &Reserved,
        offset: Option<&Offset>,
    ) -> Learnt {
        let Some(traces) = &self.traces else {
            return Learnt::Same;
        };
        let records = answer.outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Granted(slot) => Some(slot.record),
            Outcome::Refused { .. } => None,
        });
        let last = records.max().zip(offset);
        let over = last.map(|(last, offset)| offset.latest(last + memory(&self.policy)));
        let clock = offset.map(Offset::clock);
        let learnt = traces.learn(key, &self.policy, answer, (clock, over));
        if let Some(life) = answer.life
            && answer.is_lost
            && learnt != Learnt::Over
        {
            // All before this one are over.
            self.declare(key, life.start.saturating_sub(1));
        }
        learnt
    }

    /// Somebody has set this server's clock, which is this one now: nothing that is known by another holds.
    pub(crate) fn quarantine_all(self: &Arc<Self>, server: u64, clock: u64) {
        let (Some(traces), Ok(runtime)) = (&self.traces, Handle::try_current()) else {
            return;
        };
        let keys = traces.keys(&self.policy, |trace| {
            trace.server == server && trace.clock.is_some_and(|it| it != clock)
        });
        let mut all = Vec::new();
        for (key, known) in keys {
            // Here, before anybody else knows.
            self.forget_denial(&key);
            self.lines.hear(&key, Notice::quarantine(0, 0));
            all.extend(Declaring::of(traces, &self.policy, &key, known));
        }
        if !all.is_empty() {
            self.telemetry.quarantined(all.len());
            let insist = |it: Declaring| it.insist(Arc::downgrade(self));
            let all = all.into_iter().map(insist).collect();
            runtime.spawn(few_at_a_time(all));
        }
    }

    /// Lets the store forget all that it has recorded of this key. Where recovery is strict, that is no loss.
    pub(crate) async fn forget(&self, key: &Key) -> Result<(), StoreError> {
        let Some(traces) = &self.traces else {
            return self.store.reset(key, &self.policy).await;
        };
        let word = Word::Quarantine {
            span: 0,
            known: traces.start(key, &self.policy),
        };
        let notice = self.store.heed(key, &self.policy, word).await?;
        self.hear(key, notice);
        Ok(())
    }

    /// Tells all that the life is over that began then.
    fn declare(self: &Arc<Self>, key: &Key, known: u64) {
        let (Some(traces), Ok(runtime)) = (&self.traces, Handle::try_current()) else {
            return;
        };
        if let Some(declaring) = Declaring::of(traces, &self.policy, key, known) {
            self.telemetry.lost(key, rest(&self.policy));
            runtime.spawn(declaring.insist(Arc::downgrade(self)));
        }
    }
}

impl Shared {
    /// The store may have lost state and nobody was told: it is put to the test for each key of which slots
    /// count. Those who wait do so themselves.
    pub(crate) fn test_all(self: &Arc<Self>) {
        let (Some(traces), Ok(runtime)) = (self.traces(), Handle::try_current()) else {
            return;
        };
        if self.strict().is_empty() {
            return;
        }
        let mut sweep = traces.sweep.lock();
        let is_idle = *sweep == Sweep::Idle;
        *sweep = if is_idle { Sweep::Once } else { Sweep::Again };
        if is_idle {
            let (traces, shared) = (traces.clone(), Arc::downgrade(self));
            runtime.spawn(Sweeping(traces).go(shared));
        }
    }
}

/// Puts all keys of a limiter to the test, now and then.
struct Sweeping(Arc<Traces>);

impl Sweeping {
    async fn go(self, shared: Weak<Shared>) {
        loop {
            let Some(all) = shared.upgrade() else { return };
            *self.0.sweep.lock() = Sweep::Once;
            for epoch in all.strict() {
                let keys = self.0.keys(&epoch.policy, |_| true).into_iter();
                let tests = keys.map(|(key, _)| test(epoch.clone(), key)).collect();
                few_at_a_time(tests).await;
            }
            drop(all);
            sleep(SELDOM).await;
            let mut sweep = self.0.sweep.lock();
            if *sweep == Sweep::Once {
                *sweep = Sweep::Idle;
                return;
            }
        }
    }
}

impl Drop for Sweeping {
    /// Should the runtime shut down.
    fn drop(&mut self) {
        *self.0.sweep.lock() = Sweep::Idle;
    }
}

async fn few_at_a_time<F: Future<Output = ()> + Send + 'static>(all: Vec<F>) {
    let mut running = JoinSet::new();
    for one in all {
        if running.len() >= TOGETHER {
            running.join_next().await;
        }
        running.spawn(one);
    }
    while running.join_next().await.is_some() {}
}

async fn test(epoch: Arc<Epoch>, key: Key) {
    let Some(traces) = &epoch.traces else { return };
    if epoch.known_outage(&key).is_some() {
        // Once it is back, that is by another connection.
        return;
    }
    let evidence = traces.evidence(&key, &epoch.policy);
    let answer = epoch.store.reserve(&Reserve {
        asks: &[],
        evidence: Some(&evidence),
        ..Reserve::new(&key, &epoch.policy)
    });
    if let Ok(answer) = answer.await
        && epoch.learn(&key, &answer, None) == Learnt::Another
    {
        let start = answer.life.map_or(0, |life| life.start);
        epoch.forget_denial(&key);
        let notice = Notice::quarantine(answer.now, start);
        epoch.lines.hear(&key, notice);
    }
}

/// Tells the store, until it knows.
struct Declaring {
    traces: Arc<Traces>,
    whose: (u64, Key),
    known: u64,
}

impl Declaring {
    /// Unless it is being declared.
    fn of(traces: &Arc<Traces>, policy: &Policy, key: &Key, known: u64) -> Option<Self> {
        let whose = (policy.id_hash(), key.clone());
        let is_new = traces.declared.lock().insert(whose.clone());
        is_new.then(|| Self {
            traces: traces.clone(),
            whose,
            known,
        })
    }

    /// For as long as anybody uses the limiter.
    async fn insist(self, epoch: Weak<Epoch>) {
        let (_, key) = &self.whose;
        let start = Instant::now();
        while let Some(epoch) = epoch.upgrade() {
            let span = rest(&epoch.policy);
            if start.elapsed() > LONG.max(span) {
                return;
            }
            // While the store is out, somebody else asks for a sign of life.
            if epoch.outage(key).is_none() {
                let (span, known) = (micros(span), self.known);
                let word = Word::Quarantine { span, known };
                match epoch.store.heed(key, &epoch.policy, word).await {
                    Ok(notice) => return epoch.hear(key, notice),
                    Err(error) if epoch.heard_of(key, Some(&error)) => {}
                    // The key rests until all were told, which may be never.
                    Err(error) => epoch.lines.fail(key, &error),
                }
            }
            drop(epoch);
            sleep(PAUSE).await;
        }
    }
}

impl Drop for Declaring {
    fn drop(&mut self) {
        self.traces.declared.lock().remove(&self.whose);
    }
}
