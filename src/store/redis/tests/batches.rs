//! Hundreds of requests in one call: the twins, with limits up to thousands.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};

use super::support::redis_server::RedisServer;
use super::{Lua, UNIT};
use crate::algorithm::Rule;
use crate::algorithm::ledger::{Ask, Ledger};
use crate::algorithm::simulation::{Action, NotBefore, Step, run_staggered};
use crate::store::redis::script::Scripts;

/// A window, or what a full burst is worth.
const WINDOW: u64 = 10 * UNIT;

type Rules = fn(limit: u32) -> Vec<Rule>;

const KINDS: [(&str, Rules); 5] = [
    ("log", |limit| vec![log(limit, 1)]),
    ("two logs", |limit| vec![log(limit, 1), log(limit * 2, 3)]),
    ("spacing", |limit| {
        let interval = interval(limit);
        vec![Rule::Spacing { interval }]
    }),
    ("leaky bucket", |limit| {
        vec![Rule::LeakyBucket {
            interval: interval(limit),
            capacity: limit,
        }]
    }),
    ("gcra", |limit| {
        vec![Rule::Gcra {
            interval: interval(limit),
            tolerance: interval(limit) * u64::from(limit / 2),
        }]
    }),
];

fn log(limit: u32, windows: u64) -> Rule {
    let window = WINDOW * windows;
    Rule::SlidingLog { limit, window }
}

fn interval(limit: u32) -> u64 {
    WINDOW / u64::from(limit)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let advance = prop_oneof![
        2 => Just(0),
        4 => 0..WINDOW.cast_signed() / 4,
        2 => 0..WINDOW.cast_signed() * 2,
        1 => -WINDOW.cast_signed() / 4..0,
    ];
    let max_wait = prop_oneof![3 => Just(u64::MAX), 1 => Just(0), 1 => 0..2 * WINDOW];
    let cost = prop_oneof![4 => Just(1), 1 => 1..=10_u32];
    let ask = (1..=400_u32, cost, max_wait);
    let ask = ask.prop_map(|(count, cost, max_wait)| Ask {
        count,
        cost,
        max_wait,
    });
    let margin = prop_oneof![3 => Just(WINDOW / 500), 1 => 0..WINDOW / 10];
    let not_before = prop_oneof![
        3 => Just(NotBefore::Now),
        3 => Just(NotBefore::Last),
        1 => (0..WINDOW).prop_map(NotBefore::After),
    ];
    let reserve = (margin, not_before, vec(ask, 1..4));
    let reserve = reserve.prop_map(|(margin, not_before, asks)| Action::Reserve {
        margin,
        not_before,
        asks,
    });
    let release = vec(any::<Index>(), 1..100).prop_map(|places| Action::Release { places });
    let action = prop_oneof![3 => reserve, 1 => release];
    let step = (advance, action).prop_map(|(advance, action)| Step { advance, action });
    vec(step, 30)
}

/// Every answer compared.
fn compare(cases: u32, scripts: impl Fn(&[Rule]) -> Scripts) {
    let server = RedisServer::start();
    for (name, rules) in KINDS {
        let scripts = scripts(&rules(10));
        let mut runner = TestRunner::new(Config {
            cases,
            failure_persistence: None,
            ..Config::default()
        });
        // Without, all that have one slot are recorded alike.
        let stagger = prop_oneof![3 => Just(0), 1 => 0..=200_u64];
        let limit = prop_oneof![10..=40_u32, 10..=400_u32, 10..=3_000_u32];
        let result = runner.run(&(limit, stagger, steps()), |(limit, stagger, steps)| {
            let rules = rules(limit);
            let strict = Scripts::strict_and_told_the_time(&rules);
            let mut lua = Lua::with(&server, &rules, &scripts, &strict);
            lua.forget();
            run_staggered(&steps, |_| stagger, &mut Ledger::new(&rules), &mut lua);
            Ok(())
        });
        if let Err(error) = result {
            panic!("{name}: {error}");
        }
    }
}

#[test]
fn the_twins_hand_out_identical_slots_to_hundreds_at_once() {
    compare(20, Scripts::told_the_time);
}

/// With pages so small that there are many.
#[test]
fn the_twins_hand_out_identical_slots_of_long_logs_to_hundreds_at_once() {
    compare(8, |rules| Scripts::told_the_time(rules).with_long_logs());
}
