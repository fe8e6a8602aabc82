//! The arguments of the commands for one key, and the stored policies of that key: [`KeyArgs`].

use tower_throttle::Quota;
use tower_throttle::key::Key;
use tower_throttle::store::inspect::{KeyState, StoredKey};
use tower_throttle::store::{RedisStore, StoreError};
use tower_throttle::{Limiter, LimiterBuilder};

use crate::connect::Server;
use crate::failure::Failure;

/// Arguments of all commands for one key.
#[derive(clap::Args)]
pub(crate) struct KeyArgs {
    /// The key that the limiters use, such as a host, a route or a user
    key: String,

    /// Use only the policy with this name; "" for the one without a name
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,

    #[command(flatten)]
    server: Server,
}

/// A key, and its policies that have state in Redis.
pub(crate) struct FoundKey {
    pub(crate) store: RedisStore,
    pub(crate) key: Key,
    pub(crate) policies: Vec<Stored>,
}

/// A key under one policy.
pub(crate) struct Stored {
    pub(crate) stored: StoredKey,
    pub(crate) state: Result<KeyState, StoreError>,
}

impl KeyArgs {
    /// Finds the policies that have state for the key. Fails if there are none.
    pub(crate) async fn find(&self) -> Result<FoundKey, Failure> {
        let found = self.look().await?;
        match found.policies.is_empty() {
            true => Err(self.no_state()),
            false => Ok(found),
        }
    }

    /// Finds the policies that have state for the key, if any.
    pub(crate) async fn look(&self) -> Result<FoundKey, Failure> {
        if self.key.is_empty() {
            return Err(Failure::usage(
                "the key is empty: pass the key that the limiters use",
            ));
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
        Ok(FoundKey {
            policies: policies.collect(),
            store,
            key,
        })
    }

    /// The error when there is no state.
    pub(crate) fn no_state(&self) -> Failure {
        let of_name = |name| format!(" and the policy {name:?}");
        let under = self.policy.as_ref().map(of_name).unwrap_or_default();
        Failure::new(format!(
            "there is no state for the key {:?}{under}",
            self.key
        ))
        .hint("state expires once no departure counts against a quota")
    }

    /// The name given with `--policy`; `None` for the policy without a name.
    pub(crate) fn policy(&self) -> Option<&str> {
        self.policy.as_deref().filter(|name| !name.is_empty())
    }

    /// Scans the names of all keys: Redis has no index of the policies of a key.
    async fn listed(&self, store: &RedisStore, key: &Key) -> Result<Vec<StoredKey>, Failure> {
        let is_digest = self.key.starts_with("%sha256:");
        let mut keys = if is_digest {
            store.keys()
        } else {
            store.keys().of(key)
        };
        let matches = |stored: &StoredKey| {
            let is_named = self.policy.is_none() || stored.policy_name() == self.policy();
            // A caller may have chosen a key that looks like a digest.
            let is_key = || stored.encoded() == self.key || stored.key().as_ref() == Some(key);
            is_named && (!is_digest || is_key())
        };
        let mut found = Vec::new();
        while let Some(page) = keys.next_page().await? {
            found.extend(page.into_iter().filter(|it| matches(it)));
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
}

impl FoundKey {
    /// Fails if the argument is the digest of a key, because a limiter needs the key itself.
    pub(crate) fn require_key(&self) -> Result<(), Failure> {
        let is_digest =
            |it: &Stored| it.stored.key().is_none() && it.stored.encoded() == self.key.as_str();
        if self.policies.iter().any(is_digest) {
            let digest = Failure::usage("this is the digest of a key: pass the key itself");
            return Err(digest);
        }
        Ok(())
    }

    /// A limiter that uses the state of this policy.
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
    /// The name of the policy, or its quotas.
    pub(crate) fn policy(&self) -> String {
        match (self.stored.policy_name(), &self.state) {
            (Some(name), _) => name.to_owned(),
            (None, Ok(state)) => quotas_of(state)
                .map(|it| it.to_string())
                .collect::<Vec<_>>()
                .join(" + "),
            (None, Err(_)) => "(unnamed)".to_owned(),
        }
    }

    /// The state, and a limiter that uses it.
    pub(crate) fn limiter(&self, found: &FoundKey) -> Result<(&KeyState, Limiter), Failure> {
        let state = self
            .state
            .as_ref()
            .map_err(|error| Failure::from(error.clone()))?;
        let mut quotas: Vec<_> = quotas_of(state).collect();
        // A quota may have both a log and buckets, which have the same text.
        quotas.dedup();
        Ok((state, found.limiter(self.stored.policy_name(), quotas)?))
    }
}

pub(crate) fn quotas_of(state: &KeyState) -> impl Iterator<Item = Quota> {
    state.quotas.iter().map(|it| it.quota)
}
