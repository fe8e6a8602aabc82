//! Where slots are reserved, atomically: [`Store`], [`MemoryStore`] and [`RedisStore`].

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use crate::algorithm::micros;
use crate::clock::Reading;
use crate::key::Key;
use crate::policy::Policy;

mod error;
mod listen;
mod memory;
#[cfg(feature = "redis")]
mod redis;

#[cfg(feature = "redis")]
pub use self::redis::RedisStore;
pub use self::{error::StoreError, listen::Listen, memory::MemoryStore};
pub use crate::algorithm::ledger::{Ask, Evidence, Life, Notice, Outcome, Receipt, Slot, Word};

use crate::algorithm::ledger::Ledger;
pub(crate) use crate::algorithm::ledger::{DRIFT, Outcomes, Terms};

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

    /// Which part of the store holds this key: one part may be out while others answer. Default: there is
    /// only one.
    fn part(&self, _key: &Key) -> u64 {
        0
    }

    /// Forgets all that is recorded for a key under a policy, what was said of it included. Who holds slots keeps them; one that is
    /// released later may be handed out again, as if it had been used.
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

/// What a limiter asks of [`Store::reserve`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Reserve<'a> {
    /// Whose quotas.
    pub key: &'a Key,
    /// Which quotas; all hold jointly.
    pub policy: &'a Policy,
    /// By how much a request may depart later than its slot; see [`record`](Self::record).
    pub guard: Duration,
    /// The least guard with which a slot that was given back is of use: a shorter one would be over
    /// before the answer is here.
    pub least_guard: Duration,
    /// How long the answer is likely to take: a request whose slot comes sooner departs only then.
    pub round_trip: Duration,
    /// No slot may lie before this time on the store's clock.
    pub not_before: u64,
    /// The requests, in their order: slots are handed out in the same. There may be none, where only the
    /// evidence is of interest.
    pub asks: &'a [Ask],
    /// What the store has to know of this key, where recovery is [strict](crate::Recovery::Strict). If it does
    /// not, another [`Life`] begins, in which nothing departs for the evidence's span, and the answer
    /// [says so](Reserved::is_lost). The same holds, but for that, where the store has not known of everything for
    /// so long.
    pub evidence: Option<&'a Evidence>,
}

impl<'a> Reserve<'a> {
    /// One request of cost 1 that waits as long as it takes; set the fields that differ.
    #[must_use]
    pub fn new(key: &'a Key, policy: &'a Policy) -> Self {
        const ONE: &[Ask] = &[Ask {
            count: 1,
            cost: 1,
            max_wait: u64::MAX,
        }];
        Self {
            key,
            policy,
            guard: policy.guard(),
            least_guard: policy.guard(),
            round_trip: Duration::ZERO,
            not_before: 0,
            asks: ONE,
            evidence: None,
        }
    }

    /// What a store records a departure at `at` as, if it reserves it at `now`: later than the slot,
    /// or than the arrival of the answer, by the guard, the [`buffer`](Policy::buffer) and a 50,000th
    /// of the wait, for the drift of clocks. The next departure counts from there. It may be recorded later than that: the limiter
    /// then lets the request depart as much later.
    #[must_use]
    pub fn record(&self, at: u64, now: u64) -> u64 {
        self.terms().record(at, now)
    }

    /// # Errors
    ///
    /// Fails if a cost is 0 or more than the quotas hold: such a request can never depart.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let costs = 1..=self.policy.largest_cost();
        if self.asks.iter().all(|ask| costs.contains(&ask.cost)) {
            Ok(())
        } else {
            let error = StoreError::new("a cost is 0 or more than the quotas hold");
            Err(error.no_outage())
        }
    }

    pub(crate) fn terms(&self) -> Terms {
        let buffer = self.policy.buffer();
        Terms {
            margin: micros(self.guard + buffer),
            least_margin: micros(self.least_guard + buffer),
            not_before: self.not_before,
            round_trip: micros(self.round_trip),
            ..self.policy.terms()
        }
    }
}

/// What a limiter gives back by [`Store::release`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Release<'a> {
    /// Whose quotas.
    pub key: &'a Key,
    /// The policy under which the slots were reserved.
    pub policy: &'a Policy,
    /// The slots.
    pub slots: &'a [Slot],
    /// [When the life began](Life::start) under which they were handed out, or 0: under another, the store has
    /// forgotten them, and is not to take them back.
    pub life: u64,
}

