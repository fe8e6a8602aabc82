//! How long the scripts take, and how large the values are.

use super::*;
use crate::algorithm::{Demand, Mode, Take};

const ROUNDS: u64 = 3_000;

struct Measured {
    server: RedisServer,
    lua: Lua,
}

/// A call for requests, as of a process with a round trip of 1 ms.
fn take(process: u64, number: u64, arrival: u64, count: u32, cost: u32) -> Operation {
    Operation::Take(Take {
        // The process has the default priority and no share.
        process: process << 11 | 32,
        number,
        round_trip: 1_000,
        guard: 20_000,
        horizon: 100_000,
        demand: Demand::new((0..count).map(|_| (arrival, cost))),
        ..Take::one(Mode::Wait, 1)
    })
}

impl Measured {
    /// The calls, and the microseconds within their scripts.
    fn usec(&self) -> (f64, f64) {
        let info: String = self.server.command(&["INFO", "commandstats"]);
        let number = |name: &str| {
            let line = info.split("cmdstat_evalsha:").nth(1)?;
            let (_, rest) = line.split_once(name)?;
            rest.split(',').next()?.parse().ok()
        };
        (
            number("calls=").unwrap_or(0.0),
            number("usec=").unwrap_or(0.0),
        )
    }

    fn call(&mut self, policy: &Policy, operation: &Operation) {
        let call = Call::new(&Key::new("key"), policy, operation);
        let script = Script::of(policy.counters());
        let mut eval = redis::cmd("EVALSHA");
        let eval = eval.arg(&script.sha).arg(2).arg("key").arg("mark");
        let [head, rest] = encoded(&call, 0, 0);
        let eval = eval.arg(head).arg(rest);
        let values: Vec<Value> = eval.query(&mut self.lua.connection).unwrap();
        if let Answer::Shape = wire::answer(&values[0], policy.counters()).unwrap().0 {
            // The log needs more room, as the store would give it.
            let (value, now) = (self.lua.value(), self.now());
            let applied = apply(policy, operation, value.as_deref(), Origin::default(), now);
            self.lua.set(applied.unwrap().1.as_deref());
        }
    }

    /// Measures calls by the process 1, each with the next number; returns the mean in microseconds.
    fn mean(&mut self, rounds: u64, mut call: impl FnMut(&mut Self, u64)) -> f64 {
        let (calls, usec) = self.usec();
        (0..rounds).for_each(|round| call(self, round));
        let after = self.usec();
        (after.1 - usec) / (after.0 - calls)
    }

    fn now(&self) -> u64 {
        let (seconds, micros): (u64, u64) = self.server.command(&["TIME"]);
        seconds * 1_000_000 + micros
    }
}

/// Run it with `--ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn script_times() {
    let server = RedisServer::start();
    let lua = Lua::new(&server, false);
    let mut it = Measured { server, lua };
    let peer = "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2] \
        local tat = tonumber(redis.call('GET', KEYS[1]) or now) if tat < now then tat = now end \
        local new = tat + ARGV[1] if new - ARGV[2] > now then return {0, new - ARGV[2] - now} end \
        redis.call('SET', KEYS[1], string.format('%.0f', new), 'PX', 1000) return {1, 0}";
    for _ in 0..2 {
        let sha: String = it.server.command(&["SCRIPT", "LOAD", peer]);
        let peer = it.mean(ROUNDS, |it, _| {
            let mut eval = redis::cmd("EVALSHA");
            let eval = eval.arg(&sha).arg(1).arg("peer").arg(1).arg(1_000_000);
            eval.exec(&mut it.lua.connection).unwrap();
        });
        println!("a peer's GCRA: {peer:.1} us");
        // Processes that wait beside it, requests that wait and the cost of each.
        for case in "
            1000000/s gcra burst=1000, empty: 0 others, 1 of cost 1
            10/1ms, first grant: 0 others, 1 of cost 1
            10/h, waits: 0 others, 1 of cost 1
            10/h, waits: 3 others, 1 of cost 1
            10/h, waits: 1000 others, 1 of cost 1
            1000/10ms, ring: 0 others, 1 of cost 1
            10000/300ms, ring: 3 others, 1 of cost 1
            1000/h, ring: 1000 others, 1 of cost 1
            10/1ms + 1000000/s gcra burst=100, empty: 0 others, 1 of cost 1
            1000/100ms, waits: 0 others, 1000 of cost 1
            1000000/m, waits: 0 others, 1000 of cost 8000
            1000000/m gcra burst=1000000, waits: 0 others, 1000 of cost 8000
        "
        .lines()
        .map(str::trim)
        .filter(|case| !case.is_empty())
        {
            let (quotas, rest) = case.split_once(", ").unwrap();
            let numbers = rest.split(' ').filter_map(|word| word.parse().ok());
            let [others, count, cost] = numbers.collect::<Vec<u32>>()[..] else {
                panic!("{case}");
            };
            let policy = policy(quotas);
            let text = &Script::of(policy.counters()).text;
            let _: String = it.server.command(&["SCRIPT", "LOAD", text]);
            let _: () = it.server.command(&["FLUSHDB"]);
            let now = it.now();
            let full = u32::from(quotas.ends_with("/h")) * policy.largest_cost();
            for _ in 0..full {
                it.call(&policy, &take(1, 0, now - 1_000, 1, 1));
            }
            for other in 0..others {
                it.call(&policy, &take(2 + u64::from(other), 1, now - 500, 1, 1));
            }
            let rounds = if others.max(count) > 100 { 200 } else { ROUNDS };
            let mean = it.mean(rounds, |it, round| {
                it.call(&policy, &take(1, round + 1, now, count, cost));
            });
            println!(
                "{case:60} {mean:8.1} us, {:6.2} times the peer",
                mean / peer
            );
            assert!(mean < 5_000.0, "the script blocks the server");
        }
    }
}
