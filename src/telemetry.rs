// What users have to know of this stands in docs/telemetry.md.

use std::sync::Arc;
use std::time::Duration;

use crate::guard::Guard;
use crate::key::Key;
use crate::pauses::News;
use crate::policy::Policy;
use crate::store::{Notice, Store, StoreError};

#[cfg(feature = "metrics")]
mod calls;
#[cfg(any(feature = "metrics", feature = "tracing"))]
mod forfeits;
#[cfg(feature = "metrics")]
mod meters;
mod outcome;
#[cfg(feature = "metrics")]
mod table;
#[cfg(all(test, feature = "metrics", feature = "redis", feature = "tracing"))]
mod tests;
#[cfg(feature = "tracing")]
mod trace;

// Where a feature is off, a twin of no size takes the place of what it is for.
#[cfg(not(any(feature = "metrics", feature = "tracing")))]
#[path = "telemetry/no_forfeits.rs"]
mod forfeits;
#[cfg(not(feature = "metrics"))]
#[path = "telemetry/no_meters.rs"]
mod meters;
#[cfg(not(feature = "tracing"))]
#[path = "telemetry/no_trace.rs"]
mod trace;

#[cfg(feature = "metrics")]
pub(crate) use self::calls::Watch;
use self::meters::Meters;
#[cfg(not(feature = "metrics"))]
pub(crate) use self::meters::Watch;
use self::trace::Tracer;
pub(crate) use self::{
    forfeits::Forfeits,
    meters::Settings,
    outcome::Outcome,
    trace::{Entered, Saying, Span},
};

/// What the policies of a limiter by rules are called together, where something concerns all.
const RULES: &str = "rules";

/// What is told of one epoch: spans and events, and what is counted.
///
/// Nobody holds a lock who calls this, but where something is only counted.
#[derive(Debug, Clone)]
pub(crate) struct Telemetry {
    tracer: Tracer,
    meters: Meters,
}