impl<'a> Release<'a> {
    /// These slots of this key.
    #[must_use]
    pub fn new(key: &'a Key, policy: &'a Policy, slots: &'a [Slot]) -> Self {
        Self {
            key,
            policy,
            slots,
            life: 0,
        }
    }
}

/// What a store answers to [`Store::reserve`].
#[derive(Debug, Clone)]
pub struct Reserved {
    pub(crate) now: u64,
    pub(crate) clock: Reading,
    pub(crate) life: Option<Life>,
    pub(crate) is_lost: bool,
    pub(crate) outcomes: Outcomes,
    pub(crate) remaining: u32,
    pub(crate) reset: Duration,
}

impl Reserved {
    /// An answer given at `now`, in microseconds on the store's clock: one outcome per request,
    /// how many more requests of cost 1 may depart now, and when all may that the quotas allow.
    #[must_use]
    pub fn new(
        now: u64,
        outcomes: impl IntoIterator<Item = Outcome>,
        remaining: u32,
        reset: Duration,
    ) -> Self {
        Self {
            now,
            clock: Reading::default(),
            life: None,
            is_lost: false,
            outcomes: outcomes.into_iter().collect(),
            remaining,
            reset,
        }
    }

    /// Sets by which clock `now` is, for a store that has several: of which of its servers, and on which
    /// connection to it, as that may lead to another server the next time; `u64::MAX` for one that does not tell when
    /// it does. What is known of one clock says nothing of another. Default: 0 and 0, the only one.
    #[must_use]
    pub fn by_clock(mut self, server: u64, connection: u64) -> Self {
        self.clock = Reading { server, connection };
        self
    }

    /// Sets under which life slots are handed out, where there is [evidence](Reserve::evidence), and whether it began
    /// because the store lacks what there is evidence of. Default: none.
    #[must_use]
    pub fn under(mut self, life: Life, is_lost: bool) -> Self {
        (self.life, self.is_lost) = (Some(life), is_lost);
        self
    }

    /// Under which life slots were handed out, where there was evidence.
    #[must_use]
    pub fn life(&self) -> Option<Life> {
        self.life
    }

    /// Whether the store has found that it lacks what there is evidence of.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// The store's time, in microseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// One outcome per request, in the order of the asks.
    #[must_use]
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// How many more requests of cost 1 may depart now.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// How long until as many may depart as the quotas allow at most.
    #[must_use]
    pub fn reset(&self) -> Duration {
        self.reset
    }
}

impl Ledger {
    /// What a store that keeps this ledger answers at `now`.
    pub(crate) fn answer(
        &mut self,
        now: u64,
        terms: &Terms,
        asks: &[Ask],
        is_lost: bool,
    ) -> Reserved {
        let outcomes = self.reserve(now, terms, asks);
        Reserved {
            now,
            clock: Reading::default(),
            life: self.life(),
            is_lost,
            outcomes,
            remaining: self.remaining(now, terms),
            reset: Duration::from_micros(self.expires().saturating_sub(now)),
        }
    }
}

/// A store's answer: there already, or on its way.
pub struct Reply<T>(Stage<T>);

enum Stage<T> {
    Ready(Option<Result<T, StoreError>>),
    Pending(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>),
}

impl<T> Reply<T> {
    /// An answer that is there already.
    pub fn ready(answer: Result<T, StoreError>) -> Self {
        Self(Stage::Ready(Some(answer)))
    }

    /// The answer, if it is there already.
    pub(crate) fn take_ready(&mut self) -> Option<Result<T, StoreError>> {
        match &mut self.0 {
            Stage::Ready(answer) => answer.take(),
            Stage::Pending(_) => None,
        }
    }

    /// An answer that this future will give.
    pub fn pending(answer: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        Self(Stage::Pending(Box::pin(answer)))
    }
}

impl<T: Unpin> Future for Reply<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Stage::Ready(answer) => Poll::Ready(answer.take().expect("polled after it was ready")),
            Stage::Pending(answer) => answer.as_mut().poll(cx),
        }
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}
