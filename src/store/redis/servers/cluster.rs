//! The servers of a cluster: [`Cluster`].
//!
//! The cluster client of `redis` repeats calls whose outcome it does not know, and does not say which server
//! answered. So this module keeps the map of the slots itself, and follows redirections.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use redis::{Cmd, ConnectionInfo, Pipeline};
use tokio::time::Instant;

use super::attempts::Attempts;
use super::errors;
use super::map::{Map, address};
use super::node::Node;
use super::slots::{self, Range, Redirect, slot_of, tag_of};
use super::target;
use super::{Answers, CommandAnswer, Servers, Topology};
use crate::lock::Mutex;
use crate::store::StoreError;

/// The most redirections of one command.
const REDIRECTS: u32 = 5;

/// The least time between two updates of the map.
const LEAST_AGE: Duration = Duration::from_millis(100);

/// The time that one server gets to return the map.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The time that the servers get to return the first map.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// Servers that are asked at the same time, so that a few that do not answer delay nothing.
const ASKED_AT_ONCE: usize = 3;

#[derive(Clone)]
struct Cluster {
    map: Arc<Mutex<Map>>,
    updates: Attempts<()>,
}

impl Servers {
    /// The cluster that the servers at these URLs are part of. All its servers are connected to with the user, the
    /// password and the TLS settings of the first URL.
    pub(crate) fn cluster<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
    ) -> Result<Self, StoreError> {
        let infos = urls.into_iter().map(|url| target::info(url.as_ref()));
        Self::cluster_at(infos.collect::<Result<_, _>>()?)
    }

    /// The cluster that the servers at these addresses are part of. Only the address is used of all but the first.
    pub(crate) fn cluster_at(infos: Vec<ConnectionInfo>) -> Result<Self, StoreError> {
        let seeds: Option<Vec<_>> = infos.iter().map(address).collect();
        let info = infos.into_iter().next();
        let (Some(seeds), Some(info)) = (seeds, info) else {
            let none = "a cluster needs the URL of at least one server, each with a host";
            return Err(StoreError::new(none).invalid_url());
        };
        Ok(Self::on(Cluster {
            map: Arc::new(Mutex::new(Map::new(info, seeds))),
            updates: Attempts::new(LEAST_AGE),
        }))
    }
}

impl Cluster {
    async fn holder(&self, slot: u16, deadline: Instant) -> Result<Node, StoreError> {
        if let Some(node) = self.known(slot) {
            return Ok(node);
        }
        self.updated(deadline).await?;
        self.known(slot).ok_or_else(uncovered)
    }

    /// Waits for an update of the map.
    async fn updated(&self, deadline: Instant) -> Result<(), StoreError> {
        let update = || self.clone().update();
        self.updates.join(deadline, |()| false, update).await
    }

    fn known(&self, slot: u16) -> Option<Node> {
        self.map.lock().holder(slot)
    }

    /// Takes the map of the first server that answers, of those that are known and the seeds.
    async fn update(self) -> Result<(), StoreError> {
        let nodes = self.map.lock().in_random_order();
        let answers = nodes.into_iter().map(|it| ask(it).boxed());
        let mut answers = stream::iter(answers).buffer_unordered(ASKED_AT_ONCE);
        let mut why = errors::unreachable();
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(ranges) => {
                    self.map.lock().replace(ranges);
                    return Ok(());
                }
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// Sends a command again that was redirected. Returns `None` if it has no effect there either.
    async fn follow(
        &self,
        command: &Cmd,
        redirect: Redirect,
        deadline: Instant,
    ) -> Result<Option<CommandAnswer>, StoreError> {
        let mut pipe = redis::pipe();
        if redirect.is_ask {
            pipe.cmd("ASKING");
        }
        pipe.add_command(command.clone());
        let node = self.map.lock().node(redirect.address);
        match node.run("", &pipe, deadline).await {
            Ok(mut answers) => Ok(answers.pop()),
            Err(error) if error.is_outcome_unknown() => Err(error),
            Err(_) => Ok(None),
        }
    }
}

#[async_trait]
impl Topology for Cluster {
    fn shard(&self, name: &str) -> u64 {
        self.known(slot_of(name))
            .map_or(u64::MAX, |it| it.target().number)
    }

