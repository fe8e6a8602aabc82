//! Copies of a process, for each way in which its world may go on.

use std::sync::Arc;

use super::process::Process;
use crate::guard::Guard;
use crate::line::queue::Queue;
use crate::telemetry::Forfeits;

impl Clone for Process {
    fn clone(&self) -> Self {
        // Each has a guard of its own, which nobody else changes.
        let guard = Arc::new(self.guard.with_floor(self.guard.floor()));
        Self {
            queue: clone(&self.queue, guard.clone()),
            guard,
            requests: self.requests.clone(),
            calls: self.calls.clone(),
            answers: self.answers.clone(),
            notices: self.notices.clone(),
            driver: self.driver.clone(),
            known: self.known,
            heard: self.heard.clone(),
            ahead: self.ahead,
            has_crashed: self.has_crashed,
            out: self.out,
            forsaken: self.forsaken.clone(),
            is_restless: self.is_restless,
            excuses: self.excuses,
        }
    }
}

fn clone(queue: &Queue, guard: Arc<Guard>) -> Queue {
    Queue {
        nodes: queue.nodes.clone(),
        segments: queue.segments.clone(),
        first_segment: queue.first_segment,
        due: queue.due.clone(),
        due_slots: queue.due_slots.clone(),
        patience: queue.patience,
        surplus: queue.surplus.clone(),
        asking: queue.asking,
        gathering: queue.gathering,
        gathered: queue.gathered,
        put_off_since: queue.put_off_since,
        calls: queue.calls,
        heard_at: queue.heard_at,
        outdated: queue.outdated,
        heard: queue.heard,
        settling: queue.settling,
        missed: queue.missed,
        next_look: queue.next_look,
        out: queue.out.clone(),
        looks_again: queue.looks_again,
        moves_at: queue.moves_at,
        tests: queue.tests,
        is_strict: queue.is_strict,
        assured: queue.assured,
        is_blocked: queue.is_blocked,
        untested: queue.untested,
        life: queue.life,
        newest: queue.newest,
        clock: queue.clock,
        known: queue.known,
        planned: queue.planned,
        guard,
        // Nobody is told.
        forfeits: Forfeits::default(),
    }
}
