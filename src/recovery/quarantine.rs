//! Lets all know that a life of a key is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{Learnt, Traces, memory, rest};
use crate::algorithm::micros;
use crate::clock::Offset;
use crate::epoch::Epoch;
use crate::key::Key;
use crate::store::{Notice, Outcome, Reserve, Reserved, StoreError, Word};

/// For how long it is declared at least until it is left to who asks next, and the pause in between.
const LONG: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(250);

/// How many keys are put to the test at once.
const TOGETHER: usize = 64;

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
        let known = traces.life(key, &self.policy).map_or(0, |life| life.start);
        let records = answer.outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Granted(slot) => Some(slot.record),
            Outcome::Refused { .. } => None,
        });
        let last = records.max().zip(offset);
        let over = last.map(|(last, offset)| offset.latest(last + memory(&self.policy)));
        let learnt = traces.learn(key, &self.policy, answer, over);
        if answer.is_lost && learnt != Learnt::Over {
            self.declare(key, known);
        }
        learnt
    }

    /// Somebody has set this server's clock: nothing that is known by it holds.
    pub(crate) fn quarantine_all(self: &Arc<Self>, server: u64) {
        let Some(traces) = &self.traces else { return };
        for key in traces.keys(&self.policy, Some(server)) {
            if let Some(life) = traces.life(&key, &self.policy) {
                // Here, before anybody else knows.
                self.forget_denial(&key);
                self.lines.hear(&key, Notice::quarantine(0, 0, 0));
                self.declare(&key, life.start);
            }
        }
    }

    /// Lets the store forget all that it has recorded of this key. Where recovery is strict, that is no loss.
    pub(crate) async fn forget(&self, key: &Key) -> Result<(), StoreError> {
        let Some(traces) = &self.traces else {
            return self.store.reset(key, &self.policy).await;
        };
        let life = traces.life(key, &self.policy);
        let word = Word::Quarantine {
            span: 0,
            known: life.map_or(0, |life| life.start),
        };
        let notice = self.store.heed(key, &self.policy, word).await?;
        self.hear(key, notice);
        Ok(())
    }

    /// The store may have lost state and nobody was told: it is put to the test for each key of which slots
    /// count. Those who wait do so themselves.
    pub(crate) fn test_all(self: &Arc<Self>) {
        let (Some(traces), Ok(runtime)) = (&self.traces, Handle::try_current()) else {
            return;
        };
        let keys = traces.keys(&self.policy, None);
        if keys.is_empty() {
            return;
        }
        let epoch = self.clone();
        runtime.spawn(async move {
            let mut tests = JoinSet::new();
            for key in keys {
                if tests.len() >= TOGETHER {
                    tests.join_next().await;
                }
                tests.spawn(test(epoch.clone(), key));
            }
            while tests.join_next().await.is_some() {}
        });
    }

    /// Tells all that the life is over that began then.
    fn declare(self: &Arc<Self>, key: &Key, known: u64) {
        let Some(traces) = self.traces.clone() else {
            return;
        };
        let whose = (self.policy.id_hash(), key.clone());
        {
            let mut declared = traces.declared.lock();
            if declared.contains(&whose) {
                return;
            }
            declared.push(whose.clone());
        }
        let declaring = Declaring {
            traces,
            whose,
            known,
        };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(declaring.insist(self.clone()));
        }
    }
}

async fn test(epoch: Arc<Epoch>, key: Key) {
    let Some(traces) = &epoch.traces else { return };
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
        let notice = Notice::quarantine(answer.now, start, 0);
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
    async fn insist(self, epoch: Arc<Epoch>) {
        let (_, key) = &self.whose;
        let span = rest(&epoch.policy);
        let word = Word::Quarantine {
            span: micros(span),
            known: self.known,
        };
        let until = Instant::now() + LONG.max(span);
        while Instant::now() < until {
            match epoch.store.heed(key, &epoch.policy, word).await {
                Ok(notice) => return epoch.hear(key, notice),
                Err(_) => sleep(PAUSE).await,
            }
        }
    }
}

impl Drop for Declaring {
    fn drop(&mut self) {
        let mut declared = self.traces.declared.lock();
        declared.retain(|whose| *whose != self.whose);
    }
}
