//! [`Load`]: callers that ask without end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower_throttle::Limiter;
use tower_throttle::test_util::history::History;

const CALLERS: usize = 8;

/// Callers of one key, through several limiters.
#[derive(Debug)]
pub struct Load {
    callers: JoinSet<()>,
    departed: Arc<Mutex<Vec<Instant>>>,
}

impl Load {
    pub fn of<'a>(key: &'static str, limiters: impl IntoIterator<Item = &'a Limiter>) -> Self {
        let (mut callers, departed) = (JoinSet::new(), Arc::<Mutex<Vec<_>>>::default());
        for limiter in limiters.into_iter().flat_map(|it| [it; CALLERS]) {
            let (limiter, departed) = (limiter.clone(), departed.clone());
            callers.spawn(async move {
                loop {
                    let Ok(permit) = limiter.acquire(key).await else {
                        sleep(Duration::from_millis(5)).await;
                        continue;
                    };
                    // Before the check, so that the departure is no later than this.
                    let at = Instant::now();
                    if permit.is_valid() {
                        departed.lock().expect("no panic").push(at);
                    } else {
                        permit.forfeit();
                    }
                }
            });
        }
        Self { callers, departed }
    }

    pub fn departures(&self) -> usize {
        self.departed.lock().expect("no panic").len()
    }

    /// Waits until so many more have departed; says how long that took.
    pub async fn goes_on(&self, departures: usize) -> Duration {
        let start = Instant::now();
        let enough = self.departures() + departures;
        while self.departures() < enough {
            assert!(start.elapsed() < Duration::from_secs(60), "nothing departs");
            sleep(Duration::from_millis(5)).await;
        }
        start.elapsed()
    }

    /// Ends it.
    pub async fn history(mut self) -> History {
        self.callers.shutdown().await;
        let departed = self.departed.lock().expect("no panic");
        departed.iter().copied().collect()
    }
}
