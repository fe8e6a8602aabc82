//! Callers that make one request after another: [`Load`].

use std::cell::RefCell;
use std::collections::HashMap;
use std::iter;
use std::rc::Rc;
use std::time::{self, Duration};

use serde::Serialize;
use tokio::task::{LocalSet, yield_now};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tower_throttle::{Error, Limiter, Permit, Quota};

use super::group::Group;

/// Maximum number of requests, departed or refused.
pub(super) const MAX_REQUESTS: usize = 1_000_000;

/// Delay before a retry, if the refusal has no estimate.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The load of a simulation.
pub(super) struct Load<'a> {
    pub(super) groups: &'a [Group],
    /// `None` for the default cost of the quotas.
    pub(super) cost: Option<u32>,
    pub(super) duration: Duration,
    /// How long the work of each request takes.
    pub(super) work: Duration,
    /// Maximum computing time, in real time.
    pub(super) max_computing: Duration,
}

/// The outcome of a simulation.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// In order of time.
    pub(super) departures: Vec<Departed>,
    /// The cost of each request in each unit.
    pub(super) costs: HashMap<&'static str, u32>,
    pub(super) refused: usize,
    /// Requests that were still waiting at the end.
    pub(super) waiting: usize,
    /// Requests that are waiting now.
    pending: usize,
    /// Requests in progress now, and the most at once.
    in_progress: u64,
    pub(super) most_in_progress: u64,
    /// Virtual time that was simulated.
    pub(super) lasted: Duration,
    /// Why the simulation stopped early, if it did.
    pub(super) cut: Option<Cut>,
}

/// Why a simulation stopped early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cut {
    /// The callers made [`MAX_REQUESTS`].
    Requests,
    /// The computing time was used up.
    #[serde(rename = "patience")]
    ComputingTime,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Departed {
    /// The place of its group.
    pub(super) group: usize,
    /// Since the start.
    pub(super) at: Duration,
    pub(super) waited: Duration,
}

impl Run {
    fn begin(&mut self, departed: Departed, limiter: &Limiter, permit: &Permit) {
        if self.costs.is_empty() {
            let policy = limiter.policy();
            let units = policy.quotas().iter().map(Quota::unit_name);
            let costs = units.map(|unit| (unit, permit.cost_of(unit).unwrap_or(0)));
            self.costs.extend(costs);
        }
        self.departures.push(departed);
        self.in_progress += 1;
        self.most_in_progress = self.most_in_progress.max(self.in_progress);
    }

    /// True if callers must not make more requests.
    fn is_cut(&mut self, deadline: time::Instant) -> bool {
        if self.departures.len() + self.refused >= MAX_REQUESTS {
            self.cut.get_or_insert(Cut::Requests);
        } else if time::Instant::now() >= deadline {
            self.cut.get_or_insert(Cut::ComputingTime);
        }
        self.cut.is_some()
    }
}

impl Load<'_> {
    /// Spreads the callers over the limiters, and starts all of them at the same time.
    pub(super) async fn run(&self, limiters: &[Limiter]) -> Result<Run, Error> {
        let run = Rc::new(RefCell::new(Run::default()));
        let start = Instant::now();
        let deadline = time::Instant::now() + self.max_computing;
        let callers = LocalSet::new();
        let spread = limiters.iter().cycle();
        let groups = self.groups.iter().enumerate();
        let groups = groups.flat_map(|each| iter::repeat_n(each, each.1.callers as usize));
        let tasks = spread.zip(groups).map(|(limiter, (place, group))| {
            let caller = Caller {
                limiter: limiter.clone(),
                group: group.clone(),
                place,
                cost: self.cost,
                start,
                end: start + self.duration,
                work: self.work,
                deadline,
                run: run.clone(),
            };
            callers.spawn_local(caller.call())
        });
        let tasks: Vec<_> = tasks.collect();
        let is_late = tokio::select! {
            () = callers => false,
            () = self.past(deadline) => true,
        };
        let mut run = run.take();
        run.lasted = start.elapsed().min(self.duration);
        if is_late {
            run.cut = Some(Cut::ComputingTime);
            run.waiting = run.pending;
            return Ok(run);
        }
        for task in tasks {
            task.await.expect("callers are not aborted")?;
        }
        Ok(run)
    }

    /// Waits until the deadline in real time, which it checks a thousand times during the simulation. Callers also
    /// check it with each request, because virtual time may not advance between requests.
    async fn past(&self, deadline: time::Instant) {
        let step = (self.duration / 1_000).max(Duration::from_millis(1));
        while time::Instant::now() < deadline {
            sleep(step).await;
        }
    }
}

struct Caller {
    limiter: Limiter,
    group: Group,
    /// The place of the group.
    place: usize,
    cost: Option<u32>,
    start: Instant,
    end: Instant,
    work: Duration,
    /// In real time.
    deadline: time::Instant,
    run: Rc<RefCell<Run>>,
}

impl Caller {
    async fn call(self) -> Result<(), Error> {
        while Instant::now() < self.end && !self.run.borrow_mut().is_cut(self.deadline) {
            let acquire = self.limiter.acquire("simulated");
            let mut acquire = acquire.priority(self.group.priority);
            if let Some(cost) = self.cost {
                acquire = acquire.cost(cost);
            }
            if let Some(share) = &self.group.share {
                acquire = acquire.share(share.name(), share.weight());
            }
            self.run.borrow_mut().pending += 1;
            let answer = timeout_at(self.end, acquire).await;
            self.run.borrow_mut().pending -= 1;
            match answer {
                // A permit at the end itself does not count.
                Ok(Ok(permit)) if Instant::now() < self.end => {
                    let departed = Departed {
                        group: self.place,
                        at: self.start.elapsed(),
                        waited: permit.waited(),
                    };
                    self.run
                        .borrow_mut()
                        .begin(departed, &self.limiter, &permit);
                    match self.work {
                        // Lets other callers make the next request.
                        Duration::ZERO => yield_now().await,
                        work => sleep(work).await,
                    }
                    self.run.borrow_mut().in_progress -= 1;
                    drop(permit);
                }
                // A store with a long latency answers too late for short bounds.
                Ok(Err(error)) if error.is_limited() || error.is_store() => {
                    self.run.borrow_mut().refused += 1;
                    let again = Instant::now() + error.wait().unwrap_or(RETRY_DELAY);
                    sleep_until(again.min(self.end)).await;
                }
                Ok(Err(error)) => return Err(error),
                Ok(Ok(_)) | Err(_) => self.run.borrow_mut().waiting += 1,
            }
        }
        Ok(())
    }
}
