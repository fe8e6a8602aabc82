//! Connections to a server, and what their errors mean.

use redis::aio::{ConnectionManager, MultiplexedConnection};
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};

use super::script::Scripts;
use crate::store::StoreError;

#[derive(Clone)]
pub(super) enum Connection {
    Manager(ConnectionManager),
    Multiplexed(MultiplexedConnection),
}

impl Connection {
    /// Sends a call; if it is one of a script that the server does not know, along with that and those that
    /// go with it: whoever calls one is going to call the others, and the first calls of two scripts would
    /// arrive in whatever order.
    pub(super) async fn run(
        &mut self,
        scripts: Option<&Scripts>,
        call: &Cmd,
    ) -> RedisResult<Value> {
        const UNKNOWN: ErrorKind = ErrorKind::Server(ServerErrorKind::NoScript);
        match (self.query(call).await, scripts) {
            (Err(error), Some(scripts)) if error.kind() == UNKNOWN => {
                let mut both = redis::pipe();
                for load in scripts.loads() {
                    both.add_command(load).ignore();
                }
                both.add_command(call.clone());
                let (answer,) = match self {
                    Self::Manager(connection) => both.query_async(connection).await?,
                    Self::Multiplexed(connection) => both.query_async(connection).await?,
                };
                Ok(answer)
            }
            (answer, _) => answer,
        }
    }

    pub(super) async fn pipe(&mut self, pipe: &Pipeline) -> RedisResult<Vec<Value>> {
        match self {
            Self::Manager(connection) => pipe.query_async(connection).await,
            Self::Multiplexed(connection) => pipe.query_async(connection).await,
        }
    }

    async fn query(&mut self, call: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Manager(connection) => call.query_async(connection).await,
            Self::Multiplexed(connection) => call.query_async(connection).await,
        }
    }
}

/// Of a call that may record something. What the server refused did not: the scripts check all state
/// before they take a slot.
pub(super) fn explain(error: RedisError) -> StoreError {
    let is_lost = !is_refused(&error) && !error.is_connection_refusal();
    let explained = explain_look(error);
    if is_lost {
        explained.outcome_unknown()
    } else {
        explained
    }
}

/// Of a call that records nothing.
pub(super) fn explain_look(error: RedisError) -> StoreError {
    if is_refused(&error) {
        let is_outage = error.code().is_some_and(is_outage);
        let refused = refused().caused_by(error);
        return if is_outage {
            refused
        } else {
            refused.no_outage()
        };
    }
    let what = if error.is_connection_refusal() {
        "redis cannot be reached"
    } else {
        "the connection to redis was lost"
    };
    StoreError::new(what).caused_by(error)
}

fn is_refused(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed
    )
}

/// Whether a server that answers with this code serves nobody at present, and may again without anybody's
/// help: while it loads its data, runs somebody's script, has no memory left, or is a replica that was the
/// primary.
pub(super) fn is_outage(code: &str) -> bool {
    const CODES: [&str; 10] = [
        "BUSY",
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        "MISCONF",
        "NOREPLICAS",
        "OOM",
        "READONLY",
        "TRYAGAIN",
        "UNBLOCKED",
    ];
    CODES.contains(&code)
}

pub(super) fn refused() -> StoreError {
    StoreError::new("redis refused the call")
}

pub(super) fn too_late() -> StoreError {
    StoreError::new("redis did not answer in time")
}
