//! What calls to a store are counted as: [`Watched`], a store that is watched, and [`Watch`], an answer that is
//! waited for.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};

use metrics::{Counter, Histogram, Recorder, SharedString};
use tokio::time::Instant;

use super::table::{CALLS, LATENCY, RELEASED, REQUESTS_PER_CALL};
use crate::key::Key;
use crate::listed::listed;
use crate::policy::Policy;
use crate::store::operation::Operation;
use crate::store::{Listen, Notice, Release, Reply, Reserve, Reserved, Store, StoreError, Word};

listed! {
    #[derive(Debug, Clone, Copy)]
    enum Answer {
        Ok,
        Out,
        Error,
        /// Nobody waited for it any more.
        Dropped,
    }
}

/// What is counted of the calls under one policy.
#[derive(Debug)]
pub(super) struct Calls {
    /// By operation, then by answer.
    answers: [[Counter; Answer::ALL.len()]; Operation::ALL.len()],
    latency: [Histogram; Operation::ALL.len()],
    requests_per_call: Histogram,
    released: Counter,
}

/// A store whose calls are counted.
struct Watched {
    store: Arc<dyn Store>,
    calls: Arc<Calls>,
}

/// Waits for the answer to a call, if that is of interest.
#[derive(Debug, Default)]
pub(crate) struct Watch(Option<Call>);

#[derive(Debug)]
struct Call {
    calls: Arc<Calls>,
    operation: Operation,
    begun: Instant,
}

impl Answer {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Out => "out",
            Self::Error => "error",
            Self::Dropped => "dropped",
        }
    }
}

impl Calls {
    pub(super) fn new(policy: &SharedString, recorder: &dyn Recorder) -> Self {
        let text = SharedString::const_str;
        let of_policy = std::slice::from_ref(policy);
        Self {
            answers: Operation::ALL.map(|operation| {
                Answer::ALL.map(|answer| {
                    let values = [policy.clone(), text(operation.name()), text(answer.name())];
                    CALLS.counter(recorder, &values)
                })
            }),
            latency: Operation::ALL.map(|operation| {
                LATENCY.histogram(recorder, &[policy.clone(), text(operation.name())])
            }),
            requests_per_call: REQUESTS_PER_CALL.histogram(recorder, of_policy),
            released: RELEASED.counter(recorder, of_policy),
        }
    }

    /// The same store, whose calls are counted here, and nowhere else.
    pub(super) fn watch(this: &Arc<Self>, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        let watched = (&**store as &dyn Any).downcast_ref::<Watched>();
        let store = watched.map_or(store, |it| &it.store).clone();
        let calls = this.clone();
        Arc::new(Watched { store, calls })
    }
}

impl Watched {
    fn watch(&self, operation: Operation) -> Watch {
        Watch(Some(Call {
            calls: self.calls.clone(),
            operation,
            begun: Instant::now(),
        }))
    }
}

impl Watch {
    /// There is an answer.
    pub(crate) fn answered<T>(&mut self, answer: &Result<T, StoreError>) {
        if let Some(call) = self.0.take() {
            call.end(match answer {
                Ok(_) => Answer::Ok,
                Err(error) if error.is_outage() => Answer::Out,
                Err(_) => Answer::Error,
            });
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call.end(Answer::Dropped);
        }
    }
}

impl Call {
    fn end(self, answer: Answer) {
        let operation = self.operation.place();
        self.calls.answers[operation][answer.place()].increment(1);
        self.calls.latency[operation].record(self.begun.elapsed());
    }
}

impl fmt::Debug for Watched {
    /// As if it were not watched.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl Store for Watched {
    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        let requests: u64 = reserve.asks.iter().map(|ask| u64::from(ask.count)).sum();
        // A test asks for nothing.
        if requests > 0 {
            self.calls.requests_per_call.record(requests as f64);
        }
        let watch = self.watch(Operation::Reserve);
        self.store.reserve(reserve).watched(watch)
    }

    fn release(&self, release: &Release<'_>) -> Reply<()> {
        self.calls.released.increment(release.slots.len() as u64);
        let watch = self.watch(Operation::Release);
        self.store.release(release).watched(watch)
    }

    fn peek(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        let watch = self.watch(Operation::Peek);
        self.store.peek(reserve).watched(watch)
    }

    fn heed(&self, key: &Key, policy: &Policy, word: Word) -> Reply<Notice> {
        let watch = self.watch(Operation::Heed);
        self.store.heed(key, policy, word).watched(watch)
    }

    fn listen(&self, listener: Weak<dyn Listen>) {
        self.store.listen(listener);
    }

    fn is_listening(&self) -> bool {
        self.store.is_listening()
    }

    fn told_until(&self) -> Option<Instant> {
        self.store.told_until()
    }

    fn check(&self, key: &Key) -> Reply<()> {
        let watch = self.watch(Operation::Check);
        self.store.check(key).watched(watch)
    }

    fn part(&self, key: &Key) -> u64 {
        self.store.part(key)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Reply<()> {
        let watch = self.watch(Operation::Reset);
        self.store.reset(key, policy).watched(watch)
    }

    fn is_local(&self) -> bool {
        self.store.is_local()
    }
}
