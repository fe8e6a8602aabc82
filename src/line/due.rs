//! Those whose slots have come: one after the other, they leave the queue.

use tokio::time::Instant;

use super::held::Held;
use super::queue::{Queue, Refusal, Wakes};
use super::segment::{Phase, Segment};

impl Queue {
    /// Lets those go whose slots have come.
    pub(crate) fn advance(&mut self, now: Instant, wakes: &mut Wakes) {
        self.is_blocked = self.is_deaf(now);
        while !self.is_blocked {
            self.drop_empty_segments();
            let Some(front) = self.segments.front_mut() else {
                break;
            };
            let Some(next) = front.next_slot().filter(|next| next.due <= now) else {
                break;
            };
            if next.expires <= now {
                if let Some(late) = front.forfeit(&mut self.nodes) {
                    self.guard.forfeited(late.guard());
                    self.forfeits.add(late.expires, now);
                    self.give_back(late);
                }
                self.clear_behind();
                continue;
            }
            if let Some(index) = front.head()
                && self.nodes[index].bound.excludes(next)
            {
                // Those ahead of it lost their slots and moved everyone back.
                let refusal = Refusal::TooLong(next.limited(now));
                self.refuse(index, refusal, now, wakes);
                continue;
            }
            let Some((index, held)) = front.pop(&mut self.nodes) else {
                break;
            };
            let patience = now + held.guard() / 3;
            let place = self.due_slots.insert(held);
            self.nodes[index].phase = Phase::Due {
                place,
                listed: true,
            };
            self.due.push_back(&mut self.nodes, index);
            if self.due.head == Some(index) {
                self.patience = Some(patience);
                wakes.extend(self.nodes[index].waker.take());
            }
        }
        if self.patience.is_some_and(|until| now >= until) {
            self.let_all_go(wakes);
        }
        self.give_up(now, wakes);
    }

    /// The first of those whose slots have come does not look; so all may go, in any order.
    pub(super) fn let_all_go(&mut self, wakes: &mut Wakes) {
        while let Some(index) = self.due.head {
            self.due.remove(&mut self.nodes, index);
            if let Phase::Due { listed, .. } = &mut self.nodes[index].phase {
                *listed = false;
            }
            wakes.extend(self.nodes[index].waker.take());
        }
        self.patience = None;
    }

    /// Takes a waiter, whose slot has come, off the list, and lets the next one look; yields the
    /// slot unless it has expired.
    pub(super) fn leave_due(
        &mut self,
        index: usize,
        now: Instant,
        wakes: &mut Wakes,
    ) -> Option<Held> {
        let placeholder = Phase::Waiting {
            segment: 0,
            has_slot: false,
        };
        let Phase::Due { place, listed } =
            std::mem::replace(&mut self.nodes[index].phase, placeholder)
        else {
            return None;
        };
        let held = self.due_slots.remove(place);
        if listed {
            let was_first = self.due.head == Some(index);
            self.due.remove(&mut self.nodes, index);
            if was_first {
                self.patience = self.due.head.map(|_| now + held.guard() / 3);
                if let Some(next) = self.due.head {
                    wakes.extend(self.nodes[next].waker.take());
                }
            }
        }
        if now >= held.expires {
            self.guard.forfeited(held.guard());
            self.forfeits.add(held.expires, now);
            self.give_back(held);
            return None;
        }
        Some(held)
    }

    /// A waiter's slot has expired: it waits again, in its order of arrival.
    ///
    /// Everyone still in the segments arrived later, but for others that came back.
    pub(super) fn come_back(&mut self, index: usize) {
        self.newest = self.newest.max(Some(self.nodes[index].arrival));
        self.drop_empty_segments();
        let cost = self.nodes[index].cost;
        if self.segments.front().is_none_or(|front| front.cost != cost) {
            self.segments.push_front(Segment::new(cost));
            self.first_segment -= 1;
        }
        self.nodes[index].phase = Phase::Waiting {
            segment: self.first_segment,
            has_slot: false,
        };
        self.segments[0].insert(&mut self.nodes, index);
        self.clear_behind();
    }

    /// Where a waiter has no slot, nobody of another cost behind it may have one: it would have to
    /// wait for those ahead, whose slots will be later, and let its own pass. All reserve anew.
    pub(super) fn clear_behind(&mut self) {
        self.gathering = None;
        if let Some(out) = &mut self.out {
            // Somebody waits for the store who had a slot until now.
            out.seen = None;
        }
        let wanting = self.segments.iter().position(Segment::wants_slots);
        let behind = wanting.map_or(self.segments.len(), |place| place + 1);
        for segment in self.segments.range_mut(behind..) {
            let slots = segment.forfeit_all(&mut self.nodes);
            self.surplus.extend(slots.into_iter().map(|held| held.slot));
        }
    }
}
