//! Waiting for a permit: the futures [`Acquire`] and [`TryAcquire`].

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Offset;
use crate::epoch::{Epoch, Epochs};
use crate::error::Error;
use crate::key::Key;
use crate::line::{Bound, Call, Held, Joined, Line, Newcomer, Refusal, WaiterId, hold};
use crate::permit::{Decision, Limited, Permit};
use crate::policy::Policy;
use crate::store::{Ask, Outcome, Reserve};

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
    pub(crate) fn new(epochs: Arc<Epochs>, key: Key) -> Self {
        Self {
            max_wait: epochs.max_wait(),
            deadline: None,
            wait: Wait::new(epochs, key),
        }
    }

    /// Waits once more, from the place in the line that the expired permit had, under the quotas
    /// that it had: under others, the request might cost more than they hold.
    #[cfg_attr(
        not(feature = "tower"),
        expect(dead_code, reason = "only a service makes it wait")
    )]
    pub(crate) fn again(&mut self, expired: Permit) {
        self.wait.stage = Stage::Start(Some(expired.epoch().clone()));
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

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let since = this.wait.since();
        let until = this
            .max_wait
            .and_then(|max_wait| since.checked_add(max_wait));
        let until = until.into_iter().chain(this.deadline).min();
        let answer = ready!(
            this.wait
                .poll(cx, until.map_or(Bound::Unlimited, Bound::Until))
        )?;
        Poll::Ready(answer.map_err(|limited| Error::too_long(since.elapsed() + limited.delay)))
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
    pub(crate) fn new(epochs: Arc<Epochs>, key: Key) -> Self {
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

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(self.get_mut().wait.poll(cx, Bound::Now))?;
        Poll::Ready(Ok(answer.map_or_else(Decision::Limited, Decision::Granted)))
    }
}

impl fmt::Debug for TryAcquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wait.debug(f, "TryAcquire")
    }
}

/// A request on its way to a permit.
struct Wait {
    epochs: Arc<Epochs>,
    key: Key,
    cost: u32,
    since: Option<Instant>,
    /// The place in the line, once it has one.
    arrival: Option<u64>,
    stage: Stage,
}

enum Stage {
    /// In the current epoch, unless it has been under way in another.
    Start(Option<Arc<Epoch>>),
    InLine(Arc<Line>, WaiterId),
    Done,
}

type Answer = Result<Permit, Limited>;

impl Wait {
    fn new(epochs: Arc<Epochs>, key: Key) -> Self {
        Self {
            epochs,
            key,
            cost: 1,
            since: None,
            arrival: None,
            stage: Stage::Start(None),
        }
    }

    /// When the request was made: when the future was first polled.
    fn since(&mut self) -> Instant {
        *self.since.get_or_insert_with(Instant::now)
    }

    fn poll(&mut self, cx: &mut Context<'_>, bound: Bound) -> Poll<Result<Answer, Error>> {
        if let Stage::Start(epoch) = &mut self.stage {
            let epoch = epoch.take().unwrap_or_else(|| self.epochs.current());
            check(&epoch.policy, &self.key, self.cost)?;
            if let Some(answer) = self.try_alone(&epoch, bound)? {
                self.stage = Stage::Done;
                return Poll::Ready(Ok(answer.map(|held| self.permit(epoch, held))));
            }
            let Joined { line, id, is_alone } = self.join(&epoch, bound, cx.waker())?;
            self.arrival = Some(id.arrival());
            self.stage = Stage::InLine(line, id);
            if !is_alone {
                return Poll::Pending;
            }
        }
        let Stage::InLine(line, id) = &self.stage else {
            panic!("polled after it was ready");
        };
        let answer = ready!(line.poll(*id, cx));
        let epoch = line.epoch().clone();
        self.stage = Stage::Done;
        Poll::Ready(match answer {
            Ok(held) => Ok(Ok(self.permit(epoch, held))),
            Err(Refusal::TooLong(limited)) => Ok(Err(limited)),
            Err(Refusal::Store(error)) => Err(Error::store(error)),
        })
    }

    /// Asks a store that answers at once, if nobody waits; `None` if the request has to join a line.
    fn try_alone(
        &mut self,
        epoch: &Arc<Epoch>,
        bound: Bound,
    ) -> Result<Option<Result<Held, Limited>>, Error> {
        if !epoch.store.is_local() || self.arrival.is_some() || epoch.lines.contain(&self.key) {
            return Ok(None);
        }
        let sent = self.since();
        let guard = epoch.guard.current();
        let ask = Ask {
            count: 1,
            cost: self.cost,
            max_wait: 0,
        };
        let mut reply = epoch.store.reserve(&Reserve {
            guard,
            least_guard: epoch.guard.least(),
            asks: &[ask],
            ..Reserve::new(&self.key, &epoch.policy)
        });
        let Some(reserved) = reply.take_ready() else {
            return Ok(None);
        };
        let mut reserved = reserved.map_err(Error::store)?;
        let received = Instant::now();
        let call = Call {
            sent,
            received,
            guard,
            buffer: epoch.policy.buffer(),
            offset: Offset::of_call(sent, sent, received, reserved.now),
        };
        let limited = |wait| Limited {
            delay: Duration::from_micros(wait),
            remaining: reserved.remaining,
            reset: reserved.reset,
        };
        match reserved.outcomes.pop() {
            Some(Outcome::Granted(slot)) => {
                let held = hold(slot, reserved.now, reserved.remaining, reserved.reset, call);
                if held.due < held.expires {
                    epoch.guard.departed();
                    self.arrival = Some(epoch.lines.arrive());
                    return Ok(Some(Ok(held)));
                }
                epoch.guard.forfeited(guard);
                epoch.lines.give(epoch, &self.key, held);
                Ok(None)
            }
            Some(Outcome::Refused { wait }) if bound == Bound::Now => Ok(Some(Err(limited(wait)))),
            Some(Outcome::Refused { .. }) | None => Ok(None),
        }
    }

    /// Joins the line.
    ///
    /// # Panics
    ///
    /// Panics where there is no runtime to wait in, or one without a timer.
    fn join(&self, epoch: &Arc<Epoch>, bound: Bound, waker: &Waker) -> Result<Joined, Error> {
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
        let joined = epoch.lines.join(epoch, &self.key, newcomer, waker);
        joined.map_err(Error::line_full)
    }

    fn permit(&mut self, epoch: Arc<Epoch>, held: Held) -> Permit {
        let since = self.since();
        Permit::new(epoch, self.key.clone(), held, since)
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
