//! The Lua twins, in a real server, against those in Rust.

use std::cell::RefCell;

use proptest::test_runner::{Config, TestRunner};
use redis::Value;

use super::calls::Packed;
use super::reply;
use super::script::Scripts;
use crate::algorithm::Rule;
use crate::algorithm::ledger::{Ask, Evidence, Ledger, Life, Notice, Outcome, Slot, Terms, Word};
use crate::algorithm::micros;
use crate::algorithm::simulation::{
    Action, Answer, NotBefore, Side, Step, heed_and_tell, rules, run, steps_with_words,
};
use crate::store::Reserved;

use crate::support;

use support::redis_server::RedisServer;

mod batches;
mod clocks;
mod many_keys;
mod rough_values;

const UNIT: u64 = 1_000_000;

/// The scripts, told the time instead of asking for it.
struct Lua<'a> {
    connection: redis::Connection,
    rules: &'a [Rule],
    reserve: redis::Script,
    release: redis::Script,
    heed: redis::Script,
    /// Reserves with evidence.
    strict: redis::Script,
}

impl<'a> Lua<'a> {
    fn new(server: &RedisServer, rules: &'a [Rule]) -> Self {
        let scripts = Scripts::told_the_time(rules);
        Self::with(
            server,
            rules,
            &scripts,
            &Scripts::strict_and_told_the_time(rules),
        )
    }

    fn with(server: &RedisServer, rules: &'a [Rule], scripts: &Scripts, strict: &Scripts) -> Self {
        let connection = server.client().get_connection().unwrap();
        Self {
            connection,
            rules,
            reserve: redis::Script::new(scripts.reserve.text()),
            release: redis::Script::new(scripts.release.text()),
            heed: redis::Script::new(scripts.heed.text()),
            strict: redis::Script::new(strict.reserve.text()),
        }
    }

    fn call(
        &mut self,
        script: impl Fn(&Self) -> &redis::Script,
        now: u64,
        args: &[&[u8]],
    ) -> Value {
        let script = script(self).clone();
        let mut call = script.prepare_invoke();
        call.key("free");
        for place in 0..self.rules.len() {
            call.key(place);
        }
        if script.get_hash() == self.strict.get_hash() {
            call.key("born");
        }
        call.arg(args).arg(now);
        call.invoke(&mut self.connection).unwrap()
    }

    fn ask(
        &mut self,
        script: impl Fn(&Self) -> &redis::Script,
        now: u64,
        terms: &Terms,
        asks: &[Ask],
        evidence: Option<&Evidence>,
    ) -> Reserved {
        let packed_terms = Packed::terms(self.rules, terms).of_keys(1);
        let packed_asks = Packed::asks(terms.not_before, evidence, asks, terms.peek);
        let args: [&[u8]; 4] = [b"1", b"0", &packed_terms, packed_asks.bytes()];
        let answer = self.call(script, now, &args);
        let receipts = self.rules.iter().map(Rule::receipts).sum();
        let mut answers = reply::read(answer, [(asks, receipts)], evidence.is_some()).unwrap();
        let reserved = answers.remove(0).unwrap();
        assert_eq!(reserved.now, now);
        reserved
    }

    fn forget(&mut self) {
        redis::cmd("FLUSHALL").exec(&mut self.connection).unwrap();
    }
}

fn answer(reserved: &Reserved) -> Answer {
    let outcomes = reserved.outcomes.to_vec();
    (outcomes, reserved.remaining, micros(reserved.reset))
}

impl Side for Lua<'_> {
    fn reserve(&mut self, now: u64, terms: &Terms, asks: &[Ask]) -> Answer {
        answer(&self.ask(|it| &it.reserve, now, terms, asks, None))
    }

    fn release(&mut self, now: u64, slots: &[Slot]) {
        self.release_under(now, 0, slots);
    }

    fn release_under(&mut self, now: u64, life: u64, slots: &[Slot]) {
        let args = [Packed::rules(self.rules), Packed::slots(life, slots)];
        self.call(|it| &it.release, now, &[args[0].bytes(), args[1].bytes()]);
    }

    fn reserve_strictly(
        &mut self,
        now: u64,
        terms: &Terms,
        asks: &[Ask],
        evidence: &Evidence,
        born: u64,
    ) -> (Answer, bool, Life) {
        let set = redis::cmd("SET").arg("born").arg(born).clone();
        set.exec(&mut self.connection).unwrap();
        let reserved = self.ask(|it| &it.strict, now, terms, asks, Some(evidence));
        let life = reserved.life.unwrap();
        (answer(&reserved), reserved.is_lost, life)
    }

    fn lose(&mut self, aside: bool, quotas: &[bool]) {
        let quotas = quotas.iter().take(self.rules.len()).enumerate();
        let lost = quotas
            .filter(|(_, is_lost)| **is_lost)
            .map(|(place, _)| place.to_string());
        let aside = aside.then(|| "free".to_owned());
        for name in lost.chain(aside) {
            redis::cmd("DEL")
                .arg(name)
                .exec(&mut self.connection)
                .unwrap();
        }
    }

    fn heed(&mut self, now: u64, word: Word) -> Notice {
        let args = [Packed::rules(self.rules), Packed::word(word)];
        let args = [args[0].bytes(), args[1].bytes(), b"channel", b"whom"];
        let answer = self.call(|it| &it.heed, now, &args);
        reply::notice(answer).unwrap()
    }
}

