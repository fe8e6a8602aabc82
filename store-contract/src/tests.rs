//! The suite accepts a store that is written with [`Call::apply`] alone, and rejects broken ones.

use std::collections::HashMap;
use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use tower_throttle::LimiterBuilder;

use super::*;
use tower_throttle::store::contents::{Command, Demand, Mode, Operation, Take};
use tower_throttle::store::{Answered, Call, Nudge, Reply, StoreError, Taken};
use tower_throttle::test_util::ManualClock;

/// Each clause, and the faults that break it, one clause a line.
const FAULTS: &str = "
concurrent calls are atomic: reads and writes apart, locks one instance, applies twice, writes all keys
departures count for their window: forgets keys early
any text is a key: ignores case, cuts long keys
nothing departs during a pause: ignores policies, ignores pauses, resumes nothing
changed quotas keep departures: tells changed quotas apart
unrecognized values are reported and kept: overwrites unrecognized values
unrecognized values are reported and kept: reports unrecognized values as outages
a long log stays small: pads values
a peek records nothing: records peeks
batches answer each operation: reverses batches
a cost beyond the quotas is refused alone: fails whole batches, rolls back batches
policies of other names do not count: joins names and keys, joins names and keys by a colon
policies of other names do not count: joins the policies of a batch
calls that were overtaken change nothing: accepts old calls
lost answers are taken back: keeps lost grants
no quota is exceeded: takes all grants back, forgets costs, forgets guards, forgets buffers
no quota is exceeded: forgets horizons, takes gcra for spacing, takes other windows for the clocks
requests depart in the order of their arrival: forgets demands
joint quotas all hold: forgets a quota
refunds make units available: forgets refunds
debts take units: forgets debts
places are held until they are released or their lease ends: forgets places, keeps places
no more departs than is allowed: ignores allowances
a late answer pauses nothing: ignores evidence
a reset forgets one key: resets nothing, resets all keys
a state that is too old is in quarantine: forgets known states
the clock neither jumps nor goes back: jumps to another clock, goes back, changes its number
the clock neither jumps nor goes back: answers before it is asked
a reset nudges: nudges nobody
a returned place nudges the next process: drops nudges for one process";

type Place = (Option<String>, String);

type Subscriber = Box<dyn Fn(&Nudge) -> bool + Send + Sync>;

/// Values in a map, as a third party would keep them.
#[derive(Debug, Clone)]
struct Values {
    inner: Arc<Inner>,
    /// The lock of this instance.
    lock: Arc<tokio::sync::Mutex<()>>,
}

struct Inner {
    fault: &'static str,
    clock: ManualClock,
    values: Mutex<HashMap<Place, (Vec<u8>, u64)>>,
    subscribers: Mutex<Vec<Subscriber>>,
    calls: AtomicU64,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.fault)
    }
}

impl Values {
    fn new(fault: &'static str) -> Self {
        let inner = Inner {
            fault,
            clock: ManualClock::running(),
            values: Mutex::default(),
            subscribers: Mutex::default(),
            calls: AtomicU64::default(),
        };
        let (inner, lock) = (Arc::new(inner), Arc::default());
        Self { inner, lock }
    }

    fn answered(&self, sent: Instant, answers: Vec<Result<Taken, StoreError>>) -> Answered {
        let count = self.inner.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let now = self.inner.micros();
        Answered {
            now: match self.inner.fault {
                "jumps to another clock" if answers.is_empty() => now + 3_000_000 * (count / 50),
                "goes back" => now + 5_000 * (count % 2),
                _ => now,
            },
            server: match self.inner.fault {
                "changes its number" => count,
                _ => 7,
            },
            sent: match self.inner.fault {
                "answers before it is asked" => sent - Duration::from_secs(1),
                _ => sent,
            },
            received: Instant::now(),
            answers,
        }
    }
}

impl Inner {
    fn micros(&self) -> u64 {
        let now = self.clock.now().duration_since(SystemTime::UNIX_EPOCH);
        now.unwrap().as_micros() as u64
    }

    fn place(&self, key: &Key, policy: &Policy) -> Place {
        let key = match self.fault {
            "ignores case" => key.as_str().to_lowercase(),
            "cuts long keys" => key.as_str().chars().take(250).collect(),
            _ => key.as_str().to_owned(),
        };
        let name = match self.fault {
            "ignores policies" => None,
            "joins names and keys" => {
                return (None, format!("{}{key}", policy.name().unwrap_or_default()));
            }
            "joins names and keys by a colon" => {
                return (None, format!("{}:{key}", policy.name().unwrap_or_default()));
            }
            "tells changed quotas apart" => {
                Some(format!("{:?} {:?}", policy.name(), policy.quotas()))
            }
            _ => policy.name().map(str::to_owned),
        };
        (name, key)
    }

    /// The value for the key of a call.
    fn read(&self, call: &Call) -> Option<Vec<u8>> {
        self.value(&self.place(call.key(), call.policy()))
    }

