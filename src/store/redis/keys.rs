//! Which keys a Redis holds state of: [`Keys`] and [`StoredKey`].

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::HashMap;
use redis::{Cmd, FromRedisValue as _};

use super::failure::{Failure, explain_look};
use super::server::Call;
use super::{RedisStore, names};
use crate::key::Key;
use crate::policy::Policy;
use crate::store::StoreError;

/// How many names the server looks at for a page.
const PAGE_SIZE: usize = 1_000;

/// Of so many ids it is remembered which policies they are of; there are few, unless a stranger makes them up.
const MOST_POLICIES: usize = 1_000;

impl RedisStore {
    /// Lists the keys under this store's prefix that have any state, each with the policy that counts it.
    ///
    /// For who watches over a Redis: the limiters themselves have no use for it. It costs the server one `SCAN`
    /// per page, which looks at 1,000 names, those of strangers included, in about half a millisecond.
    ///
    /// ```no_run
    /// use tower_throttle::store::RedisStore;
    ///
    /// # async fn example() -> Result<(), tower_throttle::store::StoreError> {
    /// let store = RedisStore::connect("redis://127.0.0.1/").await?;
    /// let mut keys = store.keys();
    /// while let Some(page) = keys.next_page().await? {
    ///     for (stored, state) in page.iter().zip(store.glance(&page).await) {
    ///         println!("{stored}: {} more may depart", state?.remaining());
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Defaults
    ///
    /// All keys, 1,000 names to a page.
    pub fn keys(&self) -> Keys {
        Keys {
            pattern: names::pattern(&self.prefix, None),
            store: self.clone(),
            place: None,
            page_size: PAGE_SIZE,
            looked_at: 0,
            asking: None,
            done: Vec::new(),
            policies: HashMap::new(),
        }
    }
}

/// Lists keys that have any state, page by page; see [`RedisStore::keys`].
///
/// What is there from beginning to end is told at least once, as of [`SCAN`]; it may be told again on another page,
/// and what comes or goes meanwhile is told or not. In a cluster, one server follows the other; keys that move
/// between them meanwhile may be missed.
///
/// [`SCAN`]: https://redis.io/docs/latest/commands/scan/#scan-guarantees
#[must_use]
pub struct Keys {
    store: RedisStore,
    pattern: String,
    /// Where the only key is that is of interest.
    place: Option<u16>,
    page_size: usize,
    looked_at: usize,
    asking: Option<Asking>,
    /// The servers that have told all.
    done: Vec<u64>,
    /// By their ids; `None` of what is no id.
    policies: HashMap<String, Option<Arc<Policy>>>,
}

/// How far a server has told.
struct Asking {
    lane: u64,
    /// By which connection. After another, the cursor may mean nothing.
    number: Option<u64>,
    cursor: String,
}

impl Keys {
    /// Lists the policies of this key alone. The server looks at as many names as without; in a cluster, only the
    /// one does that holds the key.
    pub fn of(mut self, key: &Key) -> Self {
        let tag = names::tag(key.as_str());
        let name = names::tagged(&self.store.prefix, key);
        self.place = Some(self.store.couriers.server().place(&name));
        self.pattern = names::pattern(&self.store.prefix, Some(&tag));
        self
    }

    /// Sets how many names the server looks at for a page: about as many, and at least 1. Default: 1,000.
    pub fn page_size(mut self, names: usize) -> Self {
        self.page_size = names.max(1);
        self
    }

    /// About how many names the servers have looked at by now: for each page its size, or as many as it told of where
    /// these are more or the page was a server's last.
    #[must_use]
    pub fn looked_at(&self) -> usize {
        self.looked_at
    }

    /// Goes on to the next server, without what the one that was asked last has yet to tell: for who wants to know
    /// what the others of a cluster hold while one is out. `false` if none is being asked.
    pub fn pass_over(&mut self) -> bool {
        let passed_over = self.asking.take();
        self.done.extend(passed_over.as_ref().map(|it| it.lane));
        passed_over.is_some()
    }

