//! Where slots are reserved, atomically: [`Store`], [`MemoryStore`] and [`RedisStore`].

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use tokio::time::Instant;

use crate::key::Key;
use crate::policy::Policy;
use crate::telemetry::Watch;

mod calls;
mod error;
mod listen;
mod memory;
#[cfg(any(feature = "metrics", feature = "test-util"))]
#[cfg_attr(
    not(feature = "test-util"),
    expect(unreachable_pub, reason = "it is public by that feature alone")
)]
pub(crate) mod operation;
#[cfg(feature = "redis")]
pub(crate) mod redis;

#[cfg(feature = "redis")]
pub use self::redis::{Allowance, KeyState, Keys, RedisStore, Spent, StoredKey, StoredValue};
pub use self::{
    calls::{Release, Reserve, Reserved},
    error::StoreError,
    listen::Listen,
    memory::MemoryStore,
};
pub use crate::algorithm::ledger::{Ask, Evidence, Life, Notice, Outcome, Receipt, Slot, Word};

#[cfg(feature = "redis")]
pub(crate) use crate::algorithm::ledger::Outcomes;
pub(crate) use crate::algorithm::ledger::{DRIFT, Terms};

#[cfg(feature = "test-util")]
pub(crate) use self::listen::Listeners;

/// Hands out departure times, each in one atomic step that also records it.
///
/// All replicas that are to share a quota use one store. The limiter asks it once per group of
/// waiting requests and never polls. [`store_contract`](crate::test_util::store_contract), behind
/// the feature `test-util`, tests an implementation.
///
/// An implementation answers by its own clock, never a client's, and if it has
/// [several](Reserved::by_clock), always by the same for a key. It forgets a
/// key once nothing recorded for it has any influence. A call may start when its reply is first
/// polled; the limiter polls a release before the reserve that follows it. State belongs to the pair
/// of [`Policy::id`] and key.
pub trait Store: Any + fmt::Debug + Send + Sync {
    /// Reserves a slot for each request asked for, or records nothing for it.
    ///
    /// # Errors
    ///
    /// The reply fails if the store cannot be reached, takes too long or finds state that it
    /// cannot read; see [`StoreError::is_outcome_unknown`] for what is consumed then.
    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved>;