    fn value(&self, place: &Place) -> Option<Vec<u8>> {
        let values = self.values.lock();
        let (value, expires) = values.get(place)?;
        let lasts = self.micros() < *expires;
        lasts.then(|| value.clone())
    }

    fn write(&self, place: Place, mut value: Vec<u8>, mut expires: u64) {
        match self.fault {
            "forgets keys early" => expires = expires.min(self.micros() + 200_000),
            // Only a value of a long log may end with padding.
            "pads values" if value.len() > 900 => value.resize(13_000, 0),
            _ => {}
        }
        self.values.lock().insert(place, (value, expires));
    }

    /// Applies one operation, on the value as it was read before.
    fn apply(&self, call: &Call, value: Option<Vec<u8>>) -> Result<Taken, StoreError> {
        let Some((policy, operation)) = self.distort(call) else {
            return Ok(Taken::default());
        };
        let call = Call::new(call.key(), &policy, &operation);
        let now = self.micros();
        let applied = match call.apply(value.as_deref(), now) {
            Err(error) if error.is_unrecognized_value() => match self.fault {
                "overwrites unrecognized values" => call.apply(None, now)?,
                "reports unrecognized values as outages" => {
                    return Err(StoreError::new("an outage"));
                }
                _ => return Err(error),
            },
            applied => applied?,
        };
        let (mut answer, written) = applied;
        let place = self.place(call.key(), call.policy());
        if let Some((value, expires)) = written {
            self.write(place, value, expires);
        }
        if self.fault == "forgets guards" || self.fault == "forgets buffers" {
            // The process is granted its time, but it is not recorded.
            let more = match self.fault {
                "forgets guards" => bench::GUARD,
                _ => call.policy().buffer().as_micros() as u64 + 30_000,
            };
            answer.grants.iter_mut().for_each(|it| it.recorded += more);
        }
        Ok(answer)
    }

    /// The call as a broken store applies it.
    fn distort(&self, call: &Call) -> Option<(Policy, Operation)> {
        let mut operation = call.operation().clone();
        match &mut operation {
            Operation::Take(take) => self.distort_take(take),
            Operation::Control(command) => match (self.fault, command) {
                ("ignores pauses", Command::Pause { .. })
                | ("ignores allowances", Command::Allow { .. })
                | ("resumes nothing", Command::Resume)
                | ("resets nothing", Command::Reset) => return None,
                (
                    "ignores evidence",
                    Command::Pause { evidence, .. } | Command::Allow { evidence, .. },
                ) => *evidence = u64::MAX,
                ("resets all keys", Command::Reset) => self.values.lock().clear(),
                _ => {}
            },
        }
        Some((self.distort_policy(call.policy()), operation))
    }

    fn distort_policy(&self, policy: &Policy) -> Policy {
        let mut quotas: Vec<_> = policy.quotas().iter().map(ToString::to_string).collect();
        let mut buffer = policy.buffer();
        match self.fault {
            "forgets a quota" => quotas.truncate(1),
            "forgets buffers" => buffer = Duration::ZERO,
            "takes gcra for spacing" => quotas[0] = quotas[0].replace("spacing", "gcra burst=10"),
            "takes other windows for the clocks" => {
                let text = quotas[0].replace(" start=first-request", "");
                quotas[0] = text.replace("fixed-window", "fixed-window start=first-request");
            }
            _ => return policy.clone(),
        }
        let name = policy.name().map(str::to_owned);
        bench::policy_with(&quotas.join(" + "), |builder| {
            let builder = builder.buffer(buffer);
            name.into_iter().fold(builder, LimiterBuilder::name)
        })
    }

    fn distort_take(&self, take: &mut Take) {
        let settlements = &mut take.corrections.settlements;
        match self.fault {
            "records peeks" if take.mode == Mode::Peek => take.mode = Mode::Try,
            "forgets demands" if take.mode == Mode::Wait => take.mode = Mode::Try,
            "accepts old calls" => take.number = 0,
            "keeps lost grants" => take.corrections.lost = 0,
            "takes all grants back" if take.number > 0 => take.corrections.lost = 1,
            "forgets costs" if take.demand.cost != 1.into() => {
                let requests = take.demand.requests() as usize;
                take.demand = Demand::new((0..requests).map(|_| (1, 1)));
            }
            "forgets guards" => take.guard = 0,
            "forgets horizons" => take.horizon = take.horizon.min(100_000),
            "forgets known states" => take.strict.iter_mut().for_each(|it| it.known = None),
            "forgets refunds" => settlements.retain(|it| it.difference > 0),
            "forgets debts" => settlements.retain(|it| it.difference < 0),
            "forgets places" => take.holding.units = 0,
            "keeps places" => take.holding.units += 1,
            _ => {}
        }
    }

