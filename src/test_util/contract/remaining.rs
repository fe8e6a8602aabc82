//! What an answer tells of the key besides its slots.

use super::bench::Bench;
use super::policies::{each, log, policy};
use super::{LONG, any_wait, at_once, granted, judge, refused, require};
use crate::algorithm::micros;
use crate::policy::Policy;
use crate::quota::Quota;
use crate::store::{Ask, Reserved, Slot, Store};

/// After k of N, N - k are left, and none while there are slots to come.
pub(super) async fn what_remains_of_a_log_is_told<S: Store>(bench: &Bench<S>) {
    let (key, policy) = (bench.key("key"), log(5));
    for (ask, remaining) in [
        (any_wait(2), 3),
        (any_wait(1), 2),
        (any_wait(2), 0),
        (at_once(1), 0),
        (any_wait(1), 0),
    ] {
        let left = bench.ask(&key, &policy, &[ask]).await.remaining();
        require!(
            bench,
            left == remaining,
            "{left} remain instead of {remaining}"
        );
    }
}

/// As many as are told to remain depart at once, and no more: as another key with the same history
/// shows, where no time passes in between.
pub(super) async fn as_many_as_remain_depart_at_once<S: Store>(bench: &Bench<S>) {
    let costing = |cost| Ask {
        cost,
        ..any_wait(1)
    };
    let each = each(bench, 5).await;
    let mut policies: Vec<_> = each.iter().map(|(_, quota)| policy(&[*quota])).collect();
    policies.push(policy(&[Quota::new(5, LONG), Quota::new(3, LONG * 2)]));
    policies.push(policy(&each.map(|(_, quota)| quota)));
    for policy in policies {
        for (name, before) in [
            ("one", &[any_wait(1)][..]),
            ("several", &[any_wait(3)]),
            ("a costly one", &[costing(2)]),
            ("one that waits", &[any_wait(9), at_once(1)]),
        ] {
            let told = bench.ask(&bench.key(name), &policy, before).await;
            let more = [before, &[at_once(7)]].concat();
            let key = bench.key(&format!("{name} again"));
            let answer = bench.ask(&key, &policy, &more).await;
            let count = granted(&answer).len() - granted(&told).len();
            require!(
                bench,
                told.remaining() as usize == count,
                "{}: after {name}, {} remain, and {count} depart at once",
                policy.id(),
                told.remaining()
            );
            let left = answer.remaining();
            require!(bench, left == 0, "{left} remain where none would depart");
        }
    }
}

/// The time from which nothing recorded counts any more: it follows from the records.
pub(super) async fn the_reset_tells_when_all_remain<S: Store>(bench: &Bench<S>) {
    let each = each(bench, 4).await;
    let mut policies: Vec<_> = each.iter().map(|(_, quota)| policy(&[*quota])).collect();
    policies.push(policy(&[Quota::new(5, LONG), Quota::new(3, LONG * 2)]));
    policies.push(policy(&each.map(|(_, quota)| quota)));
    for policy in policies {
        let key = bench.key("key");
        let mut slots = Vec::new();
        for ask in [any_wait(1), any_wait(1), at_once(9), any_wait(6)] {
            let answer = bench.ask(&key, &policy, &[ask]).await;
            slots.extend(granted(&answer));
            check_reset(bench, &policy, &slots, &answer);
        }
    }
}

fn check_reset<S: Store>(bench: &Bench<S>, policy: &Policy, slots: &[Slot], answer: &Reserved) {
    let (earliest, latest) = judge::reset(policy, slots);
    let told = answer.now() + micros(answer.reset());
    let waste: u64 = policy
        .quotas()
        .iter()
        .map(|quota| micros(quota.window()) / judge::WASTE)
        .sum();
    require!(
        bench,
        told >= earliest && told <= latest + waste,
        "{}: a reset at {told} instead of {earliest}",
        policy.id()
    );
}

/// Nothing has been recorded, so all remain, and the next departs at once whatever it costs.
pub(super) fn check_fresh<S: Store>(
    bench: &Bench<S>,
    policy: &Policy,
    answer: &Reserved,
    when: &str,
) {
    let (left, all) = (answer.remaining(), judge::all(policy));
    let name = policy.id();
    require!(
        bench,
        left == all,
        "{name}: {when}, {left} remain instead of {all}"
    );
    let reset = answer.reset();
    require!(
        bench,
        reset.is_zero(),
        "{name}: {when}, the reset is {reset:?}"
    );
    let wait = refused(answer);
    require!(
        bench,
        wait.iter().all(|wait| *wait == 0),
        "{name}: {when}, a peek tells to wait {wait:?}"
    );
}
