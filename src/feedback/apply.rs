//! Applies the limits that an upstream announces in its responses: [`apply`].

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Timeout, sleep, timeout};

use crate::algorithm::Command;
use crate::backoff;
use crate::feedback::Advice;
use crate::guard::micros;
use crate::permit::Permit;
use crate::policy::Policy;
use crate::quota::{Algorithm, CONCURRENT, Quota};

/// A response is held back until the store knows its contents, for at most this long: enough for a round trip.
const LONGEST_DELAY: Duration = Duration::from_millis(100);

/// Unless few requests remain, the store learns how many at most this often.
const SELDOM: Duration = Duration::from_millis(100);

/// The pauses after calls that have failed.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Sends commands to the store, in a task of its own. This ends when the store has them, or after [`LONGEST_DELAY`].
pub(crate) type Applying = Pin<Box<Timeout<JoinHandle<()>>>>;

/// Applies the advice in the response to a request that departed by this permit, if it says more than the quotas do.
pub(crate) fn apply(permit: &Permit, advice: &Advice) -> Option<Applying> {
    // Most responses.
    if advice.wait().is_none() && advice.allowances().next().is_none() {
        return None;
    }
    let remaining = permit.granted.remaining;
    let (handle, key, turn) = (&permit.handle, &permit.key, &permit.granted.turn);
    let policy = handle.policy();
    let begun = Instant::now();
    // The store has not recorded a departure that the fallback store granted.
    let evidence = turn.recorded.map_or(u64::MAX, u64::from);
    let command = move |unit: Option<usize>, units: u32, time: Duration| {
        let span = micros(time);
        match unit {
            None => Command::Pause { span, evidence },
            Some(unit) => Command::Allow {
                unit,
                units,
                span,
                evidence,
            },
        }
    };
    let mut wait = advice.wait().unwrap_or_default();
    let mut news = SmallVec::<[_; 2]>::new();
    for (name, units, time) in advice.allowances() {
        let Some(unit) = policy.units.iter().position(|unit| *unit == name) else {
            if units == 0 && name != CONCURRENT {
                // Any request may cost something in this unit.
                wait = wait.max(time);
            }
            continue;
        };
        let name = policy.units[unit];
        let left_then = remaining.of(name).unwrap_or(u32::MAX);
        let refill = shortest_refill(&policy, name);
        // The upstream also counts the requests that have departed since.
        let left = || left_then.min(handle.least_remaining(key, name, begun.checked_sub(refill)));
        let is_news = match units {
            // If the requests of this limiter may use the upstream's places, its own limit is enough.
            _ if name == CONCURRENT => {
                let others_use_them = units == 0 && left() > policy.largest_costs.0[unit] / 2;
                others_use_them && handle.announces(key, Some(name), Duration::ZERO, begun - SELDOM)
            }
            0 => {
                let says_more = left() > 0 || time > refill + ROUNDING;
                (says_more || advice.is_refused)
                    && handle.announces(key, Some(name), time, turn.from)
            }
            _ => {
                is_less(unit, units, time, &policy, left)
                    && (units <= policy.largest_costs.0[unit] / 16
                        || handle.announces(key, Some(name), Duration::ZERO, begun - SELDOM))
            }
        };
        if is_news {
            handle.apply_command(key, &command(Some(unit), units, time), begun);
            news.push((Some(name), units, time));
        }
    }
    if !wait.is_zero() && handle.announces(key, None, wait, turn.from) {
        let pause = command(None, 0, wait);
        handle.apply_command(key, &pause, begun);
        news.insert(0, (None, 0, wait));
    }
    let stops = news
        .iter()
        .filter(|(name, units, _)| *units == 0 && *name != Some(CONCURRENT));
    if let Some(time) = stops.map(|(_, _, time)| *time).max() {
        let pause = command(None, 0, time);
        handle.load().telemetry.commanded(key, &pause);
    }
    if news.is_empty() {
        return None;
    }
    let (is_embedded, handle, key) = (handle.is_embedded(), handle.clone(), key.clone());
    let mut sending = Box::pin(async move {
        for (name, units, time) in news {
            for attempt in 1.. {
                let left = time.saturating_sub(begun.elapsed());
                // The quotas may have changed.
                let position = |name| handle.policy().units.iter().position(|it| *it == name);
                let unit = match name.map(position) {
                    Some(None) => break,
                    unit => unit.flatten(),
                };
                let command = command(unit, units, left);
                // If nothing may depart, the store has to have it, unless the time is over.
                let is_over = micros(left) == 0;
                if is_over || handle.control(&key, command).await.is_ok() || units > 0 {
                    break;
                }
                sleep(backoff::before(attempt, FIRST_PAUSE, LONGEST_PAUSE)).await;
            }
        }
    });
    let mut cx = Context::from_waker(Waker::noop());
    if is_embedded && sending.as_mut().poll(&mut cx).is_ready() {
        return None;
    }
    // Outside of a runtime, a pause stops only the requests that wait in this process.
    let sending = Runtime::try_current().ok()?.spawn(sending);
    Some(Box::pin(timeout(LONGEST_DELAY, sending)))
}

