//! Where calls go: [`Server`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use redis::aio::{ConnectionLike, PubSub};
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::time::Instant;

use super::failure::Failure;
use super::lease::Lease;
use super::script::Scripts;
use crate::store::StoreError;
use crate::telemetry;

/// How often scripts are loaded for one call.
const LOADS: usize = 8;

/// A server, or those of a cluster.
pub(super) trait Server: Send + Sync {
    /// Where the keys of this name's tag are: those of one call have to be at the same place.
    fn place(&self, _name: &str) -> u16 {
        0
    }

    /// What a name has between its braces that is to be at this place, if there are several.
    fn tag(&self, _place: u16) -> Option<String> {
        None
    }

    /// A number of the server at this place, as far as is known: what others ask of the same need not wait
    /// for a different one.
    fn lane(&self, _place: u16) -> u64 {
        0
    }

    /// Each server that holds anything, by its number as a lane, and a place at it.
    fn servers(&self, _deadline: Instant) -> BoxFuture<'_, Result<Vec<(u64, u16)>, StoreError>> {
        ready(Ok(vec![(self.lane(0), 0)])).boxed()
    }

    /// A number of what may be out while others answer, of which this place is.
    fn part(&self, place: u16) -> u64 {
        self.lane(place)
    }

    /// The same, once a call has failed about this place that was sent when this part held it.
    fn failed_part(&self, _place: u16, sent: u64) -> u64 {
        sent
    }

    /// Sends a call. It is not sent again if it may have reached a server.
    fn run<'a>(
        &'a self,
        place: u16,
        call: Call<'a>,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Answer<Value>, Failure>>;

    /// Sends what records nothing, by a transaction.
    fn look<'a>(
        &'a self,
        place: u16,
        pipe: &'a Pipeline,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Answer<Vec<Value>>, Failure>>;

    /// What makes further connections, if there is a way.
    fn opener(&self) -> Option<&dyn Opener> {
        None
    }
}

/// Makes further connections.
pub(super) trait Opener: Send + Sync {
    /// A connection that nobody else uses meanwhile.
    fn lease(&self, place: u16, deadline: Instant) -> BoxFuture<'_, Result<Lease, StoreError>>;

    /// Whether a server has answered so because this place is elsewhere, and it is known where.
    fn has_moved(&self, _place: u16, _failure: &Failure) -> bool {
        false
    }

    /// How long it may take to connect.
    fn patience(&self) -> Duration;

    /// A connection for what is published anywhere.
    fn subscribe(&self) -> BoxFuture<'_, RedisResult<PubSub>>;

    /// A number that changes when another server may have to be subscribed to.
    fn generation(&self) -> u64;

    /// A connection was lost, so that others may be.
    fn doubt(&self);
}

/// A command; if it is of a script, with those that are loaded if the server does not know it.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) command: &'a Cmd,
    pub(super) scripts: Option<&'a Scripts>,
}

/// What a server has answered.
pub(super) struct Answer<T> {
    pub(super) value: T,
    /// By which clock: no two servers' answers have the same number.
    pub(super) number: u64,
}

/// A number for a connection, or for an answer where that is not known.
pub(super) fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl<'a> Call<'a> {
    pub(super) fn new(scripts: Option<&'a Scripts>, command: &'a Cmd) -> Self {
        Self { command, scripts }
    }

    /// Sends it on this connection; if it is of a script that the server does not know, again along with that
    /// and those that go with it: whoever calls one is going to call the others, and the first calls of two
    /// scripts would arrive in whatever order.
    pub(super) async fn send(self, connection: &mut impl ConnectionLike) -> RedisResult<Value> {
        self.send_behind(None, connection).await
    }

    /// The same, each time behind another command.
    pub(super) async fn send_behind(
        self,
        before: Option<&Cmd>,
        connection: &mut impl ConnectionLike,
    ) -> RedisResult<Value> {
        let first = match before {
            None => self.command.query_async(connection).await,
            Some(_) => self.pipe(before).query_async(connection).await.map(only),
        };
        match (first, self.scripts) {
            (Err(error), Some(scripts)) if is_unknown(&error) => {
                let loads = scripts.loads();
                let pipe = self.pipe(loads.iter().chain(before));
                let mut loads = 1;
                loop {
                    match pipe.query_async(connection).await {
                        // Somebody has flushed them in between.
                        Err(error) if is_unknown(&error) && loads < LOADS => loads += 1,
                        answer => {
                            telemetry::scripts_loaded();
                            return answer.map(only);
                        }
                    }
                }
            }
            (answer, _) => answer,
        }
    }

    fn pipe<'c>(self, before: impl IntoIterator<Item = &'c Cmd>) -> Pipeline {
        let mut pipe = redis::pipe();
        for command in before {
            pipe.add_command(command.clone()).ignore();
        }
        pipe.add_command(self.command.clone());
        pipe
    }
}

/// Whether the server does not know the script: then it has done nothing.
fn is_unknown(error: &RedisError) -> bool {
    const UNKNOWN: ServerErrorKind = ServerErrorKind::NoScript;
    let errors = || error.clone().into_server_errors();
    error.kind() == ErrorKind::Server(UNKNOWN)
        || errors().is_some_and(|all| all.iter().any(|(_, it)| it.kind() == Some(UNKNOWN)))
}

fn only((value,): (Value,)) -> Value {
    value
}