    /// The next page, which may be empty; `None` if that was all.
    ///
    /// Who drops the future before it is done misses nothing: the same page comes next.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached, takes too long, or refuses; the same page may then be asked for again,
    /// or the server [passed over](Self::pass_over). It takes the right to `SCAN`.
    pub async fn next_page(&mut self) -> Result<Option<Vec<StoredKey>>, StoreError> {
        let deadline = self.store.deadline();
        let server = self.store.couriers.server().clone();
        let servers = match self.place {
            Some(place) => vec![(server.lane(place), place)],
            None => server.servers(deadline).await?,
        };
        // One that holds nothing any more has told enough.
        let of = |asking: &Asking| servers.iter().find(|it| it.0 == asking.lane);
        let place = match self.asking.as_ref().and_then(of) {
            Some(&(_, place)) => place,
            None => {
                let is_left = |&&(lane, _): &&(u64, u16)| match self.place {
                    Some(_) => self.done.is_empty(),
                    None => !self.done.contains(&lane),
                };
                let Some(&(lane, place)) = servers.iter().find(is_left) else {
                    return Ok(None);
                };
                self.asking = Some(Asking::anew(lane));
                place
            }
        };
        let Some(asking) = &self.asking else {
            return Ok(None);
        };
        let command = self.scan(&asking.cursor);
        let answer = server.run(place, Call::new(None, &command), deadline).await;
        let answer = answer.map_err(|failure| {
            let failed = server.failed_part(place, server.part(place));
            Failure::explain_look(failure).of_part(failed)
        })?;
        let lane = asking.lane;
        if asking.number.is_some_and(|number| number != answer.number) {
            self.asking = Some(Asking::anew(lane));
            return Ok(Some(Vec::new()));
        }
        let told = <(String, Vec<Vec<u8>>)>::from_redis_value(answer.value);
        let (cursor, found) = told.map_err(|error| explain_look(error.into()))?;
        if cursor == "0" {
            self.looked_at += found.len();
            self.asking = None;
            self.done.push(lane);
        } else {
            self.looked_at += found.len().max(self.page_size);
            self.asking = Some(Asking {
                lane,
                number: Some(answer.number),
                cursor,
            });
        }
        let mut page: Vec<_> = found.iter().filter_map(|name| self.read(name)).collect();
        page.sort_unstable();
        page.dedup();
        Ok(Some(page))
    }

    fn scan(&self, cursor: &str) -> Cmd {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(&self.pattern);
        scan.arg("COUNT").arg(self.page_size);
        scan
    }

    fn read(&mut self, name: &[u8]) -> Option<StoredKey> {
        let name = str::from_utf8(name).ok()?;
        let (tag, id) = names::parse(&self.store.prefix, name)?;
        if self.policies.len() >= MOST_POLICIES && !self.policies.contains_key(id) {
            self.policies.clear();
        }
        let parse = |id: &str| Policy::from_id(id).ok().map(Arc::new);
        let policy = self.policies.entry_ref(id).or_insert_with(|| parse(id));
        Some(StoredKey {
            tag: tag.into(),
            policy: policy.clone()?,
        })
    }
}

impl Asking {
    fn anew(lane: u64) -> Self {
        Self {
            lane,
            number: None,
            cursor: "0".to_owned(),
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("pattern", &self.pattern)
            .field("page_size", &self.page_size)
            .finish_non_exhaustive()
    }
}

/// A key as a Redis holds it, and the policy that counts it.
///
/// Its policy has a name and quotas, as the [id](Policy::id) tells them; the store does not know of the rest.
/// Two are equal if their keys and the ids of their policies are. Shown as the key, where that is known, or else as
/// what stands for it in Redis.
#[derive(Clone)]
pub struct StoredKey {
    /// What stands between the braces.
    tag: Box<str>,
    policy: Arc<Policy>,
}

impl StoredKey {
    /// This key under this policy, whether or not there is any state.
    #[must_use]
    pub fn new(key: &Key, policy: &Policy) -> Self {
        Self {
            tag: names::tag(key.as_str()).into(),
            policy: Arc::new(policy.clone()),
        }
    }

    /// The key; `None` if it is so long that Redis holds only its digest.
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        names::key_of(&self.tag)
    }

    /// The key as it stands in the names of Redis keys: percent encoded, or its digest, such as `%sha256:9F86…`.
    #[must_use]
    pub fn encoded(&self) -> &str {
        &self.tag
    }

    /// The policy by which it is counted.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    fn parts(&self) -> (&str, &str) {
        (&self.tag, self.policy.id())
    }
}

impl PartialEq for StoredKey {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for StoredKey {}

impl PartialOrd for StoredKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for StoredKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl Hash for StoredKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl fmt::Display for StoredKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key() {
            Some(key) => f.pad(key.as_str()),
            None => f.pad(&self.tag),
        }
    }
}

impl fmt::Debug for StoredKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredKey")
            .field("key", &self.tag)
            .field("policy", &self.policy.id())
            .finish()
    }
}