/// The scripts and what does without them, in turn on the same state.
struct Mixed<'a> {
    lua: Lua<'a>,
    turn: usize,
}

impl Mixed<'_> {
    /// Whether it is the scripts' turn.
    fn is_scripts(&mut self) -> bool {
        self.turn += 1;
        self.turn.is_multiple_of(2) || self.turn.is_multiple_of(5)
    }

    /// As a transaction does it.
    fn change<T>(&mut self, now: u64, change: impl FnOnce(&mut Ledger) -> T) -> T {
        let connection = &mut self.lua.connection;
        let places = (0..self.lua.rules.len()).map(|place| place.to_string());
        let names: Vec<_> = ["free".to_owned()].into_iter().chain(places).collect();
        let get = |name| redis::cmd("GET").arg(name).query(connection).unwrap();
        let values: Vec<Option<Vec<u8>>> = names.iter().map(get).collect();
        let mut ledger = Ledger::read(self.lua.rules, &values, now).unwrap();
        let answer = change(&mut ledger);
        for (name, value) in names.iter().zip(ledger.written()) {
            let command = match value {
                Some((raw, _)) => redis::cmd("SET").arg(name).arg(raw).clone(),
                None => redis::cmd("DEL").arg(name).clone(),
            };
            command.exec(&mut self.lua.connection).unwrap();
        }
        answer
    }
}

impl Side for Mixed<'_> {
    fn reserve(&mut self, now: u64, terms: &Terms, asks: &[Ask]) -> Answer {
        if self.is_scripts() {
            return self.lua.reserve(now, terms, asks);
        }
        self.change(now, |ledger| Side::reserve(ledger, now, terms, asks))
    }

    fn release(&mut self, now: u64, slots: &[Slot]) {
        self.release_under(now, 0, slots);
    }

    fn release_under(&mut self, now: u64, life: u64, slots: &[Slot]) {
        if self.is_scripts() {
            return self.lua.release_under(now, life, slots);
        }
        self.change(now, |ledger| ledger.release_under(now, life, slots));
    }

    fn reserve_strictly(
        &mut self,
        now: u64,
        terms: &Terms,
        asks: &[Ask],
        evidence: &Evidence,
        born: u64,
    ) -> (Answer, bool, Life) {
        if self.is_scripts() {
            return self.lua.reserve_strictly(now, terms, asks, evidence, born);
        }
        self.change(now, |ledger| {
            Side::reserve_strictly(ledger, now, terms, asks, evidence, born)
        })
    }

    fn lose(&mut self, aside: bool, quotas: &[bool]) {
        self.lua.lose(aside, quotas);
    }

    fn heed(&mut self, now: u64, word: Word) -> Notice {
        if self.is_scripts() {
            return self.lua.heed(now, word);
        }
        self.change(now, |ledger| heed_and_tell(ledger, now, word))
    }
}

