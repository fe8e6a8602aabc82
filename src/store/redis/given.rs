//! Connections that the user has made: [`Given`].

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use redis::aio::{ConnectionLike, ConnectionManager, MultiplexedConnection};
use redis::{Pipeline, RedisResult, Value};
use tokio::time::{Instant, timeout_at};

use super::failure::Failure;
use super::server::{Answer, Call, Server, next_number};
use crate::clock::UNTOLD;

/// A connection that somebody else looks after, or nobody.
pub(super) struct Given<C> {
    connection: C,
    number: u64,
}

impl Given<MultiplexedConnection> {
    pub(super) fn multiplexed(connection: MultiplexedConnection) -> Self {
        Self {
            connection,
            number: next_number(),
        }
    }
}

impl Given<ConnectionManager> {
    /// It does not tell when it connects anew, maybe to another server.
    pub(super) fn manager(connection: ConnectionManager) -> Self {
        Self {
            connection,
            number: UNTOLD,
        }
    }
}

impl<C: ConnectionLike + Clone + Send + Sync> Given<C> {
    async fn bounded<T>(
        &self,
        deadline: Instant,
        answer: impl Future<Output = RedisResult<T>>,
    ) -> Result<Answer<T>, Failure> {
        let answer = timeout_at(deadline, answer).await;
        let value = answer.map_err(Failure::Late)?.map_err(Failure::Answered)?;
        let number = self.number;
        Ok(Answer { value, number })
    }
}

impl<C: ConnectionLike + Clone + Send + Sync> Server for Given<C> {
    fn run<'a>(
        &'a self,
        _place: u16,
        call: Call<'a>,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Answer<Value>, Failure>> {
        let mut connection = self.connection.clone();
        async move { self.bounded(deadline, call.send(&mut connection)).await }.boxed()
    }

    fn look<'a>(
        &'a self,
        _place: u16,
        pipe: &'a Pipeline,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Answer<Vec<Value>>, Failure>> {
        let mut connection = self.connection.clone();
        async move {
            self.bounded(deadline, pipe.query_async(&mut connection))
                .await
        }
        .boxed()
    }
}
