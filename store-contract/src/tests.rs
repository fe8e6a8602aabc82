//! The suite accepts a store that is written with [`Call::apply`] alone, and rejects broken ones.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::time::SystemTime;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use tower_throttle::{Limiter, LimiterBuilder};

use super::*;
use tower_throttle::test_util::ManualClock;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    // Its values.
    ReadsAndWritesApart,
    ForgetsKeysEarly,
    IgnoresCase,
    CutsLongKeys,
    IgnoresPolicies,
    TellsChangedQuotasApart,
    OverwritesUnrecognizedValues,
    ReportsUnrecognizedValuesAsOutages,
    PadsValues,
    RecordsPeeks,
    // Its calls.
    AppliesTwice,
    ReversesBatches,
    FailsWholeBatches,
    AcceptsOldCalls,
    KeepsLostGrants,
    TakesAllGrantsBack,
    ForgetsDemands,
    ForgetsCosts,
    ForgetsGuards,
    ForgetsBuffers,
    ForgetsAQuota,
    ForgetsHorizons,
    TakesGcraForSpacing,
    TakesOtherWindowsForTheClocks,
    ForgetsRefunds,
    ForgetsDebts,
    ForgetsPlaces,
    KeepsPlaces,
    IgnoresPauses,
    IgnoresAllowances,
    IgnoresEvidence,
    ResumesNothing,
    ResetsNothing,
    ResetsAllKeys,
    ForgetsKnownStates,
    // Its clock and its messages.
    JumpsToAnotherClock,
    GoesBack,
    ChangesItsNumber,
    AnswersBeforeItIsAsked,
    NudgesNobody,
}

use Fault::*;
use tower_throttle::store::contents::{Command, Demand, Mode, Operation};
use tower_throttle::store::{Answered, Call, MemoryStore, Nudge, Reply, StoreError, Taken};

const FAULTS: [(Fault, &str); 40] = [
    (ReadsAndWritesApart, "concurrent calls are atomic"),
    (ForgetsKeysEarly, "departures count for their window"),
    (IgnoresCase, "any text is a key"),
    (CutsLongKeys, "any text is a key"),
    (IgnoresPolicies, "nothing departs during a pause"),
    (TellsChangedQuotasApart, "changed quotas keep departures"),
    (
        OverwritesUnrecognizedValues,
        "unrecognized values are reported and kept",
    ),
    (
        ReportsUnrecognizedValuesAsOutages,
        "unrecognized values are reported and kept",
    ),
    (PadsValues, "a long log stays small"),
    (RecordsPeeks, "a peek records nothing"),
    (AppliesTwice, "concurrent calls are atomic"),
    (ReversesBatches, "batches answer each operation"),
    (
        FailsWholeBatches,
        "a cost beyond the quotas is refused alone",
    ),
    (AcceptsOldCalls, "calls that were overtaken change nothing"),
    (KeepsLostGrants, "lost answers are taken back"),
    (TakesAllGrantsBack, "no quota is exceeded"),
    (
        ForgetsDemands,
        "requests depart in the order of their arrival",
    ),
    (ForgetsCosts, "no quota is exceeded"),
    (ForgetsGuards, "no quota is exceeded"),
    (ForgetsBuffers, "no quota is exceeded"),
    (ForgetsAQuota, "joint quotas all hold"),
    (ForgetsHorizons, "no quota is exceeded"),
    (TakesGcraForSpacing, "no quota is exceeded"),
    (TakesOtherWindowsForTheClocks, "no quota is exceeded"),
    (ForgetsRefunds, "refunds make units available"),
    (ForgetsDebts, "debts take units"),
    (
        ForgetsPlaces,
        "places are held until they are released or their lease ends",
    ),
    (
        KeepsPlaces,
        "places are held until they are released or their lease ends",
    ),
    (IgnoresPauses, "nothing departs during a pause"),
    (IgnoresAllowances, "no more departs than is allowed"),
    (IgnoresEvidence, "a late answer pauses nothing"),
    (ResumesNothing, "nothing departs during a pause"),
    (ResetsNothing, "a reset forgets one key"),
    (ResetsAllKeys, "a reset forgets one key"),
    (
        ForgetsKnownStates,
        "a state that is too old is in quarantine",
    ),
    (JumpsToAnotherClock, "the clock neither jumps nor goes back"),
    (GoesBack, "the clock neither jumps nor goes back"),
    (ChangesItsNumber, "the clock neither jumps nor goes back"),
    (
        AnswersBeforeItIsAsked,
        "the clock neither jumps nor goes back",
    ),
    (NudgesNobody, "a reset nudges"),
];

type Place = (Option<String>, String);

type Subscriber = Box<dyn Fn(&Nudge) -> bool + Send + Sync>;

/// Values in a map, as a third party would keep them.
#[derive(Debug, Clone)]
struct Values(Arc<Inner>);

