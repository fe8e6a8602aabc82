//! The way of a request to a permit: [`Wait`].

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::time::Instant;

use crate::epoch::{Epoch, Epochs};
use crate::error::Error;
use crate::key::Key;
use crate::line::{Joined, Line, Newcomer, Refusal, WaiterId};
use crate::patience::Patience;
use crate::permit::{Limited, Permit};
use crate::policy::Policy;
use crate::store::StoreError;
use crate::telemetry::{Entered, Outcome, Span};

/// A request on its way to a permit.
pub(super) struct Wait {
    pub(super) key: Key,
    pub(super) cost: u32,
    /// Whether it has a place even if it does not wait, so that it can wait [again](Self::again).
    pub(super) keeps_place: bool,
    /// Whether what is refused is neither looked up nor remembered.
    pub(super) is_forgetful: bool,
    /// Where it waits once the store is back, while it is where something stands in.
    pub(super) home: Option<Arc<Epoch>>,
    /// How many signs of life there had been when it went back last.
    went_back: Option<u64>,
    span: Span,
    /// The policy, once it is refused though it would wait.
    pub(super) refused_by: Option<Arc<Policy>>,
    pub(super) stage: Stage,
}

pub(super) enum Stage {
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
pub(super) struct Begun {
    pub(super) since: Instant,
    pub(super) arrival: u64,
}

/// What a request has with it while it is polled, wherever that leads it.
///
/// Handed down by value, so that it need not be in memory where it is asked for a permit at once.
#[derive(Clone, Copy)]
pub(super) struct Passage<'a> {
    pub(super) patience: &'a Patience,
    pub(super) waker: &'a Waker,
    pub(super) entered: &'a Entered,
    /// When the request was made.
    pub(super) since: Instant,
}

/// What there is to say at first.
pub(super) enum Answer {
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
    pub(super) fn new(epochs: Epochs, key: Key) -> Self {
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

    /// Waits once more, from where it was when it got this permit.
    pub(super) fn again(&mut self, expired: Permit) {
        if let Stage::Done(Some(begun)) = self.stage {
            self.stage = Stage::Again(expired.epoch().clone(), begun);
        }
        expired.forfeit();
    }

    /// Yields what is made of the permit, or of the word that there is none.
    ///
    /// Inline, as is what calls it, so that a permit is moved once: moving one takes as long as finding
    /// a slot.
    #[inline]
    pub(super) fn poll<T>(
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

    /// How long it has waited, if it has.
    pub(super) fn waited(&self) -> Duration {
        match &self.stage {
            Stage::Done(Some(begun)) => begun.since.elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// Joins the line, in the place that it had, if it had one.
    ///
    /// # Panics
    ///
    /// Panics where there is no runtime to wait in, or one without a timer.
    #[cold]
    pub(super) fn join(
        &mut self,
        epoch: &Arc<Epoch>,
        arrival: Option<u64>,
        passage: Passage<'_>,
    ) -> Answer {
        let Passage {
            patience, since, ..
        } = passage;
        // Who does not wait does not lengthen the line.
        let longest = epoch.policy.max_waiting().filter(|_| patience.waits());
        let newcomer = Newcomer {
            cost: self.cost,
            bound: patience.bound(since, &epoch.policy),
            arrival,
            max_waiting: longest.unwrap_or(usize::MAX),
        };
        match epoch.lines.join(epoch, &self.key, newcomer, passage.waker) {
            Ok(Joined { line, id, is_alone }) => {
                epoch.telemetry.joined(&self.key);
                self.span.keep(passage.entered);
                self.stage = Stage::InLine(line, id, since);
                self.look_home();
                Answer::InLine { is_alone }
            }
            Err(waiting) => {
                self.ended(epoch, Outcome::LineFull, since.elapsed(), passage.entered);
                Answer::Failed(Error::line_full(waiting).by(&epoch.policy))
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
        let waited = now - since;
        let passage = Passage {
            patience,
            waker: cx.waker(),
            entered,
            since,
        };
        epoch.telemetry.left(&self.key);
        self.span = Span::NONE;
        self.stage = Stage::Done(Some(Begun { since, arrival }));
        Poll::Ready(match answer {
            Ok(held) => {
                self.ended(&epoch, Outcome::Granted, waited, entered);
                let permit = Permit::new(epoch, self.key.clone(), held.into(), waited);
                Answer::Granted(permit)
            }
            Err(Refusal::TooLong(limited)) => self.limited(&epoch, limited, waited, passage),
            Err(Refusal::Denied(refused)) => {
                if let Some(denials) = &epoch.denials
                    && !self.is_forgetful
                {
                    let tells = epoch.store.is_listening();
                    denials.note(&self.key, self.cost, refused, tells);
                }
                self.limited(&epoch, refused.limited, waited, passage)
            }
            // Elsewhere, in its order of arrival.
            Err(Refusal::Leave(_)) if epoch.stand_in.is_none() && patience.waits() => {
                // Nothing stands in any more.
                self.join(&epoch, Some(arrival), passage)
            }
            Err(Refusal::Store(error) | Refusal::Leave(error)) => {
                match epoch.stand_in_for(self.cost) {
                    Some(stand_in) if error.is_outage() => {
                        self.home = Some(epoch);
                        self.join(&stand_in, Some(arrival), passage)
                    }
                    _ => self.failed(&epoch, error, waited, passage),
                }
            }
            Err(Refusal::Evicted) => {
                let home = self.home.take().unwrap_or(epoch);
                self.went_back = Some(home.circuit.signs_of_life());
                self.join(&home, Some(arrival), passage)
            }
        })
    }

    /// It may not depart: who would wait is told by which policy.
    pub(super) fn limited(
        &mut self,
        epoch: &Epoch,
        limited: Limited,
        waited: Duration,
        passage: Passage<'_>,
    ) -> Answer {
        self.ended(epoch, Outcome::Limited, waited, passage.entered);
        self.refused_by = passage.patience.waits().then(|| epoch.policy.clone());
        Answer::Limited(limited)
    }

    /// The store cannot say whether it may depart.
    #[cold]
    pub(super) fn failed(
        &self,
        epoch: &Epoch,
        error: StoreError,
        waited: Duration,
        passage: Passage<'_>,
    ) -> Answer {
        self.ended(epoch, Outcome::from(&error), waited, passage.entered);
        Answer::Failed(Error::store(error).by(&epoch.policy))
    }

    /// That is what has become of the request, after so long.
    #[inline]
    pub(super) fn ended(
        &self,
        epoch: &Epoch,
        outcome: Outcome,
        waited: Duration,
        entered: &Entered,
    ) {
        let request = (&self.key, self.cost);
        epoch.telemetry.ended(entered, request, outcome, waited);
    }

    pub(super) fn debug(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
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
            let epoch = line.epoch();
            epoch.forget_denial(&self.key);
            line.leave(*id);
            epoch.telemetry.left(&self.key);
            let (waited, entered) = (since.elapsed(), self.span.enter());
            self.ended(&epoch, Outcome::Cancelled, waited, &entered);
        }
    }
}
