//! A remote store whose shards can be out: [`Sharded`].

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use tower_throttle::key::Key;
use tower_throttle::store::{Answered, Call, Reply, Store, StoreError};

use crate::prelude::*;

/// The time that each answer takes.
const LATENCY: Duration = Duration::from_millis(1);

/// The first letter of a key is its shard.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sharded {
    store: MemoryStore,
    out: Arc<Mutex<HashSet<u64>>>,
}

impl Sharded {
    /// The shards of these keys are out, and no others.
    pub(crate) fn out(&self, keys: &[&str]) {
        *self.out.lock().expect("no panic") = keys.iter().map(|key| shard(key)).collect();
    }

    fn reply(&self, is_out: bool, answer: Reply<Answered>) -> Reply<Answered> {
        Reply::pending(async move {
            sleep(LATENCY).await;
            match is_out {
                true => Err(StoreError::new("it is out").caused_by("a test")),
                false => Ok(Answered {
                    received: Instant::now(),
                    ..answer.await?
                }),
            }
        })
    }
}

fn shard(key: &str) -> u64 {
    key.bytes().next().unwrap_or_default().into()
}

impl Store for Sharded {
    fn call(&self, calls: Vec<Call>) -> Reply<Answered> {
        let shard = self.shard(calls[0].key());
        assert!(calls.iter().all(|call| self.shard(call.key()) == shard));
        if self.out.lock().expect("no panic").contains(&shard) {
            return self.reply(true, self.store.ping(calls[0].key()));
        }
        self.reply(false, self.store.call(calls))
    }

    fn ping(&self, key: &Key) -> Reply<Answered> {
        let shard = self.shard(key);
        let is_out = self.out.lock().expect("no panic").contains(&shard);
        self.reply(is_out, self.store.ping(key))
    }

    fn shard(&self, key: &Key) -> u64 {
        shard(key.as_str())
    }
}
