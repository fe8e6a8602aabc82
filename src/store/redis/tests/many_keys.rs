//! Many keys in one call, each answered as if in a call of its own: the scripts against a ledger for each.

use std::cell::RefCell;
use std::collections::HashMap;
use std::error::Error as _;
use std::time::Duration;

use proptest::test_runner::{Config, TestRunner};
use redis::{FromRedisValue, Value};

use self::seen::Seen;
use self::steps::{FAMILIES, Family, Group, SHORT_LOGS, Spoilt, Step, policy, steps};
use super::support::command_stats::CommandStats;
use super::support::redis_server::RedisServer;
use crate::algorithm::simulation::NotBefore;
use crate::algorithm::{Rule, ledger::Ledger};
use crate::key::Key;
use crate::policy::Policy;
use crate::store::redis::calls::{self, Asking, Packed};
use crate::store::redis::names;
use crate::store::redis::reply::{self, Answer};
use crate::store::redis::script::Scripts;
use crate::store::{Ask, Outcome, Reserve, Reserved, Slot, Terms};

mod seen;
mod steps;

const PREFIX: &str = "throttle";

/// Where one key of one policy stands among all.
type Place = (usize, u32);

/// The scripts and a ledger for each key.
struct World {
    server: RedisServer,
    connection: redis::Connection,
    scripts: Scripts,
    policies: Vec<Policy>,
    ledgers: HashMap<Place, Ledger>,
    held: Vec<(Place, Slot)>,
    now: u64,
    last: u64,
    seen: Seen,
}

impl World {
    fn new(family: Family, scripts: impl Fn(&[Rule]) -> Scripts) -> Self {
        let policies: Vec<_> = family.iter().map(policy).collect();
        let server = RedisServer::start();
        let scripts = scripts(policies[0].rules());
        let mut connection = server.client().get_connection().unwrap();
        for load in scripts.loads() {
            load.exec(&mut connection).unwrap();
        }
        Self {
            server,
            connection,
            scripts,
            policies,
            ledgers: HashMap::new(),
            held: Vec::new(),
            now: 0,
            last: 0,
            seen: Seen::default(),
        }
    }

