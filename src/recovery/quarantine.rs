//! Lets a key rest, here and everywhere.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{Traces, rest};
use crate::algorithm::micros;
use crate::epoch::Epoch;
use crate::key::Key;
use crate::store::{Notice, Reserve, Word};

/// For how long it is declared at least until it is left to who asks next, and the pause in between.
const LONG: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(250);

/// How many keys are put to the test at once.
const TOGETHER: usize = 64;

impl Epoch {
    /// What the store has recorded for this key cannot be relied on: nobody uses what is held, and nothing
    /// departs until all that departed counts no longer.
    pub(crate) fn quarantine(self: &Arc<Self>, key: &Key) {
        let Some(traces) = self.traces.clone() else {
            return;
        };
        self.stop_all(key);
        {
            let mut declared = traces.declared.lock();
            if declared.contains(key) {
                return;
            }
            declared.push(key.clone());
        }
        let declaring = Declaring {
            traces,
            key: key.clone(),
        };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(declaring.insist(self.clone()));
        }
    }

    /// Somebody has set the store's clock, or it is another's: nothing that is known by the former holds.
    pub(crate) fn quarantine_all(self: &Arc<Self>) {
        let Some(traces) = &self.traces else { return };
        let mut keys = traces.keys();
        keys.extend(self.lines.keys());
        keys.sort_unstable();
        keys.dedup();
        keys.iter().for_each(|key| self.quarantine(key));
    }

    /// The store may have lost state and nobody was told: it is put to the test for each key of which slots
    /// were used. Those who wait do so themselves.
    pub(crate) fn test_all(self: &Arc<Self>) {
        let (Some(traces), Ok(runtime)) = (&self.traces, Handle::try_current()) else {
            return;
        };
        let keys = traces.keys();
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

    /// Here, before anybody else knows.
    fn stop_all(&self, key: &Key) {
        let at = Instant::now();
        let Some(now) = self.clock.shows(at) else {
            return;
        };
        let paused = now + micros(rest(&self.policy));
        let notice = Notice::quarantine(now, paused);
        self.pauses.note_unconfirmed(key, &self.policy, notice);
        self.forget_denial(key);
        self.lines.hear(key, notice);
    }
}

async fn test(epoch: Arc<Epoch>, key: Key) {
    let Some(traces) = &epoch.traces else { return };
    let evidence = traces.evidence(&key, &epoch.policy, None);
    let answer = epoch.store.reserve(&Reserve {
        asks: &[],
        evidence: Some(&evidence),
        ..Reserve::new(&key, &epoch.policy)
    });
    if answer.await.is_ok_and(|answer| answer.is_lost()) {
        epoch.quarantine(&key);
    }
}

/// Tells the store, until it knows.
struct Declaring {
    traces: Arc<Traces>,
    key: Key,
}

impl Declaring {
    async fn insist(self, epoch: Arc<Epoch>) {
        let span = micros(rest(&epoch.policy));
        let until = Instant::now() + LONG.max(rest(&epoch.policy));
        while Instant::now() < until {
            let word = Word::Quarantine { span };
            match epoch.store.heed(&self.key, &epoch.policy, word).await {
                Ok(notice) => return epoch.hear(&self.key, notice),
                Err(_) => sleep(PAUSE).await,
            }
        }
    }
}

impl Drop for Declaring {
    fn drop(&mut self) {
        self.traces.declared.lock().retain(|key| *key != self.key);
    }
}
