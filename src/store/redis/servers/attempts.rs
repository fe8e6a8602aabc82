//! One attempt at a time, shared by all callers that need it: [`Attempts`].

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::errors::too_late;
use crate::backoff;
use crate::store::StoreError;

/// The pause after a failure is at random between half of this and all of it. The span doubles with each failure.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Runs attempts to get a value. An attempt holds the lock, so that there is one at a time. After a failed attempt, callers
/// get the same error at once until a pause is over.
#[derive(Clone)]
pub(super) struct Attempts<T>(Arc<Mutex<State<T>>>);

struct State<T> {
    /// `None` before the first attempt has ended.
    latest: Option<Outcome<T>>,
    /// Callers get the latest outcome until then.
    paused_until: Instant,
    pause_after_success: Duration,
    /// Failures in a row.
    failures: u32,
}

type Outcome<T> = Result<T, StoreError>;

impl<T: Clone + Send + Sync + 'static> Attempts<T> {
    pub(super) fn new(pause_after_success: Duration) -> Self {
        Self(Arc::new(Mutex::new(State {
            latest: None,
            paused_until: Instant::now(),
            pause_after_success,
            failures: 0,
        })))
    }

    /// The value of the latest attempt, unless it failed or another one runs.
    pub(super) fn value(&self) -> Option<T> {
        self.0.try_lock().ok()?.latest.clone()?.ok()
    }

    /// Waits for the running attempt, or makes one unless the latest value is usable.
    ///
    /// The attempt is a task of its own, so that it goes on if this caller is cancelled or its deadline passes. If it ends
    /// with its runtime, another caller that waits makes the next one.
    pub(super) async fn join(
        &self,
        deadline: Instant,
        is_usable: impl Fn(&T) -> bool,
        attempt: impl Future<Output = Outcome<T>> + Send + 'static,
    ) -> Outcome<T> {
        let outcome = async {
            let state = self.0.clone().lock_owned().await;
            match &state.latest {
                Some(Ok(value)) if is_usable(value) => return Ok(value.clone()),
                Some(latest) if Instant::now() < state.paused_until => return latest.clone(),
                _ => {}
            }
            let ended = |_| StoreError::new("the attempt to connect to redis ended early");
            run(state, attempt).await.map_err(ended)?
        };
        let outcome = timeout_at(deadline, outcome).await;
        outcome.map_err(|late| too_late().caused_by(late))?
    }

    /// Starts an attempt unless one is running or a pause is on.
    pub(super) fn start(&self, attempt: impl Future<Output = Outcome<T>> + Send + 'static) {
        let state = self.0.clone().try_lock_owned().ok();
        if let Some(state) = state.filter(|it| Instant::now() >= it.paused_until) {
            drop(run(state, attempt));
        }
    }
}

fn run<T: Clone + Send + Sync + 'static>(
    mut state: OwnedMutexGuard<State<T>>,
    attempt: impl Future<Output = Outcome<T>> + Send + 'static,
) -> JoinHandle<Outcome<T>> {
    tokio::spawn(async move {
        let outcome = attempt.await;
        let pause = if outcome.is_ok() {
            state.failures = 0;
            state.pause_after_success
        } else {
            state.failures = state.failures.saturating_add(1);
            backoff::before(state.failures, FIRST_PAUSE, LONGEST_PAUSE)
        };
        state.paused_until = Instant::now() + pause;
        state.latest = Some(outcome.clone());
        outcome
    })
}