/// Times are rounded up to seconds, or count from a `Date` that is rounded down.
const ROUNDING: Duration = Duration::from_secs(1);

/// The shortest time in which the quotas of a unit are fully available again.
fn shortest_refill(policy: &Policy, unit: &str) -> Duration {
    let refill = |quota: &Quota| match quota.counted_by() {
        Algorithm::Gcra { burst } => quota.interval() * burst,
        _ => quota.span(),
    };
    let quotas = policy.quotas().iter();
    let alike = quotas.filter(|it| it.unit_name() == unit);
    alike.map(refill).min().unwrap_or_default()
}

/// Whether an upstream announces less of a unit than the quotas let depart in that time. An announcement with much to
/// spare does not matter: every response repeats it, and a window's worth of requests may be under way.
fn is_less(
    unit: usize,
    left: u32,
    time: Duration,
    policy: &Policy,
    remaining: impl FnOnce() -> u32,
) -> bool {
    if left / 2 >= policy.largest_costs.0[unit] {
        return false;
    }
    let name = policy.units[unit];
    let quotas = policy.quotas().iter();
    let quotas = quotas.filter(|quota| quota.unit_name() == name);
    let expected = quotas.map(|quota| {
        // `remaining` is what is left of the current window.
        let time = time.saturating_sub(ROUNDING + Duration::from_micros(1));
        let more = time.as_micros() / quota.window().as_micros().max(1);
        more.saturating_mul(quota.limit().into())
    });
    let expected = expected.min().unwrap_or(0);
    u128::from(left) < expected.saturating_add(remaining().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::{Limiter, LimiterBuilder};
    use crate::policy::PolicyParts;

    const SECOND: Duration = Duration::from_secs(1);

    fn limiter(quotas: &str) -> Limiter {
        let quotas = quotas.split(" + ").map(|it| it.parse().unwrap());
        let builder = quotas.fold(Limiter::builder(), LimiterBuilder::quota);
        builder.build().unwrap()
    }

    async fn delay(limiter: &Limiter) -> Duration {
        limiter.peek("a").await.unwrap().delay()
    }

    async fn depart(limiter: &Limiter) -> Permit {
        limiter.acquire("a").await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_response_extends_a_newer_pause_only_if_it_states_a_longer_one() {
        let limiter = limiter("9/s");
        let (slow, quick) = (depart(&limiter).await, depart(&limiter).await);
        tokio::time::advance(SECOND).await;
        apply(&quick, &Advice::pause(SECOND * 3));
        tokio::time::advance(SECOND).await;
        apply(&slow, &Advice::pause(SECOND * 3));
        assert_eq!(delay(&limiter).await, SECOND * 2);
        apply(&slow, &Advice::pause(SECOND * 4));
        assert_eq!(delay(&limiter).await, SECOND * 4);
        // A request that departed since says something new.
        let later = depart(&limiter).await;
        apply(&later, &Advice::pause(SECOND * 3));
        assert_eq!(delay(&limiter).await, SECOND * 3);
    }

    #[tokio::test(start_paused = true)]
    async fn places_that_others_use_at_the_upstream_are_left_to_them_for_a_second() {
        let limiter = limiter("9 concurrent");
        let advice = |left| Advice::remaining_of(CONCURRENT, left, SECOND);
        let left = async || limiter.peek("a").await.unwrap().remaining();
        let [one, two, three] = [0; 3].map(|_| depart(&limiter));
        let (one, mut two, three) = (one.await, two.await, three.await);
        let places = std::mem::take(&mut two.granted.place);
        // Some are left, or the requests of this limiter may use them.
        assert!(apply(&one, &advice(1)).is_none());
        drop(one);
        assert_eq!(left().await, 7);
        apply(&two, &advice(0));
        assert_eq!(left().await, 0);
        tokio::time::advance(SECOND * 2).await;
        assert_eq!(left().await, 7);
        drop((places, three));
        assert_eq!(left().await, 9);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_does_not_hide_what_the_same_response_allows() {
        let limiter = limiter("9/m");
        let permit = depart(&limiter).await;
        assert!(apply(&permit, &Advice::remaining(8, SECOND * 30)).is_none());
        tokio::time::advance(SECOND).await;
        let advice = Advice::pause(SECOND).and(Advice::remaining(3, SECOND * 30));
        apply(&permit, &advice);
        tokio::time::advance(SECOND * 2).await;
        assert_eq!(limiter.peek("a").await.unwrap().remaining(), 3);
        // As much is left, for longer.
        let advice = Advice::remaining(3, SECOND * 60);
        apply(&permit, &advice);
        tokio::time::advance(SECOND * 40).await;
        assert_eq!(limiter.peek("a").await.unwrap().remaining(), 3);
    }

    /// The upstream has the same quota, counts it to whole seconds, and has accepted the request.
    #[tokio::test(start_paused = true)]
    async fn what_the_quotas_say_themselves_holds_nothing_back() {
        let expected = SECOND + Duration::from_millis(12);
        for (advice, delay_then) in [
            (Advice::remaining(0, SECOND * 2), expected),
            (Advice::remaining(0, SECOND * 2).refused(), SECOND * 2),
            (Advice::remaining(0, SECOND * 5 / 2), SECOND * 5 / 2),
            (Advice::pause(SECOND * 2), SECOND * 2),
        ] {
            let limiter = limiter("1/s");
            apply(&depart(&limiter).await, &advice);
            assert_eq!(delay(&limiter).await, delay_then, "{advice:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_left_before_a_window_ended_does_not_count() {
        let limiter = limiter("10/s + 900/h + 100 concurrent");
        let first = depart(&limiter).await;
        for _ in 0..9 {
            depart(&limiter).await;
        }
        tokio::time::advance(SECOND * 3 / 2).await;
        apply(&first, &Advice::remaining(0, SECOND * 2));
        assert_eq!(delay(&limiter).await, SECOND * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_used_of_an_allowance_may_depart() {
        // Times of the second one are rounded to two minutes.
        for quotas in ["100/m", "100/m + 1000000/d"] {
            let limiter = limiter(quotas);
            let left = async || limiter.peek("a").await.unwrap().remaining();
            let first = depart(&limiter).await;
            apply(&first, &Advice::remaining(3, SECOND * 50));
            tokio::time::advance(SECOND).await;
            let second = depart(&limiter).await;
            assert_eq!(left().await, 2);
            second.forfeit();
            assert_eq!(left().await, 3);
            // The upstream has counted this one.
            first.forfeit();
            assert_eq!(left().await, 3);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn where_nothing_remains_turns_that_were_granted_before_are_held_back() {
        let limiter = limiter("50/s");
        let first = depart(&limiter).await;
        let all = (0..200).map(|_| tokio::spawn(limiter.acquire("a")));
        let all: Vec<_> = all.collect();
        tokio::time::sleep(SECOND * 98 / 100).await;
        apply(&first, &Advice::remaining(0, SECOND * 60));
        tokio::time::sleep(SECOND * 30).await;
        let departed = all.iter().filter(|it| it.is_finished()).count();
        assert_eq!(departed, 49);
    }

    #[test]
    fn only_fewer_than_the_quotas_let_depart_by_then_matter() {
        let is_less =
            |left, time, policy: &Policy, remaining| is_less(0, left, time, policy, || remaining);
        let policy = |quotas| PolicyParts::of(quotas).build().unwrap();
        let second = policy("10/s");
        assert!(!is_less(9, SECOND, &second, 9) && !is_less(0, SECOND, &second, 0));
        assert!(is_less(8, SECOND, &second, 9));
        let policy = policy("10/s + 30/m");
        assert!(!is_less(9, SECOND * 60, &policy, 9));
        assert!(!is_less(9, SECOND * 61, &policy, 0) && is_less(9, SECOND * 62, &policy, 0));
        assert!(is_less(19, SECOND * 3600, &policy, 9));
        assert!(!is_less(20, SECOND * 3600, &policy, 9));
    }
}
