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
    key: &'static str,
    callers: JoinSet<()>,
    departed: Arc<Mutex<Vec<Duration>>>,
    start: Instant,
}

impl Load {
    pub fn of<'a>(key: &'static str, limiters: impl IntoIterator<Item = &'a Limiter>) -> Self {
        let mut load = Self {
            key,
            callers: JoinSet::new(),
            departed: Arc::default(),
            start: Instant::now(),
        };
        for limiter in limiters {
            load.add(limiter);
        }
        load
    }

    fn add(&mut self, limiter: &Limiter) {
        for _ in 0..CALLERS {
            let (limiter, departed) = (limiter.clone(), self.departed.clone());
            let (start, key) = (self.start, self.key);
            self.callers.spawn(async move {
                loop {
                    let Ok(permit) = limiter.acquire(key).await else {
                        sleep(Duration::from_millis(5)).await;
                        continue;
                    };
                    // Before the check, so that the departure is no later than this.
                    let at = start.elapsed();
                    if permit.is_valid() {
                        departed.lock().expect("no panic").push(at);
                    } else {
                        permit.forfeit();
                    }
                }
            });
        }
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

    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Ends it.
    pub async fn history(mut self) -> History {
        self.callers.shutdown().await;
        let departed = self.departed.lock().expect("no panic");
        departed.iter().map(|&at| (at, 1)).collect()
    }
}

/// The part of a history that begins then.
pub fn since(history: &History, from: Duration) -> History {
    history.times().filter(|at| *at >= from).collect()
}
