//! What can happen next: [`Action`].

use super::fault::Fault;
use super::messages::Answer;
use super::process::{Process, Request};
use super::setup::Setup;
use super::world::World;

/// What happens next, to which process, or to which request of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Time passes.
    Tick,
    /// A request is made, and waits.
    Join(usize, usize),
    Cancel(usize, usize),
    /// Looks, and departs if it may.
    Look(usize, usize),
    /// Looks, and does not depart at once.
    Hold(usize, usize),
    Depart(usize, usize),
    /// Does not use its permit.
    Forfeit(usize, usize),
    /// The driver looks.
    Wake(usize),
    /// The store gets the oldest call.
    Call(usize),
    LoseCall(usize),
    /// The process gets the oldest answer.
    Answer(usize),
    LoseAnswer(usize),
    /// The process gets a sign of life from the store that it takes to be out.
    Revive(usize),
    /// The process hears the oldest notice.
    Hear(usize),
    /// The channel was broken for a moment.
    Miss(usize),
    Pause(usize),
    Crash(usize),
    /// The store loses its state.
    Forget,
}

impl World {
    pub(super) fn actions(&self, setup: &Setup, actions: &mut Vec<Action>) {
        let at = self.at(None);
        if !self.broken.is_empty() {
            return;
        }
        for (p, process) in self.processes.iter().enumerate() {
            if !process.calls.is_empty() {
                actions.push(Action::Call(p));
                if self.left.lost > 0 && !process.has_crashed {
                    actions.push(Action::LoseCall(p));
                }
            }
            if process.has_crashed {
                continue;
            }
            if let Some((_, answer)) = process.answers.front() {
                actions.push(Action::Answer(p));
                if self.left.lost > 0 && !matches!(answer, Answer::Lost(_)) {
                    actions.push(Action::LoseAnswer(p));
                }
            }
            if process.out.is_some() {
                actions.push(Action::Revive(p));
            }
            if !process.notices.is_empty() {
                actions.push(Action::Hear(p));
                if self.left.missed > 0 {
                    actions.push(Action::Miss(p));
                }
            }
            if process.is_driver_due(at) {
                actions.push(Action::Wake(p));
            }
            let to_come = |request: &Request| matches!(request, Request::ToCome);
            let next = process.requests.iter().position(to_come);
            actions.extend(next.map(|r| Action::Join(p, r)));
            for (r, request) in process.requests.iter().enumerate() {
                self.actions_of(p, r, request, actions);
            }
            if self.left.paused > 0 {
                actions.push(Action::Pause(p));
            }
            if self.left.crashed > 0 {
                actions.push(Action::Crash(p));
            }
        }
        if setup.fault == Some(Fault::ForgetsEverything) && !self.handed.is_empty() {
            actions.push(Action::Forget);
        }
        if self.waits() && (!self.is_anybody_due() || self.left.late > 0) {
            actions.push(Action::Tick);
        }
    }

    fn actions_of(&self, p: usize, r: usize, request: &Request, actions: &mut Vec<Action>) {
        match request {
            Request::Waiting(waiting) => {
                if waiting.is_told {
                    actions.push(Action::Look(p, r));
                    if self.left.cancelled > 0 || self.left.late > 0 {
                        actions.push(Action::Hold(p, r));
                    }
                }
                if self.left.cancelled > 0 {
                    actions.push(Action::Cancel(p, r));
                }
            }
            Request::Permitted(..) => {
                actions.push(Action::Depart(p, r));
                if self.left.cancelled > 0 {
                    actions.push(Action::Forfeit(p, r));
                }
            }
            Request::ToCome | Request::Over => {}
        }
    }

    /// Whether anything is to come that takes time.
    pub(super) fn waits(&self) -> bool {
        let is_busy = |process: &Process| {
            !process.calls.is_empty()
                || !process.answers.is_empty()
                || !process.notices.is_empty()
                || !process.queue.is_idle()
        };
        let now = self.now();
        self.ledger.expires() > now
            || self.processes.iter().any(is_busy)
            || self.departed.iter().any(|at| at + self.window > now)
            || !self.nobody_waits()
    }

    /// Whether anybody is late if a tick passes.
    pub(super) fn is_anybody_due(&self) -> bool {
        let at = self.at(None);
        self.processes.iter().any(|process| process.due(at) > 0)
    }
}
