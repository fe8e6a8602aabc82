//! Values that no throttle wrote, or almost one: what answers the common cases makes of them what the ledger
//! does, and the ledger in Rust.

use std::cell::RefCell;
use std::error::Error as _;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};
use redis::Value;

use super::UNIT;
use super::support::redis_server::RedisServer;
use crate::algorithm::Rule;
use crate::algorithm::ledger::{Ask, Ledger, Outcome, Terms};
use crate::algorithm::micros;
use crate::quota::HORIZON;
use crate::store::Reserved;
use crate::store::redis::calls::Packed;
use crate::store::redis::reply;
use crate::store::redis::script::Scripts;

const NOW: u64 = 1_763_000_000_000_000;

/// No record lies further ahead.
const SANE: u64 = 3 * HORIZON.as_micros() as u64;

const LIMIT: u32 = 7;
const INTERVAL: u64 = UNIT / 7;

/// What stands for the state of a quota.
type Raw = Vec<u8>;

/// Outcomes, remaining and reset.
type Parts = (Vec<Outcome>, u32, u64);

/// The answer, or why there is none, and what stands there then.
type Outcomes = (Result<Parts, String>, Option<Raw>);

/// A script, with what answers the common cases and without.
struct Lua {
    connection: redis::Connection,
    rules: [Rule; 1],
    common_case: redis::Script,
    ledger: redis::Script,
}

impl Lua {
    fn new(server: &RedisServer, rule: Rule) -> Self {
        let rules = [rule];
        let script = |scripts: Scripts| redis::Script::new(scripts.reserve.text());
        Self {
            connection: server.client().get_connection().unwrap(),
            common_case: script(Scripts::told_the_time(&rules)),
            ledger: script(Scripts::told_the_time(&rules).by_the_ledger()),
            rules,
        }
    }

    fn run(&mut self, by_the_ledger: bool, at_once: bool, raw: &[u8], asked: &Asked) -> Outcomes {
        const STATE: &str = "state";
        let set = redis::cmd("SET").arg(STATE).arg(raw).clone();
        set.exec(&mut self.connection).unwrap();
        let script = if by_the_ledger {
            &self.ledger
        } else {
            &self.common_case
        };
        let asks = &asked.asks;
        let mut call = script.prepare_invoke();
        call.key("free").key(STATE);
        call.arg(1).arg(u8::from(at_once));
        call.arg(&Packed::terms(&self.rules, &asked.terms()).of_keys(1)[..]);
        call.arg(Packed::asks(0, None, asks, asked.peek).bytes());
        let answer: Value = call.arg(NOW).invoke(&mut self.connection).unwrap();
        let receipts = self.rules[0].receipts();
        let mut answers = reply::read(answer, [(&asks[..], receipts)], false).unwrap();
        let answer = answers.remove(0).map(parts);
        let why = answer.map_err(|error| error.source().expect("a cause").to_string());
        let get = redis::cmd("GET").arg(STATE).clone();
        (why, get.query(&mut self.connection).unwrap())
    }

    /// What a value means, as one state may be packed in several ways.
    fn state(&self, value: &Option<Raw>) -> Ledger {
        let values = [None, value.clone()];
        let mut ledger = Ledger::read(&self.rules, &values, NOW).unwrap();
        // What has passed may stand there or not.
        ledger.release(NOW, &[]);
        ledger
    }

    /// As a transaction would answer, if that can read it.
    fn in_rust(&self, raw: &[u8], asked: &Asked) -> Option<Parts> {
        let values = [None, Some(raw.to_vec())];
        let mut ledger = Ledger::read(&self.rules, &values, NOW).ok()?;
        Some(parts(ledger.answer(
            NOW,
            &asked.terms(),
            &asked.asks,
            false,
        )))
    }

