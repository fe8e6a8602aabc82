//! How a key stands, as its state in Redis tells: [`KeyState`].

use std::time::Duration;

use super::names::Names;
use super::transaction;
use crate::policy::Policy;
use crate::quota::Quota;
use crate::store::{Ask, Life, StoreError, Terms};

/// How a key stands under a policy at one moment, as its state in Redis tells.
///
/// The state knows nothing of the buffer and the guard of those that wrote it. Where they are not the defaults,
/// and were not given with the policy, delays are off by that much.
#[derive(Debug, Clone)]
pub struct KeyState {
    now: u64,
    spent: Vec<Spent>,
    remaining: u32,
    delay: Duration,
    reset: Duration,
    pause: Option<Duration>,
    allowance: Option<Allowance>,
    rest: Option<Duration>,
    free_slots: usize,
    life: Option<Life>,
    is_exact: bool,
    values: Vec<StoredValue>,
}

/// How much of a quota is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    quota: Quota,
    used: u32,
    capacity: u32,
    is_exact: bool,
    departed: Option<u32>,
}

/// What an upstream has said that remains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    remaining: u32,
    lasts: Duration,
}

/// A Redis key that is a part of a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredValue {
    name: String,
    bytes: usize,
    expiry: Option<Duration>,
}

impl KeyState {
    /// Reads what stands under these names. Of some, the places of which are given, it is not all.
    pub(super) fn read(
        policy: &Policy,
        names: &Names,
        now: u64,
        values: &[Option<Vec<u8>>],
        in_part: &[usize],
    ) -> Result<Self, StoreError> {
        const LOOK: Ask = Ask {
            count: 1,
            cost: 1,
            max_wait: 0,
        };
        let rules = policy.rules();
        let mut ledger = transaction::read(names.all(), rules, values, now)?;
        let terms = Terms {
            peek: true,
            ..policy.terms()
        };
        let answer = ledger.answer(now, &terms, &[LOOK], false);
        let wait = match answer.outcomes()[..] {
            [crate::store::Outcome::Refused { wait }] => wait,
            _ => 0,
        };
        let left = |until: u64| Duration::from_micros(until.saturating_sub(now));
        let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let spent = policy.quotas_by_id().into_iter();
        let spent = spent.zip(ledger.spent(rules, now));
        let spent = spent.enumerate().map(|(place, (quota, spent))| Spent {
            quota,
            used: number(spent.used),
            capacity: number(spent.capacity),
            is_exact: spent.is_exact,
            // The first place is of what stands aside.
            departed: match spent.departed {
                Some(departed) if !in_part.contains(&(place + 1)) => Some(number(departed)),
                _ => None,
            },
        });
        let spent: Vec<_> = spent.collect();
        let is_known = |&place: &usize| {
            let Spent { used, capacity, .. } = spent[place - 1];
            used == 0 || used == capacity
        };
        Ok(Self {
            now,
            remaining: answer.remaining(),
            delay: Duration::from_micros(wait),
            reset: answer.reset(),
            pause: ledger.paused_until().map(left),
            allowance: ledger.allowed_until().map(|(remaining, until)| Allowance {
                remaining,
                lasts: left(until),
            }),
            rest: ledger.rests_until().map(left),
            free_slots: ledger.free_slots(),
            life: ledger.life(),
            is_exact: in_part.iter().all(is_known),
            values: Vec::new(),
            spent,
        })
    }

    /// The same, with how long each is kept, in milliseconds.
    pub(super) fn with_values(
        self,
        names: &Names,
        values: &[Option<Vec<u8>>],
        lifetimes: &[i64],
    ) -> Self {
        let values = names.all().iter().zip(values).zip(lifetimes);
        let values = values.filter_map(|((name, value), &lifetime)| {
            Some(StoredValue {
                name: name.clone(),
                bytes: value.as_ref()?.len(),
                expiry: u64::try_from(lifetime).ok().map(Duration::from_millis),
            })
        });
        Self {
            values: values.collect(),
            ..self
        }
    }

    /// When that was by the server's clock, in microseconds since 1970, as [`Slot::at`](crate::store::Slot::at) is.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Each quota of the policy, and how much of it is spent.
    #[must_use]
    pub fn spent(&self) -> &[Spent] {
        &self.spent
    }

    /// How many requests of cost 1 could depart now; none during a pause.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// How long a request made now would have to wait: how far the line of those that have slots reaches, of all
    /// processes.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// How long until as many requests may depart at once as the quotas allow.
    #[must_use]
    pub fn reset(&self) -> Duration {
        self.reset
    }

    /// For how long nothing departs as somebody has [said so](crate::Limiter::pause), or the upstream has.
    #[must_use]
    pub fn pause(&self) -> Option<Duration> {
        self.pause
    }

    /// What remains, and until when, as the upstream [has said](crate::store::Word::Allow).
    #[must_use]
    pub fn allowance(&self) -> Option<Allowance> {
        self.allowance
    }

    /// For how long nothing departs as the state may have been lost, where recovery is [strict](crate::Recovery::Strict).
    #[must_use]
    pub fn rest(&self) -> Option<Duration> {
        self.rest
    }

    /// How many slots were given back for others to take.
    #[must_use]
    pub fn free_slots(&self) -> usize {
        self.free_slots
    }

    /// Which life it is, where recovery is [strict](crate::Recovery::Strict).
    #[must_use]
    pub fn life(&self) -> Option<Life> {
        self.life
    }

    /// Whether all that counts was read. If not, as at a [glance](crate::store::RedisStore::glance) at a long log,
    /// no more is spent than said; and no less remains. Delays are exact in any case.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// The Redis keys that hold it, from a close [look](crate::store::RedisStore::look) only.
    #[must_use]
    pub fn values(&self) -> &[StoredValue] {
        &self.values
    }
}

impl Spent {
    /// The quota.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// How much is spent: requests of cost 1 that count at present, those that have a slot ahead included, up to
    /// the [capacity](Self::capacity).
    #[must_use]
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Whether the quota tells how much that is, if [all was read](KeyState::is_exact). Of GCRA, the leaky bucket and
    /// spacing, it is no more than said: what they hold drains all the time, and the buffer of who wrote it counts in.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// How much of that is recorded as departed by now; the rest has slots to come. Sliding logs and buckets tell, if
    /// [all was read](KeyState::is_exact).
    #[must_use]
    pub fn departed(&self) -> Option<u32> {
        self.departed
    }

    /// How much could be: the limit, or the burst, or the capacity of the bucket; 1 of spacing.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }
}

impl Allowance {
    /// The most that may be handed out, counted as cost.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// For how long that holds.
    #[must_use]
    pub fn lasts(&self) -> Duration {
        self.lasts
    }
}

impl StoredValue {
    /// Its name in Redis.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many bytes its value has. Redis needs about 70 more for it, and those of the name.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How long Redis keeps it; `None` for ever, which is not the throttle's doing.
    #[must_use]
    pub fn expiry(&self) -> Option<Duration> {
        self.expiry
    }
}
