//! How words go with what else is recorded, whom they concern, and how they end.

use std::time::Duration;

use super::bench::Bench;
use super::pauses::first_slot_is_at;
use super::policies::{each, kinds, log, policy};
use super::remaining::check_fresh;
use super::{GUARD, LONG, PAUSE, judge, require, times};
use crate::algorithm::micros;
use crate::key::Key;
use crate::limiter::Limiter;
use crate::policy::Policy;
use crate::quota::Quota;
use crate::store::{Slot, Store, Word};

/// A time behind the fourth of these slots, and before the fifth.
fn midway(slots: &[Slot]) -> u64 {
    slots[3].at.midpoint(slots[4].at)
}

/// From this store time on, for so long as to reach that one.
fn span_to(end: u64, now: u64) -> Duration {
    Duration::from_micros(end.saturating_sub(now))
}

/// Whichever they are, and however long they would hold. What was recorded before still counts.
pub(super) async fn resuming_ends_whatever_was_said<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        bench.pause(&key, &policy, PAUSE).await;
        bench.allow(&key, &policy, 0, PAUSE * 2).await;
        let resumed = bench.heed(&key, &policy, Word::Resume).await;
        let still = resumed.paused;
        require!(bench, still == 0, "{name}: paused until {still} still");
        let (_, answer) = bench.promise(&key, &policy, 1).await;
        check_fresh(bench, &policy, &answer, "after resuming");
        let slots = bench.slots(&key, &policy, 5).await;
        judge::keeps(bench, &policy, &slots);
        judge::wastes_little(bench, &policy, &slots, bench.now().await);

        let key = bench.key(&format!("{name}-before"));
        let mut slots = bench.slots(&key, &policy, 3).await;
        bench.pause(&key, &policy, LONG * 10).await;
        bench.heed(&key, &policy, Word::Resume).await;
        slots.extend(bench.slots(&key, &policy, 4).await);
        judge::keeps(bench, &policy, &slots);
        judge::wastes_little(bench, &policy, &slots, bench.now().await);
    }
}

/// Those who hold slots behind a pause use them, so the quotas hold for them and the new ones together.
pub(super) async fn what_lies_behind_a_pause_stays_charged<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        let mut slots = bench.slots(&key, &policy, 8).await;
        let span = span_to(midway(&slots), bench.now().await);
        let end = bench.pause(&key, &policy, span).await.paused;
        slots.retain(|slot| slot.at >= end);
        let kept = slots.len();
        require!(bench, kept == 4, "{name}: {kept} of 4 lie behind {end}");
        let new = bench.slots(&key, &policy, 4).await;
        let at = times(&new);
        require!(bench, at[0] >= end, "{name}: {at:?}, paused until {end}");
        slots.extend(new);
        judge::keeps(bench, &policy, &slots);
    }
}

/// Whether it was given back before the pause or since; one that lies behind serves the next.
pub(super) async fn a_free_slot_within_a_pause_serves_nobody<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        let slots = bench.slots(&key, &policy, 8).await;
        bench.release(&key, &policy, &slots[2..3]).await;
        let span = span_to(midway(&slots), bench.now().await);
        let end = bench.pause(&key, &policy, span).await.paused;
        bench.release(&key, &policy, &slots[3..4]).await;
        bench.release(&key, &policy, &slots[5..6]).await;
        let new = bench.slots(&key, &policy, 3).await;
        let (at, free) = (times(&new), slots[5].at);
        require!(bench, at[0] >= end, "{name}: {at:?}, paused until {end}");
        require!(
            bench,
            at[0] == free,
            "{name}: {free} was given back, and {} handed out",
            at[0]
        );
        let mut kept = [&slots[4..5], &slots[6..]].concat();
        kept.extend(new);
        judge::keeps(bench, &policy, &kept);
    }
}

/// Neither other keys, however alike, nor other policies of the key; nor does their resuming.
pub(super) async fn words_concern_one_key_under_one_policy<S: Store>(bench: &Bench<S>) {
    let (paused, single) = (bench.key("key"), log(3));
    let named = Limiter::builder().quota(Quota::new(3, LONG)).name("other");
    let named = named.build().expect("a quota that can hold").policy();
    let joint = policy(&[Quota::new(3, LONG), Quota::new(9, LONG * 2)]);
    let counted = each(bench, 3).await.map(|(_, quota)| policy(&[quota]));
    let text = paused.as_str();
    let alike = ["*", ":aside", ":0", "a", " ", "\0"].map(|end| format!("{text}{end}"));
    let mut others: Vec<(Key, &Policy)> = alike.map(|key| (key.into(), &*single)).into();
    others.push((text.to_uppercase().into(), &single));
    // The first of these is the one that is paused.
    others.extend(
        counted[1..]
            .iter()
            .map(|policy| (paused.clone(), &**policy)),
    );
    others.extend([(paused.clone(), &*named), (paused.clone(), &*joint)]);

    bench.slot(&paused, &single).await;
    let mut promises = Vec::new();
    for (key, policy) in &others {
        bench.slot(key, policy).await;
        promises.push(bench.promise(key, policy, 1).await.0);
    }
    let end = bench.pause(&paused, &single, PAUSE).await.paused;
    bench.allow(&paused, &single, 0, PAUSE).await;
    for ((key, policy), before) in others.iter().zip(promises) {
        let (promised, answer) = bench.promise(key, policy, 1).await;
        require!(
            bench,
            promised == before.max(answer.now()),
            "{key} is held up for {}, as {paused} is for {}",
            policy.id(),
            single.id()
        );
    }
    for (key, policy) in &others {
        bench.pause(key, policy, PAUSE / 2).await;
        bench.heed(key, policy, Word::Resume).await;
    }
    let (promised, _) = bench.promise(&paused, &single, 1).await;
    require!(
        bench,
        promised >= end,
        "{paused} is no longer paused, as others are not"
    );
}

