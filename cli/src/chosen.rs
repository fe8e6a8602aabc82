//! The stored policies of a key that a command is about: [`Chosen`].

use tower_throttle::Quota;
use tower_throttle::key::Key;
use tower_throttle::store::{KeyState, RedisStore, StoreError, StoredKey};
use tower_throttle::{Limiter, LimiterBuilder};

use crate::connect::Server;
use crate::failure::Failure;

/// Options of all commands about one key.
#[derive(clap::Args)]
pub(crate) struct Chosen {
    /// The key, as the limiters have it: a host, a route, a user
    key: String,

    /// Only the policy of this name
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,

    #[command(flatten)]
    server: Server,
}

/// A key, and its policies that have state.
pub(crate) struct Found {
    pub(crate) store: RedisStore,
    pub(crate) key: Key,
    pub(crate) policies: Vec<Stored>,
}

/// A key under one policy.
pub(crate) struct Stored {
    pub(crate) stored: StoredKey,
    pub(crate) state: Result<KeyState, StoreError>,
}

impl Chosen {
    /// The policies that have state for the key. Fails if none has.
    pub(crate) async fn find(&self) -> Result<Found, Failure> {
        let found = self.look().await?;
        match found.policies.is_empty() {
            true => Err(self.nothing()),
            false => Ok(found),
        }
    }

    /// The policies that have state for the key, if any.
    pub(crate) async fn look(&self) -> Result<Found, Failure> {
        if self.key.is_empty() {
            return Err(Failure::usage("the key is empty"));
        }
        let store = self.server.connect().await?;
        let key = Key::new(&self.key);
        let stored = self.listed(&store, &key).await?;
        let states = store.look(&stored).await;
        let policies = stored.into_iter().zip(states);
        let policies = policies.filter_map(|(stored, state)| {
            let state = state.transpose()?;
            Some(Stored { stored, state })
        });
        Ok(Found {
            policies: policies.collect(),
            store,
            key,
        })
    }

    /// The error if there is no state.
    pub(crate) fn nothing(&self) -> Failure {
        let of_name = |name| format!(" under a policy {name:?}");
        let under = self.policy.as_ref().map(of_name).unwrap_or_default();
        Failure::new(format!(
            "there is no state of the key {:?}{under}",
            self.key
        ))
        .hint("state expires when no departure counts any more")
    }

    /// The policy's name.
    pub(crate) fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// Scans the names of all keys, because there is no other way to find the policies of one.
    async fn listed(&self, store: &RedisStore, key: &Key) -> Result<Vec<StoredKey>, Failure> {
        let is_digest = self.key.starts_with("%sha256:");
        let mut keys = if is_digest {
            store.keys()
        } else {
            store.keys().of(key)
        };
        let is_meant = |stored: &StoredKey| {
            let is_named = self.policy.is_none() || stored.policy_name() == self.policy();
            is_named && (!is_digest || stored.encoded() == self.key)
        };
        let mut found = Vec::new();
        while let Some(page) = keys.next_page().await? {
            found.extend(page.into_iter().filter(|it| is_meant(it)));
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
}

impl Found {
    /// Fails if only the digest of the key is known, with which no limiter can be asked.
    pub(crate) fn is_known(&self) -> Result<(), Failure> {
        let is_digest =
            |it: &Stored| it.stored.key().is_none() && it.stored.encoded() == self.key.as_str();
        if self.policies.iter().any(is_digest) {
            let digest =
                Failure::usage("this is the digest of a key, which its limiters do not know");
            return Err(digest.hint("give the key itself"));
        }
        Ok(())
    }

    /// A limiter that shares the state of this policy.
    pub(crate) fn limiter(
        &self,
        name: Option<&str>,
        quotas: impl IntoIterator<Item = Quota>,
    ) -> Result<Limiter, Failure> {
        let mut builder = Limiter::builder().store(self.store.clone());
        if let Some(name) = name {
            builder = builder.name(name);
        }
        let limiter = quotas
            .into_iter()
            .fold(builder, LimiterBuilder::quota)
            .build();
        Ok(limiter?)
    }
}

impl Stored {
    /// The name of the policy, or else its quotas.
    pub(crate) fn policy(&self) -> String {
        match (self.stored.policy_name(), &self.state) {
            (Some(name), _) => name.to_owned(),
            (None, Ok(state)) => quotas_of(state)
                .map(|it| it.to_string())
                .collect::<Vec<_>>()
                .join(" + "),
            (None, Err(_)) => "(without a name)".to_owned(),
        }
    }

    /// The state, and a limiter that shares it.
    pub(crate) fn limiter(&self, found: &Found) -> Result<(&KeyState, Limiter), Failure> {
        let state = self
            .state
            .as_ref()
            .map_err(|error| Failure::from(error.clone()))?;
        let mut quotas: Vec<_> = quotas_of(state).collect();
        // Buckets and a log of the same quota look alike.
        quotas.dedup();
        Ok((state, found.limiter(self.stored.policy_name(), quotas)?))
    }
}

pub(crate) fn quotas_of(state: &KeyState) -> impl Iterator<Item = Quota> {
    state.quotas().into_iter().map(|it| it.quota)
}
