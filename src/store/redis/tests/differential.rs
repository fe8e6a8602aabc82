//! Random histories of several processes, by the scripts and in Rust.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::*;
use crate::algorithm::{
    Command, Corrections, Costs, Demand, Flow, Grant, Holding, Mode, Reserves, Settlement, State,
    Strict, Take,
};

/// Policies that share a key: a history changes among those of a line.
const POLICIES: &str = "\
    10/s
    10/s, 30/s, 5/s
    3/10ms
    200/s, 900/s, 40/s
    900/s
    10000/s, 2000/s
    1000/s sliding-buckets buckets=20, 1000/s sliding-buckets buckets=200
    50/s gcra burst=10, 20/s gcra burst=4, 20/s spacing
    20/s spacing, 20/s leaky-bucket capacity=10, 9000/s spacing
    20/s fixed-window, 20/s fixed-window start=first-request
    5/100ms fixed-window start=first-request
    10/s + 40/m, 10/s + 100/m, 10/s
    10/s gcra burst=10 + 1000/s gcra burst=3, 1000/s gcra burst=3 + 10/s gcra burst=10
    20/s spacing + 30/s gcra burst=8 + 20/s leaky-bucket capacity=10
    20/s fixed-window + 60/m fixed-window start=first-request + 900/s + 30/s, 20/s fixed-window + 900/s + 30/s
    1000/10s + 100/s gcra burst=5 + 30/s fixed-window, 1000/10s
    200/s + 20/100ms + 5000/m, 5000/m + 20/100ms
    20/s, 20/s gcra burst=5, 20/s fixed-window + 900/s
    10/s + 100/s unit=tokens, 20/s + 150/s unit=tokens
    600/m + 100000/m unit=tokens, 20/s + 300/m unit=tokens
    50/s gcra burst=10 + 500/s gcra burst=300 unit=tokens + 20/s fixed-window unit=images
    100/s unit=tokens, 100/s unit=tokens + 20/s, 100/s
    9 concurrent lease=1s, 4 concurrent lease=2s, 9 concurrent lease=1s + 20/s
    5 concurrent lease=1s + 30/s, 8 concurrent lease=3s + 60/s + 900/s, 20/s gcra burst=5
    9 concurrent lease=1s + 9/s + 90/s unit=a + 900/s unit=b + 8000/s spacing unit=b
    6 concurrent lease=1s + 60/s gcra burst=30 + 90/s unit=tokens
    9/s + 90/s unit=a + 80/s spacing unit=b + 900/s unit=c + 8000/s unit=c";

/// Returns true if `plain.lua` may answer the calls of a policy.
fn is_plain(policy: &Policy) -> bool {
    policy.units == ["requests"]
}

#[derive(Default)]
struct Process {
    number: u64,
    lost: u64,
    waiting: Vec<(u64, Costs)>,
    departed: Vec<Grant>,
    known: Option<crate::algorithm::Known>,
    round_trip: u64,
    level: u64,
    share: u64,
    held: u32,
}

struct History {
    random: StdRng,
    lua: Lua,
    policies: Vec<Policy>,
    policy: usize,
    saved: Option<Option<Vec<u8>>>,
    /// The mark of a server: since when it has known of every call, and its number.
    mark: Option<(u64, u64)>,
    processes: Vec<Process>,
    now: u64,
    server: u64,
    is_strict: bool,
    /// So many of them are lanes of one process.
    lanes: u64,
    /// Requests seldom wait, and nothing but requests changes the state: most calls are plain ones.
    is_calm: bool,
    /// The longest step of such a history.
    pace: u64,
    reserves: Reserves,
}