    fn forget(&mut self) {
        self.command::<()>(&["FLUSHALL"]);
        self.ledgers.clear();
        self.held.clear();
        (self.now, self.last) = (1_763_000_000_000_000, 0);
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Ask {
                advance,
                groups,
                spoilt,
            } => {
                self.now = self.now.saturating_add_signed(*advance);
                self.ask(groups, spoilt);
            }
            Step::Release { first, others } if !self.held.is_empty() => {
                let (place, slot) = self.held.swap_remove(first.index(self.held.len()));
                let mut slots = vec![slot];
                for other in others {
                    let mut same = (0..self.held.len()).filter(|&it| self.held[it].0 == place);
                    let count = same.clone().count();
                    if let Some(other) = same.nth(other.index(count.max(1))) {
                        slots.push(self.held.remove(other).1);
                    }
                }
                self.release(place, &slots);
            }
            Step::Release { .. } => {}
        }
    }

    fn ask(&mut self, groups: &[Group], spoilt: &[Spoilt]) {
        let parcels: Vec<_> = groups.iter().flat_map(|it| self.parcels(it)).collect();
        let foreign = self.spoil(&parcels, spoilt);
        let answers = self.answers(&parcels);
        for (parcel, answer) in parcels.iter().zip(&answers) {
            let names = self.names(parcel.place);
            let read = &names[usize::from(!self.reads_free(parcel))..];
            let mut own = foreign.iter().map(|it| &it.name);
            if own.any(|name| read.contains(name)) {
                assert_refused(&names, answer);
            } else {
                self.assert_right(parcel, answer);
            }
        }
        self.seen.note(&parcels, &answers);
        for Replaced {
            name,
            before,
            value,
        } in foreign
        {
            assert_eq!(self.command::<Value>(&["DUMP", &name]), value, "{name}");
            self.command::<()>(&["DEL", &name]);
            if let Some(before) = before {
                let set = redis::cmd("SET").arg(name).arg(before).clone();
                set.exec(&mut self.connection).unwrap();
            }
        }
    }

    /// Whether the call looks for free slots. A log alone says whether there are any, to those who ask for
    /// something.
    fn reads_free(&self, parcel: &Parcel) -> bool {
        let rules = self.policies[parcel.place.0].rules();
        let ledger = self.ledgers.get(&parcel.place);
        !matches!(rules, [Rule::SlidingLog { .. }])
            || parcel.asks.iter().all(|ask| ask.count == 0)
            || ledger.is_some_and(|ledger| !ledger.free().is_empty())
    }

    fn answers(&mut self, parcels: &[Parcel]) -> Vec<Answer> {
        let all: Vec<_> = parcels.iter().map(|it| it.asking(&self.policies)).collect();
        let call = calls::reserve(&all, &self.scripts);
        let all = all.iter().map(|it| (it.asks(), it.numbers()));
        reply::read(self.run(call), all, false).unwrap()
    }

    fn parcels(&self, group: &Group) -> Vec<Parcel> {
        let policy = group.policy.index(self.policies.len());
        let most = self.policies[policy].largest_cost();
        let asks = group.asks.iter().map(|ask| Ask {
            cost: ask.cost.min(most),
            ..*ask
        });
        let asks: Vec<_> = asks.collect();
        let parcel = |&key| Parcel {
            place: (policy, key),
            margin: group.margin,
            not_before: match group.not_before {
                NotBefore::Now => 0,
                NotBefore::Last => self.last,
                NotBefore::After(pause) => self.now + pause,
            },
            peek: group.peek,
            asks: asks.clone(),
        };
        group.keys.iter().map(parcel).collect()
    }

    fn assert_right(&mut self, parcel: &Parcel, answer: &Answer) {
        let policy = &self.policies[parcel.place.0];
        let key = parcel.key();
        let terms = Terms {
            peek: parcel.peek,
            ..parcel.reserve(&key, policy).terms()
        };
        let start = || Ledger::new(policy.rules());
        let ledger = self.ledgers.entry(parcel.place).or_insert_with(start);
        self.seen.free += usize::from(!ledger.free().is_empty());
        let expected = ledger.answer(self.now, &terms, &parcel.asks, false);
        let answer = answer.as_ref().unwrap();
        let parts = |it: &Reserved| (it.now, it.outcomes.to_vec(), it.remaining, it.reset);
        assert_eq!(parts(&expected), parts(answer), "{parcel:?}");
        for outcome in expected.outcomes {
            if let Outcome::Granted(slot) = outcome {
                self.last = slot.at;
                self.held.push((parcel.place, slot));
            }
        }
    }

    fn release(&mut self, place: Place, slots: &[Slot]) {
        let rules = self.policies[place.0].rules();
        let ledger = self.ledgers.get_mut(&place).expect("whose slots are held");
        ledger.release(self.now, slots);
        let names = self.names(place);
        let mut call = redis::cmd("EVALSHA");
        call.arg(self.scripts.release.sha()).arg(names.len());
        call.arg(&names);
        call.arg(Packed::rules(rules).bytes());
        call.arg(Packed::slots(0, slots).bytes());
        self.run(call);
    }

    /// Puts values in the place of others.
    fn spoil(&mut self, parcels: &[Parcel], spoilt: &[Spoilt]) -> Vec<Replaced> {
        let mut replaced: Vec<Replaced> = Vec::new();
        for Spoilt { key, name, value } in spoilt.iter().filter(|_| !parcels.is_empty()) {
            let mut names = self.names(key.get(parcels).place);
            let name = names.swap_remove(name.index(names.len()));
            if replaced.iter().any(|it| it.name == name) {
                continue;
            }
            let before = self.command(&["GET", &name]);
            self.command::<()>(&["DEL", &name]);
            let connection = &mut self.connection;
            value.put(&name).exec(connection).unwrap();
            let value = self.command(&["DUMP", &name]);
            replaced.push(Replaced {
                name,
                before,
                value,
            });
        }
        replaced
    }

    fn names(&self, place: Place) -> Vec<String> {
        let key = Key::from(place.1.to_string());
        let names = names::of(PREFIX, &self.policies[place.0], &key);
        names.all().to_vec()
    }

    fn run(&mut self, mut call: redis::Cmd) -> Value {
        call.arg(self.now).query(&mut self.connection).unwrap()
    }

    fn command<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut self.connection).unwrap()
    }
}

