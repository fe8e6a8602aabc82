//! What a request does at first: it asks a store that answers at once, or what stands in for one that is out, or
//! joins the line.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::check;
use super::wait::{Answer, Begun, Passage, Stage, Wait};
use crate::alone::Verdict;
use crate::epoch::Epoch;
use crate::patience::Patience;
use crate::permit::{Limited, Permit};
use crate::store::StoreError;
use crate::telemetry::Outcome;

/// How long a request has waited that is answered at once.
const NOT: Duration = Duration::ZERO;

impl Wait {
    /// Asks a store that answers at once, if nobody waits; else joins the line.
    pub(super) fn start(&mut self, patience: &Patience, waker: &Waker) -> Answer {
        let Stage::Start(epochs) = &mut self.stage else {
            return self.start_again(patience, waker);
        };
        let epoch = epochs.take().expect("polled after it was ready").current();
        let entered = &epoch.telemetry.begin(&self.key, self.cost);
        if let Err(error) = check(&epoch.policy, &self.key, self.cost) {
            self.ended(&epoch, Outcome::Invalid, NOT, entered);
            return Answer::Failed(error.by(&epoch.policy));
        }
        let since = Instant::now();
        let passage = Passage {
            patience,
            waker,
            entered,
            since,
        };
        // Each in a branch of its own, so that the one that is all computation is compiled as such.
        if let Some(store) = &epoch.embedded {
            let verdict = epoch.ask_embedded(store, &self.key, self.cost, since);
            self.conclude(epoch, verdict, passage)
        } else if let Some(error) = epoch.outage(&self.key) {
            self.start_out(epoch, error, passage)
        } else if let Some(limited) = self.look(&epoch, passage) {
            epoch.telemetry.remembered();
            self.limited(&epoch, limited, NOT, passage)
        } else {
            let verdict = epoch.ask_local(&self.key, self.cost, since);
            self.conclude(epoch, verdict, passage)
        }
    }

    #[cold]
    fn start_again(&mut self, patience: &Patience, waker: &Waker) -> Answer {
        let stage = std::mem::replace(&mut self.stage, Stage::Done(None));
        let Stage::Again(epoch, Begun { since, arrival }) = stage else {
            panic!("polled after it was ready");
        };
        let passage = Passage {
            patience,
            waker,
            entered: &epoch.telemetry.begin(&self.key, self.cost),
            since,
        };
        self.join(&epoch, Some(arrival), passage)
    }

    /// The store is out: asks what stands in for it, or waits, if it would wait at all.
    #[cold]
    fn start_out(&mut self, epoch: Arc<Epoch>, error: StoreError, passage: Passage<'_>) -> Answer {
        let Some(stand_in) = epoch.stand_in_for(self.cost) else {
            if epoch.stand_in.is_none() && passage.patience.waits() {
                return self.join(&epoch, None, passage);
            }
            return self.failed(&epoch, error, NOT, passage);
        };
        self.home = Some(epoch);
        let verdict = match &stand_in.embedded {
            Some(store) => stand_in.ask_embedded(store, &self.key, self.cost, passage.since),
            None => Verdict::Unknown,
        };
        self.conclude(stand_in, verdict, passage)
    }

    /// Whether the request would be refused, as far as that is known without asking the store.
    fn look(&self, epoch: &Epoch, passage: Passage<'_>) -> Option<Limited> {
        let denials = epoch.denials.as_ref().filter(|_| !self.is_forgetful)?;
        let since = passage.since;
        let bound = passage.patience.bound(since, &epoch.policy);
        denials.look(&self.key, self.cost, bound, since)
    }

    #[inline(always)]
    fn conclude(&mut self, epoch: Arc<Epoch>, verdict: Verdict, passage: Passage<'_>) -> Answer {
        match verdict {
            Verdict::Departs(slot) => {
                if self.keeps_place {
                    let (since, arrival) = (passage.since, epoch.lines.arrive());
                    self.stage = Stage::Done(Some(Begun { since, arrival }));
                }
                self.ended(&epoch, Outcome::Granted, NOT, passage.entered);
                let key = self.key.clone();
                Answer::Granted(Permit::new(epoch, key, slot, NOT))
            }
            Verdict::Limited(limited) if !passage.patience.waits() => {
                self.limited(&epoch, limited, NOT, passage)
            }
            Verdict::Failed(error) if epoch.heard_of(&self.key, Some(&error)) => {
                self.start_out(epoch, *error, passage)
            }
            Verdict::Failed(error) => self.failed(&epoch, *error, NOT, passage),
            Verdict::Limited(_) | Verdict::Unknown => self.join(&epoch, None, passage),
        }
    }
}
