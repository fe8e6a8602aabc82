//! Callers that ask for their turn again and again: [`Load`].

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::{LocalSet, yield_now};
use tokio::time::{Instant, sleep_until, timeout_at};
use tower_throttle::{Error, Limiter};

/// As many requests are made at most, of whatever becomes of them.
pub(super) const MOST_REQUESTS: usize = 1_000_000;

/// After which time somebody asks again who was refused without a word of when.
const LATER: Duration = Duration::from_secs(1);

/// Callers, and for how long they make requests.
pub(super) struct Load {
    pub(super) callers: u32,
    pub(super) cost: u32,
    pub(super) duration: Duration,
}

/// What became of them.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// In order.
    pub(super) departures: Vec<Departed>,
    pub(super) refused: usize,
    /// Those that were still in line at the end.
    pub(super) waiting: usize,
    /// For how long requests were made.
    pub(super) lasted: Duration,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Departed {
    /// Since the beginning.
    pub(super) at: Duration,
    pub(super) waited: Duration,
}

impl Run {
    /// How many requests were made that are not in line any more.
    fn made(&self) -> usize {
        self.departures.len() + self.refused
    }
}

impl Load {
    /// Spreads the callers over the limiters, and lets all begin at once.
    pub(super) async fn run(&self, limiters: &[Limiter]) -> Result<Run, Error> {
        let run = Rc::new(RefCell::new(Run::default()));
        let start = Instant::now();
        let callers = LocalSet::new();
        let spread = limiters.iter().cycle();
        let callings = spread.zip(0..self.callers).map(|(limiter, _)| {
            let caller = Caller {
                limiter: limiter.clone(),
                cost: self.cost,
                start,
                end: start + self.duration,
                run: run.clone(),
            };
            callers.spawn_local(caller.call())
        });
        let callings: Vec<_> = callings.collect();
        callers.await;
        for calling in callings {
            calling.await.expect("nobody ends a caller")?;
        }
        let mut run = run.take();
        run.lasted = start.elapsed().min(self.duration);
        Ok(run)
    }
}

struct Caller {
    limiter: Limiter,
    cost: u32,
    start: Instant,
    end: Instant,
    run: Rc<RefCell<Run>>,
}

impl Caller {
    async fn call(self) -> Result<(), Error> {
        while Instant::now() < self.end && self.run.borrow().made() < MOST_REQUESTS {
            let asking = self.limiter.acquire("simulated").cost(self.cost);
            match timeout_at(self.end, asking).await {
                // In time, or in the very moment of the end.
                Ok(Ok(permit)) if Instant::now() < self.end => {
                    let departed = Departed {
                        at: self.start.elapsed(),
                        waited: permit.waited(),
                    };
                    self.run.borrow_mut().departures.push(departed);
                    // Others may be first the next time.
                    yield_now().await;
                }
                Ok(Err(error)) if error.is_limited() || error.is_line_full() => {
                    self.run.borrow_mut().refused += 1;
                    let again = Instant::now() + error.wait().unwrap_or(LATER);
                    sleep_until(again.min(self.end)).await;
                }
                Ok(Err(error)) => return Err(error),
                Ok(Ok(_)) | Err(_) => self.run.borrow_mut().waiting += 1,
            }
        }
        Ok(())
    }
}
