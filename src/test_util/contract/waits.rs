//! Refusals, and times before which nobody departs.

use super::bench::Bench;
use super::policies::{goes_by_the_clock, kinds, log};
use super::{GUARD, LONG, NEAR, any_wait, at_once, granted, judge, refused, require, times, waits};
use crate::algorithm::micros;
use crate::store::{Reserve, Store};

/// However many are refused, the next one departs when the first of them would have.
pub(super) async fn a_refusal_records_nothing<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        bench.slots(&key, &policy, 3).await;
        let answer = bench
            .ask(&key, &policy, &[at_once(3), waits(4, 1_000)])
            .await;
        let count = refused(&answer).len();
        require!(bench, count == 7, "{name}: {count} of 7 were refused");
        let promised = answer.now() + refused(&answer)[0];
        let again = bench.ask(&key, &policy, &[at_once(5)]).await;
        let slot = bench.slot(&key, &policy).await;
        let same = slot.at == promised;
        require!(
            bench,
            same,
            "{name}: refused for {promised}, then granted at {}",
            slot.at
        );
        let left = (answer.remaining(), again.remaining());
        require!(
            bench,
            left.0 == left.1,
            "{name}: {} remained, then {}",
            left.0,
            left.1
        );
    }
}

/// Within one call no time passes: there, who would wait one microsecond less is refused, and who
/// would wait that long is granted. The wait is known from another key with the same history, unless
/// it depends on the clock too.
pub(super) async fn the_wait_of_a_refusal_is_exact<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let before = bench.key(&format!("{name}-before"));
        let answer = bench
            .ask(&before, &policy, &[any_wait(3), at_once(1)])
            .await;
        let waited = refused(&answer);
        require!(
            bench,
            waited.len() == 1,
            "{name}: more than its quota allows departs at once"
        );
        let wait = waited[0];
        let promised = answer.now() + wait;

        let key = bench.key(name);
        let mut asks = vec![any_wait(3), at_once(1), any_wait(1)];
        if !goes_by_the_clock(&policy) {
            asks[1..].copy_from_slice(&[waits(1, wait - 1), waits(1, wait)]);
        }
        let answer = bench.ask(&key, &policy, &asks).await;
        let told = refused(&answer);
        let last = granted(&answer).pop().map(|slot| slot.at - answer.now());
        require!(
            bench,
            told.len() == 1 && last == Some(told[0]),
            "{name}: told to wait {told:?} us, granted after {last:?}"
        );
        require!(
            bench,
            told == [wait] || goes_by_the_clock(&policy),
            "{name}: told to wait {wait} us, then {told:?}"
        );

        // From call to call time passes, and the wait shrinks with it.
        let then = bench.ask(&before, &policy, &[waits(1, wait)]).await;
        let at = times(&granted(&then));
        let expected = promised.max(then.now());
        require!(
            bench,
            at == [expected],
            "{name}: told to wait until {promised}, granted at {at:?}"
        );
    }
}

/// A time to come is waited for, one that has passed is not, and both count for `max_wait`.
pub(super) async fn no_slot_lies_before_not_before<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        let not_before = bench.now().await + micros(LONG);
        let asks = [at_once(1), any_wait(2)];
        let reserve = Reserve {
            not_before,
            asks: &asks,
            ..Reserve::new(&key, &policy)
        };
        let answer = bench.reserve(&reserve).await;
        let first = granted(&answer)[0].at;
        let expected = not_before.max(answer.now());
        require!(
            bench,
            first == expected,
            "{name}: a slot at {first} instead of {expected}"
        );
        let waited = refused(&answer);
        let told = waited == [not_before.saturating_sub(answer.now())];
        require!(
            bench,
            told || answer.now() > not_before,
            "{name}: refused with {waited:?}"
        );

        let key = bench.key(&format!("{name}-past"));
        let reserve = Reserve {
            not_before: answer.now().saturating_sub(1_000),
            ..Reserve::new(&key, &policy)
        };
        let answer = bench.reserve(&reserve).await;
        let (at, now) = (granted(&answer)[0].at, answer.now());
        require!(
            bench,
            at == now,
            "{name}: a slot at {at} instead of now, at {now}"
        );
    }
}

/// A line asks for nothing before its last slot, while others depart before that.
pub(super) async fn slots_that_skip_ahead_keep_the_limit<S: Store>(bench: &Bench<S>) {
    let (key, policy) = (bench.key("key"), log(3));
    let now = bench.now().await;
    let mut slots = Vec::new();
    for ahead in [0, 100, 20, 0, 250, 0, 90, 0, 0, 400, 0] {
        let asks = [any_wait(1)];
        let reserve = Reserve {
            not_before: now + ahead * 1_000_000,
            asks: &asks,
            ..Reserve::new(&key, &policy)
        };
        slots.extend(granted(&bench.reserve(&reserve).await));
    }
    judge::keeps(bench, &policy, &slots);
    let last = slots.iter().map(|slot| slot.at).max().unwrap_or(now);
    // The limiter asks for slots in order; all of them within their windows and no gap for nothing.
    let latest = now + 400_000_000 + micros(LONG + GUARD) * 4 + NEAR;
    require!(
        bench,
        last <= latest,
        "the last slot lies at {last}, later than {latest}"
    );
}

/// Nor does the time of one key lag behind that of another.
pub(super) async fn the_time_never_goes_back<S: Store>(bench: &Bench<S>) {
    let policy = log(1);
    let mut last = 0;
    for call in 0..200 {
        let key = bench.key(&format!("key-{}", call % 7));
        let now = bench.ask(&key, &policy, &[at_once(1)]).await.now();
        require!(bench, now >= last, "the time was {last} and then {now}");
        last = now;
    }
    bench.wait_until_after(last + 1_000).await;
}
