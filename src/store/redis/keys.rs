//! The keys that a Redis holds: [`Keys`] and [`StoredKey`].

use std::collections::VecDeque;
use std::fmt;

use redis::FromRedisValue as _;

use super::servers::Servers;
use super::{RedisStore, names, strange};
use crate::key::Key;
use crate::store::StoreError;

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
            servers: None,
            cursor: None,
        }
    }
}

/// Lists keys that have any state, page by page; see [`RedisStore::keys`].
///
/// Keys that exist throughout are listed at least once, as [`SCAN`] guarantees, and may be listed again on another
/// page. The servers of a cluster follow one another. Keys that move between them during the scan may be missed.
///
/// [`SCAN`]: https://redis.io/docs/latest/commands/scan/#scan-guarantees
#[must_use]
pub struct Keys {
    store: RedisStore,
    pattern: String,
    /// A Redis key that the servers to ask hold.
    name: String,
    page_size: usize,
    looked_at: usize,
    /// The servers that are left; `None` before the first page.
    servers: Option<VecDeque<Servers>>,
    /// The cursor of the next page, with the number of the connection that returned it. It may mean nothing to another
    /// server.
    cursor: Option<(String, u64)>,
}

impl Keys {
    /// Lists only this key, once for each policy. The server looks at as many names as without; in a cluster, only
    /// the one that holds the key.
    pub fn of(mut self, key: &Key) -> Self {
        let prefix = &self.store.prefix;
        self.pattern = names::pattern(prefix, Some(&names::tag(key.as_str())));
        self.name = names::of(prefix, key, None);
        self.servers = Some([self.store.servers.clone()].into());
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
        let servers = self.servers.as_mut();
        servers.is_some_and(|it| it.pop_front().is_some())
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
        let servers = match &mut self.servers {
            Some(servers) => servers,
            None => self
                .servers
                .insert(store.servers.each(deadline).await?.into()),
        };
        let Some(server) = servers.front() else {
            return Ok(None);
        };
        let cursor = self.cursor.as_ref().map_or("0", |(cursor, _)| cursor);
        let mut pipe = redis::pipe();
        let scan = pipe.cmd("SCAN").arg(cursor).arg("MATCH").arg(&self.pattern);
        scan.arg("COUNT").arg(self.page_size);
        let mut answers = server.run(&self.name, &pipe, deadline).await?;
        let answer = answers.pop().ok_or_else(strange)?;
        let connection = answer.origin.connection;
        let value = answer.into_value()?;
        if let Some((_, other)) = &self.cursor
            && *other != connection
        {
            self.cursor = None;
            return Ok(Some(Vec::new()));
        }
        let page = <(String, Vec<Vec<u8>>)>::from_redis_value(value);
        let (cursor, found) = page.map_err(|_| strange())?;
        if cursor == "0" {
            self.looked_at += found.len();
            self.cursor = None;
            servers.pop_front();
        } else {
            self.looked_at += found.len().max(self.page_size);
            self.cursor = Some((cursor, connection));
        }
        let parse = |name: &Vec<u8>| StoredKey::parse(&store.prefix, name);
        let mut page: Vec<_> = found.iter().filter_map(parse).collect();
        page.sort_unstable();
        page.dedup();
        Ok(Some(page))
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
        Self {
            tag: names::tag(key.as_str()).into(),
            policy: policy.map(Into::into),
        }
    }

    fn parse(prefix: &str, name: &[u8]) -> Option<Self> {
        let (tag, policy) = names::parse(prefix, str::from_utf8(name).ok()?)?;
        Some(Self {
            tag: tag.into(),
            policy: policy.map(Into::into),
        })
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
        names::of_tag(prefix, &self.tag, self.policy_name())
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