impl History {
    /// A history under the policies of a line.
    fn new(server: &RedisServer, line: &str, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let policies: Vec<_> = line.trim().split(", ").map(policy).collect();
        let is_calm = policies.iter().all(is_plain) && random.random_bool(0.6);
        let mut lua = Lua::new(server);
        redis::cmd("FLUSHALL").exec(&mut lua.connection).unwrap();
        // With so many processes, values get long.
        let count = match random.random_bool(0.2) {
            true => 40,
            false => random.random_range(1..6),
        };
        let some = |most: u64| if is_calm { 1 } else { most };
        let levels = some([1, 2, 5][random.random_range(0..3)]);
        let shares = some([1, 1, 2, 4, 8][random.random_range(0..5)]);
        let processes = (0..count).map(|_| Process {
            round_trip: match is_calm {
                true => 500,
                false => [0, 500, 20_000, 150_000, 2_000_000][random.random_range(0..5)],
            },
            level: random.random_range(0..levels),
            share: random.random_range(0..shares),
            ..Process::default()
        });
        Self {
            processes: processes.collect(),
            lua,
            policies,
            policy: 0,
            saved: None,
            mark: None,
            now: START,
            server: 1 << 60,
            is_strict: !is_calm && random.random_bool(0.3),
            lanes: random.random_range(1..4),
            is_calm,
            pace: [500, 5_000, 20_000, 50_000, 200_000][random.random_range(0..5)],
            reserves: match random.random_range(0..4) {
                _ if is_calm => Reserves::default(),
                0 => [0, 200_000, 0, 100_000, 50_000],
                1 => [0, 0, 0, 0, 1_000_000],
                _ => Reserves::default(),
            },
            random,
        }
    }

    fn step(&mut self) {
        let longest = [0, 500, 5_000, 60_000, 300_000, 2_000_000, 15_000_000];
        let weighted = [0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6];
        // Processes with several lanes are seldom overdue.
        let steps = if self.lanes > 1 { 14 } else { weighted.len() };
        let longest = match self.is_calm {
            true => self.pace,
            false => longest[weighted[self.random.random_range(0..steps)]],
        };
        let rarely = if self.is_calm { 0.1 } else { 1.0 };
        self.now += self.random.random_range(0..=longest);
        if self.is_calm {
            // Departures often expire just then.
            self.now -= self.now % 500;
        }
        if self.random.random_bool(0.02) {
            self.policy = self.random.random_range(0..self.policies.len());
        }
        if self.is_strict {
            self.lose();
        }
        let process = self.random.random_range(0..self.processes.len());
        let operation = self.operation(process);
        let is_kept = self.random.random_bool(0.1 * rarely);
        self.compare(&operation, process, is_kept);
    }

    /// Loses or rolls back the value, or restarts the server.
    fn lose(&mut self) {
        match self.random.random_range(0..100) {
            0 => self.saved = Some(self.lua.value()),
            1 => {
                if let Some(value) = &self.saved {
                    self.lua.set(value.as_deref());
                }
            }
            2 => self.lua.set(None),
            3 => self.server += 1,
            _ => {}
        }
    }

