//! The scripts in a real server, and the store on it.

use std::collections::HashMap;

use redis::Value;

use super::script::Script;
use super::wire::{self, Answer};
use crate::algorithm::{Origin, Taken, Writer};
use crate::key::Key;
use crate::policy::{Policy, PolicyParts};
use crate::store::StoreError;
use crate::store::{Call, Operation};

use support::redis_server::RedisServer;

mod differential;
mod store;

fn policy(quotas: &str) -> Policy {
    PolicyParts::of(quotas).build().unwrap()
}

/// The parts of a call.
fn encoded(call: &Call, server: u64, now: u64) -> [Vec<u8>; 2] {
    let [mut head, mut rest] = [(); 2].map(|()| Writer::default());
    wire::head(&mut head, call, now);
    wire::rest(&mut rest, call, server);
    [head.0, rest.0]
}

/// One key in a server, changed by scripts that are given the time.
struct Lua {
    connection: redis::Connection,
    /// The scripts, by their digests in production.
    scripts: HashMap<&'static str, redis::Script>,
}

impl Lua {
    fn new(server: &RedisServer) -> Self {
        Self {
            connection: server.client().get_connection().unwrap(),
            scripts: HashMap::new(),
        }
    }

    fn value(&mut self) -> Option<Vec<u8>> {
        let get = redis::cmd("GET").arg("key").query(&mut self.connection);
        get.unwrap()
    }

    fn set(&mut self, value: Option<&[u8]>) {
        let set = match value {
            Some(value) => redis::cmd("SET").arg("key").arg(value).clone(),
            None => redis::cmd("DEL").arg("key").clone(),
        };
        set.exec(&mut self.connection).unwrap();
    }

    fn mark(&mut self) -> Option<u64> {
        let get = redis::cmd("GET").arg("mark").query(&mut self.connection);
        get.unwrap()
    }

    /// Runs the script of a policy; `None` if the value has another shape.
    fn run(
        &mut self,
        policy: &Policy,
        operation: &Operation,
        server: u64,
        now: u64,
    ) -> Option<Taken> {
        let call = Call::new(&Key::new("key"), policy, operation);
        let [head, rest] = encoded(&call, server, now);
        let Script { text, sha, .. } = Script::of(policy.counters());
        let script = self.scripts.entry(sha).or_insert_with(|| {
            let lifetime = "lifetime = (lifetime - lifetime % 1000) / 1000 + 1";
            assert!(text.contains(lifetime));
            // Values do not expire by the real time.
            redis::Script::new(&text.replace(lifetime, "lifetime = 60000000"))
        });
        let mut script = script.key("key");
        script.key("mark").arg(&head[..]).arg(&rest[..]);
        if wire::is_single(&call) {
            script.arg("nudges").arg("the key");
        }
        let value: Value = script.invoke(&mut self.connection).unwrap();
        let (at, mut bytes) = wire::answers(&value).unwrap();
        let answer = wire::answer(&mut bytes, policy.counters()).unwrap();
        assert!(bytes.0.is_empty());
        match answer {
            Answer::Done(taken) => {
                assert!(now == 0 || at == now);
                Some(taken)
            }
            Answer::Shape => None,
            Answer::Unrecognized => panic!("the value is not recognized"),
            Answer::Later => panic!("a single call is done at once"),
        }
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
