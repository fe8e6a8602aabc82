//! What a limiter is made of: [`LimiterBuilder`].

use std::sync::Arc;
use std::time::Duration;

use super::{Kind, Limiter};
use crate::denial;
use crate::epoch::Epochs;
use crate::error::BuildError;
use crate::outage::Outage;
use crate::policy::PolicyParts;
use crate::quota::Quota;
use crate::recovery::Recovery;
use crate::rules::{Live, Rules};
use crate::store::{MemoryStore, Store};
use crate::telemetry::Settings;

/// Builds a [`Limiter`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct LimiterBuilder {
    store: Option<Arc<dyn Store>>,
    parts: PolicyParts,
    denials: usize,
    telemetry: Settings,
    rules: Option<Rules>,
}

impl LimiterBuilder {
    pub(super) fn new() -> Self {
        Self {
            store: None,
            parts: PolicyParts::default(),
            denials: denial::USUAL,
            telemetry: Settings::default(),
            rules: None,
        }
    }

    /// Adds a quota; all hold jointly, so a request departs once every one allows it.
    pub fn quota(mut self, quota: Quota) -> Self {
        self.parts.quotas.push(quota);
        self
    }

    /// Goes by these rules, each with a policy of its own, in place of one for all requests.
    ///
    /// Quotas, bounds and names stand in the rules then: only the [store](Self::store) and the
    /// [denial cache](Self::denial_cache) are set here. The adapters ask which rule each request falls under. Whoever has
    /// no request but a key alone, as for [`acquire`](Limiter::acquire), goes by the last rule, or by
    /// [any](Limiter::rule) that it names; if the last rule is exempt, everything departs at once, uncounted.
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

    /// Sets where slots are reserved. Default: a [`MemoryStore`] of its own.
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Names the policy, so that limiters of the same quotas on one store can be kept apart.
    /// Default: none. 1 to 128 visible ASCII characters without braces.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.parts.name = Some(name.into());
        self
    }

    /// Keeps requests this much further apart, for the jitter between departure and arrival.
    ///
    /// The limit holds exactly where requests depart. For it to hold where they arrive too, this has
    /// to be as long as one may be under way longer than another: connecting, queueing in the client,
    /// the network. The rate sinks to N / (W + guard + buffer). Default: none; at most 1 h.
    pub fn buffer(mut self, buffer: Duration) -> Self {
        self.parts.buffer = buffer;
        self
    }

    /// Sets how late after its slot a request may still depart; later, it gets another slot.
    ///
    /// The next slot counts from the end of the guard, so a long one costs rate, and a short one
    /// slots that are forfeited when the process is busy. The limiter lengthens the guard by itself
    /// for slow round trips and after a forfeit. Default: 2% of the shortest window (for
    /// [`Spacing`](crate::Algorithm::Spacing) of the gap, for [`Gcra`](crate::Algorithm::Gcra) of what
    /// the burst is worth), but from 5 ms to 12 ms; at most 1 h.
    pub fn guard(mut self, guard: Duration) -> Self {
        self.parts.guard = Some(guard);
        self
    }

    /// Refuses requests at once that would have to wait longer. Default: any wait.
    ///
    /// A call to the store that is under way is not cut short: where it does not answer, a request waits for its
    /// timeout, a second in Redis unless set, if that is longer.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.parts.max_wait = Some(max_wait);
        self
    }

    /// Refuses requests at once when so many wait already, per key in this process. Default: any
    /// number may.
    pub fn max_waiting(mut self, max_waiting: usize) -> Self {
        self.parts.max_waiting = Some(max_waiting);
        self
    }

    /// Sets what becomes of requests while the store cannot answer. Default: [`Outage::Deny`], they wait for it,
    /// those without a bound for 5 s.
    pub fn outage(mut self, outage: Outage) -> Self {
        self.parts.outage = outage;
        self
    }

    /// Sets what becomes of a key whose state the store has lost. Default: [`Recovery::Immediate`], it starts
    /// anew at once. An embedded store loses nothing while the process lives.
    pub fn recovery(mut self, recovery: Recovery) -> Self {
        self.parts.recovery = recovery;
        self
    }

    /// Remembers of so many keys that they are over their limit, so that the store need not be asked.
    ///
    /// A store that refuses a request names the moment from which on there may be a slot. Until then,
    /// [`try_acquire`](Limiter::try_acquire) of the same key is refused without a call, if it costs as much
    /// or more; so is [`acquire`](Limiter::acquire) of the same cost whose bound on waiting ends before
    /// that moment, or for half a second where the store [does not tell](Store::is_listening) that a
    /// [pause](Limiter::pause) is over. That is at most what the store would refuse, but for two things that
    /// it may learn sooner: slots that other processes or other limiters of the same policy give back, or gave back for
    /// requests of another cost; and room in a window of its own for which a guard was too long that has
    /// become shorter since. What this limiter gives back, [`reset`](Limiter::reset) and other quotas count
    /// at once. Keys of more than 256 bytes are not remembered.
    ///
    /// Default: 10,000 keys for each set of quotas in use, some 150 bytes each; the least asked for
    /// make way. 0 remembers none. An embedded store needs none, and is always asked.
    pub fn denial_cache(mut self, keys: usize) -> Self {
        self.denials = keys;
        self
    }

    /// Sets whether the metrics of requests have the key for a label, too.
    ///
    /// That is a series for each key: of users or addresses there may be any number, and most systems of
    /// monitoring fail long before the limiter does. It costs a look-up for each request besides, of the
    /// recorder of the thread on which it is polled. For a few hosts, it shows which one is slow. See
    /// [`telemetry`](crate::telemetry#metrics). Default: `false`.
    #[cfg(feature = "metrics")]
    pub fn key_labels(mut self, key_labels: bool) -> Self {
        self.telemetry.key_labels = key_labels;
        self
    }

    /// The limiter.
    ///
    /// # Errors
    ///
    /// Fails, with the name of what is wrong and its value, if there is no quota or more than eight,
    /// one twice, a limit or a window of zero, a window longer than ten years or not in whole
    /// microseconds, or a name, buffer, guard or share out of bounds; or if there are [rules](Self::rules) and
    /// anything is set that they say.
    pub fn build(self) -> Result<Limiter, BuildError> {
        let store = self.store.unwrap_or_else(|| Arc::new(MemoryStore::new()));
        let (denials, telemetry) = (self.denials, self.telemetry);
        let kind = match self.rules {
            Some(rules) => {
                if let Some(error) = said_besides(&self.parts) {
                    return Err(error);
                }
                Kind::Ruled(Arc::new(Live::new(rules, store, denials, telemetry)))
            }
            None => Kind::Plain(Epochs::new(self.parts, store, denials, telemetry)?),
        };
        Ok(Limiter { kind })
    }
}

/// What was set that is for rules to say.
fn said_besides(parts: &PolicyParts) -> Option<BuildError> {
    let none = PolicyParts::default();
    let said = [
        ("quota", parts.quotas != none.quotas),
        ("name", parts.name != none.name),
        ("buffer", parts.buffer != none.buffer),
        ("guard", parts.guard != none.guard),
        ("max_wait", parts.max_wait != none.max_wait),
        ("max_waiting", parts.max_waiting != none.max_waiting),
        ("outage", parts.outage != none.outage),
        ("recovery", parts.recovery != none.recovery),
    ];
    let (field, _) = said.into_iter().find(|(_, is_said)| *is_said)?;
    let problem = "there are rules, each of which says it for itself";
    Some(BuildError::new(field, problem))
}