/// Random operations for each set of rules but every other, every answer compared.
fn compare<S: Side>(
    cases: u32,
    first: usize,
    make: impl Fn(&RedisServer, &'static [Rule]) -> S,
    forget: impl Fn(&mut S),
) {
    let server = RedisServer::start();
    for (name, rules, largest_cost) in rules(UNIT).into_iter().skip(first).step_by(2) {
        let mut runner = TestRunner::new(Config {
            cases,
            failure_persistence: None,
            max_shrink_iters: 2_000,
            ..Config::default()
        });
        let rules: &'static [Rule] = rules.leak();
        let side = RefCell::new(make(&server, rules));
        let result = runner.run(&steps_with_words(200, UNIT, largest_cost), |steps| {
            let mut side = side.borrow_mut();
            forget(&mut side);
            run(&steps, &mut Ledger::new(rules), &mut *side);
            Ok(())
        });
        if let Err(error) = result {
            panic!("{name}: {error}");
        }
    }
}

/// 6,000 operations each, with logs and lists of free slots that are long for their pages.
fn compare_scripts(first: usize) {
    let lua = |server: &RedisServer, rules| {
        let scripts = Scripts::told_the_time(rules).with_long_logs();
        let strict = Scripts::strict_and_told_the_time(rules).with_long_logs();
        Lua::with(server, rules, &scripts, &strict)
    };
    compare(25, first, lua, Lua::forget);
}

#[test]
fn the_twins_hand_out_identical_slots() {
    compare_scripts(0);
}

#[test]
fn the_twins_hand_out_identical_slots_by_the_other_rules() {
    compare_scripts(1);
}

#[test]
fn scripts_and_transactions_share_their_state() {
    let mixed = |server: &RedisServer, rules| Mixed {
        lua: Lua::new(server, rules),
        turn: 0,
    };
    for first in [0, 1] {
        compare(10, first, mixed, |mixed| mixed.lua.forget());
    }
}

/// So many requests, however long they wait.
fn ask(count: u32) -> Ask {
    Ask {
        count,
        cost: 1,
        max_wait: u64::MAX,
    }
}

#[test]
fn long_logs_are_read_and_written_in_parts() {
    let server = RedisServer::start();
    let rules = [Rule::SlidingLog {
        limit: 3_000,
        window: UNIT,
    }];
    let mut steps = Vec::new();
    for round in 0..200 {
        steps.push(Step {
            advance: 60_000,
            action: Action::Reserve {
                margin: 1_000,
                not_before: if round % 2 == 0 {
                    NotBefore::Last
                } else {
                    NotBefore::Now
                },
                asks: vec![ask(150), ask(1), ask(60)],
            },
        });
    }
    run(
        &steps,
        &mut Ledger::new(&rules),
        &mut Lua::new(&server, &rules),
    );
}

/// By a clock that goes back there is no other way to see it.
#[test]
fn what_has_left_a_log_has_left_it_even_if_nothing_is_granted() {
    let server = RedisServer::start();
    let ask = |count, max_wait| {
        let cost = 1;
        vec![Ask {
            count,
            cost,
            max_wait,
        }]
    };
    let reserve = |advance: i64, not_before, asks| Step {
        advance,
        action: Action::Reserve {
            margin: 1_000,
            not_before,
            asks,
        },
    };
    let window = UNIT.cast_signed();
    // Short logs and rings, of which all leave, or all but a few.
    for (first, others) in [(1, 0), (3, 2), (40, 0), (40, 30), (40, 3)] {
        let rules = [Rule::SlidingLog {
            limit: 50,
            window: UNIT,
        }];
        let later = NotBefore::After(5 * UNIT);
        let steps = [
            reserve(0, NotBefore::Now, ask(first, u64::MAX)),
            reserve(window / 2, NotBefore::Now, ask(others, u64::MAX)),
            reserve(window * 3 / 4, later, ask(1, 0)),
            reserve(-window, NotBefore::Now, ask(20, u64::MAX)),
        ];
        let mut lua = Lua::new(&server, &rules);
        lua.forget();
        run(&steps, &mut Ledger::new(&rules), &mut lua);
    }
}

/// Not even where the clock was set back and a slot is given back that the log has forgotten.
#[test]
fn a_log_without_records_has_no_free_slots() {
    let server = RedisServer::start();
    let rules = [Rule::SlidingLog {
        limit: 2,
        window: UNIT,
    }];
    let terms = Terms::of_margin(1_000);
    let mut ledger = Ledger::new(&rules);
    let mut lua = Lua::new(&server, &rules);
    lua.forget();
    let start = 1_763_000_000_000_000;
    let both = |ledger: &mut Ledger, lua: &mut Lua, now, count| {
        let (answer, _, _) = Side::reserve(ledger, now, &terms, &[ask(count)]);
        let (other, _, _) = lua.reserve(now, &terms, &[ask(count)]);
        assert_eq!(answer, other);
        let slot = |outcome| match outcome {
            Outcome::Granted(slot) => slot,
            Outcome::Refused { .. } => panic!("refused"),
        };
        answer.into_iter().map(slot).collect::<Vec<_>>()
    };
    let held = both(&mut ledger, &mut lua, start, 6);
    let before = held[4].at - 100;
    for (now, slots) in [(held[5].at + 5 * UNIT, &held[..1]), (before, &held[4..5])] {
        Side::release(&mut ledger, now, slots);
        lua.release(now, slots);
    }
    assert!(ledger.free().is_empty());
    both(&mut ledger, &mut lua, before, 3);
    // A slot that is given back later meets no others.
    let held = both(&mut ledger, &mut lua, before + 1, 4);
    Side::release(&mut ledger, before + 2, &held[1..2]);
    lua.release(before + 2, &held[1..2]);
    both(&mut ledger, &mut lua, before + 3, 4);
}
