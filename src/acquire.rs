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
use crate::line::{Joined, Line, Newcomer, Refusal, WaiterId};
use crate::patience::Patience;
use crate::permit::{Decision, Limited, Permit};
use crate::policy::Policy;
use crate::store::StoreError;
use crate::telemetry::{Entered, Outcome, Span};

/// Waits until a request may depart; see [`Limiter::acquire`](crate::Limiter::acquire).
///
/// Defaults: a cost of 1, and the policy's [`max_wait`](crate::LimiterBuilder::max_wait).
#[must_use = "futures do nothing unless they are awaited"]
pub struct Acquire {
    wait: Wait,
    patience: Patience,
}

impl Acquire {
    #[inline]
    pub(crate) fn new(epochs: Epochs, key: Key) -> Self {
        Self {
            patience: Patience::ALL,
            wait: Wait::new(epochs, key),
        }
    }

    /// Sets whether it is neither refused by what was refused before, nor remembered itself.
    #[cfg(feature = "tower")]
    pub(crate) fn forgetful(mut self, is_forgetful: bool) -> Self {
        self.wait.is_forgetful = is_forgetful;
        self
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
        if let Stage::Done(Some(begun)) = self.wait.stage {
            self.wait.stage = Stage::Again(expired.epoch().clone(), begun);
        }
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
        self.patience.max_wait(max_wait);
        self
    }

    /// Refuses the request at once if it could not depart by then. What may depart now does, even if
    /// the deadline has passed.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.patience.deadline(deadline);
        self
    }
}

impl Future for Acquire {
    type Output = Result<Permit, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { wait, patience } = self.get_mut();
        let limited = |limited: Limited, wait: &Wait| {
            let error = Error::too_long(wait.waited(), limited);
            Err(wait.refused_by.iter().fold(error, |error, it| error.by(it)))
        };
        wait.poll(cx, patience, identity, limited)
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
    #[inline]
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

    /// Sets whether it is neither refused by what was refused before, nor remembered itself.
    #[cfg(feature = "tower")]
    pub(crate) fn forgetful(mut self, is_forgetful: bool) -> Self {
        self.wait.is_forgetful = is_forgetful;
        self
    }
}

impl Future for TryAcquire {
    type Output = Result<Decision, Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let limited = |limited, _: &Wait| Ok(Decision::Limited(limited));
        let wait = &mut self.get_mut().wait;
        wait.poll(cx, &Patience::NONE, Decision::Granted, limited)
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
    /// Whether what is refused is neither looked up nor remembered.
    is_forgetful: bool,
    /// Where it waits once the store is back, while it is where something stands in.
    home: Option<Arc<Epoch>>,
    /// How many signs of life there had been when it went back last.
    went_back: Option<u64>,
    span: Span,
    /// The policy, once it is refused though it would wait.
    refused_by: Option<Arc<Policy>>,
    stage: Stage,
}

enum Stage {
    /// In the epoch that is current when it is polled.
    Start(Option<Epochs>),
    /// In the epoch that it has been under way in.
    Again(Arc<Epoch>, Begun),
    InLine(Arc<Line>, WaiterId, Instant),
    /// It can wait again if that is known.
    Done(Option<Begun>),
}

