//! The actions of the processes and the store of a simulation at each event.

use rand::Rng;

use super::super::super::{Demand, Grant, Mode, Settlement, Take, Taken};
use super::{Departed, Event, MILLI, Request, SECOND, START, Sent, Simulation};

impl Simulation<'_> {
    pub(super) fn at_process(&mut self, process: usize, event: Event, now: u64) {
        let it = &mut self.processes[process];
        match event {
            Event::Arrive(request) => {
                it.waiting.push_back(request);
                if !it.is_calling && it.due.is_none() {
                    self.plan(process, now + 500, now);
                }
            }
            Event::Call(token) if token == it.token && !it.is_calling => self.call(process, now),
            Event::Call(_) => {}
            Event::Timeout(number) => {
                if number == it.number && it.is_calling {
                    it.is_calling = false;
                    if it.lost == 0 {
                        it.lost = number;
                    }
                    self.plan(process, now, now);
                }
            }
            Event::Answer(sent, taken) => self.answered(process, &sent, &taken, now),
            Event::Depart(request, grant, guard) => {
                self.depart(process, request, grant, guard, now);
            }
            Event::Stop(span) => {
                it.is_stopped = true;
                self.add(now + span, process, Event::Wake);
            }
            Event::Wake => {
                it.is_stopped = false;
                for event in std::mem::take(&mut it.held) {
                    self.add(now, process, event);
                }
            }
            Event::Kill => it.is_dead = true,
            Event::Cancel(keep) => {
                it.waiting.truncate(keep);
                if keep == 0 && !it.is_calling {
                    self.plan(process, now, now);
                }
            }
            Event::Store(_) | Event::Settle(_) => unreachable!("these are events of the store"),
        }
    }

    fn call(&mut self, process: usize, now: u64) {
        let guard = self.guard(process, true);
        let it = &mut self.processes[process];
        (it.is_calling, it.due) = (true, None);
        it.number += 1;
        let round_trip = it.round_trip + it.round_trip.min(20 * MILLI);
        let requests = it.waiting.iter().map(|it| (it.arrival, it.cost));
        let take = Take {
            process: process as u64,
            number: it.number,
            lost: it.lost,
            round_trip,
            guard,
            horizon: (100 * MILLI).max(round_trip * 3 / 2 + 40 * MILLI),
            demand: Demand::new(requests),
            ..Take::one(Mode::Wait, 1)
        };
        let requests = it.waiting.iter().copied().collect();
        let number = take.number;
        if self.rng.random::<f64>() < self.setup.lost / 2.0 {
            self.add(now + self.setup.timeout, process, Event::Timeout(number));
        } else {
            let up = self.leg(process);
            let sent = Sent {
                take,
                sent: now,
                up,
                received: now + up,
                requests,
            };
            self.add(now + up, process, Event::Store(Box::new(sent)));
        }
    }

    pub(super) fn at_store(&mut self, process: usize, event: Event, now: u64) {
        let change = self.setup.change.as_ref();
        if let Some((_, quotas)) = change.filter(|(time, _)| START + time <= now) {
            self.state.continue_as(quotas);
        }
        let sent = match event {
            Event::Settle(settlement) => {
                self.state.settle(&settlement);
                return;
            }
            Event::Store(sent) => sent,
            _ => return,
        };
        let before = self
            .state
            .announced
            .iter()
            .find(|it| it.process == process as u64);
        if let Some(deadline) = before.map(|it| it.deadline).filter(|&it| it < now) {
            let until = now + sent.take.horizon + 100 * MILLI;
            self.out.overdue.push((process, deadline, until));
        }
        self.out.calls += 1;
        let taken = self.state.take(self.setup.buffer, &sent.take, now);
        if self.out.calls.is_multiple_of(32) {
            super::super::assert_round_trip(&self.state);
        }
        if self.rng.random::<f64>() < self.setup.lost / 2.0 {
            let at = now.max(sent.sent + self.setup.timeout);
            self.add(at, process, Event::Timeout(sent.take.number));
        } else {
            let down = self.leg(process);
            self.add(now + down, process, Event::Answer(sent, Box::new(taken)));
        }
    }

    fn answered(&mut self, process: usize, sent: &Sent, taken: &Taken, now: u64) {
        let it = &mut self.processes[process];
        if sent.take.number != it.number || !it.is_calling {
            return;
        }
        (it.is_calling, it.lost) = (false, 0);
        it.up = it.up.min(sent.up);
        it.down = it.down.min(now - sent.received);
        let measured = now - sent.sent;
        it.round_trip = measured.max(it.round_trip - it.round_trip.saturating_sub(measured) / 8);
        let (up, down, guard) = (it.up, it.down, sent.take.guard);
        let requests = taken
            .grants
            .iter()
            .flat_map(|it| (0..it.requests).map(|_| *it));
        for (grant, request) in requests.zip(&sent.requests) {
            // Requests may have come back to the head since the call, and others may be cancelled.
            let waiting = &mut self.processes[process].waiting;
            let Some(place) = waiting.iter().position(|it| it == request) else {
                self.settle(process, grant, request.cost, now);
                continue;
            };
            waiting.remove(place);
            let first = now.max(grant.at + down);
            let last = (grant.recorded - self.setup.buffer).saturating_sub(up);
            let at = if first < last && self.rng.random::<f64>() < self.setup.random {
                self.rng.random_range(first..=last)
            } else {
                first + self.exponential(self.setup.wake) as u64
            };
            self.add(at, process, Event::Depart(*request, grant, guard));
        }
        if self.processes[process].waiting.is_empty() {
            return;
        }
        let at = if taken.next_call == 0 {
            now + 500
        } else {
            taken.next_call + now - sent.received
        };
        self.plan(
            process,
            at.saturating_sub(self.processes[process].round_trip),
            now,
        );
    }

    fn depart(&mut self, process: usize, request: Request, grant: Grant, guard: u64, now: u64) {
        let it = &mut self.processes[process];
        if now + it.up <= grant.recorded - self.setup.buffer {
            it.wanted -= it.wanted.saturating_sub(self.setup.floor) / 256;
            let upstream = now + self.rng.random_range(0..=self.setup.buffer);
            self.out.departed.push(Departed {
                at: now,
                upstream,
                arrival: request.arrival,
                cost: request.cost,
                process,
                serial: request.serial,
            });
            return;
        }
        self.out.forfeits += 1;
        it.wanted = it.wanted.max((2 * guard).min(2 * SECOND));
        let place = it
            .waiting
            .partition_point(|other| other.serial < request.serial);
        it.waiting.insert(place, request);
        let is_idle = !it.is_calling;
        self.settle(process, grant, request.cost, now);
        if is_idle {
            self.plan(process, now, now);
        }
    }

    fn settle(&mut self, process: usize, grant: Grant, cost: u32, now: u64) {
        let up = self.leg(process);
        let settlement = Settlement {
            recorded: grant.recorded,
            difference: -i64::from(cost),
        };
        self.add(now + up, process, Event::Settle(settlement));
    }
}