    fn slot_tag(&self, name: &str) -> Option<String> {
        Some(tag_of(slot_of(name)))
    }

    async fn run(&self, name: &str, commands: &Pipeline, deadline: Instant) -> Answers {
        let node = self.holder(slot_of(name), deadline).await?;
        let mut answer = node.run(name, commands, deadline).await;
        for _ in 0..REDIRECTS {
            self.note(&node, &answer);
            let mut answers = answer?;
            let redirects = redirects(&answers, &node);
            if redirects.is_empty() {
                return Ok(answers);
            }
            let commands: Vec<_> = commands.cmd_iter().collect();
            let followed = redirects.into_iter().map(async |(place, redirect)| {
                let again = self.follow(commands[place], redirect, deadline).await?;
                Ok(again.map(|answer| (place, answer)))
            });
            // If one outcome is unknown, the caller gets none of the answers, as if all of them were lost.
            answer = try_join_all(followed).await.map(|again| {
                for (place, answer) in again.into_iter().flatten() {
                    answers[place] = answer;
                }
                answers
            });
        }
        answer
    }

    async fn node(&self, name: &str, deadline: Instant) -> Result<Node, StoreError> {
        self.holder(slot_of(name), deadline).await
    }

    async fn connect(&self) -> Result<(), StoreError> {
        self.updated(Instant::now() + CONNECT_TIMEOUT).await
    }

    fn any_node(&self) -> Option<Node> {
        self.map.lock().in_random_order().into_iter().next()
    }

    async fn primaries(&self, deadline: Instant) -> Result<Vec<Node>, StoreError> {
        // Another server may have taken over since the last call.
        let updated = self.updated(deadline).await;
        let map = self.map.lock();
        if !map.is_complete() {
            updated?;
            return Err(uncovered());
        }
        Ok(map.holders())
    }

    fn note(&self, node: &Node, answer: &Answers) {
        let may_have_moved = match answer {
            Ok(answers) => answers
                .iter()
                .any(|it| it.refusal().is_some_and(|error| error.is_outage())),
            Err(error) => error.is_outage(),
        };
        if may_have_moved {
            drop(self.updates.start(|()| false, self.clone().update()));
        }
        for (_, redirect) in answer.iter().flat_map(|it| redirects(it, node)) {
            if !redirect.is_ask {
                let mut map = self.map.lock();
                map.move_slot(redirect.slot, redirect.address);
            }
        }
    }
}

async fn ask(node: Node) -> Result<Vec<Range>, StoreError> {
    let mut pipe = redis::pipe();
    pipe.cmd("CLUSTER").arg("SLOTS");
    let answers = node.run("", &pipe, Instant::now() + TIMEOUT).await?;
    let answer = answers.into_iter().next();
    let value = answer.map(CommandAnswer::into_value).transpose()?;
    let ranges = value.and_then(|it| slots::read(it, &node.target().host));
    // A server that has left the cluster knows of none.
    let ranges = ranges.filter(|it| !it.is_empty());
    ranges.ok_or_else(|| {
        StoreError::new(
            "redis reports no cluster: check that cluster mode is on, or connect without it",
        )
    })
}

fn uncovered() -> StoreError {
    StoreError::new("no server of the cluster holds the slot of the key: check `CLUSTER INFO`")
}

/// The places of commands that were redirected.
fn redirects(answers: &[CommandAnswer], node: &Node) -> Vec<(usize, Redirect)> {
    let redirect = |(place, answer): (usize, &CommandAnswer)| {
        let redirect = Redirect::of(answer.server_error()?, &node.target().host)?;
        Some((place, redirect))
    };
    answers.iter().enumerate().filter_map(redirect).collect()
}