/// When a request was made: when its future was first polled. And its place in the line since.
#[derive(Clone, Copy)]
struct Begun {
    since: Instant,
    arrival: u64,
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
            is_forgetful: false,
            home: None,
            went_back: None,
            span: Span::NONE,
            refused_by: None,
            stage: Stage::Start(Some(epochs)),
        }
    }

    /// Yields what is made of the permit, or of the word that there is none.
    ///
    /// Inline, as is what calls it, so that a permit is moved once: moving one takes as long as finding
    /// a slot.
    #[inline]
    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        patience: &Patience,
        granted: impl Fn(Permit) -> T,
        limited: impl Fn(Limited, &Self) -> Result<T, Error>,
    ) -> Poll<Result<T, Error>> {
        if !matches!(self.stage, Stage::InLine(..)) {
            match self.start(patience, cx.waker()) {
                Answer::Granted(permit) => return Poll::Ready(Ok(granted(permit))),
                Answer::Limited(limit) => return Poll::Ready(limited(limit, self)),
                Answer::Failed(error) => return Poll::Ready(Err(error)),
                Answer::InLine { is_alone: false } => return Poll::Pending,
                Answer::InLine { is_alone: true } => {}
            }
        }
        loop {
            return Poll::Ready(match ready!(self.poll_line(cx, patience)) {
                Answer::Granted(permit) => Ok(granted(permit)),
                Answer::Limited(limit) => limited(limit, self),
                Answer::Failed(error) => Err(error),
                // In another.
                Answer::InLine { .. } => continue,
            });
        }
    }

    /// Asks a store that answers at once, if nobody waits; else joins the line.
    fn start(&mut self, patience: &Patience, waker: &Waker) -> Answer {
        let Stage::Start(epochs) = &mut self.stage else {
            return self.start_again(patience, waker);
        };
        let epoch = epochs.take().expect("polled after it was ready").current();
        let entered = &epoch.telemetry.begin(&self.key, self.cost);
        if let Err(error) = check(&epoch.policy, &self.key, self.cost) {
            return self.failed(entered, &epoch, Outcome::Invalid, error, Duration::ZERO);
        }
        let since = Instant::now();
        // Each in a branch of its own, so that the one that is all computation is compiled as such.
        if let Some(store) = &epoch.embedded {
            let verdict = epoch.ask_embedded(store, &self.key, self.cost, since);
            self.conclude(epoch, verdict, patience, since, waker, entered)
        } else if let Some(error) = epoch.outage(&self.key) {
            self.start_out(epoch, error, patience, since, waker, entered)
        } else if let Some(limited) = self.look(&epoch, patience, since) {
            epoch.telemetry.remembered();
            self.limited(entered, &epoch, patience, limited, Duration::ZERO)
        } else {
            let verdict = epoch.ask_local(&self.key, self.cost, since);
            self.conclude(epoch, verdict, patience, since, waker, entered)
        }
    }

    /// The store is out: asks what stands in for it, or waits, if it would wait at all.
    #[cold]
    fn start_out(
        &mut self,
        epoch: Arc<Epoch>,
        error: StoreError,
        patience: &Patience,
        since: Instant,
        waker: &Waker,
        entered: &Entered,
    ) -> Answer {
        let Some(stand_in) = epoch.stand_in_for(self.cost) else {
            if epoch.stand_in.is_none() && patience.waits() {
                return self.join(&epoch, patience, since, None, waker, entered);
            }
            let outcome = Outcome::from(&error);
            return self.failed(
                entered,
                &epoch,
                outcome,
                Error::store(error),
                Duration::ZERO,
            );
        };
        self.home = Some(epoch);
        let verdict = match &stand_in.embedded {
            Some(store) => stand_in.ask_embedded(store, &self.key, self.cost, since),
            None => Verdict::Unknown,
        };
        self.conclude(stand_in, verdict, patience, since, waker, entered)
    }

    /// Whether the request would be refused, as far as that is known without asking the store.
    fn look(&self, epoch: &Epoch, patience: &Patience, since: Instant) -> Option<Limited> {
        let denials = epoch.denials.as_ref().filter(|_| !self.is_forgetful)?;
        denials.look(
            &self.key,
            self.cost,
            patience.bound(since, &epoch.policy),
            since,
        )
    }

    #[inline(always)]
    fn conclude(
        &mut self,
        epoch: Arc<Epoch>,
        verdict: Verdict,
        patience: &Patience,
        since: Instant,
        waker: &Waker,
        entered: &Entered,
    ) -> Answer {
        match verdict {
            Verdict::Departs(slot) => {
                if self.keeps_place {
                    let arrival = epoch.lines.arrive();
                    self.stage = Stage::Done(Some(Begun { since, arrival }));
                }
                self.ended(entered, &epoch, Outcome::Granted, Duration::ZERO);
                let key = self.key.clone();
                Answer::Granted(Permit::new(epoch, key, slot, Duration::ZERO))
            }
            Verdict::Limited(limited) if !patience.waits() => {
                self.limited(entered, &epoch, patience, limited, Duration::ZERO)
            }
            Verdict::Failed(error) if epoch.heard_of(&self.key, Some(&error)) => {
                self.start_out(epoch, *error, patience, since, waker, entered)
            }
            Verdict::Failed(error) => {
                let outcome = Outcome::from(&*error);
                let error = Error::store(*error);
                self.failed(entered, &epoch, outcome, error, Duration::ZERO)
            }
            Verdict::Limited(_) | Verdict::Unknown => {
                self.join(&epoch, patience, since, None, waker, entered)
            }
        }
    }

    #[cold]
    fn start_again(&mut self, patience: &Patience, waker: &Waker) -> Answer {
        let stage = std::mem::replace(&mut self.stage, Stage::Done(None));
        let Stage::Again(epoch, Begun { since, arrival }) = stage else {
            panic!("polled after it was ready");
        };
        let entered = &epoch.telemetry.begin(&self.key, self.cost);
        self.join(&epoch, patience, since, Some(arrival), waker, entered)
    }

    /// How long it has waited, if it has.
    fn waited(&self) -> Duration {
        match &self.stage {
            Stage::Done(Some(begun)) => begun.since.elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// Joins the line.
    ///
    /// # Panics
    ///
    /// Panics where there is no runtime to wait in, or one without a timer.
    #[cold]
    fn join(
        &mut self,
        epoch: &Arc<Epoch>,
        patience: &Patience,
        since: Instant,
        arrival: Option<u64>,
        waker: &Waker,
        entered: &Entered,
    ) -> Answer {
        // Who does not wait does not lengthen the line.
        let longest = epoch.policy.max_waiting().filter(|_| patience.waits());
        let newcomer = Newcomer {
            cost: self.cost,
            bound: patience.bound(since, &epoch.policy),
            arrival,
            max_waiting: longest.unwrap_or(usize::MAX),
        };
        match epoch.lines.join(epoch, &self.key, newcomer, waker) {
            Ok(Joined { line, id, is_alone }) => {
                epoch.telemetry.joined(&self.key);
                self.span.keep(entered);
                self.stage = Stage::InLine(line, id, since);
                self.look_home();
                Answer::InLine { is_alone }
            }
            Err(waiting) => {
                let error = Error::line_full(waiting);
                self.failed(entered, epoch, Outcome::LineFull, error, since.elapsed())
            }
        }
    }

    /// Where something stands in: those whose store came back before they were there have to go back, too. Nobody
    /// does so twice by one sign of life, lest it goes to and fro.
    fn look_home(&self) {
        if let Some(home) = &self.home
            && self.went_back != Some(home.circuit.signs_of_life())
        {
            home.send_back(&self.key);
        }
    }

    /// Yields that it is in line if that is another one now, where it has to look.
    fn poll_line(&mut self, cx: &mut Context<'_>, patience: &Patience) -> Poll<Answer> {
        let Stage::InLine(line, id, since) = &self.stage else {
            panic!("polled after it was ready");
        };
        let entered = &self.span.enter();
        let (answer, now) = ready!(line.poll(*id, cx));
        let (epoch, since, arrival) = (line.epoch(), *since, id.arrival());
        epoch.telemetry.left(&self.key);
        self.span = Span::NONE;
        self.stage = Stage::Done(Some(Begun { since, arrival }));
        Poll::Ready(match answer {
            Ok(held) => {
                self.ended(entered, &epoch, Outcome::Granted, now - since);
                let permit = Permit::new(epoch, self.key.clone(), held.into(), now - since);
                Answer::Granted(permit)
            }
            Err(Refusal::TooLong(limited)) => {
                self.limited(entered, &epoch, patience, limited, now - since)
            }
            Err(Refusal::Denied(refused)) => {
                if let Some(denials) = &epoch.denials
                    && !self.is_forgetful
                {
                    let tells = epoch.store.is_listening();
                    denials.note(&self.key, self.cost, refused, tells);
                }
                self.limited(entered, &epoch, patience, refused.limited, now - since)
            }
            // Elsewhere, in its order of arrival.
            Err(Refusal::Store(error)) => match epoch.stand_in_for(self.cost) {
                Some(stand_in) if error.is_outage() => {
                    self.home = Some(epoch);
                    self.join(
                        &stand_in,
                        patience,
                        since,
                        Some(arrival),
                        cx.waker(),
                        entered,
                    )
                }
                _ => {
                    let outcome = Outcome::from(&error);
                    self.failed(entered, &epoch, outcome, Error::store(error), now - since)
                }
            },
            Err(Refusal::Evicted) => {
                let home = self.home.take().unwrap_or(epoch);
                self.went_back = Some(home.circuit.signs_of_life());
                self.join(&home, patience, since, Some(arrival), cx.waker(), entered)
            }
        })
    }

    /// It may not depart: who would wait is told by which policy.
    fn limited(
        &mut self,
        entered: &Entered,
        epoch: &Epoch,
        patience: &Patience,
        limited: Limited,
        waited: Duration,
    ) -> Answer {
        self.ended(entered, epoch, Outcome::Limited, waited);
        self.refused_by = patience.waits().then(|| epoch.policy.clone());
        Answer::Limited(limited)
    }

    /// It may not depart, for another reason.
    fn failed(
        &self,
        entered: &Entered,
        epoch: &Epoch,
        outcome: Outcome,
        error: Error,
        waited: Duration,
    ) -> Answer {
        self.ended(entered, epoch, outcome, waited);
        Answer::Failed(error.by(&epoch.policy))
    }

    /// That is what has become of the request, after so long.
    #[inline]
    fn ended(&self, entered: &Entered, epoch: &Epoch, outcome: Outcome, waited: Duration) {
        let request = (&self.key, self.cost);
        epoch.telemetry.ended(entered, request, outcome, waited);
    }

    fn debug(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        f.debug_struct(name)
            .field("key", &self.key)
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

impl Drop for Wait {
    #[inline]
    fn drop(&mut self) {
        if let Stage::InLine(line, id, since) = &self.stage {
            line.epoch().forget_denial(&self.key);
            line.leave(*id);
            let telemetry = &line.epoch().telemetry;
            telemetry.left(&self.key);
            let request = (&self.key, self.cost);
            let waited = since.elapsed();
            telemetry.ended(&self.span.enter(), request, Outcome::Cancelled, waited);
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