    /// Yields whether it was taken for a state.
    fn assert_alike(&mut self, raw: &[u8], asked: &Asked) -> bool {
        let (answer, left) = self.run(false, false, raw, asked);
        for (by_the_ledger, at_once) in [(true, false), (false, true)] {
            let other = self.run(by_the_ledger, at_once, raw, asked);
            assert_eq!(answer, other.0, "{by_the_ledger}, {at_once}: {raw:x?}");
            assert!(
                left == other.1 || self.state(&left) == self.state(&other.1),
                "{by_the_ledger}, {at_once}: {raw:x?} becomes {left:x?} or {:x?}",
                other.1
            );
        }
        match &answer {
            Ok(_) => true,
            Err(why) => {
                assert!(why.contains("not written by a throttle"), "{why}");
                assert_eq!(left.as_deref(), Some(raw), "it is changed");
                false
            }
        }
    }
}

fn parts(reserved: Reserved) -> Parts {
    let reset = micros(reserved.reset);
    (reserved.outcomes.into_vec(), reserved.remaining, reset)
}

#[derive(Debug)]
struct Asked {
    peek: bool,
    asks: Vec<Ask>,
}

impl Asked {
    fn terms(&self) -> Terms {
        Terms {
            margin: UNIT / 50,
            least_margin: UNIT / 150,
            floor: UNIT / 100,
            not_before: 0,
            round_trip: UNIT / 1_000,
            stagger: 0,
            peek: self.peek,
        }
    }
}

fn asked() -> impl Strategy<Value = Asked> {
    let max_wait = prop_oneof![Just(u64::MAX), Just(0), 0..3 * UNIT];
    let ask = (1..5_u32, 1..=LIMIT / 2, max_wait);
    let ask = ask.prop_map(|(count, cost, max_wait)| Ask {
        count,
        cost,
        max_wait,
    });
    let asked = (prop::bool::weighted(0.2), vec(ask, 1..3));
    asked.prop_map(|(peek, asks)| Asked { peek, asks })
}

/// Runs a test with random values, of which some are taken for a state and some are not.
fn with_values(
    rule: Rule,
    values: impl Strategy<Value = Raw>,
    test: impl Fn(&mut Lua, &[u8], &Asked) -> bool,
) {
    let server = RedisServer::start();
    let lua = RefCell::new(Lua::new(&server, rule));
    let taken = RefCell::new([0, 0]);
    let mut runner = TestRunner::new(Config {
        cases: 1_000,
        failure_persistence: None,
        ..Config::default()
    });
    let result = runner.run(&(values, asked()), |(raw, asked)| {
        let is_taken = test(&mut lua.borrow_mut(), &raw, &asked);
        taken.borrow_mut()[usize::from(is_taken)] += 1;
        Ok(())
    });
    if let Err(error) = result {
        panic!("{rule:?}: {error}");
    }
    let taken = taken.into_inner();
    assert!(taken.iter().all(|&times| times > 50), "{taken:?}");
}

const NUMBERS: [Rule; 3] = [
    Rule::Spacing { interval: INTERVAL },
    Rule::LeakyBucket {
        interval: INTERVAL,
        capacity: LIMIT,
    },
    Rule::Gcra {
        interval: INTERVAL,
        tolerance: INTERVAL * (LIMIT as u64 - 1),
    },
];

#[test]
fn any_whole_number_is_a_time_unless_it_is_absurd() {
    let near = |time: u64| time - 10 * UNIT..time + 10 * UNIT;
    let number = prop_oneof![
        near(NOW),
        near(NOW + SANE),
        Just(NOW),
        Just(NOW + SANE),
        Just(NOW + SANE + 1),
        0..20_u64,
        any::<u64>()
    ];
    let zeros = select(&["", "", "0", "00000000", "+"][..]);
    let text = (zeros, number).prop_map(|(zeros, number)| format!("{zeros}{number}").into_bytes());
    for rule in NUMBERS {
        with_values(rule, text.clone(), |lua, raw, asked| {
            let is_taken = lua.assert_alike(raw, asked);
            let (answer, _) = lua.run(false, false, raw, asked);
            assert_eq!(answer.ok(), lua.in_rust(raw, asked));
            is_taken
        });
    }
}

