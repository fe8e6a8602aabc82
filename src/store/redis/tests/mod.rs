//! The scripts in a real server, and the store on it.

use std::collections::HashMap;
use std::time::Instant;

use redis::{RedisResult, Value};

use super::script::Script;
use super::wire::{self, KeyAnswer};
use crate::algorithm::{Origin, Taken};
use crate::key::Key;
use crate::policy::{Policy, PolicyParts};
use crate::store::StoreError;
use crate::store::{Call, Operation};

use support::redis_server::RedisServer;

mod differential;
mod store;

/// Right before windows end.
const START: u64 = 1_762_999_999_980_000;

/// Keys live longer in the tests by so many milliseconds.
const LONG: u64 = 60_000_000;

fn policy(quotas: &str) -> Policy {
    PolicyParts::of(quotas).build().unwrap()
}

/// One key in a server, changed by scripts that are given the time.
struct Lua {
    connection: redis::Connection,
    /// The scripts, by their digests in production.
    scripts: HashMap<&'static str, redis::Script>,
    began: Instant,
}

/// When the value of a key expires, by its head.
fn expiry(value: &[u8]) -> u64 {
    u64::from_le_bytes(*value[6..].first_chunk().unwrap()) >> 8
}

impl Lua {
    fn new(server: &RedisServer) -> Self {
        Self {
            connection: server.client().get_connection().unwrap(),
            scripts: HashMap::new(),
            began: Instant::now(),
        }
    }

    fn get<T: redis::FromRedisValue>(&mut self, name: &str) -> T {
        let get = redis::cmd("GET").arg(name).query(&mut self.connection);
        get.unwrap()
    }

    fn value(&mut self) -> Option<Vec<u8>> {
        self.get("key")
    }

    fn set(&mut self, value: Option<&[u8]>) {
        let set = match value {
            Some(value) => {
                let lifetime = expiry(value).saturating_sub(START) / 1_000 + LONG;
                let mut set = redis::cmd("SET");
                set.arg("key").arg(value).arg("PX").arg(lifetime);
                set
            }
            None => redis::cmd("DEL").arg("key").clone(),
        };
        set.exec(&mut self.connection).unwrap();
    }

    /// The latest time at which the key may expire.
    fn expires(&mut self) -> u64 {
        let left: RedisResult<u64> = redis::cmd("PTTL").arg("key").query(&mut self.connection);
        let passed = self.began.elapsed().as_millis() as u64;
        START + 1_000 * (left.unwrap() + passed + 2 - LONG)
    }

    /// Runs the script of a policy on these keys; `None` for a value that has another shape.
    fn run(
        &mut self,
        policy: &Policy,
        calls: &[(&str, &Operation)],
        server: u64,
        now: u64,
    ) -> Vec<Option<Taken>> {
        let Script { text, sha, .. } = Script::of(&policy.counters);
        let script = self.scripts.entry(sha).or_insert_with(|| {
            let lifetime = "lifetime = (lifetime - lifetime % 1000) / 1000 + 1";
            assert!(text.contains(lifetime));
            // Values do not expire by the real time, and most writes do not set the expiry.
            let expires = format!("(expires - {START}) / 1000 + {LONG}");
            let text = text.replace(lifetime, &format!("lifetime = math.floor({expires})"));
            let text = text.replace("(expires - now) / 1000 + 2", &expires);
            redis::Script::new(&text.replace("is_given = now > 0", "is_given = false"))
        });
        let mut script = script.prepare_invoke();
        for (place, (name, operation)) in calls.iter().enumerate() {
            let call = Call::new(&Key::new(*name), policy, operation);
            let (head, rest) = (wire::head(&call, now), wire::rest(&call, server));
            if place == 0 {
                script.arg(head.0);
            }
            script.key(*name).arg(rest.0);
            if calls.len() == 1 {
                script.key("mark");
            }
            if wire::releases(&call) {
                script.arg("nudges").arg("the key");
            }
        }
        let value: Value = script.invoke(&mut self.connection).unwrap();
        let (at, answers) = wire::answers(&value, calls.len(), &policy.counters).unwrap();
        assert_eq!(at, now);
        let answers = answers.into_iter().map(|answer| match answer {
            KeyAnswer::Done(taken) => Some(taken),
            KeyAnswer::NeedsTransaction => None,
            KeyAnswer::Unrecognized => panic!("the value is not recognized"),
            KeyAnswer::Later => panic!("so few calls are done at once"),
        });
        answers.collect()
    }
}

/// The effect of a call on a value, in Rust.
fn apply(
    policy: &Policy,
    operation: &Operation,
    value: Option<&[u8]>,
    origin: Origin,
    now: u64,
) -> Result<(Taken, Option<Vec<u8>>), StoreError> {
    let call = Call::new(&Key::new("key"), policy, operation);
    let (answer, written) = call.apply_strict(value, now, origin.server, origin.since)?;
    let value = match written {
        Some((value, expires)) => Some(value).filter(|_| expires > now),
        None => value.map(<[u8]>::to_vec),
    };
    Ok((answer, value))
}
