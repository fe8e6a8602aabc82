//! One server for all keys, on a [`Link`] to it.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use redis::aio::PubSub;
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::time::{Instant, timeout_at};

use super::failure::{Failure, code_in, is_demoted};
use super::lease::Lease;
use super::link::Link;
use super::server::{Answer, Call, Opener, Server};
use crate::store::StoreError;

/// How long a sign of life may take when nobody has set a bound.
const PATIENCE: Duration = Duration::from_secs(1);

impl Link {
    /// Sends a call, each time behind this other command, if any.
    pub(super) async fn send(
        &self,
        call: Call<'_>,
        before: Option<&Cmd>,
        deadline: Instant,
    ) -> Result<Answer<Value>, Failure> {
        let begun = Instant::now();
        let mut wire = self.wire(deadline).await.map_err(Failure::Unsent)?;
        let sending = call.send_behind(before, &mut wire.connection);
        let answer = timeout_at(deadline, sending).await;
        let value = self.judge(wire.number, answer, deadline - begun)?;
        if tells_of_replica(&value) {
            self.demoted(wire.number);
        } else {
            self.proven();
        }
        let number = wire.number;
        Ok(Answer { value, number })
    }

    pub(super) async fn send_all(
        &self,
        pipe: &Pipeline,
        deadline: Instant,
    ) -> Result<Answer<Vec<Value>>, Failure> {
        let begun = Instant::now();
        let mut wire = self.wire(deadline).await.map_err(Failure::Unsent)?;
        let answer = timeout_at(deadline, pipe.query_async(&mut wire.connection)).await;
        let value = self.judge(wire.number, answer, deadline - begun)?;
        let number = wire.number;
        Ok(Answer { value, number })
    }
}

impl Server for Link {
    fn run<'a>(
        &'a self,
        _place: u16,
        call: Call<'a>,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Answer<Value>, Failure>> {
        self.send(call, None, deadline).boxed()
    }

    fn look<'a>(
        &'a self,
        _place: u16,
        pipe: &'a Pipeline,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Answer<Vec<Value>>, Failure>> {
        self.send_all(pipe, deadline).boxed()
    }

    fn opener(&self) -> Option<&dyn Opener> {
        Some(self)
    }
}

impl Opener for Link {
    fn lease(&self, _place: u16, deadline: Instant) -> BoxFuture<'_, Result<Lease, StoreError>> {
        Lease::of(self, deadline).boxed()
    }

    fn patience(&self) -> Duration {
        self.source().patience()
    }

    fn subscribe(&self) -> BoxFuture<'_, RedisResult<PubSub>> {
        async { self.source().client().await?.get_async_pubsub().await }.boxed()
    }

    fn generation(&self) -> u64 {
        self.newest()
    }

    fn doubt(&self) {
        self.doubt_newest(PATIENCE);
    }
}

/// Whether a script has caught that the server takes no writes, and says so for one of its keys.
fn tells_of_replica(value: &Value) -> bool {
    let Value::Array(items) = value else {
        return false;
    };
    items.iter().any(|item| match item {
        Value::BulkString(reason) => is_demoted(code_in(&String::from_utf8_lossy(reason))),
        _ => false,
    })
}
