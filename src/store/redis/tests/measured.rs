//! How long the scripts take, and how large the values are.

use super::*;
use crate::algorithm::{Demand, Mode, Take};

const ROUNDS: u64 = 3_000;

struct Measured {
    server: RedisServer,
    lua: Lua,
    /// The time of a peer's script in the same run.
    peer: f64,
}

/// A call for `count` requests, as of a process with a round trip of 1 ms.
fn take(process: u64, number: u64, arrival: u64, count: usize, mode: Mode) -> Operation {
    Operation::Take(Take {
        process,
        number,
        round_trip: 1_000,
        guard: 20_000,
        horizon: 100_000,
        demand: Demand::new((0..count).map(|_| (arrival, 1))),
        ..Take::one(mode, 1)
    })
}

impl Measured {
    fn new() -> Self {
        let server = RedisServer::start();
        let lua = Lua::new(&server, false);
        Self {
            server,
            lua,
            peer: 0.0,
        }
    }

    /// Microseconds within the scripts for each call, and the slowest.
    fn usec(&self) -> (f64, f64, u64) {
        let info: String = self.server.command(&["INFO", "commandstats"]);
        let line = info.lines().find(|it| it.starts_with("cmdstat_evalsha:"));
        let line = line.unwrap_or("cmdstat_evalsha:calls=0,usec=0");
        let number = |name: &str| {
            let at = line.find(name).map(|at| &line[at + name.len()..]);
            let digits = at.unwrap_or("0").split(',').next().unwrap_or("0");
            digits.parse::<f64>().unwrap()
        };
        let slow: Vec<Vec<redis::Value>> = self.server.command(&["SLOWLOG", "GET", "1000"]);
        let slow = slow.iter().map(|entry| match entry[2] {
            redis::Value::Int(micros) => micros.cast_unsigned(),
            _ => 0,
        });
        (number("calls="), number("usec="), slow.max().unwrap_or(0))
    }

    fn call(&mut self, policy: &Policy, name: &str, operation: &Operation) -> Taken {
        let call = Call::new(&Key::new("key"), policy, operation);
        let encoded = wire::call(&call, 0, 0);
        let script = Script::of(policy.counters());
        let mut eval = redis::cmd("EVALSHA");
        let eval = eval
            .arg(&script.sha)
            .arg(2)
            .arg(name)
            .arg("mark")
            .arg(encoded.head)
            .arg(encoded.rest);
        let values: Vec<Value> = eval.query(&mut self.lua.connection).unwrap();
        match wire::answer(&values[0]).unwrap().0 {
            Answer::Done(taken) => taken,
            // The log needs more room, as the store would give it.
            Answer::Shape => {
                let get = redis::cmd("GET").arg(name).query(&mut self.lua.connection);
                let value: Option<Vec<u8>> = get.unwrap();
                let (now, origin) = (self.now(), Origin::default());
                let applied = apply(policy, operation, value.as_deref(), origin, now);
                let (taken, value) = applied.unwrap();
                let mut set = redis::cmd("SET");
                set.arg(name)
                    .arg(value)
                    .exec(&mut self.lua.connection)
                    .unwrap();
                taken
            }
            Answer::Unrecognized => panic!("the value is not recognized"),
        }
    }

    /// Measures calls by the process 1, each with the next number.
    fn report(&mut self, title: &str, rounds: u64, mut call: impl FnMut(&mut Self, u64)) {
        let _: () = self.server.command(&["SLOWLOG", "RESET"]);
        let (calls, usec, _) = self.usec();
        for round in 0..rounds {
            call(self, round);
        }
        let (calls_after, usec_after, slowest) = self.usec();
        let mean = (usec_after - usec) / (calls_after - calls);
        if self.peer == 0.0 {
            self.peer = mean;
        }
        let ratio = mean / self.peer;
        println!("{title:60} {mean:8.1} us, {ratio:6.2} times the peer, slowest {slowest} us");
        assert!(
            mean < 5_000.0,
            "a script must not block the server for long"
        );
    }

