//! Connections that one caller has to itself for a while: [`Lease`].

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisResult};
use tokio::time::{Instant, timeout_at};

use super::failure::{Failure, too_late};
use super::link::{Link, Wire};
use super::source;
use crate::store::StoreError;

/// The most connections that are kept while nobody needs them.
const MOST_IDLE: usize = 64;

/// A connection of one's own, to the server of this link.
pub(super) struct Lease {
    wire: Wire,
    link: Link,
    is_used: bool,
}

impl Lease {
    pub(super) async fn of(link: &Link, deadline: Instant) -> Result<Self, StoreError> {
        let idle = link.idle().pop();
        let is_used = idle.is_some();
        let wire = match idle {
            Some(wire) => wire,
            None => connect(link, deadline).await?,
        };
        let link = link.clone();
        Ok(Self {
            wire,
            link,
            is_used,
        })
    }

    /// Whether it may have broken since it was used last.
    pub(super) fn is_used(&self) -> bool {
        self.is_used
    }

    pub(super) async fn pipe<T: redis::FromRedisValue>(
        &mut self,
        pipe: &Pipeline,
        deadline: Instant,
    ) -> Result<T, Failure> {
        let begun = Instant::now();
        let connection: &mut MultiplexedConnection = &mut self.wire.connection;
        let answer: Result<RedisResult<T>, _> =
            timeout_at(deadline, pipe.query_async(connection)).await;
        let failure = match answer {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => Failure::Answered(error),
            Err(elapsed) => {
                self.link.doubt_newest(deadline - begun);
                Failure::Late(elapsed)
            }
        };
        if failure.is_demoted() {
            self.link.demoted(self.link.newest());
        } else if failure.is_lost() {
            // The others are of the same age.
            self.link.idle().clear();
        }
        Err(failure)
    }

    pub(super) fn give_back(self) {
        let mut idle = self.link.idle();
        if idle.len() < MOST_IDLE {
            idle.push(self.wire);
        }
    }
}

/// Only where there is a connection for everybody: then all share what keeps them from trying too often.
async fn connect(link: &Link, deadline: Instant) -> Result<Wire, StoreError> {
    let begun = Instant::now();
    link.wire(deadline).await?;
    let connecting = source::connect(link.source());
    let connection = match timeout_at(deadline, connecting).await {
        Ok(connection) => connection,
        Err(elapsed) => Err(too_late().caused_by(elapsed)),
    };
    match connection {
        Ok(connection) => Ok(Wire::new(connection)),
        Err(error) => {
            link.doubt_newest(deadline - begun);
            Err(error)
        }
    }
}