/// How a part of the store stands now, and did not before.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(
    not(feature = "tracing"),
    expect(dead_code, reason = "only events tell of it in detail")
)]
pub(crate) enum Turn<'a> {
    /// It is out, and no other was.
    Out { error: &'a StoreError, part: u64 },
    /// It is out, as others were already.
    AnotherOut { error: &'a StoreError, part: u64 },
    /// It had given a sign of life, and fails all the same.
    OutAgain { error: &'a StoreError, part: u64 },
    /// It gives a sign of life.
    Alive { part: u64 },
    /// It answers calls again, and was out until its last sign of life.
    AnotherBack { part: u64, lasted: Duration },
    /// The same, and no other is out.
    Back { part: u64, lasted: Duration },
}

impl Telemetry {
    pub(crate) fn new(settings: Settings, policy: &Policy) -> Self {
        let this = Self {
            tracer: Tracer::new(policy),
            meters: Meters::new(settings, policy),
        };
        this.meters.guard(policy.guard());
        this
    }

    /// Of what is not limited: nothing.
    pub(crate) fn none() -> Self {
        Self {
            tracer: Tracer::none(),
            meters: Meters::none(),
        }
    }

    /// The same, of what stands in for the store.
    pub(crate) fn stand_in(&self) -> Self {
        Self {
            tracer: self.tracer.stand_in(),
            meters: self.meters.stand_in(),
        }
    }

    /// The same, of other quotas.
    pub(crate) fn successor(&self, settings: Settings, policy: &Policy) -> Self {
        Self {
            tracer: self.tracer.successor(policy),
            ..Self::new(settings, policy)
        }
    }

    /// The same store, whose calls are counted.
    pub(crate) fn watch(&self, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        self.meters.watch(store)
    }

    /// A request has begun, and is being polled.
    #[inline]
    pub(crate) fn begin(&self, key: &Key, cost: u32) -> Entered {
        self.tracer.begin(key, cost)
    }

    /// That is what has become of a request.
    #[inline]
    pub(crate) fn ended(
        &self,
        entered: &Entered,
        (key, cost): (&Key, u32),
        outcome: Outcome,
        waited: Duration,
    ) {
        self.tracer.ended(entered, outcome, waited);
        self.meters.ended(key, cost, outcome, waited);
    }

    /// The store need not be asked whether a request is refused.
    #[inline]
    pub(crate) fn remembered(&self) {
        self.meters.remembered();
    }

    /// A request waits in line.
    #[inline]
    pub(crate) fn joined(&self, key: &Key) {
        self.meters.waiting(key, 1.0);
    }

    /// It does no more.
    #[inline]
    pub(crate) fn left(&self, key: &Key) {
        self.meters.waiting(key, -1.0);
    }

    /// There is one line more.
    #[inline]
    pub(crate) fn opened(&self) {
        self.meters.lines(1.0);
    }

    /// There is one line less.
    #[inline]
    pub(crate) fn closed(&self) {
        self.meters.lines(-1.0);
    }

    /// Permits came too late, or none did.
    #[inline]
    pub(crate) fn forfeited(&self, key: &Key, forfeits: Forfeits, guard: &Guard) {
        let guard = guard.current();
        self.tracer.forfeited(key, forfeits, guard);
        self.meters.forfeited(forfeits, guard);
    }

    /// The store has answered, by which the guard is known.
    pub(crate) fn measured(&self, guard: &Guard) {
        self.meters.guard(guard.current());
    }

    /// Whatever is news of this key is said by this limiter, as long as that is kept.
    pub(crate) fn saying(&self, key: &Key) -> Saying {
        self.tracer.saying(key)
    }

    pub(crate) fn paused(&self, key: &Key, news: News, notice: &Notice) {
        if news != News::None {
            self.tracer.paused(key, news, notice);
            self.meters.paused(news);
        }
    }

    /// The store has lost the state of a key, which rests for so long.
    pub(crate) fn lost(&self, key: &Key, rests: Duration) {
        self.tracer.lost(key, rests);
        self.meters.quarantined(1);
    }

    /// Others say that the state of a key is no more.
    pub(crate) fn voided(&self, key: &Key) {
        self.tracer.voided(key);
    }

    /// The store's clock is so many seconds ahead of what it was, or, below 0, behind that.
    pub(crate) fn clock_set(&self, ahead: f64) {
        self.tracer.clock_set(ahead);
    }

    /// So many keys rest as the store's clock was set.
    pub(crate) fn quarantined(&self, keys: usize) {
        self.meters.quarantined(keys);
    }
}

/// What is told of a store, under whatever policies of a limiter.
#[derive(Debug)]
pub(crate) struct OfStore {
    tracer: trace::OfStore,
    meters: meters::OfStore,
}

impl OfStore {
    /// By the policy that its limiter has at first.
    pub(crate) fn of(policy: &Policy) -> Self {
        Self {
            tracer: trace::OfStore::of(policy),
            meters: meters::OfStore::new(label(policy)),
        }
    }

    /// Of a limiter that goes by rules.
    pub(crate) fn of_rules() -> Self {
        Self {
            tracer: trace::OfStore::of_rules(),
            meters: meters::OfStore::new(Arc::from(RULES)),
        }
    }

    /// Nothing, of a store that is never out.
    pub(crate) fn none() -> Self {
        Self {
            tracer: trace::OfStore::none(),
            meters: meters::OfStore::none(),
        }
    }

    pub(crate) fn turned(&self, turn: Turn<'_>) {
        self.meters.turned(&turn);
        self.tracer.turned(turn);
    }
}

/// What is told of connections to Redis, whoever uses them.
#[cfg(feature = "redis")]
#[derive(Debug)]
pub(crate) struct OfRedis {
    meters: meters::OfRedis,
}

#[cfg(feature = "redis")]
impl OfRedis {
    pub(crate) fn new() -> Self {
        let meters = meters::OfRedis::new();
        Self { meters }
    }

    /// A script is called for so many keys.
    pub(crate) fn called_for(&self, keys: usize) {
        self.meters.called_for(keys);
    }

    /// A connection has taken the place of another.
    pub(crate) fn reconnected(&self) {
        trace::reconnected();
        self.meters.reconnected();
    }
}

/// A server did not know the scripts.
#[cfg(feature = "redis")]
pub(crate) fn scripts_loaded() {
    trace::scripts_loaded();
}

/// Whether what is said on this channel is heard from now on.
#[cfg(feature = "redis")]
pub(crate) fn listens(channel: &str, is_heard: bool) {
    trace::listens(channel, is_heard);
}

/// What a policy is called: by its name, or else by its quotas.
fn label(policy: &Policy) -> Arc<str> {
    policy
        .name()
        .map_or_else(|| policy.shared_id().clone(), Arc::from)
}

#[cfg(test)]
impl Default for Telemetry {
    /// Of some policy.
    fn default() -> Self {
        let parts = crate::policy::PolicyParts {
            quotas: [crate::Quota::per_second(1)].into_iter().collect(),
            ..Default::default()
        };
        Self::new(Settings::default(), &parts.build().unwrap())
    }
}
