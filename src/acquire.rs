//! Waiting for a permit: the futures [`Acquire`] and [`TryAcquire`].

use std::convert::identity;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::time::Instant;

use crate::alone::Verdict;
use crate::epoch::{Epoch, Epochs};
use crate::error::Error;
use crate::key::Key;
use crate::line::{Bound, Joined, Line, Newcomer, Refusal, WaiterId};
use crate::permit::{Decision, Limited, Permit};
use crate::policy::Policy;

/// Waits until a request may depart; see [`Limiter::acquire`](crate::Limiter::acquire).
///
/// Defaults: a cost of 1, and the policy's [`max_wait`](crate::LimiterBuilder::max_wait).
#[must_use = "futures do nothing unless they are awaited"]
pub struct Acquire {
    wait: Wait,
    max_wait: Option<Duration>,
    deadline: Option<Instant>,
}

impl Acquire {
    pub(crate) fn new(epochs: Epochs, key: Key) -> Self {
        Self {
            max_wait: epochs.max_wait(),
            deadline: None,
            wait: Wait::new(epochs, key),
        }
    }

    /// Keeps its place in the line for when it waits [again](Self::again), also if it does not wait at
    /// first.
    #[cfg_attr(
        not(feature = "tower"),
        expect(dead_code, reason = "only a service makes it wait")
    )]
    pub(crate) fn keep_place(mut self) -> Self {
        self.wait.keeps_place = true;
        self
    }

    /// Waits once more, from the place in the line that the expired permit had, under the quotas
    /// that it had: under others, the request might cost more than they hold.
    #[cfg_attr(
        not(feature = "tower"),
        expect(dead_code, reason = "only a service makes it wait")
    )]
    pub(crate) fn again(&mut self, expired: Permit) {
        self.wait.stage = Stage::Again(expired.epoch().clone());
        expired.forfeit();
    }

    /// Sets what the request costs, from 1 to what the quotas hold.
    ///
    /// All of it departs at once.
    pub fn cost(mut self, cost: u32) -> Self {
        self.wait.cost = cost;
        self
    }

    /// Refuses the request at once if it would have to wait longer, unless the policy is stricter.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(self.max_wait.map_or(max_wait, |it| it.min(max_wait)));
        self
    }

    /// Refuses the request at once if it could not depart by then. What may depart now does, even if
    /// the deadline has passed.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(self.deadline.map_or(deadline, |it| it.min(deadline)));
        self
    }
}

impl Future for Acquire {
    type Output = Result<Permit, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let since = this.wait.since();
        let until = this
            .max_wait
            .and_then(|max_wait| since.checked_add(max_wait));
        let until = until.into_iter().chain(this.deadline).min();
        let bound = until.map_or(Bound::Unlimited, Bound::Until);
        let limited = |limited: Limited| Err(Error::too_long(since.elapsed() + limited.delay));
        this.wait.poll(cx, bound, identity, limited)
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wait.debug(f, "Acquire")
    }
}

/// Decides at once; see [`Limiter::try_acquire`](crate::Limiter::try_acquire).
///
/// Default: a cost of 1.
#[must_use = "futures do nothing unless they are awaited"]
pub struct TryAcquire {
    wait: Wait,
}

impl TryAcquire {
    pub(crate) fn new(epochs: Epochs, key: Key) -> Self {
        Self {
            wait: Wait::new(epochs, key),
        }
    }

    /// Sets what the request costs, from 1 to what the quotas hold.
    pub fn cost(mut self, cost: u32) -> Self {
        self.wait.cost = cost;
        self
    }
}

impl Future for TryAcquire {
    type Output = Result<Decision, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let limited = |limited| Ok(Decision::Limited(limited));
        let wait = &mut self.get_mut().wait;
        wait.poll(cx, Bound::Now, Decision::Granted, limited)
    }
}

impl fmt::Debug for TryAcquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wait.debug(f, "TryAcquire")
    }
}

/// A request on its way to a permit.
struct Wait {
    key: Key,
    cost: u32,
    /// Whether it has a place even if it does not wait, so that it can wait [again](Acquire::again).
    keeps_place: bool,
    since: Option<Instant>,
    /// The place in the line, once it has one.
    arrival: Option<u64>,
    stage: Stage,
}

enum Stage {
    /// In the epoch that is current when it is polled.
    Start(Epochs),
    /// In the epoch that it has been under way in.
    Again(Arc<Epoch>),
    InLine(Arc<Line>, WaiterId),
    Done,
}

/// What there is to say at first.
enum Answer {
    Granted(Permit),
    Limited(Limited),
    Failed(Error),
    /// The request is in line, where it has to look, if it is alone.
    InLine {
        is_alone: bool,
    },
}

impl Wait {
    #[inline]
    fn new(epochs: Epochs, key: Key) -> Self {
        Self {
            key,
            cost: 1,
            keeps_place: false,
            since: None,
            arrival: None,
            stage: Stage::Start(epochs),
        }
    }

    /// When the request was made: when the future was first polled.
    fn since(&mut self) -> Instant {
        *self.since.get_or_insert_with(Instant::now)
    }

