//! Asks the servers of a cluster which slots they hold.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use redis::{Client, Cmd};
use tokio::time::{Instant, timeout};

use super::map::{self, Node};
use super::slots::{self, Ranges};
use crate::store::StoreError;
use crate::store::redis::failure::{Failure, explain_look, unreachable};
use crate::store::redis::server::Call;
use crate::store::redis::source;

/// How long one server may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// How many are asked at once: a few that do not answer hold nobody up.
const ASKED_AT_ONCE: usize = 3;

/// What the first of them says that answers: of those that are known, in any order, then of those that the
/// user has named.
pub(super) async fn first_of(
    nodes: Vec<Arc<Node>>,
    seeds: &[Client],
) -> Result<Ranges, StoreError> {
    let mut all: Vec<BoxFuture<'static, Result<Ranges, StoreError>>> = Vec::new();
    all.extend(in_any_order(nodes).into_iter().map(|it| known(it).boxed()));
    all.extend(seeds.iter().map(|it| seed(it.clone()).boxed()));
    let mut answers = stream::iter(all).buffer_unordered(ASKED_AT_ONCE);
    let mut why = unreachable();
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(ranges) => return Ok(ranges),
            Err(error) => why = error,
        }
    }
    Err(why)
}

pub(super) fn in_any_order(mut nodes: Vec<Arc<Node>>) -> Vec<Arc<Node>> {
    let random = RandomState::new();
    nodes.sort_by_cached_key(|node| random.hash_one(node.id));
    nodes
}

async fn known(node: Arc<Node>) -> Result<Ranges, StoreError> {
    let command = command();
    let call = Call::new(None, &command);
    let answer = node.link.send(call, None, Instant::now() + PATIENCE).await;
    let answer = answer.map_err(Failure::explain_look)?;
    slots::read(answer.value, &node.host).ok_or_else(strange)
}

async fn seed(client: Client) -> Result<Ranges, StoreError> {
    let asking = async {
        let mut connection = source::connect(&client).await?;
        let answer = command().query_async(&mut connection).await;
        let host = map::host(client.get_connection_info()).unwrap_or_default();
        slots::read(answer.map_err(explain_look)?, host).ok_or_else(strange)
    };
    let answer = timeout(PATIENCE, asking).await;
    answer.unwrap_or_else(|elapsed| Err(unreachable().caused_by(elapsed)))
}

fn command() -> Cmd {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    command
}

fn strange() -> StoreError {
    StoreError::new("redis does not tell which servers hold the slots")
}
