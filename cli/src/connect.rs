//! The options of the connection to Redis: [`Server`].

use std::collections::HashMap;
use std::time::Duration;

use redis::{Client, FromRedisValue as _, RedisError, Value};
use tokio::time::timeout;
use tower_throttle::Limiter;
use tower_throttle::Quota;
use tower_throttle::store::RedisStore;

use crate::failure::Failure;

/// The heading of these options in help texts. It is set per option, so that options after these keep theirs.
const HEADING: &str = "Redis";

/// Options of all commands that use Redis. There is no `Debug`, because URLs may hold passwords.
#[derive(clap::Args)]
pub(crate) struct Server {
    /// URL of the server: redis://, rediss:// or unix://
    ///
    /// For a cluster or sentinels, repeat the option, or separate the URLs with spaces in the variable. Put
    /// passwords into the variable: other users of the host can see the arguments of a process.
    #[arg(
        long,
        help_heading = HEADING,
        value_name = "URL",
        env = "REDIS_URL",
        hide_env_values = true,
        value_delimiter = ' ',
        default_value = "redis://127.0.0.1/"
    )]
    redis: Vec<String>,

    /// Connect to the primary with this name, through the sentinels at the URLs
    ///
    /// If the primary needs a password or TLS, pass a URL with the name as its host, such as rediss://NAME.
    #[arg(long, help_heading = HEADING, value_name = "NAME", conflicts_with = "cluster")]
    sentinel: Option<String>,

    /// Connect to the cluster that the servers at the URLs belong to
    #[arg(long, help_heading = HEADING)]
    cluster: bool,

    /// Prefix of all Redis keys of the limiters
    #[arg(long, help_heading = HEADING, value_name = "TEXT", default_value = "throttle", value_parser = prefix)]
    prefix: String,

    /// How long to wait for a reply from Redis
    #[arg(long, help_heading = HEADING, value_name = "TIME", default_value = "1s", value_parser = crate::time::parse)]
    timeout: Duration,

    /// Use transactions instead of scripts, for limiters with `scripting(false)`
    #[arg(long, help_heading = HEADING)]
    no_scripting: bool,

    /// Use the clock of this host, for limiters with `server_time(false)`
    #[arg(long, help_heading = HEADING)]
    no_server_time: bool,
}

impl Server {
    /// Connects to the store of the limiters.
    pub(crate) async fn connect(&self) -> Result<RedisStore, Failure> {
        const HINT: &str = "set `--redis` or REDIS_URL; for a cluster or sentinels, add `--cluster` or `--sentinel NAME`";
        let store = self.reach().await;
        let store = store.map_err(|failure| failure.or_hint(HINT))?;
        Ok(store
            .prefix(&self.prefix)?
            .timeout(self.timeout)
            .server_time(!self.no_server_time)
            .scripting(!self.no_scripting)?)
    }

    async fn reach(&self) -> Result<RedisStore, Failure> {
        // Spaces at the ends of the variable yield empty URLs.
        let urls = self.redis.iter().filter(|url| !url.is_empty());
        let urls: Vec<&str> = urls.map(String::as_str).collect();
        let store = match (&self.sentinel, self.cluster, &*urls) {
            (_, _, []) => {
                return Err(Failure::usage(
                    "the URL of the server is empty: set `--redis` or REDIS_URL",
                ));
            }
            (Some(primary), ..) => RedisStore::connect_sentinel(urls, primary).await,
            (None, true, _) => RedisStore::connect_cluster(urls).await,
            (None, false, [url]) => {
                let store = RedisStore::connect(url).await;
                if store.is_ok() && self.is_in_cluster(url).await {
                    let cluster = Failure::usage("the server belongs to a cluster");
                    return Err(cluster.hint("pass `--cluster` to use all of its servers"));
                }
                store
            }
            (None, false, _) => {
                return Err(Failure::usage(
                    "there is more than one URL: pass `--cluster` or `--sentinel NAME`",
                ));
            }
        };
        store.map_err(Failure::from)
    }

    /// True if `HELLO`, which every user may call, reports cluster mode. False if the server does not support `HELLO`,
    /// as some proxies do not.
    async fn is_in_cluster(&self, url: &str) -> bool {
        let mode = async {
            let mut connection = Client::open(url)?
                .get_multiplexed_async_connection()
                .await?;
            let reply: HashMap<String, Value> =
                redis::cmd("HELLO").query_async(&mut connection).await?;
            let mode = reply.get("mode").cloned().unwrap_or(Value::Nil);
            Option::<String>::from_redis_value(mode).map_err(RedisError::from)
        };
        matches!(timeout(self.timeout, mode).await, Ok(Ok(Some(mode))) if mode == "cluster")
    }
}

/// Checks a prefix before connecting. A policy name has the same form.
fn prefix(text: &str) -> Result<String, &'static str> {
    let named = Limiter::builder().quota(Quota::per_second(1)).name(text);
    let refused = |_| "must be 1 to 128 visible ASCII characters without braces";
    named.build().map(|_| text.to_owned()).map_err(refused)
}
