//! What is apart and what is shared.

use std::time::Duration;

use super::bench::Bench;
use super::policies::{each_of, log, policy};
use super::remaining::check_fresh;
use super::{GUARD, LONG, any_wait, at_once, granted, require};
use crate::algorithm::micros;
use crate::key::Key;
use crate::limiter::Limiter;
use crate::policy::Policy;
use crate::quota::Quota;
use crate::store::{Reserve, Store};

async fn is_granted<S: Store>(bench: &Bench<S>, key: &Key, policy: &Policy) -> bool {
    !granted(&bench.ask(key, policy, &[at_once(1)]).await).is_empty()
}

/// Of any length and with any characters, and never mistaken for each other.
pub(super) async fn strange_keys_are_keys_of_their_own<S: Store>(bench: &Bench<S>) {
    let run = bench.key("x");
    let run = run.as_str();
    let long = format!("{run}{}", "x".repeat(100 * 1024 - run.len()));
    let mut keys = vec![long.clone(), format!("{long}x"), format!("y{}", &long[1..])];
    for strange in [
        "", " ", "{", "}", "{}", "}{", "{a}", "a}b{c", "\0", "\0\0", "\n", "\r\n", "\r", "\t", "%",
        "%00", "%7B", "%7b", "%0A", "é", "e\u{301}", "É", "🦀", "\u{feff}", "\u{202e}", "*", "?",
        "[", "\\", "\"", "'", ":", ":aside", ":0", "::", "/", "../", "|", ",", ";", "$", "#", "A",
        "a",
    ] {
        keys.push(format!("{run}{strange}"));
        if !strange.is_empty() {
            keys.push(format!("{strange}{run}"));
        }
    }
    let policy = log(1);
    for key in &keys {
        let key = Key::from(key);
        let fresh = is_granted(bench, &key, &policy).await;
        require!(
            bench,
            fresh,
            "the key {:.60?} is mistaken for another",
            key.as_str()
        );
    }
    for key in &keys {
        let key = Key::from(key);
        let again = is_granted(bench, &key, &policy).await;
        require!(
            bench,
            !again,
            "nothing is recorded for the key {:.60?}",
            key.as_str()
        );
    }
}

/// One that has spent its quota leaves another's untouched, and so does what is given back.
pub(super) async fn keys_do_not_affect_each_other<S: Store>(bench: &Bench<S>) {
    let (a, b, policy) = (bench.key("a"), bench.key("b"), log(2));
    let slots = bench.slots(&a, &policy, 6).await;
    bench.slots(&b, &policy, 1).await;
    let left = bench.ask(&b, &policy, &[any_wait(1)]).await;
    let departs = granted(&left)[0].at == left.now();
    require!(bench, departs, "a key has spent another's quota");
    bench.release(&a, &policy, &slots).await;
    let granted = is_granted(bench, &b, &policy).await;
    require!(bench, !granted, "a key was given what another gave back");
}

/// Neither do two quotas, nor the same quota under two names.
pub(super) async fn other_policies_do_not_affect_each_other<S: Store>(bench: &Bench<S>) {
    let key = bench.key("key");
    let named = |name| {
        let builder = Limiter::builder().quota(Quota::new(1, LONG)).name(name);
        builder.build().expect("a quota that can hold").policy()
    };
    let long = policy(&[Quota::new(1, LONG * 2)]);
    let joint = policy(&[Quota::new(1, LONG), Quota::new(1, LONG * 2)]);
    for policy in [log(1), log(2), long, joint, named("a"), named("b")] {
        let granted = is_granted(bench, &key, &policy).await;
        require!(
            bench,
            granted,
            "what another policy recorded counts for {}",
            policy.id()
        );
    }
}

/// The buffer, the guard and the bounds on waiting are no part of the id.
pub(super) async fn policies_of_one_id_share_their_quotas<S: Store>(bench: &Bench<S>) {
    let key = bench.key("key");
    let builder = Limiter::builder()
        .quota(Quota::new(1, LONG))
        .guard(GUARD * 2)
        .buffer(GUARD);
    let other = builder
        .max_wait(LONG)
        .max_waiting(5)
        .build()
        .expect("a quota that can hold");
    let first = is_granted(bench, &key, &log(1)).await;
    require!(
        bench,
        first,
        "nothing was recorded, and a request is refused"
    );
    let second = is_granted(bench, &key, &other.policy()).await;
    require!(
        bench,
        !second,
        "two policies of one id do not share the quota of a key"
    );
}

/// Once the reset has passed, the key is as it was before.
pub(super) async fn what_has_passed_is_forgotten<S: Store>(bench: &Bench<S>) {
    let quota = Quota::new(3, Duration::from_millis(300));
    let each = each_of(quota, quota).map(|(_, quota)| quota);
    let mut policies: Vec<_> = each.iter().map(|quota| policy(&[*quota])).collect();
    policies.push(policy(&each));
    let key = bench.key("key");
    let mut reset = 0;
    for policy in &policies {
        let answer = bench.ask(&key, policy, &[any_wait(3)]).await;
        reset = reset.max(answer.now() + micros(answer.reset()));
    }
    bench.wait_until_after(reset).await;
    for policy in &policies {
        let peek = Reserve {
            asks: &[],
            ..Reserve::new(&key, policy)
        };
        let mut answer = bench.peek(&peek).await;
        // Late in a window of the clock, the guard leaves no room; a slow machine may be late twice.
        for _ in 0..20 {
            if answer.remaining() > 0 {
                break;
            }
            let next = answer.now() + micros(GUARD);
            bench.wait_until_after(next).await;
            answer = bench.peek(&peek).await;
        }
        check_fresh(bench, policy, &answer, "after the reset");
    }
    let answer = bench.ask(&key, &policies[0], &[at_once(4)]).await;
    let (granted, left) = (granted(&answer).len(), answer.remaining());
    require!(
        bench,
        granted == 3,
        "after the reset, {granted} instead of 3 are granted"
    );
    require!(
        bench,
        left == 0,
        "after as many as the quota allows, {left} remain"
    );
}