struct Inner {
    fault: Fault,
    clock: ManualClock,
    values: Mutex<HashMap<Place, (Vec<u8>, u64)>>,
    subscribers: Mutex<Vec<Subscriber>>,
    calls: Mutex<u64>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.fault)
    }
}

impl Values {
    fn new(fault: Fault) -> Self {
        Self(Arc::new(Inner {
            fault,
            clock: ManualClock::running(),
            values: Mutex::default(),
            subscribers: Mutex::default(),
            calls: Mutex::default(),
        }))
    }

    fn answered(&self, sent: Instant, answers: Vec<Result<Taken, StoreError>>) -> Answered {
        let count = {
            let mut calls = self.0.calls.lock();
            *calls += 1;
            *calls
        };
        let now = self.0.micros();
        Answered {
            now: match self.0.fault {
                JumpsToAnotherClock if answers.is_empty() => now + 3_000_000 * (count / 50),
                GoesBack => now + 5_000 * (count % 2),
                _ => now,
            },
            server: if self.0.fault == ChangesItsNumber {
                count
            } else {
                7
            },
            sent: match self.0.fault {
                AnswersBeforeItIsAsked => sent - std::time::Duration::from_secs(1),
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
            IgnoresCase => key.as_str().to_lowercase(),
            CutsLongKeys => key.as_str().chars().take(250).collect(),
            _ => key.as_str().to_owned(),
        };
        let name = match self.fault {
            IgnoresPolicies => None,
            TellsChangedQuotasApart => Some(format!("{:?} {:?}", policy.name(), policy.quotas())),
            _ => policy.name().map(str::to_owned),
        };
        (name, key)
    }

    fn value(&self, place: &Place) -> Option<Vec<u8>> {
        let values = self.values.lock();
        let (value, expires) = values.get(place)?;
        let lasts = self.micros() < *expires;
        lasts.then(|| value.clone())
    }

    fn write(&self, place: Place, mut value: Vec<u8>, mut expires: u64) {
        match self.fault {
            ForgetsKeysEarly => expires = expires.min(self.micros() + 200_000),
            PadsValues => value.resize(value.len().max(13_000), 0),
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
            Err(error)
                if self.fault == OverwritesUnrecognizedValues && error.is_unrecognized_value() =>
            {
                call.apply(None, now)?
            }
            Err(error)
                if self.fault == ReportsUnrecognizedValuesAsOutages
                    && error.is_unrecognized_value() =>
            {
                return Err(StoreError::new("an outage"));
            }
            applied => applied?,
        };
        let (mut answer, written) = applied;
        let place = self.place(call.key(), call.policy());
        if let Some((value, expires)) = written {
            self.write(place, value, expires);
        }
        if self.fault == ForgetsGuards || self.fault == ForgetsBuffers {
            // The process is granted its time, but it is not recorded.
            let more = match self.fault {
                ForgetsGuards => bench::GUARD,
                _ => call.policy().buffer().as_micros() as u64 + 30_000,
            };
            answer.grants.iter_mut().for_each(|it| it.recorded += more);
        }
        Ok(answer)
    }

    /// The call as a broken store applies it.
    fn distort(&self, call: &Call) -> Option<(Policy, Operation)> {
        let mut quotas = call.policy().quotas().to_vec();
        let mut buffer = call.policy().buffer();
        let mut operation = call.operation().clone();
        match (self.fault, &mut operation) {
            (ForgetsAQuota, _) => quotas.truncate(1),
            (ForgetsBuffers, _) => buffer = std::time::Duration::ZERO,
            (TakesGcraForSpacing, _) => {
                let text = quotas[0].to_string().replace("spacing", "gcra burst=10");
                quotas[0] = text.parse().unwrap();
            }
            (TakesOtherWindowsForTheClocks, _) => {
                let text = quotas[0].to_string().replace(" start=first-request", "");
                let text = text.replace("fixed-window", "fixed-window start=first-request");
                quotas[0] = text.parse().unwrap();
            }
            (RecordsPeeks, Operation::Take(take)) if take.mode == Mode::Peek => {
                take.mode = Mode::Try
            }
            (AcceptsOldCalls, Operation::Take(take)) => take.number = 0,
            (KeepsLostGrants, Operation::Take(take)) => take.lost = 0,
            (TakesAllGrantsBack, Operation::Take(take)) if take.number > 0 => take.lost = 1,
            (ForgetsDemands, Operation::Take(take)) if take.mode == Mode::Wait => {
                take.mode = Mode::Try;
            }
            (ForgetsCosts, Operation::Take(take)) if take.demand.cost != 1.into() => {
                let requests = take.demand.requests();
                take.demand = Demand::new((0..requests as usize).map(|_| (1, 1)));
            }
            (ForgetsGuards, Operation::Take(take)) => take.guard = 0,
            (ForgetsHorizons, Operation::Take(take)) => take.horizon = take.horizon.min(100_000),
            (ForgetsKnownStates, Operation::Take(take)) => {
                take.strict.iter_mut().for_each(|it| it.known = None);
            }
            (ForgetsRefunds, Operation::Take(take)) => {
                take.settlements.retain(|it| it.difference > 0);
            }
            (ForgetsDebts, Operation::Take(take)) => {
                take.settlements.retain(|it| it.difference < 0);
            }
            (ForgetsPlaces, Operation::Take(take)) => take.holding.units = 0,
            (KeepsPlaces, Operation::Take(take)) => take.holding.units += 1,
            (IgnoresPauses, Operation::Control(Command::Pause { .. }))
            | (IgnoresAllowances, Operation::Control(Command::Allow { .. }))
            | (ResumesNothing, Operation::Control(Command::Resume))
            | (ResetsNothing, Operation::Control(Command::Reset)) => return None,
            (
                IgnoresEvidence,
                Operation::Control(
                    Command::Pause { evidence, .. } | Command::Allow { evidence, .. },
                ),
            ) => *evidence = u64::MAX,
            (ResetsAllKeys, Operation::Control(Command::Reset)) => self.values.lock().clear(),
            _ => {}
        }
        let builder = quotas
            .into_iter()
            .fold(Limiter::builder(), LimiterBuilder::quota);
        let builder = match call.policy().name() {
            None => builder,
            Some(name) => builder.name(name),
        };
        let limiter = builder.buffer(buffer).build().unwrap();
        Some((Policy::clone(&limiter.policy()), operation))
    }

    fn nudge(&self, call: &Call, answer: &Taken) {
        if self.fault != NudgesNobody
            && let Some(nudge) = call.nudge(answer)
        {
            self.subscribers.lock().retain(|it| it(&nudge));
        }
    }
}

impl Store for Values {
    fn call(&self, calls: Vec<Call>) -> Reply<Answered> {
        let (sent, this) = (Instant::now(), &self.0);
        let read = |call: &Call| this.value(&this.place(call.key(), call.policy()));
        if this.fault == ReadsAndWritesApart {
            let values: Vec<_> = calls.iter().map(read).collect();
            let this = self.clone();
            return Reply::pending(async move {
                tokio::task::yield_now().await;
                let answers = calls.iter().zip(values);
                let answers = answers.map(|(call, value)| this.0.apply(call, value));
                let answers = answers.collect();
                Ok(this.answered(sent, answers))
            });
        }
        let answers = calls.iter().map(|call| {
            if this.fault == AppliesTwice {
                let _ = this.apply(call, read(call));
            }
            let answer = this.apply(call, read(call));
            if let Ok(answer) = &answer {
                this.nudge(call, answer);
            }
            answer
        });
        let mut answers: Vec<_> = answers.collect();
        match this.fault {
            ReversesBatches => answers.reverse(),
            FailsWholeBatches if answers.iter().any(Result::is_err) => {
                let error = answers.into_iter().find_map(Result::err);
                return Reply::ready(Err(error.unwrap()));
            }
            _ => {}
        }
        Reply::ready(Ok(self.answered(sent, answers)))
    }