    fn operation(&mut self, process: usize) -> Operation {
        let (now, strict) = (self.now, self.is_strict);
        let (policy, all) = (&self.policies[self.policy], self.policies.iter());
        let (units, largest) = (policy.units.len(), policy.largest_costs);
        let least = all.map(Policy::largest_cost).min();
        let random = &mut self.random;
        let this = &mut self.processes[process];
        let rarely = if self.is_calm { 0.0 } else { 1.0 };
        if random.random_bool(0.03 * rarely) {
            let span = random.random_range(0..400_000);
            let amount = random.random_range(0..10);
            let evidence = match random.random_bool(0.5) {
                true => u64::MAX,
                false => now - random.random_range(0..1_000_000),
            };
            return Operation::Control(match random.random_range(0..6) {
                0 | 1 => Command::Pause { span, evidence },
                2 | 3 => Command::Allow {
                    unit: random.random_range(0..units),
                    units: amount,
                    span,
                    evidence,
                },
                4 => Command::Resume,
                _ => Command::Reset,
            });
        }
        let is_settling = random.random_bool(0.15 * rarely) && !this.departed.is_empty();
        let count = u32::from(is_settling) * random.random_range(1..4);
        // The entries of a full log depend on when departures are forgotten. So no sum of such a history reaches the most of a log.
        let huge = 4_294_967_290 >> (6 * usize::from(self.policies.len() > 1));
        let settle = |_| Settlement {
            unit: random.random_range(0..units),
            recorded: this.departed[random.random_range(0..this.departed.len())].recorded
                + u64::from(random.random_bool(0.1)) * random.random_range(0..9),
            difference: [-40, -3, -2, -2, -1, -1, -1, 0, 1, 2, 30, huge]
                [random.random_range(0..12)],
        };
        let settlements = (0..count).map(settle).collect();
        if self.is_calm {
            this.waiting.clear();
        }
        let arriving = match self.is_calm {
            true => [1, 1, 1, 3][random.random_range(0..4)],
            false => [0, 0, 0, 1, 1, 2, 3, 60][random.random_range(0..8)],
        };
        let is_mixed = random.random_bool(0.5);
        let mut arrival = this.waiting.last().map_or(now - 50_000, |last| last.0);
        for _ in 0..random.random_range(0..=arriving) {
            arrival = (arrival + random.random_range(0..20_000)).min(now);
            if process.is_multiple_of(2) {
                // Others arrive at the same time.
                arrival -= arrival % 5_000;
            }
            let most = least.unwrap().min(7);
            let cost = match is_mixed && random.random_bool(0.2) {
                true => random.random_range(1..=most),
                false => most.min(1 + u32::from(process % 4 == 3)),
            };
            let mut costs = Costs::from(cost);
            // The requests of some processes cost nothing in other units.
            for cost in &mut costs.0[1..] {
                if process % 3 == 1 {
                    break;
                }
                *cost = [0, 3, 3, random.random_range(0..40)][random.random_range(0..4)];
            }
            this.waiting.push((arrival, costs));
        }
        this.waiting.truncate(200);
        if random.random_bool(0.02) {
            this.waiting.clear();
        }
        let demand = this.waiting.iter().map(|&(arrival, costs)| {
            let fits = |nth: usize| costs.0[nth].min(largest.0[nth]) * u32::from(nth < units);
            (arrival, Costs(std::array::from_fn(fits)))
        });
        let demand = Demand::new(demand.collect::<Vec<_>>().into_iter());
        let mode = match random.random_range(0..20) {
            0 => Mode::Peek,
            1 | 2 => Mode::Try,
            3..16 if self.is_calm => Mode::Try,
            _ => Mode::Wait,
        };
        let mut number = 0;
        if mode != Mode::Peek && random.random_bool(0.95) {
            // A late call has the number of the one before it.
            this.number += u64::from(this.number < 2 || random.random_bool(0.98));
            number = this.number;
        }
        let released = [0, 0, 1, this.held][random.random_range(0..4)].min(this.held);
        this.held -= released;
        let holding = Holding {
            units: this.held,
            releases: released > 0,
            is_notified: process.is_multiple_of(2),
        };
        let clock_was_set = random.random_bool(0.005);
        let (level, share) = (this.level, this.share);
        let has_reserves = random.random_bool(0.9);
        Operation::Take(Take {
            process: 1_000_000_007 * 2_048 * (process as u64 / self.lanes + 1)
                + 128 * share
                + 16 * level
                + process as u64 % self.lanes,
            flow: match share {
                0 => Flow::default(),
                id => Flow {
                    id: (1 << 49) + id,
                    weight: [0, 1, 3, 1_000][id as usize % 4] + u32::from(random.random_bool(0.05)),
                },
            },
            reserves: match has_reserves {
                true => self.reserves,
                false => Reserves::default(),
            },
            number,
            mode,
            round_trip: this.round_trip,
            guard: [1, 2_000, 20_000][if self.is_calm { 1 } else { process % 3 }],
            horizon: 100_001.max(this.round_trip * 3 / 2 + 40_000),
            strict: strict.then_some(Strict {
                known: this.known,
                clock_was_set,
            }),
            demand,
            corrections: Corrections {
                lost: this.lost,
                settlements,
                moved: i64::from(random.random_bool(0.05)) * random.random_range(-20..20),
                joined: 0,
            },
            holding,
        })
    }