/// The buffer, the guard and the bounds on waiting are no part of the id.
pub(super) async fn policies_of_one_id_share_what_was_said<S: Store>(bench: &Bench<S>) {
    let builder = Limiter::builder()
        .quota(Quota::new(1, LONG))
        .guard(GUARD * 2)
        .buffer(GUARD);
    let other = builder.max_wait(LONG).max_waiting(5).build();
    let other = other.expect("a quota that can hold").policy();
    for (says, asks) in [(&*other, &*log(1)), (&*log(1), &*other)] {
        let key = bench.key(&format!("key {:?}", says.guard()));
        let end = bench.pause(&key, says, PAUSE).await.paused;
        first_slot_is_at(bench, "another policy of the id", &key, asks, end).await;
    }
}

/// For the key that it is asked for, and no other.
pub(super) async fn a_reset_forgets_what_was_said<S: Store>(bench: &Bench<S>) {
    let allow = Word::Allow {
        left: 0,
        span: micros(PAUSE),
    };
    let pause = Word::Pause {
        span: micros(PAUSE),
        departed: u64::MAX,
    };
    for (name, policy) in kinds(bench).await {
        for word in [pause, allow] {
            let (key, other) = (bench.key(name), bench.key(&format!("{name}-other")));
            bench.heed(&key, &policy, word).await;
            bench.slots(&key, &policy, 3).await;
            let end = bench.pause(&other, &policy, PAUSE).await.paused;
            bench.reset(&key, &policy).await;
            let (_, answer) = bench.promise(&key, &policy, 1).await;
            check_fresh(bench, &policy, &answer, "after a reset");
            let stands = bench.heed(&key, &policy, Word::None).await;
            let is_none = (stands.until, stands.paused) == (0, 0);
            require!(bench, is_none, "{name}: after a reset, {stands:?}");
            let (promised, _) = bench.promise(&other, &policy, 1).await;
            require!(
                bench,
                promised == end,
                "{name}: with a reset of another key, a pause is over"
            );
        }
    }
}

/// Once its time has passed, the key is as if it had not been said; what is said next is the first word.
pub(super) async fn what_was_said_is_forgotten_in_time<S: Store>(bench: &Bench<S>) {
    let short = Duration::from_millis(200);
    let kinds = kinds(bench).await;
    let keys = |name: &str| ["paused", "allowed"].map(|word| bench.key(&format!("{name} {word}")));
    let mut last = 0;
    for (name, policy) in &kinds {
        let [paused, allowed] = keys(name);
        bench.pause(&paused, policy, short).await;
        last = bench.allow(&allowed, policy, 0, short).await.now + micros(short);
    }
    bench.wait_until_after(last).await;
    for (name, policy) in &kinds {
        let [paused, allowed] = keys(name);
        for key in [&paused, &allowed] {
            let (_, answer) = bench.promise(key, policy, 1).await;
            check_fresh(bench, policy, &answer, "after the time of what was said");
            let stands = bench.heed(key, policy, Word::None).await;
            let is_none = (stands.until, stands.paused) == (0, 0);
            require!(bench, is_none, "{name}: in the end, {stands:?}");
        }
        let word = Word::Pause {
            span: micros(PAUSE),
            departed: last - micros(LONG),
        };
        let pause = bench.heed(&paused, policy, word).await;
        let is_new = pause.paused == pause.now + micros(PAUSE);
        require!(
            bench,
            is_new,
            "{name}: a pause that is over holds up another"
        );
        let end = bench.allow(&allowed, policy, 1, PAUSE).await.now + micros(PAUSE);
        let slots = bench.slots(&allowed, policy, 2).await;
        let departs = slots[0].at < end && slots[1].at >= end;
        require!(
            bench,
            departs,
            "{name}: after an allowance that is over, slots at {:?} for one until {end}",
            times(&slots)
        );
    }
}