/// What stands close to a number.
const TEXTS: [&str; 25] = [
    "",
    "-0",
    "-1",
    "1.5",
    "1.0",
    "1e3",
    "1e15",
    "1e999",
    "-1e15",
    "0x10",
    "0x",
    "inf",
    "-inf",
    "nan",
    "-nan",
    " 7",
    "7 ",
    "7\n",
    "7\0",
    "\0",
    "7\x001",
    "1,2",
    "1 2",
    "١",
    "9007199254740993",
];

/// Not even what Lua takes for a number, such as `1e3` or ` 7`, goes as one.
#[test]
fn almost_numbers_are_read_as_the_ledger_reads_them() {
    let listed = select(&TEXTS[..]).prop_map(|text| text.as_bytes().to_vec());
    let characters = vec(select(&b"0123456789-+.eExXinfa \n\0"[..]), 0..20);
    let bytes = vec(any::<u8>(), 0..20);
    let digits = "\\+?[0-9]{1,15}".prop_map(String::into_bytes);
    let text = prop_oneof![2 => listed, 2 => characters, 1 => bytes, 1 => digits];
    for rule in NUMBERS {
        with_values(rule, text.clone(), |lua, raw, asked| {
            let is_taken = lua.assert_alike(raw, asked);
            let expected = lua.in_rust(raw, asked);
            assert_eq!(is_taken, expected.is_some());
            if let Some(expected) = expected {
                let (answer, _) = lua.run(false, false, raw, asked);
                assert_eq!(answer, Ok(expected));
            }
            is_taken
        });
    }
}

/// A short log, or what differs from one in a byte or two.
fn almost_short_logs() -> impl Strategy<Value = Raw> {
    let window = UNIT;
    let first = prop_oneof![
        6 => NOW - 2 * window..NOW + 2 * window,
        1 => 0..1_u64 << 56,
        1 => Just(NOW + SANE),
    ];
    let offsets = prop_oneof![
        4 => vec(0..4 * window, 0..16),
        1 => vec(0..256_u64, 0..18),
        1 => vec(any::<u64>(), 0..4),
    ];
    let is_sorted = prop::bool::weighted(0.8);
    let change = any::<(Index, u8)>();
    let changes = prop_oneof![3 => vec(change.clone(), 0), 1 => vec(change, 1..3)];
    let more = prop_oneof![6 => Just(0), 1 => -9..10_i32];
    let parts = (first, offsets, is_sorted, changes, more);
    parts.prop_map(|(first, mut offsets, is_sorted, changes, more)| {
        if is_sorted {
            offsets.sort_unstable();
        }
        let largest = offsets.iter().max().copied().unwrap_or(0);
        let width = (1..7)
            .find(|&width| largest < 1 << (8 * width))
            .unwrap_or(7);
        let mut raw = vec![128 + 8 * width as u8];
        raw.extend(&first.to_le_bytes()[..7]);
        for offset in offsets {
            raw.extend(&offset.to_le_bytes()[..width]);
        }
        for (place, byte) in changes {
            let place = place.index(raw.len());
            raw[place] = byte;
        }
        raw.resize(raw.len().saturating_add_signed(more as isize).max(1), 1);
        raw
    })
}

#[test]
fn almost_short_logs_are_read_as_the_ledger_reads_them() {
    let log = Rule::SlidingLog {
        limit: LIMIT,
        window: UNIT,
    };
    with_values(log, almost_short_logs(), |lua, raw, asked| {
        let is_taken = lua.assert_alike(raw, asked);
        let (answer, _) = lua.run(false, false, raw, asked);
        assert_eq!(answer.ok(), lua.in_rust(raw, asked));
        is_taken
    });
}
