//! A store that is silent, where recovery is strict.

use super::*;
use crate::recovery::LONGEST_HEARING;
use crate::store::{Outcome, Slot};

/// The process holds a slot far ahead; the store was heard from at its first call alone.
fn holder() -> World {
    let mut world = World::new();
    world.queue.is_strict = true;
    world.join(1, None);
    let asked = world.queue.ask(world.now).unwrap();
    let (sent, at) = (world.now, world.store_time());
    let slot = Slot {
        at: at + 10_000_000,
        record: at + 10_000_000 + micros(GUARD) * 2,
        cost: 1,
        receipt: FromIterator::from_iter([]),
    };
    let answer = Reserved::new(at, [Outcome::Granted(slot)], 0, Duration::ZERO);
    let offset = world
        .clock
        .observe(sent, world.now, at, Reading::default())
        .offset;
    let call = Call {
        sent,
        received: world.now,
        guard: GUARD,
        buffer: Duration::ZERO,
        offset,
        life: 0,
    };
    world
        .queue
        .answered(&asked, answer, call, &mut Wakes::new());
    world
}

/// As the driver does: whether it is put to the test; then it wakes when it has planned to.
fn drive(world: &mut World, is_told: bool, can_look: bool) -> bool {
    let told = is_told.then_some(world.now);
    world.queue.assure(told);
    world.queue.advance(world.now, &mut Wakes::new());
    let tests = std::mem::take(&mut world.queue.tests);
    world.queue.looks(world.now, is_told, can_look);
    let planned = world.queue.plan().expect("somebody waits");
    assert!(planned > world.now, "it wakes without end");
    world.now = planned;
    tests
}

#[test]
fn it_is_tested_now_and_then_and_nobody_departs() {
    for can_look in [true, false] {
        let mut world = holder();
        let start = world.now;
        let (mut wakes, mut tests) = (0, 0);
        while world.now < start + Duration::from_secs(20) {
            tests += u32::from(drive(&mut world, false, can_look));
            wakes += 1;
            assert!(!world.look(0), "it departs by what may be void");
        }
        assert!((20..=400).contains(&wakes), "{wakes}");
        assert_eq!(tests > 10, can_look, "{tests}");
    }
}

#[test]
fn whoever_is_told_departs_in_time() {
    let mut world = holder();
    let start = world.now;
    let mut wakes = 0;
    while !world.look(0) {
        assert!(!drive(&mut world, true, true), "there is nothing to test");
        wakes += 1;
    }
    let late = world.now - start - Duration::from_secs(10);
    assert!(late < GUARD && wakes < 20, "{late:?}, {wakes}");
}

#[test]
fn whoever_is_refused_for_long_asks_anew_instead_of_waiting_for_ever() {
    let mut world = holder();
    let start = world.now;
    let error = StoreError::new("you may not").no_outage();
    loop {
        let waited = world.now - start;
        assert!(waited < LONGEST_HEARING * 2, "it is told nothing");
        world.queue.advance(world.now, &mut Wakes::new());
        if let Some(asked) = world.queue.ask(world.now) {
            let wakes = &mut Wakes::new();
            world.queue.failed(&asked, &error, world.now, wakes);
        }
        if world.look(0) {
            assert!(waited >= LONGEST_HEARING, "its slot was good until then");
            break;
        }
        world.queue.looks(world.now, false, true);
        let planned = world.queue.plan();
        world.now = planned.unwrap_or(world.now + Duration::from_millis(1));
    }
    assert!(world.departed.is_empty());
}

#[test]
fn whoever_is_asked_for_by_a_test_gathers_no_longer() {
    let mut world = holder();
    world.join(1, None);
    assert!(world.queue.ask(world.now).is_none(), "it does not gather");
    let until = world.queue.gathering.expect("it gathers");
    world.queue.tests = true;
    let asked = world.queue.ask(world.now).expect("a test");
    assert_eq!(asked.len(), 1, "it asks for all who are there");
    // There is no answer for long.
    world.now = until;
    while world.now < until + Duration::from_secs(1) {
        drive(&mut world, false, false);
    }
}
