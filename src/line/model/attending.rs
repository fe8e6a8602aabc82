//! Who is to act, and who is seen to.

use super::messages::{Answer, Call, Kind};
use super::moment::At;
use super::process::{Process, Request};
use crate::line::segment::Phase;

impl Process {
    /// How many have something to do here, and have not done it yet.
    pub(super) fn due(&self, at: At) -> u32 {
        let is_old = |sent: Option<u64>| u32::from(sent.is_some_and(|sent| sent < at.tick));
        let calls = self.calls.front().map(|&(sent, _)| sent);
        let answers = self.answers.front().map(|&(sent, _)| sent);
        let notices = self.notices.front().map(|&(sent, _)| sent);
        let alarm = self.is_driver_due(at);
        let acts = |request: &&Request| match request {
            Request::Waiting(waiting) => waiting.is_told,
            Request::Permitted(..) => true,
            Request::ToCome | Request::Over => false,
        };
        let requests = self.requests.iter().filter(acts).count() as u32;
        let messages = is_old(calls) + is_old(answers) + is_old(notices);
        messages + is_old(self.out) + u32::from(alarm) + requests
    }

    /// Whether each request that waits is told, or has a slot for which the driver wakes, or is asked for by a
    /// call that is under way, or will be when the driver wakes or the store gives a sign of life. Only then does it
    /// count that it would give up.
    pub(super) fn serves_all(&self) -> bool {
        let queue = &self.queue;
        let is_planned = queue.planned.is_some() && queue.planned != queue.next_to_give_up();
        let is_to_go_on = self.out.is_some() && queue.next_to_give_up().is_some();
        let served = |request: &Request| {
            let Request::Waiting(waiting) = request else {
                return true;
            };
            let is_asked_for = || {
                let reserving = self.driver.reserving.as_ref();
                reserving.is_some_and(|it| it.asked.waiters.iter().any(|&(id, _)| id == waiting.id))
            };
            waiting.is_told
                || match &queue.nodes[waiting.id.index].phase {
                    Phase::Waiting {
                        has_slot: false, ..
                    } => {
                        is_asked_for()
                            || queue.asking && self.driver.reserving.is_some()
                            || is_planned
                            || is_to_go_on
                            || self.driver.is_called
                    }
                    Phase::Waiting { .. } => {
                        let due = queue
                            .segments
                            .iter()
                            .find_map(|segment| segment.next_slot());
                        self.driver.is_called
                            || due.is_some_and(|held| {
                                queue.planned.is_some_and(|planned| planned <= held.due)
                            })
                    }
                    Phase::Due { listed, .. } => {
                        *listed && (queue.planned.is_some() || self.driver.is_called)
                    }
                    Phase::Refused(_) => false,
                }
        };
        let is_heard = self.driver.reserving.is_none()
            || self
                .calls
                .iter()
                .any(|(_, call)| matches!(call, Call::Reserve { .. }))
            || self.answers.iter().any(|(_, answer)| {
                matches!(answer, Answer::Reserved(..) | Answer::Lost(Kind::Reserve))
            });
        is_heard && self.requests.iter().all(served)
    }

    /// Whether somebody waits who has no slot.
    pub(super) fn is_anybody_without_slot(&self) -> bool {
        let mut waiting = self.requests.iter().filter_map(Request::waiting);
        waiting.any(|waiting| self.queue.is_without_slot(waiting.id))
    }

    /// Whether somebody who came before this request still waits, and was never late.
    pub(super) fn is_anybody_overtaken(&self, request: usize) -> bool {
        let is_overtaken = |request: &Request| match request {
            Request::Waiting(waiting) => {
                let phase = &self.queue.nodes[waiting.id.index].phase;
                !waiting.was_late && !matches!(phase, Phase::Refused(_))
            }
            _ => false,
        };
        self.requests[..request].iter().any(is_overtaken)
    }
}
