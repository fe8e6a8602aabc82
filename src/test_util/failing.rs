//! A store that fails when a test says so: [`FailingStore`].

use std::sync::Arc;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use crate::key::Key;
use crate::lock::Mutex;
use crate::store::{Answered, Call, MemoryStore, Reply, Store, StoreError};

/// A failure of a [`FailingStore`].
///
/// | | the operations are applied | pings | an outage | outcome unknown | as when Redis |
/// | --- | --- | --- | --- | --- | --- |
/// | [`Unreachable`](Self::Unreachable) | no | fail | yes | no | is down |
/// | [`ReadOnly`](Self::ReadOnly) | no | fail | yes | no | became a replica, or is out of memory |
/// | [`Refusal`](Self::Refusal) | no | succeed | no | no | denies the user a permission |
/// | [`LostRequest`](Self::LostRequest) | no | fail | yes | yes | loses the connection before the call arrives |
/// | [`LostReply`](Self::LostReply) | yes | fail | yes | yes | loses the connection after that, or hangs |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The store does not answer, and nothing is applied.
    Unreachable,
    /// The store rejects all calls for now, as it accepts no writes.
    ReadOnly,
    /// The store rejects the call and would reject it again. That is no outage: [`Outage`](crate::Outage) does not
    /// apply, and the limiter does not wait.
    Refusal,
    /// The call is lost on its way. The caller cannot know whether it was applied.
    LostRequest,
    /// The call is applied, and the answer is lost. With a [latency](FailingStore::latency) of a second, it is a store
    /// that hangs until the caller's timeout.
    LostReply,
}

impl Fault {
    fn error(self) -> StoreError {
        match self {
            Self::Unreachable => StoreError::new("the store cannot be reached"),
            Self::ReadOnly => StoreError::new("the store accepts no writes"),
            Self::Refusal => StoreError::new("the store refused the call").no_outage(),
            Self::LostRequest | Self::LostReply => {
                StoreError::new("the connection to the store was lost").outcome_unknown()
            }
        }
    }
}

/// A remote store that fails when a test says so.
///
/// It passes calls on to a [`MemoryStore`]. The limiter uses it as it uses a server: requests that arrive during a call share the next one, and [`Outage`](crate::Outage) and
/// [`Recovery`](crate::Recovery) apply. Clones share everything.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::Quota;
/// use tower_throttle::store::MemoryStore;
/// use tower_throttle::Limiter;
/// use tower_throttle::test_util::{FailingStore, Fault};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = FailingStore::new(MemoryStore::new()).latency(Duration::from_millis(2));
/// let limiter = Limiter::builder().store(store.clone()).quota(Quota::per_second(10)).build()?;
///
/// store.fail_with(Fault::Unreachable);
/// let waiting = tokio::spawn(limiter.acquire("api.example.com"));
/// tokio::time::sleep(Duration::from_secs(3)).await;
/// assert!(!waiting.is_finished());
///
/// store.recover();
/// assert!(waiting.await?.is_ok());
/// # Ok(())
/// # }
/// ```
///
/// A call is applied when it is made. Its answer arrives after the [latency](Self::latency).
#[derive(Debug, Clone, Default)]
pub struct FailingStore {
    store: MemoryStore,
    script: Arc<Mutex<Script>>,
}

/// The faults to come, and counts of past calls.
#[derive(Debug, Default)]
struct Script {
    /// The fault, and how many more calls fail.
    fault: Option<(Fault, u64)>,
    latency: Duration,
    calls: u64,
    pings: u64,
}

impl FailingStore {
    /// A store that works.
    pub fn new(store: MemoryStore) -> Self {
        Self {
            store,
            script: Arc::default(),
        }
    }

    /// Sets how long each answer takes, and each failure, by tokio's clock. A limiter's first request takes two: a ping,
    /// then its call. Default: one turn of the runtime, in which no time passes. This also applies to further calls of clones.
    pub fn latency(self, latency: Duration) -> Self {
        self.script.lock().latency = latency;
        self
    }

    /// Makes all calls fail until the test calls [`recover`](Self::recover) or sets another fault.
    pub fn fail_with(&self, fault: Fault) {
        self.script.lock().fault = Some((fault, u64::MAX));
    }

    /// Makes the next calls fail, so many, and none after them. Pings count if they [fail](Fault), also that
    /// before a limiter's first call.
    pub fn fail_next(&self, calls: u64, fault: Fault) {
        self.script.lock().fault = (calls > 0).then_some((fault, calls));
    }

    /// Makes no more calls fail.
    pub fn recover(&self) {
        self.script.lock().fault = None;
    }

    /// Forgets all state, as a server that restarts without its data. Granted requests still depart; under
    /// [`Recovery::Strict`](crate::Recovery::Strict), all keys are in quarantine then. Refusals are
    /// [remembered](crate::LimiterBuilder::denial_cache) for up to a second.
    pub fn lose_state(&self) {
        self.store.clear();
    }

    /// The number of calls, without [pings](Self::pings). A call is a batch: it may be for many keys.
    pub fn calls(&self) -> u64 {
        self.script.lock().calls
    }

    /// The number of [pings](Store::ping). Limiters ping a store before their first call and while it is out.
    pub fn pings(&self) -> u64 {
        self.script.lock().pings
    }

    fn reply(&self, is_ping: bool, calls: Vec<Call>) -> Reply {
        let (fault, latency) = {
            let mut script = self.script.lock();
            (script.next(is_ping), script.latency)
        };
        let sent = Instant::now();
        let answer = match fault {
            None | Some(Fault::LostReply) => Ok(self.store.answer(&calls)),
            Some(fault) => Err(fault.error()),
        };
        Box::pin(async move {
            match latency {
                Duration::ZERO => yield_now().await,
                latency => sleep(latency.saturating_sub(sent.elapsed())).await,
            }
            let received = Instant::now();
            match fault {
                Some(fault) => Err(fault.error()),
                None => answer.map(|answer| Answered { received, ..answer }),
            }
        })
    }
}

impl Script {
    /// Counts a call, and returns its fault.
    fn next(&mut self, is_ping: bool) -> Option<Fault> {
        if is_ping {
            self.pings += 1;
        } else {
            self.calls += 1;
        }
        let (fault, left) = self.fault?;
        if is_ping && fault == Fault::Refusal {
            return None;
        }
        self.fault = (left > 1).then_some((fault, left - 1));
        Some(fault)
    }
}

impl Store for FailingStore {
    fn call(&self, calls: Vec<Call>) -> Reply {
        self.reply(false, calls)
    }

    fn ping(&self, _key: &Key) -> Reply {
        self.reply(true, Vec::new())
    }
}
