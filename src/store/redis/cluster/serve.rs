//! What a [`Cluster`] does as a [`Server`].

use std::io;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use redis::aio::PubSub;
use redis::{Pipeline, RedisResult, Value};
use tokio::time::Instant;

use super::redirect::Redirect;
use super::{Cluster, REDIRECTS, ask, slots};
use crate::store::StoreError;
use crate::store::redis::failure::Failure;
use crate::store::redis::lease::Lease;
use crate::store::redis::server::{Answer, Call, Opener, Server};

/// In place of the number of a server, where none is known.
const NOWHERE: u64 = u64::MAX;

/// The number of the first slot that is a part of its own; no server's is as high.
const FIRST_SLOT: u64 = 1 << 32;

impl Server for Cluster {
    fn place(&self, name: &str) -> u16 {
        slots::of(name)
    }

    fn tag(&self, place: u16) -> Option<String> {
        Some(slots::tag(place))
    }

    fn lane(&self, place: u16) -> u64 {
        self.0.map.read().node(place).map_or(NOWHERE, |it| it.id)
    }

    fn servers(&self, deadline: Instant) -> BoxFuture<'_, Result<Vec<(u64, u16)>, StoreError>> {
        async move {
            let unknown = (0..slots::SLOTS).find(|&slot| self.known(slot).is_none());
            if let Some(slot) = unknown {
                self.node(slot, deadline).await?;
            }
            Ok(self.0.map.read().holders())
        }
        .boxed()
    }

    fn part(&self, place: u16) -> u64 {
        self.failed_part(place, self.lane(place))
    }

    fn failed_part(&self, place: u16, sent: u64) -> u64 {
        match self.0.map.read().is_unsettled(place) {
            true => FIRST_SLOT + u64::from(place),
            false => sent,
        }
    }

    fn run<'a>(
        &'a self,
        place: u16,
        call: Call<'a>,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Answer<Value>, Failure>> {
        self.send(place, call, deadline).boxed()
    }

    fn look<'a>(
        &'a self,
        place: u16,
        pipe: &'a Pipeline,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Answer<Vec<Value>>, Failure>> {
        async move {
            let mut redirects = 0;
            loop {
                let node = self.node(place, deadline).await.map_err(Failure::Unsent)?;
                let failure = match node.link.send_all(pipe, deadline).await {
                    Ok(answer) => return Ok(answer),
                    Err(failure) => failure,
                };
                redirects += 1;
                if redirects > REDIRECTS || !self.has_moved(place, &failure) {
                    self.note(place, &failure);
                    return Err(failure);
                }
            }
        }
        .boxed()
    }

    fn opener(&self) -> Option<&dyn Opener> {
        Some(self)
    }
}

impl Cluster {
    /// Whether the failure says that the place is elsewhere for good.
    fn has_moved(&self, place: u16, failure: &Failure) -> bool {
        let moved = Redirect::of(failure).filter(|it| matches!(it, Redirect::Moved(_)));
        moved.is_some_and(|to| self.follow(place, &to, None).is_some())
    }

    /// Of any server: what is published reaches them all.
    async fn subscription(&self) -> RedisResult<PubSub> {
        let nodes = ask::in_any_order(self.0.map.read().nodes());
        match (nodes.first(), self.0.seeds.first()) {
            (Some(node), _) => node.link.subscribe().await,
            (None, Some(seed)) => seed.get_async_pubsub().await,
            (None, None) => Err(io::Error::from(io::ErrorKind::NotConnected).into()),
        }
    }
}

impl Opener for Cluster {
    fn lease(&self, place: u16, deadline: Instant) -> BoxFuture<'_, Result<Lease, StoreError>> {
        async move { Lease::of(&self.node(place, deadline).await?.link, deadline).await }.boxed()
    }

    fn has_moved(&self, place: u16, failure: &Failure) -> bool {
        let has_moved = Self::has_moved(self, place, failure);
        if !has_moved {
            self.note(place, failure);
        }
        has_moved
    }

    fn patience(&self) -> Duration {
        ask::PATIENCE
    }

    fn subscribe(&self) -> BoxFuture<'_, RedisResult<PubSub>> {
        self.subscription().boxed()
    }

    fn generation(&self) -> u64 {
        self.0.map.read().generation()
    }

    fn doubt(&self) {
        self.renew();
    }
}
