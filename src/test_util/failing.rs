//! A store that fails when it is told to: [`FailingStore`].

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use self::fault::{Kind, Plan};
use crate::key::Key;
use crate::policy::Policy;
use crate::store::{
    Listen, Listeners, MemoryStore, Notice, Release, Reply, Reserve, Reserved, Store, StoreError,
    Word,
};

mod fault;

pub use self::fault::Fault;

/// A store that is far away, and fails when a test says so.
///
/// It passes each call on to the store inside, most often a [`MemoryStore`], and stands for a server:
/// it is never [local](Store::is_local), whatever is inside. So requests that come while a call is under way
/// share the next one, there is a [denial cache], and [`Outage`] and [`Recovery`] have their say. Clones share all.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::store::MemoryStore;
/// use tower_throttle::test_util::{FailingStore, Fault};
/// use tower_throttle::{Limiter, Quota};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = FailingStore::new(MemoryStore::new()).latency(Duration::from_millis(2));
/// let limiter = Limiter::builder().store(store.clone()).quota(Quota::per_second(10)).build()?;
///
/// store.fail_with(Fault::Unreachable);
/// let waiting = tokio::spawn(limiter.acquire("api.example.com")); // for 5 s by default, while it is out
/// tokio::time::sleep(Duration::from_secs(3)).await;
/// assert!(limiter.health().is_out());
///
/// store.recover();
/// assert!(waiting.await?.is_ok());
/// assert!(!limiter.health().is_out());
/// # Ok(())
/// # }
/// ```
///
/// What a call does, it does when it is made; its answer comes by the [latency](Self::latency) later. While the
/// store is [unreachable](Fault::Unreachable), nothing is heard of pauses that others say either; once it is
/// back, listeners are told of the gap, as of a subscription that was lost.
///
/// [denial cache]: crate::LimiterBuilder::denial_cache
/// [`Outage`]: crate::Outage
/// [`Recovery`]: crate::Recovery
pub struct FailingStore<S = MemoryStore>(Arc<Inner<S>>);

struct Inner<S> {
    store: S,
    wire: Arc<Wire>,
    /// All that it may have recorded, by policy and key.
    seen: Mutex<HashMap<(String, Key), Policy>>,
}

/// Between the store and those who use it.
#[derive(Debug, Default)]
struct Wire {
    plan: Mutex<Plan>,
    listeners: Listeners,
}

impl<S: Store> FailingStore<S> {
    /// A store that is well.
    #[must_use]
    pub fn new(store: S) -> Self {
        let wire = Arc::new(Wire::default());
        let ear: Weak<Wire> = Arc::downgrade(&wire);
        store.listen(ear);
        Self(Arc::new(Inner {
            store,
            wire,
            seen: Mutex::default(),
        }))
    }

    /// Sets how long each answer takes, and the lack of one, by tokio's clock. Default: one turn of the
    /// runtime, so that a call is under way for those who come meanwhile, and no time passes.
    #[must_use]
    pub fn latency(self, latency: Duration) -> Self {
        self.set_latency(latency);
        self
    }

    /// The same, from now on.
    pub fn set_latency(&self, latency: Duration) {
        self.0.wire.plan.lock().latency = latency;
    }

    /// Lets all calls fail in this way, until it is told to [recover](Self::recover) or to fail otherwise.
    pub fn fail_with(&self, fault: Fault) {
        self.0.wire.go_wrong(Some((fault, None)));
    }

    /// Lets so many calls fail in this way, and none after them. Those that ask for a [sign of life]
    /// count, too, also if they are given one.
    ///
    /// [sign of life]: Store::check
    pub fn fail_next(&self, calls: u64, fault: Fault) {
        self.0.wire.go_wrong(Some((fault, Some(calls))));
    }

    /// Lets no more calls fail.
    pub fn recover(&self) {
        self.0.wire.go_wrong(None);
    }

    /// Forgets all that was recorded through this store: as a server does that is restarted without its data, and
    /// without telling anybody. Those who hold slots keep them, unless [`Recovery::Strict`] finds out.
    ///
    /// # Errors
    ///
    /// Fails if the store inside does.
    ///
    /// [`Recovery::Strict`]: crate::Recovery::Strict
    pub async fn lose_state(&self) -> Result<(), StoreError> {
        let seen = std::mem::take(&mut *self.0.seen.lock());
        for ((_, key), policy) in seen {
            self.0.store.reset(&key, &policy).await?;
        }
        Ok(())
    }

