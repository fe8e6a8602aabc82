//! Slots that are given back.

use std::time::Duration;

use super::bench::Bench;
use super::policies::{kinds, log, policy};
use super::{GUARD, NEAR, any_wait, at_once, granted, judge, require, times};
use crate::algorithm::micros;
use crate::quota::Quota;
use crate::store::{Reserve, Slot, Store};

/// In whichever order they come back, the next requests have the same slots again.
pub(super) async fn the_last_slots_leave_no_trace<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        // Enough that all that follow are still to come.
        bench.slots(&key, &policy, 2).await;
        let first = bench.ask(&key, &policy, &[any_wait(4)]).await;
        let mut slots = granted(&first);
        let before = times(&slots);
        bench.release(&key, &policy, &[slots.remove(3)]).await;
        bench
            .release(&key, &policy, &[slots.remove(0), slots.remove(1)])
            .await;
        bench.release(&key, &policy, &slots).await;
        let again = bench.ask(&key, &policy, &[any_wait(4)]).await;
        let after = times(&granted(&again));
        let alike =
            |(before, after): (&u64, &u64)| before.max(&again.now()).abs_diff(*after) <= NEAR;
        let same = before.iter().zip(&after).all(alike);
        require!(
            bench,
            same,
            "{name}: slots at {before:?} were given back, then {after:?} handed out"
        );
        let (reset, now) = (again.reset(), again.now());
        let least = first
            .reset()
            .saturating_sub(Duration::from_micros(now - first.now()));
        let same = micros(reset).abs_diff(micros(least)) <= NEAR;
        require!(
            bench,
            same,
            "{name}: the reset was {least:?} and is {reset:?}"
        );
    }
}

/// It is the next request's, and only one's.
pub(super) async fn a_slot_from_the_middle_serves_the_next_request<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        let mut slots = bench.slots(&key, &policy, 7).await;
        let free = slots.remove(3);
        bench
            .release(&key, &policy, std::slice::from_ref(&free))
            .await;
        let answer = bench.ask(&key, &policy, &[any_wait(2)]).await;
        let [next, after] = &granted(&answer)[..] else {
            bench.fail(format_args!(
                "{name}: two requests that would wait are not granted"
            ));
        };
        let expected = free.at.max(answer.now());
        let took = next.at == expected;
        require!(
            bench,
            took,
            "{name}: {} was given back, and {} handed out",
            free.at,
            next.at
        );
        let last = slots[slots.len() - 1].at;
        require!(
            bench,
            after.at >= last,
            "{name}: the slot at {} was handed out twice",
            free.at
        );
        slots.extend([next.clone(), after.clone()]);
        judge::keeps(bench, &policy, &slots);
    }
}

/// It is of no use to who has to depart later than its record says, and of use to who can do with it.
pub(super) async fn a_slot_from_the_middle_keeps_its_guard<S: Store>(bench: &Bench<S>) {
    let (key, policy) = (bench.key("key"), log(1));
    let mut slots = bench.slots(&key, &policy, 3).await;
    let free = slots.remove(1);
    bench
        .release(&key, &policy, std::slice::from_ref(&free))
        .await;
    for least_guard in [GUARD * 3, GUARD] {
        let reserve = Reserve {
            guard: GUARD * 3,
            least_guard,
            ..Reserve::new(&key, &policy)
        };
        // The bench checks that the record is as late as this asks for.
        slots.extend(granted(&bench.reserve(&reserve).await));
    }
    let taken = slots
        .iter()
        .any(|slot| slot.at >= free.at && slot.record == free.record);
    require!(
        bench,
        taken,
        "{free:?} was given back, and is none of {slots:?}"
    );
    judge::keeps(bench, &policy, &slots);
}

/// Its time has come, it was not used, and another departs instead.
pub(super) async fn a_request_that_did_not_depart_is_charged_no_longer<S: Store>(bench: &Bench<S>) {
    let (key, policy) = (bench.key("key"), log(2));
    let slots = bench.slots(&key, &policy, 2).await;
    bench.release(&key, &policy, &slots[..1]).await;
    let answer = bench.ask(&key, &policy, &[at_once(2)]).await;
    let granted = granted(&answer).len();
    require!(
        bench,
        granted == 1,
        "one of two was given back, and {granted} are granted"
    );
}

/// A free slot whose time has passed leaves the log.
pub(super) async fn a_free_slot_that_nobody_took_is_charged_no_longer<S: Store>(bench: &Bench<S>) {
    let window = Duration::from_secs(1);
    let (key, policy) = (bench.key("key"), policy(&[Quota::new(2, window)]));
    let slots = bench.slots(&key, &policy, 6).await;
    bench.release(&key, &policy, &slots[2..3]).await;
    // By then the first two are out of the window, and one of the next two did not come about.
    bench
        .wait_until_after(slots[0].record.max(slots[2].at) + micros(window) / 10)
        .await;
    bench.release(&key, &policy, &slots[4..]).await;
    let answer = bench.ask(&key, &policy, &[at_once(1)]).await;
    let granted = granted(&answer).len();
    require!(
        bench,
        granted == 1,
        "one of two was not taken, and no other is granted"
    );
}

/// Nor does one that was never handed out, or whose time is long past.
pub(super) async fn a_slot_that_is_charged_no_longer_frees_no_other<S: Store>(bench: &Bench<S>) {
    let (key, policy) = (bench.key("key"), log(2));
    // By their guards, the records of the two differ even if the clock stood still.
    let first = Reserve {
        guard: GUARD / 2,
        least_guard: GUARD / 2,
        ..Reserve::new(&key, &policy)
    };
    let slot = granted(&bench.reserve(&first).await).remove(0);
    bench.slot(&key, &policy).await;
    let stranger = Slot {
        at: slot.at - 1_000,
        record: slot.record - 1_000,
        ..slot.clone()
    };
    for given in [&slot, &slot, &stranger] {
        bench
            .release(&key, &policy, std::slice::from_ref(given))
            .await;
    }
    let answer = bench.ask(&key, &policy, &[at_once(3)]).await;
    let granted = granted(&answer).len();
    require!(
        bench,
        granted == 1,
        "one of two was given back, and {granted} are granted"
    );
}