/// What one key asks for.
#[derive(Debug)]
struct Parcel {
    place: Place,
    margin: u64,
    not_before: u64,
    peek: bool,
    asks: Vec<Ask>,
}

impl Parcel {
    fn key(&self) -> Key {
        Key::from(self.place.1.to_string())
    }

    fn reserve<'a>(&'a self, key: &'a Key, policy: &'a Policy) -> Reserve<'a> {
        Reserve {
            guard: Duration::from_micros(self.margin),
            least_guard: Duration::from_micros(self.margin / 3),
            round_trip: Duration::from_micros(self.margin / 4),
            not_before: self.not_before,
            asks: &self.asks,
            ..Reserve::new(key, policy)
        }
    }

    fn asking(&self, policies: &[Policy]) -> Box<Asking> {
        let (key, policy) = (self.key(), &policies[self.place.0]);
        let reserve = self.reserve(&key, policy);
        Box::new(Asking::new(PREFIX, &reserve, self.peek, None, |_| None))
    }
}

/// A value in whose place there is another.
struct Replaced {
    name: String,
    before: Option<Vec<u8>>,
    /// The other.
    value: Value,
}

/// Whoever reads the error learns where the foreign value stands, or of what type it is.
fn assert_refused(names: &[String], answer: &Answer) {
    let error = answer.as_ref().expect_err(&names[0]);
    let cause = error.source().expect("a cause").to_string();
    let is_named = names.iter().any(|name| cause.contains(name));
    assert!(is_named || cause.contains("WRONGTYPE"), "{cause}");
}

fn compare(family: Family, scripts: impl Fn(&[Rule]) -> Scripts) -> World {
    let mut runner = TestRunner::new(Config {
        cases: 30,
        failure_persistence: None,
        ..Config::default()
    });
    let world = RefCell::new(World::new(family, scripts));
    let result = runner.run(&steps(), |steps| {
        let mut world = world.borrow_mut();
        world.forget();
        steps.iter().for_each(|step| world.take(step));
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let world = world.into_inner();
    world.seen.assert_all();
    world
}

#[test]
fn keys_that_share_a_call_are_answered_as_if_each_were_alone() {
    for (name, family) in FAMILIES {
        println!("{name}");
        compare(family, |rules| {
            Scripts::told_the_time(rules).with_long_logs()
        });
    }
}

#[test]
fn short_logs_are_read_at_once_unless_there_is_anything_else() {
    let world = compare(SHORT_LOGS, Scripts::told_the_time);
    let stats = CommandStats::of(&world.server);
    let (at_once, all) = (stats.calls("mget"), stats.calls("evalsha"));
    assert!(at_once > 50, "{at_once} of {all}");
}

#[test]
fn what_is_given_up_half_way_is_neither_recorded_nor_answered() {
    let mut world = World::new(SHORT_LOGS, Scripts::told_the_time);
    world.forget();
    let parcel = |key, count| Parcel {
        place: (1, key),
        margin: 1_000,
        not_before: 0,
        peek: false,
        asks: vec![Ask {
            count,
            cost: 1,
            max_wait: u64::MAX,
        }],
    };
    let first = parcel(0, 12);
    let answers = world.answers(std::slice::from_ref(&first));
    world.assert_right(&first, &answers[0]);
    let free: Vec<_> = world.held.drain(3..11).map(|(_, slot)| slot).collect();
    world.release(first.place, &free);
    let name = &world.names(first.place)[0];
    let whole: Vec<u8> = world.command(&["GET", name]);
    // Of the slots, which are read in parts, the last makes no sense.
    let mut set = redis::cmd("SETRANGE");
    set.arg(name).arg(whole.len() - 8).arg(&[0xff_u8; 8][..]);
    set.exec(&mut world.connection).unwrap();
    let parcels = [parcel(1, 2), parcel(0, 8)];
    let answers = world.answers(&parcels);
    world.assert_right(&parcels[0], &answers[0]);
    assert_refused(std::slice::from_ref(name), &answers[1]);
    let set = redis::cmd("SET").arg(name).arg(whole).clone();
    set.exec(&mut world.connection).unwrap();
    let answers = world.answers(&parcels);
    for (parcel, answer) in parcels.iter().zip(&answers) {
        world.assert_right(parcel, answer);
    }
}