    fn nudge(&self, call: &Call, answer: &Taken) {
        if self.fault != "nudges nobody" {
            let mut nudges = call.nudges(answer);
            nudges.retain(|it| {
                self.fault != "drops nudges for one process" || it.process().is_none()
            });
            for nudge in nudges {
                self.subscribers.lock().retain(|it| it(&nudge));
            }
        }
    }
}

impl Store for Values {
    fn call(&self, mut calls: Vec<Call>) -> Reply {
        let (sent, this) = (Instant::now(), &self.inner);
        if this.fault == "joins the policies of a batch" {
            for nth in 1..calls.len() {
                if let Some(first) = calls[..nth].iter().find(|it| it.key() == calls[nth].key()) {
                    let (policy, call) = (first.policy().clone(), &calls[nth]);
                    calls[nth] = Call::new(call.key(), &policy, call.operation());
                }
            }
        }
        if this.fault == "writes all keys" {
            let (this, mut before) = (self.clone(), this.values.lock().clone());
            return Box::pin(async move {
                tokio::task::yield_now().await;
                // Only the values of these calls are read again.
                let places: Vec<_> = calls
                    .iter()
                    .map(|it| this.inner.place(it.key(), it.policy()))
                    .collect();
                let mut values = this.inner.values.lock();
                before.retain(|place, _| !places.contains(place));
                values.retain(|place, _| places.contains(place));
                values.extend(before);
                drop(values);
                let answers = calls.iter();
                let answers = answers.map(|it| this.inner.apply(it, this.inner.read(it)));
                let answers = answers.collect();
                Ok(this.answered(sent, answers))
            });
        }
        if ["reads and writes apart", "locks one instance"].contains(&this.fault) {
            let this = self.clone();
            return Box::pin(async move {
                let locked = this.lock.lock().await;
                if this.inner.fault == "reads and writes apart" {
                    drop(locked);
                }
                let values: Vec<_> = calls.iter().map(|it| this.inner.read(it)).collect();
                tokio::task::yield_now().await;
                let answers = calls.iter().zip(values);
                let answers = answers.map(|(call, value)| this.inner.apply(call, value));
                let answers = answers.collect();
                Ok(this.answered(sent, answers))
            });
        }
        let rolls_back = this.fault == "rolls back batches";
        let before = rolls_back.then(|| this.values.lock().clone());
        let answers = calls.iter().map(|call| {
            if this.fault == "applies twice" {
                let _ = this.apply(call, this.read(call));
            }
            let answer = this.apply(call, this.read(call));
            if let Ok(answer) = &answer {
                this.nudge(call, answer);
            }
            answer
        });
        let mut answers: Vec<_> = answers.collect();
        if let Some(before) = before.filter(|_| answers.iter().any(Result::is_err)) {
            *this.values.lock() = before;
        }
        match this.fault {
            "reverses batches" => answers.reverse(),
            "fails whole batches" if answers.iter().any(Result::is_err) => {
                let error = answers.into_iter().find_map(Result::err);
                return Box::pin(ready(Err(error.unwrap())));
            }
            _ => {}
        }
        Box::pin(ready(Ok(self.answered(sent, answers))))
    }

    fn ping(&self, _key: &Key) -> Reply {
        Box::pin(ready(Ok(self.answered(Instant::now(), Vec::new()))))
    }

    fn subscribe(&self, _process: u64, subscriber: Subscriber) {
        self.inner.subscribers.lock().push(subscriber);
    }
}

impl StoreHooks for Values {
    fn read(&self, key: &Key, policy: &Policy) -> Option<Vec<u8>> {
        self.inner.value(&self.inner.place(key, policy))
    }

    fn write(&self, key: &Key, policy: &Policy, value: &[u8]) -> bool {
        let place = self.inner.place(key, policy);
        self.inner
            .values
            .lock()
            .insert(place, (value.to_vec(), u64::MAX));
        true
    }

    fn nudges(&self) -> bool {
        true
    }
}

/// The failure of the suite with such a store; `None` if it accepts the store.
fn verdict(fault: &'static str) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let run = runtime.block_on(async {
        let store = Values::new(fault);
        let make = async || Values {
            lock: Arc::default(),
            ..store.clone()
        };
        let suite = store_contract_with(make, store.clone());
        AssertUnwindSafe(suite).catch_unwind().await
    });
    let panic = run.err()?;
    Some(support::errors::panic_text(panic))
}

#[test]
fn a_store_of_applied_calls_keeps_the_contract() {
    assert_eq!(verdict("nothing"), None);
}

#[test]
fn broken_stores_are_rejected_by_the_clause_that_they_break() {
    let mut missed = Vec::new();
    for row in FAULTS.trim().lines() {
        let (clause, faults) = row.split_once(": ").unwrap();
        for fault in faults.split(", ") {
            let verdict = verdict(fault).unwrap_or_default();
            if !verdict.starts_with(&format!("the store breaks its contract: {clause}: ")) {
                missed.push(format!("{fault}, {clause}: {verdict}"));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