    fn load(&mut self, policy: &Policy) {
        let text = &Script::of(policy.counters()).text;
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD")
            .arg(text)
            .exec(&mut self.lua.connection)
            .unwrap();
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
    let mut it = Measured::new();
    let _: () = it
        .server
        .command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    let peer = "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2] \
        local tat = tonumber(redis.call('GET', KEYS[1]) or now) if tat < now then tat = now end \
        local new = tat + ARGV[1] if new - ARGV[2] > now then return {0, new - ARGV[2] - now} end \
        redis.call('SET', KEYS[1], string.format('%.0f', new), 'PX', 1000) return {1, 0}";
    for _ in 0..2 {
        it.peer = 0.0;
        let sha: String = it.server.command(&["SCRIPT", "LOAD", peer]);
        it.report("a peer's GCRA", ROUNDS, |it, _| {
            let mut eval = redis::cmd("EVALSHA");
            let eval = eval.arg(&sha).arg(1).arg("peer").arg(1).arg(1_000_000);
            eval.exec(&mut it.lua.connection).unwrap();
        });
        for (title, quotas, others, mode) in [
            (
                "gcra, empty key",
                "1000000/s gcra burst=1000",
                0,
                Mode::Wait,
            ),
            ("window of 10, first grant", "10/1ms", 0, Mode::Wait),
            ("window of 10, refused", "10/h", 0, Mode::Try),
            ("window of 10, waits", "10/h", 0, Mode::Wait),
            ("window of 10, waits, 1 other", "10/h", 1, Mode::Wait),
            ("window of 10, waits, 3 others", "10/h", 3, Mode::Wait),
            ("window of 1,000 (ring)", "1000/10ms", 0, Mode::Wait),
            ("window of 10,000", "10000/300ms", 0, Mode::Wait),
            ("window of 10,000, 3 others", "10000/300ms", 3, Mode::Wait),
            ("window of 10, 1,000 others", "10/h", 1_000, Mode::Wait),
            (
                "window of 1,000 (ring), 1,000 others",
                "1000/h",
                1_000,
                Mode::Wait,
            ),
            (
                "10/1ms + 100/s gcra",
                "10/1ms + 1000000/s gcra burst=100",
                0,
                Mode::Wait,
            ),
        ] {
            let policy = policy(quotas);
            it.load(&policy);
            let mut connection = it.server.client().get_connection().unwrap();
            redis::cmd("FLUSHDB").exec(&mut connection).unwrap();
            let now = it.now();
            if quotas.ends_with("/h") {
                for _ in 0..policy.largest_cost() {
                    it.call(&policy, "key", &take(1, 0, now - 1_000, 1, Mode::Try));
                }
            }
            for other in 0..others {
                it.call(
                    &policy,
                    "key",
                    &take(2 + other, 1, now - 500, 1, Mode::Wait),
                );
            }
            let rounds = if others > 100 { 200 } else { ROUNDS };
            it.report(&format!("{quotas}: {title}"), rounds, |it, round| {
                it.call(&policy, "key", &take(1, round + 1, now, 1, mode));
            });
        }
        for (title, quotas, cost, count) in [
            ("1,000 requests of cost 8,000", "1000000/m", 8_000, 1_000),
            (
                "1,000 requests of cost 8,000, GCRA",
                "1000000/m gcra burst=1000000",
                8_000,
                1_000,
            ),
            ("1,000 requests", "1000/100ms", 1, 1_000),
        ] {
            let policy = policy(quotas);
            it.load(&policy);
            it.report(&format!("{quotas}: {title}"), 50, |it, round| {
                let mut operation = take(1, round + 1, 1, count, Mode::Wait);
                if let Operation::Take(take) = &mut operation {
                    take.demand = Demand::new((0..count).map(|_| (1_000, cost)));
                }
                it.call(&policy, title, &operation);
            });
        }
    }
}
