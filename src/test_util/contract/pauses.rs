//! Pauses, within which no slot lies.

use std::time::Duration;

use super::bench::Bench;
use super::policies::{kinds, policy};
use super::{LONG, PAUSE, any_wait, at_once, granted, judge, refused, require, waits};
use crate::algorithm::micros;
use crate::key::Key;
use crate::policy::Policy;
use crate::quota::{Algorithm, Quota};
use crate::store::{Reserve, Reserved, Store, Word};

/// The first possible one is at its end, and those that follow keep the quotas: wherever one asks from,
/// and whoever departed before.
pub(super) async fn no_slot_lies_within_a_pause<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        let pause = bench.pause(&key, &policy, PAUSE).await;
        let (told, end) = (pause.paused, pause.now + micros(PAUSE));
        require!(bench, told == end, "{name}: paused until {told}, not {end}");
        let first = first_slot_is_at(bench, name, &key, &policy, end).await;
        let slots = [granted(&first), bench.slots(&key, &policy, 5).await].concat();
        judge::keeps(bench, &policy, &slots);
        judge::wastes_little(bench, &policy, &slots, end);

        let key = bench.key(&format!("{name}-before"));
        let mut slots = bench.slots(&key, &policy, 1).await;
        let end = bench.pause(&key, &policy, PAUSE).await.paused;
        slots.extend(bench.slots(&key, &policy, 4).await);
        let at = slots[1].at;
        require!(
            bench,
            at >= end,
            "{name}: a slot at {at}, paused until {end}"
        );
        judge::keeps(bench, &policy, &slots);

        let key = bench.key(&format!("{name}-ahead"));
        let end = bench.pause(&key, &policy, PAUSE).await.paused;
        let reserve = Reserve {
            not_before: end - micros(PAUSE) / 2,
            ..Reserve::new(&key, &policy)
        };
        let answer = bench.reserve(&reserve).await;
        check_first(bench, name, &answer, end);
    }
}

/// By the wait of who asks or only looks, by what remains, and by the reset.
pub(super) async fn who_comes_during_a_pause_is_told_of_its_end<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        for before in [0, 1] {
            let key = bench.key(&format!("{name}-{before}"));
            bench.slots(&key, &policy, before).await;
            let end = bench.pause(&key, &policy, PAUSE).await.paused;
            let (promised, looked) = bench.promise(&key, &policy, 1).await;
            let asked = bench.ask(&key, &policy, &[at_once(1)]).await;
            let told = asked.now() + refused(&asked)[0];
            require!(
                bench,
                promised == told,
                "{name}: a peek tells {promised}, a refusal {told}"
            );
            // Behind one that departed, the quota may ask for a later time.
            let holds = told >= end && (before > 0 || told == end);
            require!(bench, holds, "{name}: told {told}, paused until {end}");
            for answer in [looked, asked] {
                let (left, reset) = (answer.remaining(), answer.now() + micros(answer.reset()));
                require!(bench, left == 0, "{name}: {left} remain during a pause");
                require!(
                    bench,
                    reset >= end,
                    "{name}: the reset is at {reset}, paused until {end}"
                );
            }
        }
    }
}

/// However many are refused, who waits finds the pause as it was.
pub(super) async fn who_does_not_wait_for_a_pause_leaves_no_trace<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        let end = bench.pause(&key, &policy, PAUSE).await.paused;
        let impatient = [at_once(3), waits(2, micros(PAUSE) / 2)];
        let answer = bench.ask(&key, &policy, &impatient).await;
        let count = refused(&answer).len();
        require!(bench, count == 5, "{name}: {count} of 5 are refused");
        let first = first_slot_is_at(bench, name, &key, &policy, end).await;
        let slots = [granted(&first), bench.slots(&key, &policy, 3).await].concat();
        judge::keeps(bench, &policy, &slots);
        judge::wastes_little(bench, &policy, &slots, end);
    }
}

