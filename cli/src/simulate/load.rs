//! Callers that ask for their turn again and again: [`Load`].

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{self, Duration};

use serde::Serialize;
use tokio::task::{LocalSet, yield_now};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tower_throttle::Error;
use tower_throttle::Limiter;

/// As many requests are made at most, of whatever becomes of them.
pub(super) const MOST_REQUESTS: usize = 1_000_000;

/// After which time somebody asks again who was refused without a word of when.
const LATER: Duration = Duration::from_secs(1);

/// Callers, and for how long they make requests.
pub(super) struct Load {
    pub(super) callers: u32,
    pub(super) cost: u32,
    pub(super) duration: Duration,
    /// How long may be computed.
    pub(super) patience: Duration,
}

/// What became of them.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// In order.
    pub(super) departures: Vec<Departed>,
    pub(super) refused: usize,
    /// Those that were still in line at the end.
    pub(super) waiting: usize,
    /// Those that are in line.
    asking: usize,
    /// For how long requests were made.
    pub(super) lasted: Duration,
    /// Why that is not as long as they were to be.
    pub(super) cut: Option<Cut>,
}

/// Why a simulation ends before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cut {
    /// There were [so many](MOST_REQUESTS).
    Requests,
    /// It took too long to compute.
    Patience,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Departed {
    /// Since the beginning.
    pub(super) at: Duration,
    pub(super) waited: Duration,
}

impl Run {
    /// Whether no more requests are to be made.
    fn is_cut(&mut self, deadline: time::Instant) -> bool {
        if self.departures.len() + self.refused >= MOST_REQUESTS {
            self.cut.get_or_insert(Cut::Requests);
        } else if time::Instant::now() >= deadline {
            self.cut.get_or_insert(Cut::Patience);
        }
        self.cut.is_some()
    }
}

impl Load {
    /// Spreads the callers over the limiters, and lets all begin at once.
    pub(super) async fn run(&self, limiters: &[Limiter]) -> Result<Run, Error> {
        let run = Rc::new(RefCell::new(Run::default()));
        let start = Instant::now();
        let deadline = time::Instant::now() + self.patience;
        let callers = LocalSet::new();
        let spread = limiters.iter().cycle();
        let callings = spread.zip(0..self.callers).map(|(limiter, _)| {
            let caller = Caller {
                limiter: limiter.clone(),
                cost: self.cost,
                start,
                end: start + self.duration,
                deadline,
                run: run.clone(),
            };
            callers.spawn_local(caller.call())
        });
        let callings: Vec<_> = callings.collect();
        let is_late = tokio::select! {
            () = callers => false,
            () = self.impatience(deadline) => true,
        };
        let mut run = run.take();
        run.lasted = start.elapsed().min(self.duration);
        if is_late {
            run.cut = Some(Cut::Patience);
            run.waiting = run.asking;
            return Ok(run);
        }
        for calling in callings {
            calling.await.expect("nobody ends a caller")?;
        }
        Ok(run)
    }

    /// Until it has taken too long by the clock on the wall, at which this looks a thousand times on the way. Callers do
    /// with each request, as time need not pass between those.
    async fn impatience(&self, deadline: time::Instant) {
        let step = (self.duration / 1_000).max(Duration::from_millis(1));
        while time::Instant::now() < deadline {
            sleep(step).await;
        }
    }
}

struct Caller {
    limiter: Limiter,
    cost: u32,
    start: Instant,
    end: Instant,
    /// By the clock on the wall.
    deadline: time::Instant,
    run: Rc<RefCell<Run>>,
}

impl Caller {
    async fn call(self) -> Result<(), Error> {
        while Instant::now() < self.end && !self.run.borrow_mut().is_cut(self.deadline) {
            let asking = self.limiter.acquire("simulated").cost(self.cost);
            self.run.borrow_mut().asking += 1;
            let answer = timeout_at(self.end, asking).await;
            self.run.borrow_mut().asking -= 1;
            match answer {
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
                Ok(Err(error)) if error.is_limited() || error.is_queue_full() => {
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
