//! The settings of a limiter: [`LimiterBuilder`].

use std::sync::Arc;
use std::time::Duration;

use super::{Kind, Limiter, Live};
use crate::dispatcher::{Dispatcher, Handle, Settings};
use crate::error::BuildError;
use crate::policy::{Lost, Outage, PolicyParts, Recovery};
use crate::priority::Priority;
use crate::quota::Quota;
use crate::rules::Rules;
use crate::store::{MemoryStore, Store};

/// Builds a [`Limiter`].
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until it is built"]
pub struct LimiterBuilder {
    store: Option<Arc<dyn Store>>,
    parts: PolicyParts,
    settings: Settings,
    rules: Option<Rules>,
}

impl LimiterBuilder {
    /// Adds a quota. A request departs when all quotas allow it.
    pub fn quota(mut self, quota: Quota) -> Self {
        self.parts.quotas.push(quota);
        self
    }

    /// Sets rules, each with a policy of its own, instead of one policy for all requests.
    ///
    /// Quotas, bounds and names are part of the rules: only the [store](Self::store), the [denial cache](Self::denial_cache)
    /// and the key labels of metrics are set here. The adapters find the rule of each request. A method that takes only a key,
    /// such as [`acquire`](Limiter::acquire), uses the last rule, or the one that [`rule`](Limiter::rule) names; if the last
    /// rule is exempt, everything departs at once, uncounted. [`pause`](Limiter::pause), [`resume`](Limiter::resume) and
    /// [`reset`](Limiter::reset) apply to the key under all rules.
    ///
    /// ```
    /// use tower_throttle::rules::{Rule, Rules};
    /// use tower_throttle::{Limiter, Quota};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder()
    ///     .rules(Rules::new([
    ///         Rule::named("search").path("/search").quota(Quota::per_minute(30)),
    ///         Rule::named("others").quota(Quota::per_second(10)),
    ///     ])?)
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = Some(rules);
        self
    }

    /// Sets the store. Default: a [`MemoryStore`] of its own.
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Names the policy. Limiters whose policies have the same name share the departures of a key; those without a name
    /// share them, too. Default: none. 1 to 128 visible ASCII characters without braces.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.parts.name = Some(name.into());
        self
    }

    /// Keeps requests this much further apart, for the jitter between departure and arrival.
    ///
    /// The limit holds exactly where requests depart. It holds where they arrive, too, if the buffer is as long as one
    /// request may take longer than another: connecting, queueing in the client, the network. The rate falls to
    /// N / (W + guard + buffer). Default: none; at most 1 h.
    pub fn buffer(mut self, buffer: Duration) -> Self {
        self.parts.buffer = buffer;
        self
    }

    /// Sets how much later than granted a request may depart; a request that is later than that waits for another grant.
    ///
    /// A departure counts from the end of its guard: a long guard costs rate, a short one costs grants in a busy process. The
    /// limiter lengthens the guard by itself for slow round trips and after a grant that was missed. Default: 2% of the
    /// shortest window (of the interval for [`Spacing`](crate::Algorithm::Spacing) and
    /// [`LeakyBucket`](crate::Algorithm::LeakyBucket), of the time that the burst takes for [`Gcra`](crate::Algorithm::Gcra)),
    /// from 5 ms to 12 ms. At least 100 µs, at most 1 h.
    pub fn guard(mut self, guard: Duration) -> Self {
        self.parts.guard = Some(guard);
        self
    }

    /// Fails requests that would have to wait longer, most of them at once. Default: any wait.
    ///
    /// A request also fails once it has waited so long for a store that is out. But until the store has first answered for the
    /// waiting requests of a key, they wait beyond the bound, and depart or fail by its answer.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.parts.max_wait = Some(max_wait);
        self
    }

    /// Sets the most requests that wait for one key in this process; more fail at once. Default: any number.
    ///
    /// Requests that wait for the answer of a remote store count, even if the quota has room. So set it above the number of
    /// requests that arrive within a round trip. Requests to which the store has granted a departure do not count.
    /// At least 1.
    pub fn max_waiting(mut self, max_waiting: usize) -> Self {
        self.parts.max_waiting = Some(max_waiting);
        self
    }

    /// Sets what happens to requests while the store is out. Default: [`Outage::Deny`]: they wait for the store, for at
    /// most 5 s if they have no bound.
    pub fn outage(mut self, outage: Outage) -> Self {
        self.parts.outage = outage;
        self
    }

    /// Sets what is done when the store has lost the state of a key. Default: [`Recovery::Immediate`]: the key starts
    /// from zero at once. An embedded store loses nothing while the process lives.
    pub fn recovery(mut self, recovery: Recovery) -> Self {
        self.parts.recovery = recovery;
        self
    }

    /// Sets the treatment of requests in progress whose place is lost, as the store did not renew its lease; see
    /// [`Quota::concurrent`]. Default: [`Lost::Continue`]: they go on.
    pub fn lost(mut self, lost: Lost) -> Self {
        self.parts.lost = lost;
        self
    }

    /// Guarantees requests of this priority a part of the capacity, from 0 to 1, while they wait. Default: 0.
    ///
    /// Without a reserve, requests of higher levels starve those of lower ones if they take the whole quota. The reserves of
    /// all levels add up to at most 1.
    ///
    /// ```
    /// use tower_throttle::{Limiter, Priority, Quota};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder()
    ///     .quota(Quota::per_second(50))
    ///     .reserve(Priority::Low, 0.1)
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reserve(mut self, priority: Priority, part: f64) -> Self {
        self.parts.reserves[priority as usize] = part;
        self
    }

    /// Sets how many keys are remembered that are over their limit, so that the store is not called for them.
    ///
    /// A store that refuses a request names the time at which it could depart. Until then,
    /// [`try_acquire`](Limiter::try_acquire) for the same key fails without a call if it has the same priority and share, and
    /// costs as much or more; [`acquire`](Limiter::acquire) does if its bound is earlier. An entry holds for at most 1 s, as
    /// other processes may give departures back or end a pause. Departures that this limiter gives back,
    /// [`resume`](Limiter::resume), [`reset`](Limiter::reset) and other quotas count at once. Keys of more than 256 bytes are
    /// not remembered.
    ///
    /// Default: 10,000 keys for each policy, of about 150 bytes; the least used are forgotten first. 0 remembers none.
    /// An embedded store is always asked.
    pub fn denial_cache(mut self, keys: usize) -> Self {
        self.settings.denials = Some(keys);
        self
    }

    /// Sets whether the metrics of requests have the key as a label, too.
    ///
    /// This makes a time series for each key: with users or addresses as keys, most monitoring systems fail long before
    /// the limiter does. It also costs a look-up for each request, in the recorder of the thread that polls it. For a few
    /// hosts, it shows which one is slow. See [`telemetry`](crate::telemetry#metrics). Default: `false`.
    #[cfg(feature = "metrics")]
    pub fn key_labels(mut self, key_labels: bool) -> Self {
        self.settings.key_labels = key_labels;
        self
    }

    /// The limiter.
    ///
    /// # Errors
    ///
    /// Fails, with the field and its value, if there is no quota or more than eight, or more than five that count several
    /// units, more than four units, one quota twice, two concurrency limits, or different default costs in one unit; if a
    /// limit, a window or `max_waiting` is zero, or a window is longer than ten years or not in whole microseconds; if a lease,
    /// unit, default cost, parameter of an algorithm, name, buffer, guard, reserve or share of an outage is out of bounds; or
    /// if there are [rules](Self::rules) and a field is set that belongs to them.
    pub fn build(self) -> Result<Limiter, BuildError> {
        let store = self.store.unwrap_or_else(|| Arc::new(MemoryStore::new()));
        let kind = match self.rules {
            Some(rules) => {
                if let Some(field) = self.parts.first_set() {
                    return Err(BuildError::set_by_rules(field));
                }
                let dispatcher = Dispatcher::new(store, "rules".into(), self.settings);
                Kind::Ruled(Arc::new(Live::new(rules, dispatcher)))
            }
            None => {
                let policy = self.parts.build();
                let policy = policy.map_err(|errors| errors[0].clone())?;
                let label = policy.label.clone();
                let dispatcher = Dispatcher::new(store, label, self.settings);
                Kind::Plain(Handle::new(&dispatcher, policy.into()))
            }
        };
        Ok(Limiter { kind })
    }
}