    fn origin(&self) -> Origin {
        Origin {
            server: self.server,
            since: match self.mark {
                Some((since, server)) if server == self.server => since.min(self.now),
                _ => self.now,
            },
        }
    }

    /// By the script, and in Rust on the same value. The value of Rust is kept if it has to be, or now and then.
    fn compare(&mut self, operation: &Operation, process: usize, is_kept: bool) {
        let policy = self.policies[self.policy].clone();
        let (origin, now, before) = (self.origin(), self.now, self.lua.value());
        let (answer, value) = apply(&policy, operation, before.as_deref(), origin, now).unwrap();
        let calls = [("key", operation)];
        let other = self.lua.run(&policy, &calls, self.server, now).remove(0);
        if let Some(other) = &other {
            let state = before.as_deref().map(State::decode);
            assert_eq!(*other, answer, "{operation:?} at {now} on {state:?}");
            self.check(value.as_deref());
        }
        if is_kept || other.is_none() {
            self.lua.set(value.as_deref());
        }
        let mark: Option<Vec<u8>> = self.lua.get("mark");
        self.mark = mark.map(|mark| {
            let (since, server) = mark.split_last_chunk().unwrap();
            let since = str::from_utf8(since).unwrap().parse().unwrap();
            (since, u64::from_le_bytes(*server))
        });
        self.acknowledge(operation, process, &answer);
    }

    /// The values that the script and Rust have written say the same.
    fn check(&mut self, value: Option<&[u8]>) {
        let (now, policy) = (self.now, &self.policies[self.policy]);
        let state = |value: Option<&[u8]>| {
            let mut state = value.map_or_else(State::default, |it| State::decode(it).unwrap());
            state.continue_as(&policy.counters, now);
            state.drop_expired(now);
            // Now no place of former quotas was reclaimed: scripts keep these as they are.
            state.drop_expired(now);
            state.announced.sort_by_key(|it| it.process);
            state
        };
        let in_lua = self.lua.value();
        if let (Some(lua), Some(rust)) = (in_lua.as_deref(), value) {
            let [lua, rust] = [lua, rust].map(expiry);
            assert!(lua >= rust, "the value expires too early");
            // A script sets the expiry later than needed, and seldom.
            assert!(self.is_strict || lua <= rust + (rust - START) / 2);
            assert!(self.lua.expires() >= lua, "the key expires too early");
        }
        let (lua, mut rust) = (state(in_lua.as_deref()), state(value));
        if let (Some(lua), Some(rust)) = (&lua.generation, &mut rust.generation) {
            // Scripts keep a large state longer, so that they set its expiry less often.
            assert!(lua.kept_until >= rust.kept_until);
            rust.kept_until = lua.kept_until;
        }
        match value {
            Some(_) => assert_eq!(lua, rust),
            // The script may keep a value of which nothing counts.
            None => assert!(lua.expires() <= now, "{lua:?}"),
        }
    }

    fn acknowledge(&mut self, operation: &Operation, process: usize, answer: &Taken) {
        let this = &mut self.processes[process];
        let (Operation::Take(take), false) = (operation, answer.is_outdated) else {
            return;
        };
        if take.mode == Mode::Peek {
            return;
        }
        let losses = if self.is_calm { 0.005 } else { 0.1 };
        if take.number != 0 && self.random.random_bool(losses) {
            // The answer was lost.
            this.lost = match this.lost {
                0 => take.number,
                before => before,
            };
            return;
        }
        this.lost *= u64::from(take.number == 0);
        this.known = answer.known.or(this.known);
        for grant in &answer.grants {
            this.waiting.drain(..grant.requests as usize);
            this.departed.push(*grant);
            this.held += grant.requests;
        }
        let old = this.departed.len().saturating_sub(30);
        this.departed.drain(..old);
    }
}