    fn ping(&self, _key: &Key) -> Reply<Answered> {
        Reply::ready(Ok(self.answered(Instant::now(), Vec::new())))
    }

    fn subscribe(&self, subscriber: Subscriber) {
        self.0.subscribers.lock().push(subscriber);
    }
}

impl StoreHooks for Values {
    fn read(&self, key: &Key, policy: &Policy) -> Option<Vec<u8>> {
        self.0.value(&self.0.place(key, policy))
    }

    fn write(&self, key: &Key, policy: &Policy, value: &[u8]) -> bool {
        let place = self.0.place(key, policy);
        self.0
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
fn verdict(fault: Fault) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let run = runtime.block_on(async {
        let store = Values::new(fault);
        let make = || async { store.clone() };
        let suite = store_contract_with(make, store.clone());
        AssertUnwindSafe(suite).catch_unwind().await
    });
    let panic = run.err()?;
    Some(
        panic
            .downcast_ref::<String>()
            .cloned()
            .unwrap_or_else(|| (*panic.downcast_ref::<&str>().unwrap()).to_owned()),
    )
}

#[test]
fn a_store_of_applied_calls_keeps_the_contract() {
    assert_eq!(verdict(Nothing), None);
}

#[test]
fn broken_stores_are_rejected_by_the_clause_that_they_break() {
    let mut missed = Vec::new();
    for (fault, clause) in FAULTS {
        let verdict = verdict(fault).unwrap_or_default();
        if !verdict.starts_with(&format!("the store breaks its contract: {clause}: ")) {
            missed.push(format!("{fault:?}, {clause}: {verdict}"));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[tokio::test(start_paused = true)]
async fn the_embedded_store_keeps_the_contract_while_time_is_paused() {
    store_contract(async || MemoryStore::new()).await;
}
