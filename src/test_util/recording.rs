//! A store that remembers its calls: [`RecordingStore`].

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::time::Instant;

use self::call::Answer;
use crate::key::Key;
use crate::policy::Policy;
use crate::store::{
    Listen, MemoryStore, Notice, Release, Reply, Reserve, Reserved, Store, StoreError, Word,
};

mod call;

pub use self::call::Call;
pub use crate::store::operation::Operation;

/// A store that remembers each call, and what was answered.
///
/// It passes all on to the store inside and changes nothing. For a limiter that is to ask as it would ask a
/// server, put a [`FailingStore`](super::FailingStore) inside: an embedded store is asked for each
/// request alone. Clones share what is remembered, which grows with each call until it is
/// [taken](Self::take_calls).
///
/// ```
/// use futures_util::future::join_all;
/// use tower_throttle::store::MemoryStore;
/// use tower_throttle::test_util::{FailingStore, Operation, RecordingStore};
/// use tower_throttle::{Limiter, Quota};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RecordingStore::new(FailingStore::new(MemoryStore::new()));
/// let limiter = Limiter::builder().store(store.clone()).quota(Quota::per_second(100)).build()?;
/// limiter.acquire("warm-up").await?;
/// store.take_calls();
///
/// // While the first asks for itself, all others gather for the next call.
/// join_all((0..50).map(|_| limiter.acquire("api.example.com"))).await;
/// let calls = store.take_calls();
/// let asked: Vec<_> = calls.iter().map(|call| (call.operation(), call.requests())).collect();
/// assert_eq!(asked, [(Operation::Reserve, 1), (Operation::Reserve, 49)]);
/// # Ok(())
/// # }
/// ```
pub struct RecordingStore<S = MemoryStore>(Arc<Inner<S>>);

struct Inner<S> {
    store: S,
    log: Arc<Mutex<Log>>,
}

#[derive(Debug, Default)]
struct Log {
    /// How many were taken.
    taken: usize,
    calls: Vec<Call>,
}

impl<S: Store> RecordingStore<S> {
    /// A store that has not been asked anything.
    #[must_use]
    pub fn new(store: S) -> Self {
        let log = Arc::default();
        Self(Arc::new(Inner { store, log }))
    }

    /// The calls so far, in the order in which they were made.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.0.log.lock().calls.clone()
    }

    /// The same, and forgets them. What a call that is under way is answered is not remembered, then.
    pub fn take_calls(&self) -> Vec<Call> {
        let mut log = self.0.log.lock();
        log.taken += log.calls.len();
        std::mem::take(&mut log.calls)
    }

    fn record<T: Send + Unpin + 'static>(
        &self,
        call: Call,
        ask: impl FnOnce(&S) -> Reply<T>,
        show: fn(&T) -> Answer,
    ) -> Reply<T> {
        let log = self.0.log.clone();
        let number = log.lock().push(call);
        let answered = move |answer: &Result<T, StoreError>| {
            let shown = answer.as_ref().map(show).map_err(StoreError::clone);
            log.lock().answer(number, shown);
        };
        let mut reply = ask(&self.0.store);
        // What is there at once stays so: a store that is local has to be.
        if let Some(answer) = reply.take_ready() {
            answered(&answer);
            return Reply::ready(answer);
        }
        Reply::pending(async move {
            let answer = reply.await;
            answered(&answer);
            answer
        })
    }
}

impl Log {
    fn push(&mut self, call: Call) -> usize {
        self.calls.push(call);
        self.taken + self.calls.len() - 1
    }

    fn answer(&mut self, number: usize, answer: Result<Answer, StoreError>) {
        let place = number.checked_sub(self.taken);
        if let Some(call) = place.and_then(|place| self.calls.get_mut(place)) {
            call.answer(answer);
        }
    }
}

fn show_reserved(reserved: &Reserved) -> Answer {
    Answer::Reserved(reserved.clone())
}

fn show_notice(notice: &Notice) -> Answer {
    Answer::Notice(*notice)
}

fn show_done(_: &()) -> Answer {
    Answer::Done
}

impl<S: Store> Store for RecordingStore<S> {
    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        let call = Call::asking(Operation::Reserve, reserve);
        self.record(call, |store| store.reserve(reserve), show_reserved)
    }

    fn release(&self, release: &Release<'_>) -> Reply<()> {
        let call = Call::releasing(release);
        self.record(call, |store| store.release(release), show_done)
    }

    fn peek(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        let call = Call::asking(Operation::Peek, reserve);
        self.record(call, |store| store.peek(reserve), show_reserved)
    }

    fn heed(&self, key: &Key, policy: &Policy, word: Word) -> Reply<Notice> {
        let call = Call::new(Operation::Heed, key, Some(policy.id())).saying(word);
        self.record(call, |store| store.heed(key, policy, word), show_notice)
    }

    fn listen(&self, listener: Weak<dyn Listen>) {
        self.0.store.listen(listener);
    }

    fn is_listening(&self) -> bool {
        self.0.store.is_listening()
    }

    fn told_until(&self) -> Option<Instant> {
        self.0.store.told_until()
    }

    fn check(&self, key: &Key) -> Reply<()> {
        let call = Call::new(Operation::Check, key, None);
        self.record(call, |store| store.check(key), show_done)
    }

    fn part(&self, key: &Key) -> u64 {
        self.0.store.part(key)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Reply<()> {
        let call = Call::new(Operation::Reset, key, Some(policy.id()));
        self.record(call, |store| store.reset(key, policy), show_done)
    }

    fn is_local(&self) -> bool {
        self.0.store.is_local()
    }
}

impl<S> Clone for RecordingStore<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Store + Default> Default for RecordingStore<S> {
    fn default() -> Self {
        Self::new(S::default())
    }
}

impl<S: fmt::Debug> fmt::Debug for RecordingStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingStore")
            .field("store", &self.0.store)
            .field("calls", &self.0.log.lock().calls.len())
            .finish_non_exhaustive()
    }
}