/// It holds as many as ever, from the end of the pause on, however long that is.
pub(super) async fn a_pause_fills_no_leaky_bucket<S: Store>(bench: &Bench<S>) {
    for capacity in [1, 5, 12] {
        let quota = Quota::new(4, LONG).algorithm(Algorithm::LeakyBucket { capacity });
        let policy = policy(&[quota]);
        let name = policy.id();
        for each in [1, capacity + 5] {
            let key = bench.key(&format!("by {each}"));
            let end = bench.pause(&key, &policy, LONG * 5).await.paused;
            let mut slots = Vec::new();
            for _ in 0..(capacity + 5) / each {
                slots.extend(bench.slots(&key, &policy, each).await);
            }
            let count = slots.len();
            require!(
                bench,
                count == capacity as usize + 1,
                "{name}: {count} may wait for the end of a pause"
            );
            judge::keeps(bench, &policy, &slots);
            judge::wastes_little(bench, &policy, &slots, end);
        }
    }
}

/// Neither does one that is over at once.
pub(super) async fn a_shorter_pause_leaves_a_longer_one<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        let end = bench.pause(&key, &policy, PAUSE).await.paused;
        for span in [PAUSE / 2, Duration::from_micros(1), Duration::ZERO] {
            let told = bench.pause(&key, &policy, span).await.paused;
            require!(
                bench,
                told == end,
                "{name}: paused until {end}, and after {span:?} more until {told}"
            );
        }
        first_slot_is_at(bench, name, &key, &policy, end).await;
    }
}

/// To its own end, be that years ahead.
pub(super) async fn a_longer_pause_extends_a_shorter_one<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        bench.pause(&key, &policy, PAUSE / 3).await;
        let longer = bench.pause(&key, &policy, PAUSE).await;
        let (told, end) = (longer.paused, longer.now + micros(PAUSE));
        require!(bench, told == end, "{name}: extended to {told}, not {end}");
        first_slot_is_at(bench, name, &key, &policy, end).await;

        let longest = bench.pause(&key, &policy, Duration::MAX).await;
        let year = micros(Duration::from_secs(365 * 24 * 60 * 60));
        let wait = longest.paused.saturating_sub(longest.now);
        require!(
            bench,
            wait >= year,
            "{name}: the longest pause is {wait} us"
        );
        bench.heed(&key, &policy, Word::Resume).await;
    }
}

/// Who departed since knew of the pause, and is told to wait still; who departed before it is told no more
/// than those who were told first.
pub(super) async fn an_old_answer_extends_no_pause<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        let answers = |span, departed| Word::Pause {
            span: micros(span),
            departed,
        };
        let departed = bench.now().await - micros(LONG);
        let first = answers(PAUSE / 3, departed);
        let first = bench.heed(&key, &policy, first).await;
        let (told, end) = (first.paused, first.now + micros(PAUSE / 3));
        require!(
            bench,
            told == end,
            "{name}: paused until {told}, not {end}, by the first answer"
        );
        let old = answers(PAUSE, first.now - 1);
        let told = bench.heed(&key, &policy, old).await.paused;
        require!(
            bench,
            told == end,
            "{name}: paused until {told}, not {end}, by an old answer"
        );
        let since = answers(PAUSE, first.now);
        let since = bench.heed(&key, &policy, since).await;
        let (told, end) = (since.paused, since.now + micros(PAUSE));
        require!(
            bench,
            told == end,
            "{name}: paused until {told}, not {end}, by the answer to who departed since"
        );
        first_slot_is_at(bench, name, &key, &policy, end).await;
    }
}

/// Of a key of which nothing is recorded; or now, if that has passed.
pub(super) async fn first_slot_is_at<S: Store>(
    bench: &Bench<S>,
    name: &str,
    key: &Key,
    policy: &Policy,
    end: u64,
) -> Reserved {
    let answer = bench.ask(key, policy, &[any_wait(1)]).await;
    check_first(bench, name, &answer, end);
    answer
}

fn check_first<S: Store>(bench: &Bench<S>, name: &str, answer: &Reserved, end: u64) {
    let first = granted(answer).first().map(|slot| slot.at);
    let expected = end.max(answer.now());
    require!(
        bench,
        first == Some(expected),
        "{name}: the first slot is at {first:?}, not at {expected}"
    );
}