    /// Yields what is made of the permit, or of the word that there is none.
    ///
    /// Inline, as is what calls it, so that a permit is moved once: moving one takes as long as finding
    /// a slot.
    #[inline]
    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        bound: Bound,
        granted: impl Fn(Permit) -> T,
        limited: impl Fn(Limited) -> Result<T, Error>,
    ) -> Poll<Result<T, Error>> {
        if !matches!(self.stage, Stage::InLine(..)) {
            match self.start(bound, cx.waker()) {
                Answer::Granted(permit) => return Poll::Ready(Ok(granted(permit))),
                Answer::Limited(limit) => return Poll::Ready(limited(limit)),
                Answer::Failed(error) => return Poll::Ready(Err(error)),
                Answer::InLine { is_alone: false } => return Poll::Pending,
                Answer::InLine { is_alone: true } => {}
            }
        }
        Poll::Ready(match ready!(self.poll_line(cx)) {
            Ok(permit) => Ok(granted(permit)),
            Err(Refusal::TooLong(limit)) => limited(limit),
            Err(Refusal::Store(error)) => Err(Error::store(error)),
        })
    }

    /// Asks a store that answers at once, if nobody waits; else joins the line.
    fn start(&mut self, bound: Bound, waker: &Waker) -> Answer {
        let epoch = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Start(epochs) => epochs.current(),
            Stage::Again(epoch) => epoch,
            Stage::InLine(..) | Stage::Done => panic!("polled after it was ready"),
        };
        if let Err(error) = check(&epoch.policy, &self.key, self.cost) {
            return Answer::Failed(error);
        }
        if self.arrival.is_some() {
            return self.join(&epoch, bound, waker);
        }
        let sent = self.since();
        // Each in a branch of its own, so that the one that is all computation is compiled as such.
        if let Some(store) = &epoch.embedded {
            let verdict = epoch.ask_embedded(store, &self.key, self.cost, sent);
            self.conclude(epoch, verdict, bound, waker)
        } else {
            let verdict = epoch.ask_local(&self.key, self.cost, sent);
            self.conclude(epoch, verdict, bound, waker)
        }
    }

    #[inline(always)]
    fn conclude(
        &mut self,
        epoch: Arc<Epoch>,
        verdict: Verdict,
        bound: Bound,
        waker: &Waker,
    ) -> Answer {
        match verdict {
            Verdict::Departs(slot) => {
                if self.keeps_place {
                    self.arrival = Some(epoch.lines.arrive());
                }
                let key = self.key.clone();
                Answer::Granted(Permit::new(epoch, key, slot, Duration::ZERO))
            }
            Verdict::Limited(limited) if bound == Bound::Now => Answer::Limited(limited),
            Verdict::Failed(error) => Answer::Failed(Error::store(error)),
            Verdict::Limited(_) | Verdict::Unknown => self.join(&epoch, bound, waker),
        }
    }

    fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<Result<Permit, Refusal>> {
        let Stage::InLine(line, id) = &self.stage else {
            panic!("polled after it was ready");
        };
        let answer = ready!(line.poll(*id, cx));
        let epoch = line.epoch().clone();
        self.stage = Stage::Done;
        let waited = self.since().elapsed();
        Poll::Ready(answer.map(|held| Permit::new(epoch, self.key.clone(), held.into(), waited)))
    }

    /// Joins the line.
    ///
    /// # Panics
    ///
    /// Panics where there is no runtime to wait in, or one without a timer.
    #[cold]
    fn join(&mut self, epoch: &Arc<Epoch>, bound: Bound, waker: &Waker) -> Answer {
        drop(tokio::time::sleep(Duration::ZERO));
        let policy = &epoch.policy;
        // Who does not wait does not lengthen the line.
        let max_waiting = match bound {
            Bound::Now => usize::MAX,
            Bound::Unlimited | Bound::Until(_) => policy.max_waiting().unwrap_or(usize::MAX),
        };
        let newcomer = Newcomer {
            cost: self.cost,
            bound,
            arrival: self.arrival,
            max_waiting,
        };
        match epoch.lines.join(epoch, &self.key, newcomer, waker) {
            Ok(Joined { line, id, is_alone }) => {
                self.arrival = Some(id.arrival());
                self.stage = Stage::InLine(line, id);
                Answer::InLine { is_alone }
            }
            Err(waiting) => Answer::Failed(Error::line_full(waiting)),
        }
    }

    fn debug(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        f.debug_struct(name)
            .field("key", &self.key)
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Stage::InLine(line, id) = &self.stage {
            line.leave(*id);
        }
    }
}

/// Whether such a request can ever depart.
pub(crate) fn check(policy: &Policy, key: &Key, cost: u32) -> Result<(), Error> {
    let most = policy.largest_cost();
    if key.as_str().is_empty() {
        Err(Error::empty_key())
    } else if cost == 0 {
        Err(Error::zero_cost())
    } else if cost > most {
        Err(Error::too_costly(cost, most))
    } else {
        Ok(())
    }
}
