//! The keys that a Redis holds: [`Keys`] and [`StoredKey`].

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use super::{RedisStore, names};
use crate::key::Key;
use crate::store::StoreError;

/// The cursor of the next page, and names.
type Page = (String, Vec<Vec<u8>>);

impl RedisStore {
    /// Lists the keys under this store's prefix that have any state.
    ///
    /// Each page costs the server one `SCAN`, which looks at 1,000 names, those of other programs included, in about
    /// half a millisecond.
    ///
    /// ```no_run
    /// use tower_throttle::store::RedisStore;
    ///
    /// # async fn example() -> Result<(), tower_throttle::store::StoreError> {
    /// let store = RedisStore::connect("redis://127.0.0.1/").await?;
    /// let mut keys = store.keys();
    /// while let Some(page) = keys.next_page().await? {
    ///     for (stored, state) in page.iter().zip(store.look(&page).await) {
    ///         if let Some(state) = state? {
    ///             println!("{stored}: {} more may depart", state.snapshot.remaining());
    ///         }
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Defaults: all keys, 1,000 names to a page.
    pub fn keys(&self) -> Keys {
        Keys {
            store: self.clone(),
            pattern: names::pattern(&self.prefix, None),
            name: format!("{}:ping", self.prefix),
            page_size: 1_000,
            looked_at: 0,
            stores: None,
            cursor: None,
        }
    }

    /// Every primary of a cluster as a store of its own.
    async fn each(&self, deadline: Instant) -> Result<VecDeque<Self>, StoreError> {
        let primaries = self.servers.primaries(deadline).await?;
        if primaries.is_empty() {
            return Ok([self.clone()].into());
        }
        let store = |primary| Self {
            servers: Arc::new(primary),
            ..self.clone()
        };
        Ok(primaries.into_iter().map(store).collect())
    }
}

/// Lists keys that have any state, page by page; see [`RedisStore::keys`].
///
/// Keys that exist throughout are listed at least once, as [`SCAN`] guarantees, and may be listed again on another
/// page. The servers of a cluster follow one another. Keys that move between them during the scan may be missed.
///
/// [`SCAN`]: https://redis.io/docs/latest/commands/scan/#scan-guarantees
#[derive(Debug)]
#[must_use]
pub struct Keys {
    store: RedisStore,
    pattern: String,
    /// A Redis key that the servers to ask hold.
    name: String,
    page_size: usize,
    looked_at: usize,
    /// The servers that are left, each as a store; `None` before the first page.
    stores: Option<VecDeque<RedisStore>>,
    /// The cursor of the next page, with the number of the server that returned it. It may mean nothing to another one.
    cursor: Option<(String, u64)>,
}

impl Keys {
    /// Lists only this key, once for each policy. The server looks at as many names as without; in a cluster, only
    /// the one that holds the key.
    pub fn of(mut self, key: &Key) -> Self {
        let prefix = &self.store.prefix;
        self.pattern = names::pattern(prefix, Some(&names::tag(key.as_str())));
        self.name = self.store.name(key, None);
        self.stores = Some([self.store.clone()].into());
        self
    }

    /// Sets about how many names the server looks at for a page, at least 1. Default: 1,000.
    pub fn page_size(mut self, names: usize) -> Self {
        self.page_size = names.max(1);
        self
    }

    /// About how many names the servers have looked at.
    pub fn looked_at(&self) -> usize {
        self.looked_at
    }

    /// Goes on with the next server of a cluster, for example because one is down. Returns `false` if none is left.
    pub fn skip_server(&mut self) -> bool {
        self.cursor = None;
        let stores = self.stores.as_mut();
        stores.is_some_and(|it| it.pop_front().is_some())
    }

    /// Returns the next page, which may be empty; `None` at the end. If the future is dropped, the same page comes next.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached, takes too long, or refuses. Then ask for the same page again, or
    /// [skip the server](Self::skip_server). The user needs the right to `SCAN`.
    pub async fn next_page(&mut self) -> Result<Option<Vec<StoredKey>>, StoreError> {
        let store = &self.store;
        let deadline = store.deadline();
        let stores = match &mut self.stores {
            Some(stores) => stores,
            None => self.stores.insert(store.each(deadline).await?),
        };
        let Some(server) = stores.front() else {
            return Ok(None);
        };
        let cursor = self.cursor.as_ref().map_or("0", |(cursor, _)| cursor);
        let mut pipe = redis::pipe();
        let scan = pipe.cmd("SCAN").arg(cursor).arg("MATCH").arg(&self.pattern);
        scan.arg("COUNT").arg(self.page_size);
        let page = server.read::<(Page,)>(&*server.servers, &self.name, pipe, deadline);
        let (((cursor, found),), at) = page.await?;
        let number = at.origin.server;
        if let Some((_, other)) = &self.cursor
            && *other != number
        {
            self.cursor = None;
            return Ok(Some(Vec::new()));
        }
        if cursor == "0" {
            self.looked_at += found.len();
            self.cursor = None;
            stores.pop_front();
        } else {
            self.looked_at += found.len().max(self.page_size);
            self.cursor = Some((cursor, number));
        }
        let parse = |name: &Vec<u8>| StoredKey::parse(&store.prefix, name);
        let mut page: Vec<_> = found.iter().filter_map(parse).collect();
        page.sort_unstable();
        page.dedup();
        Ok(Some(page))
    }
}

/// A key as a Redis holds it, and the name of the policy that it counts for.
///
/// It is displayed as the key if that is known, else as in the names of Redis keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoredKey {
    tag: Box<str>,
    policy: Option<Box<str>>,
}

impl StoredKey {
    /// A key under a policy of this name, or under one without a name, whether or not there is any state.
    pub fn new(key: &Key, policy: Option<&str>) -> Self {
        Self::of(&names::tag(key.as_str()), policy)
    }

    fn of(tag: &str, policy: Option<&str>) -> Self {
        Self {
            tag: tag.into(),
            policy: policy.map(Into::into),
        }
    }

    fn parse(prefix: &str, name: &[u8]) -> Option<Self> {
        let (tag, policy) = names::parse(prefix, str::from_utf8(name).ok()?)?;
        Some(Self::of(tag, policy))
    }

    /// The key; `None` if it is so long that Redis holds only its digest.
    pub fn key(&self) -> Option<Key> {
        names::key_of(&self.tag)
    }

    /// The key as in the names of Redis keys: percent-encoded, or its digest, such as `%sha256:9F86…`.
    pub fn encoded(&self) -> &str {
        &self.tag
    }

    /// The name of the policy, if it has one.
    pub fn policy_name(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    pub(super) fn name(&self, prefix: &str) -> String {
        names::of(prefix, &self.tag, self.policy_name())
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