#[test]
fn scripts_do_for_a_batch_what_rust_does_for_each_key() {
    let server = RedisServer::start();
    let mut lua = Lua::new(&server);
    let first = |line: &'static str| line.trim().split(", ").next().unwrap();
    for (nth, quotas) in POLICIES.lines().map(first).enumerate() {
        let policy = policy(quotas);
        if !is_plain(&policy) {
            continue;
        }
        let mut keys = [(); 24].map(|()| None);
        let names: Vec<_> = (0..keys.len()).map(|key| format!("{nth}:{key}")).collect();
        for round in 2..60 {
            let now = START + round * 7_000;
            let asked = (0..keys.len()).filter(|key| *key < round as usize && (key + nth) % 5 != 0);
            let calls = asked.map(|key| {
                let arrivals =
                    (0..1 + key / 20).map(|_| (now - key as u64, 1 + key as u32 % 7 / 6));
                let operation = Operation::Take(Take {
                    process: 1 << 40,
                    number: round,
                    round_trip: 500,
                    guard: 2_000,
                    demand: Demand::new(arrivals.collect::<Vec<_>>().into_iter()),
                    ..Take::one(Mode::Try, 1)
                });
                (key, operation)
            });
            let calls: Vec<_> = calls.collect();
            let named = calls.iter();
            let named = named.map(|(key, operation)| (&*names[*key], operation));
            let answers = lua.run(&policy, &named.collect::<Vec<_>>(), 0, now);
            for ((key, operation), answer) in calls.into_iter().zip(answers) {
                let (before, origin) = (keys[key].take(), Origin::default());
                let (taken, value) =
                    apply(&policy, &operation, before.as_deref(), origin, now).unwrap();
                assert_eq!(answer, Some(taken), "{quotas} {operation:?}");
                let state = |value: Option<&[u8]>| {
                    let mut state =
                        value.map_or_else(State::default, |it| State::decode(it).unwrap());
                    state.drop_expired(now);
                    state
                };
                let in_lua: Option<Vec<u8>> = lua.get(&names[key]);
                let [in_lua, in_rust] = [&in_lua, &value].map(|it| state(it.as_deref()));
                assert_eq!(in_lua, in_rust, "{quotas}");
                keys[key] = value;
            }
        }
    }
}

/// Set `SEED` to repeat one history, and `HISTORIES` for more of them.
#[test]
fn scripts_do_what_rust_does() {
    let server = RedisServer::start();
    // Lua limits the size of a script.
    let algorithms = ["", " gcra burst=5", " spacing", " fixed-window"];
    let largest = algorithms.map(|algorithm| {
        let quotas = (901..909).map(|limit| format!("{limit}/s{algorithm}"));
        quotas.collect::<Vec<_>>().join(" + ")
    });
    let policies = POLICIES.lines().flat_map(|line| line.trim().split(", "));
    for quotas in policies.chain(largest.iter().map(String::as_str)) {
        let text = &Script::of(&policy(quotas).counters).text;
        let _: String = server.command(&["SCRIPT", "LOAD", text]);
    }
    let number = |name: &str| std::env::var(name).map_or(None, |it| it.parse::<u64>().ok());
    let seeds: Vec<_> = match number("SEED") {
        Some(seed) => vec![seed],
        None => (0..number("HISTORIES").unwrap_or(60)).collect(),
    };
    let lines: Vec<_> = POLICIES.lines().collect();
    let line = |seed: u64| lines[seed as usize % lines.len()];
    let histories = seeds.into_iter().map(|seed| (line(seed), seed));
    // The units ahead of a request were not a whole number.
    let fraction = (
        "20/s fixed-window + 60/m fixed-window start=first-request + 900/s + 30/s, 20/s fixed-window + 900/s + 30/s",
        1634,
    );
    for (line, seed) in histories.chain([fraction]) {
        let mut history = History::new(&server, line, seed);
        let steps = if history.is_calm { 500 } else { 200 };
        for step in 0..steps {
            let run = std::panic::AssertUnwindSafe(|| history.step());
            if let Err(panic) = std::panic::catch_unwind(run) {
                eprintln!("SEED={seed} in step {step}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}
