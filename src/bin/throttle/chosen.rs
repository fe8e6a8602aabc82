//! Which policies of a key are meant: [`Chosen`].

use tower_throttle::key::Key;
use tower_throttle::store::{RedisStore, StoredKey};
use tower_throttle::{Limiter, Policy, Quota};

use crate::connect::Server;
use crate::failure::Failure;

/// Options of all commands about one key.
#[derive(clap::Args)]
pub(crate) struct Chosen {
    /// The key, as the limiters have it: a host, a route, a user
    key: String,

    /// Only the policies of this name, or the one with this id, such as "github:10/s+5000/h"
    #[arg(long, value_name = "NAME|ID")]
    policy: Option<String>,

    /// Only the policy of this quota, such as "10/s"; several hold jointly. It need not have any state yet
    #[arg(long = "quota", value_name = "QUOTA")]
    quotas: Vec<Quota>,

    #[command(flatten)]
    server: Server,
}

/// A key, and those of its policies that are meant.
pub(crate) struct Found {
    pub(crate) store: RedisStore,
    pub(crate) key: Key,
    pub(crate) policies: Vec<StoredKey>,
}

impl Chosen {
    /// The policy that the quotas describe, with state or not; or else those that hold any for the key.
    pub(crate) async fn find(&self) -> Result<Found, Failure> {
        if self.key.is_empty() {
            return Err(Failure::usage("the key is empty"));
        }
        let key = Key::new(&self.key);
        let named = self.named()?;
        let store = self.server.connect().await?;
        let policies = match named {
            Some(policy) => vec![StoredKey::new(&key, &policy)],
            None => self.listed(&store, &key).await?,
        };
        if policies.is_empty() {
            return Err(self.nothing());
        }
        Ok(Found {
            store,
            key,
            policies,
        })
    }

    /// That there is nothing of what was asked for.
    pub(crate) fn nothing(&self) -> Failure {
        const HINT: &str = "state is kept for as long as it counts; `--quota`, with `--policy` for its name if it \
             has one, says which policy is meant where there is none";
        let of_name = |name| format!(" under a policy {name:?}");
        let under = self.policy.as_ref().map(of_name).unwrap_or_default();
        Failure::new(format!(
            "there is no state of the key {:?}{under}",
            self.key
        ))
        .hint(HINT)
    }

    /// The one policy that the options describe as a whole.
    fn named(&self) -> Result<Option<Policy>, Failure> {
        if self.quotas.is_empty() {
            return Ok(None);
        }
        let mut builder = Limiter::builder();
        if let Some(name) = &self.policy {
            builder = builder.name(name);
        }
        let quotas = self.quotas.iter();
        let limiter = quotas
            .fold(builder, |builder, quota| builder.quota(*quota))
            .build()?;
        Ok(Some((*limiter.policy()).clone()))
    }

    /// Looks at the names of all keys, as there is no other way to find those of one.
    async fn listed(&self, store: &RedisStore, key: &Key) -> Result<Vec<StoredKey>, Failure> {
        let is_digest = self.key.starts_with("%sha256:");
        let mut keys = if is_digest {
            store.keys()
        } else {
            store.keys().of(key)
        };
        let mut found = Vec::new();
        while let Some(page) = keys.next_page().await? {
            let of_key = |stored: &StoredKey| !is_digest || stored.encoded() == self.key;
            found.extend(page.into_iter().filter(|it| of_key(it)));
        }
        found.sort_unstable();
        found.dedup();
        match &self.policy {
            Some(text) => of(found, text),
            None => Ok(found),
        }
    }
}

/// Those of this name or with this id.
fn of(found: Vec<StoredKey>, text: &str) -> Result<Vec<StoredKey>, Failure> {
    let has_name = |stored: &StoredKey| stored.policy().name() == Some(text);
    let has_id = |stored: &StoredKey| stored.policy().id() == text;
    if found.iter().any(has_name) && found.iter().any(has_id) {
        let both = format!("{text:?} is the name of a policy and the id of another");
        let hint = "`--quota` says which is meant: alone, the one without a name, and with `--policy`, that of the name";
        return Err(Failure::usage(both).hint(hint));
    }
    let found = found.into_iter();
    Ok(found.filter(|it| has_name(it) || has_id(it)).collect())
}

impl Found {
    /// Of a digest, nobody could be told.
    pub(crate) fn is_known(&self) -> Result<(), Failure> {
        let is_digest =
            |stored: &StoredKey| stored.key().is_none() && stored.encoded() == self.key.as_str();
        if self.policies.iter().any(is_digest) {
            let digest =
                Failure::usage("this is the digest of a key, which its limiters do not know");
            return Err(digest.hint("give the key itself"));
        }
        Ok(())
    }
}
