//! [`Fault`]: one thing that goes wrong, and the promise that holds.

use futures_util::future::BoxFuture;
use tower_throttle::LimiterBuilder;
use tower_throttle::store::StoreError;

use crate::load::LIMIT;
use crate::prelude::*;

/// One thing that goes wrong under load, and is put right. Each process finds it in the [table](crate::table) by name.
#[derive(Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) setup: fn() -> Setup,
    pub(crate) connect: fn(String) -> BoxFuture<'static, Result<RedisStore, StoreError>>,
    pub(crate) store: fn(RedisStore) -> RedisStore,
    pub(crate) limiter: fn(LimiterBuilder) -> LimiterBuilder,
    /// Lets it go wrong, and sees to it that it did.
    pub(crate) inject: fn(&mut Setup),
    pub(crate) lasts: Lasts,
    pub(crate) heal: fn(&mut Setup),
    /// The most that may depart in any window, in the end; `None` if there is no bound.
    pub(crate) most: fn(&Setup) -> Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Lasts {
    For(Duration),
    /// Until so many requests of each key have departed.
    UntilDeparted(usize),
}

impl Fault {
    /// Nothing goes wrong: one server, state that is kept, and the limiter as it is by default.
    pub(crate) const PLAIN: Self = Self {
        name: "none",
        setup: || Setup::new(&[]),
        connect: |url| Box::pin(async move { RedisStore::connect(&url).await }),
        store: |store| store,
        limiter: |limiter| limiter,
        inject: |_| {},
        lasts: Lasts::For(Duration::from_millis(1_500)),
        heal: |_| {},
        most: |_| Some(LIMIT),
    };

    pub(crate) const fn new(name: &'static str, inject: fn(&mut Setup)) -> Self {
        Self {
            inject,
            ..Self::PLAIN.named(name)
        }
    }

    pub(crate) const fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    pub(crate) const fn on(self, setup: fn() -> Setup) -> Self {
        Self { setup, ..self }
    }

    pub(crate) const fn lasts(self, lasts: Lasts) -> Self {
        Self { lasts, ..self }
    }

    /// It lasts until so many times the limit have departed.
    pub(crate) const fn until_departed(self, times: usize) -> Self {
        self.lasts(Lasts::UntilDeparted(times * LIMIT as usize))
    }

    pub(crate) const fn heal(self, heal: fn(&mut Setup)) -> Self {
        Self { heal, ..self }
    }

    pub(crate) const fn most(self, most: fn(&Setup) -> Option<u64>) -> Self {
        Self { most, ..self }
    }

    /// The state is lost once: requests with old grants depart, and so do requests with new ones.
    pub(crate) const fn forgets(self) -> Self {
        self.most(|_| Some(2 * LIMIT))
    }
}