    /// Takes back slots that this store has handed out and that will not be used, each at most once.
    ///
    /// # Errors
    ///
    /// As for [`reserve`](Self::reserve). The limiter does not repeat a release that failed: its
    /// slots stay reserved until their time has passed.
    fn release(&self, release: &Release<'_>) -> Reply<()>;

    /// Answers as [`reserve`](Self::reserve) would, but records nothing: every request is refused, with
    /// the wait that it would have now, which may be none.
    ///
    /// # Errors
    ///
    /// As for [`reserve`](Self::reserve).
    fn peek(&self, reserve: &Reserve<'_>) -> Reply<Reserved>;

    /// Heeds what is said of a key: from now on, no slot is handed out that the word does not allow, under
    /// this policy. Answers what those who hold slots have to know, and tells all listeners but need not
    /// tell the caller.
    ///
    /// # Errors
    ///
    /// As for [`reserve`](Self::reserve).
    fn heed(&self, key: &Key, policy: &Policy, word: Word) -> Reply<Notice>;

    /// Tells this listener from now on of words that concern slots which are held, whoever said them, for
    /// as long as it lives. Default: nobody is told.
    fn listen(&self, _listener: Weak<dyn Listen>) {}

    /// Whether listeners are told of all such words at present. Where they are not, the limiter looks
    /// twice a second for each key of which somebody holds a slot far ahead. Default: `false`.
    fn is_listening(&self) -> bool {
        false
    }

    /// Until when listeners have been told of all such words for certain, if they are at present. Where recovery is
    /// [strict](crate::Recovery::Strict), nobody uses what is held who knows of nothing of the last 3 s. After
    /// a gap, this is no earlier than its end: what was said meanwhile, the limiter asks for. Default: until now.
    fn told_until(&self) -> Option<Instant> {
        self.is_listening().then(Instant::now)
    }

    /// Asks whether the part of the store that holds this key answers at all, and records nothing. The limiter
    /// asks while the store is out, before it asks for slots again. Default: it does.
    ///
    /// # Errors
    ///
    /// The reply fails if the store cannot be reached or takes too long.
    fn check(&self, _key: &Key) -> Reply<()> {
        Reply::ready(Ok(()))
    }

    /// Which part of the store holds this key, such as which server: one part may be out while others answer, and is
    /// asked for signs of life by a task of its own, so that there are to be few. Default: 0, as there is only one.
    ///
    /// A key may be in another part the next time. Then who waits for it looks again: at once if the key by which the
    /// part is asked for signs of life has moved, as where all do, and within a second if not. The number of a part
    /// that keys move from and to is not 0, and is not given to another. Errors say [which part](StoreError::of_part)
    /// was asked, lest one that comes late is taken for one of the part that holds the key by then.
    fn part(&self, _key: &Key) -> u64 {
        0
    }

    /// Forgets all that is recorded for a key under a policy, what was said of it included. Who holds slots keeps
    /// them; one that is released later may be handed out again, as if it had been used.
    ///
    /// # Errors
    ///
    /// The reply fails if the store cannot be reached or takes too long.
    fn reset(&self, key: &Key, policy: &Policy) -> Reply<()>;

    /// Whether all replies are [ready](Reply::ready) at once, so that there is no call to share
    /// among waiting requests. Default: `false`.
    fn is_local(&self) -> bool {
        false
    }
}

impl dyn Store {
    /// This store, if it is an embedded one, which can be asked without a detour.
    pub(crate) fn as_embedded(&self) -> Option<&MemoryStore> {
        (self as &dyn Any).downcast_ref()
    }
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        (**self).reserve(reserve)
    }

    fn release(&self, release: &Release<'_>) -> Reply<()> {
        (**self).release(release)
    }

    fn peek(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        (**self).peek(reserve)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Reply<()> {
        (**self).reset(key, policy)
    }

    fn heed(&self, key: &Key, policy: &Policy, word: Word) -> Reply<Notice> {
        (**self).heed(key, policy, word)
    }

    fn listen(&self, listener: Weak<dyn Listen>) {
        (**self).listen(listener);
    }

    fn is_listening(&self) -> bool {
        (**self).is_listening()
    }

    fn told_until(&self) -> Option<Instant> {
        (**self).told_until()
    }

    fn check(&self, key: &Key) -> Reply<()> {
        (**self).check(key)
    }

    fn part(&self, key: &Key) -> u64 {
        (**self).part(key)
    }

    fn is_local(&self) -> bool {
        (**self).is_local()
    }
}

/// A store's answer: there already, or on its way.
pub struct Reply<T> {
    stage: Stage<T>,
    watch: Watch,
}

enum Stage<T> {
    Ready(Option<Result<T, StoreError>>),
    Pending(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>),
}

impl<T> Reply<T> {
    /// An answer that is there already.
    pub fn ready(answer: Result<T, StoreError>) -> Self {
        Self::at(Stage::Ready(Some(answer)))
    }

    /// The answer, if it is there already.
    pub(crate) fn take_ready(&mut self) -> Option<Result<T, StoreError>> {
        let answer = match &mut self.stage {
            Stage::Ready(answer) => answer.take()?,
            Stage::Pending(_) => return None,
        };
        self.watch.answered(&answer);
        Some(answer)
    }

    /// An answer that this future will give.
    pub fn pending(answer: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        Self::at(Stage::Pending(Box::pin(answer)))
    }

    /// The same, of interest to others.
    #[cfg(feature = "metrics")]
    pub(crate) fn watched(self, watch: Watch) -> Self {
        Self { watch, ..self }
    }

    fn at(stage: Stage<T>) -> Self {
        let watch = Watch::default();
        Self { stage, watch }
    }
}

impl<T: Unpin> Future for Reply<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match &mut self.stage {
            Stage::Ready(answer) => answer.take().expect("polled after it was ready"),
            Stage::Pending(answer) => ready!(answer.as_mut().poll(cx)),
        };
        self.watch.answered(&answer);
        Poll::Ready(answer)
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}