    /// How many calls were made, but for those that ask for a [sign of life](Store::check).
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.0.wire.plan.lock().calls
    }

    /// How many calls asked for a [sign of life](Store::check).
    #[must_use]
    pub fn checks(&self) -> u64 {
        self.0.wire.plan.lock().checks
    }

    /// How many calls of either kind were made to fail.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.0.wire.plan.lock().failures
    }

    fn reply<T: Send + Unpin + 'static>(
        &self,
        kind: Kind,
        call: impl FnOnce(&S) -> Reply<T>,
    ) -> Reply<T> {
        let fate = self.0.wire.plan.lock().next(kind);
        if fate.is_mended {
            self.0.wire.listeners.gap();
        }
        let reply = fate.takes_place.then(|| call(&self.0.store));
        Reply::pending(async move {
            let answer = match reply {
                Some(reply) => Some(reply.await),
                None => None,
            };
            if fate.latency.is_zero() {
                yield_now().await;
            } else {
                sleep(fate.latency).await;
            }
            match (fate.error, answer) {
                (None, Some(answer)) => answer,
                (Some(error), _) => Err(error),
                (None, None) => Err(StoreError::new("the store was not asked")),
            }
        })
    }

    fn see(&self, key: &Key, policy: &Policy) {
        let place = (policy.id().to_owned(), key.clone());
        let mut seen = self.0.seen.lock();
        seen.entry(place).or_insert_with(|| policy.clone());
    }
}

impl<S: Store> Store for FailingStore<S> {
    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        self.see(reserve.key, reserve.policy);
        self.reply(Kind::Change, |store| store.reserve(reserve))
    }

    fn release(&self, release: &Release<'_>) -> Reply<()> {
        self.reply(Kind::Change, |store| store.release(release))
    }

    fn peek(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        self.reply(Kind::Look, |store| store.peek(reserve))
    }

    fn heed(&self, key: &Key, policy: &Policy, word: Word) -> Reply<Notice> {
        self.see(key, policy);
        self.reply(Kind::Change, |store| store.heed(key, policy, word))
    }

    fn listen(&self, listener: Weak<dyn Listen>) {
        self.0.wire.listeners.add(listener);
    }

    fn is_listening(&self) -> bool {
        !self.0.wire.is_cut_off() && self.0.store.is_listening()
    }

    fn told_until(&self) -> Option<Instant> {
        let told = || self.0.store.told_until();
        (!self.0.wire.is_cut_off()).then(told).flatten()
    }

    fn check(&self, key: &Key) -> Reply<()> {
        self.reply(Kind::Check, |store| store.check(key))
    }

    fn part(&self, key: &Key) -> u64 {
        self.0.store.part(key)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Reply<()> {
        self.reply(Kind::Change, |store| store.reset(key, policy))
    }
}

impl Wire {
    fn is_cut_off(&self) -> bool {
        self.plan.lock().is_cut_off()
    }

    fn go_wrong(&self, fault: Option<(Fault, Option<u64>)>) {
        let mut plan = self.plan.lock();
        let was_cut_off = plan.is_cut_off();
        plan.go_wrong(fault);
        let has_changed = plan.is_cut_off() != was_cut_off;
        drop(plan);
        if has_changed {
            // From now on all have to look for themselves, or have to once, for what they have missed.
            self.listeners.gap();
        }
    }
}

impl Listen for Wire {
    fn hear(&self, policy: &str, key: &Key, notice: Notice) {
        if !self.is_cut_off() {
            self.listeners.hear(policy, key, notice);
        }
    }

    fn gap(&self) {
        self.listeners.gap();
    }

    fn is_waiting(&self) -> bool {
        self.listeners.wait()
    }
}

impl<S> Clone for FailingStore<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Store + Default> Default for FailingStore<S> {
    fn default() -> Self {
        Self::new(S::default())
    }
}

impl<S: fmt::Debug> fmt::Debug for FailingStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailingStore")
            .field("store", &self.0.store)
            .field("plan", &self.0.wire.plan.lock())
            .finish_non_exhaustive()
    }
}
