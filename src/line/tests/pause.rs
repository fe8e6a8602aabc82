//! A pause that was said here, of which the store has not heard yet.

use super::*;
use crate::line::SETTLING;
use crate::store::{Outcome, Slot};

fn slot(at: u64) -> Outcome {
    Outcome::Granted(Slot {
        at,
        record: at + micros(GUARD),
        cost: 1,
        receipt: FromIterator::from_iter([]),
    })
}

fn call(world: &World, sent: Instant, reserved_at: u64) -> Call {
    let read = (world.clock).observe(sent, world.now, reserved_at, Reading::default());
    Call {
        life: 0,
        sent,
        received: world.now,
        guard: GUARD,
        buffer: Duration::ZERO,
        offset: read.offset,
    }
}

/// Who does not know yet that a pause is over asks for what lies behind its end, and the store, which does, hands it
/// out: be it that this is heard before the answer, or behind it.
#[test]
fn what_was_asked_for_behind_a_pause_that_is_over_is_asked_for_anew() {
    for is_answered_first in [true, false] {
        let mut world = World::new();
        world.join(1, None);
        let asked = world.queue.ask(world.now).unwrap();
        let sent = world.now;
        world.now += GUARD / 2;
        let reserved_at = world.store_time() - 1;
        let end = reserved_at + micros(WINDOW);
        let hear = |world: &mut World| {
            // It was over before this was reserved.
            let notice = Notice::resumption(reserved_at - 1);
            world.queue.hear(notice, world.now, &mut Wakes::new());
            world.queue.ask_anew(world.now, &mut Wakes::new());
        };
        if !is_answered_first {
            hear(&mut world);
        }
        let answer = Reserved::new(reserved_at, [slot(end)], 0, Duration::ZERO);
        let call = call(&world, sent, reserved_at);
        (world.queue).answered(&asked, answer, call, &mut Wakes::new());
        if is_answered_first {
            assert!(world.queue.take_surplus().is_empty());
            hear(&mut world);
        }
        assert_eq!(world.queue.take_surplus().len(), 1);
        world.now += SETTLING;
        world.queue.advance(world.now, &mut Wakes::new());
        let asked = world.queue.ask(world.now).expect("another call");
        assert_eq!(asked.len(), 1);
    }
}

/// What the store is asked for before a pause is said, it may hand out after that: it has not heard of it yet.
#[test]
fn what_was_asked_for_before_a_pause_does_not_depart_in_it() {
    let mut world = World::new();
    world.join(1, None);
    let asked = world.queue.ask(world.now).unwrap();
    let (sent, since) = (world.now, world.store_time());
    let until = since + micros(WINDOW);
    let pause = Notice {
        now: since,
        since,
        until,
        paused: until,
    };
    world.queue.hear(pause, world.now, &mut Wakes::new());

    world.now += GUARD / 2;
    let reserved_at = world.store_time() - 1;
    let answer = |at| Reserved::new(reserved_at, [slot(at)], 0, Duration::ZERO);
    let call = |world: &World| call(world, sent, reserved_at);
    let first = call(&world);
    world
        .queue
        .answered(&asked, answer(reserved_at), first, &mut Wakes::new());
    world.queue.advance(world.now, &mut Wakes::new());
    assert!(!world.look(0), "it departs in the pause");
    assert_eq!(world.queue.take_surplus().len(), 1);

    // It asks again, now that the pause is known: what it gets then it keeps.
    let asked = world.queue.ask(world.now).unwrap();
    let second = call(&world);
    world
        .queue
        .answered(&asked, answer(until), second, &mut Wakes::new());
    assert!(world.queue.take_surplus().is_empty());
    world.now += WINDOW - GUARD / 2 + Duration::from_micros(100);
    world.queue.advance(world.now, &mut Wakes::new());
    assert!(world.look(0));
}
