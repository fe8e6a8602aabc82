//! What those who hold slots have to know of a word: which of these are void.

use std::time::Duration;

use super::bench::Bench;
use super::policies::{kinds, log};
use super::remaining::check_fresh;
use super::{LONG, PAUSE, any_wait, granted, require};
use crate::algorithm::micros;
use crate::key::Key;
use crate::policy::Policy;
use crate::store::{Notice, Slot, Store, Word};

/// Slots, and when they were reserved: the clock shows a later time by now.
async fn held<S: Store>(bench: &Bench<S>, key: &Key, policy: &Policy) -> (Vec<Slot>, u64) {
    let answer = bench.ask(key, policy, &[any_wait(6)]).await;
    bench.wait_until_after(answer.now()).await;
    (granted(&answer), answer.now())
}

/// Of what was reserved up to the word of this time, what lies before the end is void, and nothing else.
fn voids_until<S: Store>(bench: &Bench<S>, notice: Notice, said: u64, end: u64) {
    let voids = [
        notice.voids(end - 1, said),
        notice.voids(end, said),
        notice.voids(end - 1, said + 1),
    ];
    require!(
        bench,
        voids == [true, false, false],
        "{notice:?} of what was said at {said} and holds until {end}"
    );
}

/// To the microsecond; and once more if it is extended.
pub(super) async fn a_word_voids_what_was_reserved_before<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        let (slots, reserved) = held(bench, &key, &policy).await;
        let span = Duration::from_micros(slots[3].at.midpoint(slots[4].at) - reserved);
        let pause = bench.pause(&key, &policy, span).await;
        voids_until(bench, pause, pause.now, pause.now + micros(span));
        for slot in &slots {
            let (void, lies_before) = (pause.voids(slot.at, reserved), slot.at < pause.paused);
            require!(
                bench,
                void == lies_before,
                "{name}: {pause:?} of a slot at {}, reserved at {reserved}",
                slot.at
            );
        }

        let (since, reserved) = held(bench, &key, &policy).await;
        let void = pause.voids(since[0].at, reserved);
        require!(bench, !void, "{name}: {pause:?} of what was reserved since");
        let span = span + LONG * 10;
        let longer = bench.pause(&key, &policy, span).await;
        voids_until(bench, longer, longer.now, longer.now + micros(span));
    }
    let (key, policy) = (bench.key("key"), log(2));
    held(bench, &key, &policy).await;
    let allowed = bench.allow(&key, &policy, 1, PAUSE).await;
    voids_until(bench, allowed, allowed.now, allowed.now + micros(PAUSE));
}

/// All of them: there may be earlier ones.
pub(super) async fn resuming_voids_what_was_reserved_before<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        let (before, reserved) = held(bench, &key, &policy).await;
        bench.pause(&key, &policy, PAUSE).await;
        let (during, reserved_during) = held(bench, &key, &policy).await;
        let resumed = bench.heed(&key, &policy, Word::Resume).await;
        let mut all = before.iter().map(|slot| (slot.at, reserved));
        let mut of_pause = during.iter().map(|slot| (slot.at, reserved_during));
        let voids = |(at, reserved)| resumed.voids(at, reserved);
        require!(
            bench,
            all.all(voids) && of_pause.all(voids),
            "{name}: {resumed:?} of slots that were reserved before"
        );
        bench.wait_until_after(resumed.now).await;
        let (since, reserved) = held(bench, &key, &policy).await;
        let void = resumed.voids(since[0].at, reserved);
        require!(bench, !void, "{name}: {resumed:?} of one reserved since");
    }
}

/// A word that comes too late, says less than another or has no end to reach, on a key of which something
/// was said and on one that was never seen.
pub(super) async fn a_word_that_changes_nothing_voids_nothing<S: Store>(bench: &Bench<S>) {
    let pause = |span, departed| Word::Pause {
        span: micros(span),
        departed,
    };
    let allow = |left, span| Word::Allow {
        left,
        span: micros(span),
    };
    let none = [pause(Duration::ZERO, u64::MAX), allow(0, Duration::ZERO)];
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        for word in [Word::None, none[0], none[1], Word::Resume] {
            let notice = bench.heed(&key, &policy, word).await;
            let is_none = (notice.until, notice.paused) == (0, 0);
            require!(bench, is_none, "{name}: {notice:?} of {word:?}");
            let (_, answer) = bench.promise(&key, &policy, 1).await;
            check_fresh(bench, &policy, &answer, "after a word that says nothing");
        }
        bench.slots(&key, &policy, 4).await;
        let allowed = bench.allow(&key, &policy, 1, PAUSE).await.now;
        let end = bench.pause(&key, &policy, PAUSE).await.paused;
        let old = pause(PAUSE * 2, allowed - 1);
        let shorter = pause(PAUSE / 2, u64::MAX);
        for word in [none[0], none[1], shorter, old, allow(2, PAUSE / 2)] {
            let notice = bench.heed(&key, &policy, word).await;
            let is_none = (notice.until, notice.paused) == (0, end);
            require!(
                bench,
                is_none,
                "{name}: {notice:?} of {word:?}, paused until {end}"
            );
        }
    }
}

/// To who only looks, and that records nothing.
pub(super) async fn how_a_key_stands_is_told<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        held(bench, &key, &policy).await;
        let (before, _) = bench.promise(&key, &policy, 1).await;
        let pause = bench.pause(&key, &policy, PAUSE / 2).await;
        let stands = bench.heed(&key, &policy, Word::None).await;
        let (told, end) = (stands.paused, pause.paused);
        require!(
            bench,
            told == end,
            "{name}: paused until {end}, told {told}"
        );
        voids_until(bench, stands, pause.now, end);

        bench.wait_until_after(pause.now).await;
        let allowed = bench.allow(&key, &policy, 0, PAUSE).await;
        let stands = bench.heed(&key, &policy, Word::None).await;
        let told = stands.paused;
        require!(
            bench,
            told == end,
            "{name}: paused until {end}, told {told}"
        );
        voids_until(bench, stands, allowed.now, allowed.now + micros(PAUSE));

        bench.heed(&key, &policy, Word::Resume).await;
        let stands = bench.heed(&key, &policy, Word::None).await;
        let is_none = (stands.until, stands.paused) == (0, 0);
        require!(bench, is_none, "{name}: after resuming, {stands:?}");
        let (promised, answer) = bench.promise(&key, &policy, 1).await;
        let same = promised == before.max(answer.now());
        require!(
            bench,
            same,
            "{name}: a peek told {before}, after words that hold no longer {promised}"
        );
    }
}
