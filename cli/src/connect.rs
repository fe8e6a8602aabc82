//! Which Redis is asked, and how: [`Server`].

use std::collections::HashMap;
use std::time::Duration;

use redis::{Client, FromRedisValue as _, RedisError, Value};
use tokio::time::timeout;
use tower_throttle::Limiter;
use tower_throttle::Quota;
use tower_throttle::store::RedisStore;

use crate::failure::Failure;

/// What these options stand under; what follows them in a command does not.
const HEADING: &str = "Redis";

/// Options of all commands that ask Redis. There is no `Debug`, as URLs may hold passwords.
#[derive(clap::Args)]
pub(crate) struct Server {
    /// Where Redis is: redis://, rediss:// or unix://
    ///
    /// Of a cluster or of sentinels, some of their servers, by the option given several times, or by the variable with
    /// spaces between. A password is better off in the variable, as others see the arguments of a process.
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

    /// Ask sentinels at the URLs for the primary of this name, or of a URL with this name for a host
    #[arg(long, help_heading = HEADING, value_name = "NAME", conflicts_with = "cluster")]
    sentinel: Option<String>,

    /// Take the URLs for servers of a cluster
    #[arg(long, help_heading = HEADING)]
    cluster: bool,

    /// What the names of all keys in Redis start with
    #[arg(long, help_heading = HEADING, value_name = "TEXT", default_value = "throttle", value_parser = prefix)]
    prefix: String,

    /// How long to wait for an answer
    #[arg(long, help_heading = HEADING, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    timeout: Duration,

    /// Do without scripts, as limiters do whose store has `scripting(false)`
    #[arg(long, help_heading = HEADING)]
    no_scripting: bool,

    /// Take the time from this host, as limiters do whose store has `server_time(false)`
    #[arg(long, help_heading = HEADING)]
    no_server_time: bool,
}

impl Server {
    /// A store as the limiters have it.
    pub(crate) async fn connect(&self) -> Result<RedisStore, Failure> {
        const HINT: &str =
            "`--redis` or REDIS_URL says where Redis is, `--cluster` or `--sentinel` what it is";
        let store = self.reach().await;
        let store = store.map_err(|failure| failure.perhaps_hint(HINT))?;
        Ok(store
            .prefix(&self.prefix)?
            .timeout(self.timeout)
            .server_time(!self.no_server_time)
            .scripting(!self.no_scripting)?)
    }

    async fn reach(&self) -> Result<RedisStore, Failure> {
        // Spaces that a variable begins or ends with are no servers.
        let urls = self.redis.iter().filter(|url| !url.is_empty());
        let urls: Vec<&str> = urls.map(String::as_str).collect();
        let store = match (&self.sentinel, self.cluster, &*urls) {
            (_, _, []) => return Err(Failure::usage("there is no URL of a server")),
            (Some(primary), ..) => RedisStore::connect_sentinel(urls, primary).await,
            (None, true, _) => RedisStore::connect_cluster(urls).await,
            (None, false, [url]) => {
                let store = RedisStore::connect(url).await;
                if store.is_ok() && self.is_of_cluster(url).await {
                    let cluster = Failure::usage("the server is one of a cluster");
                    return Err(cluster.hint("`--cluster` asks all of its servers"));
                }
                store
            }
            (None, false, _) => {
                return Err(Failure::usage(
                    "there is more than one URL, and no word of what they are",
                ));
            }
        };
        store.map_err(Failure::from)
    }

    /// Whether the server says that others hold the rest of the keys: by `HELLO`, to which every user has the right. Of
    /// one that does not know it, as some proxy, nobody can tell.
    async fn is_of_cluster(&self, url: &str) -> bool {
        let told = async {
            let mut connection = Client::open(url)?
                .get_multiplexed_async_connection()
                .await?;
            let told: HashMap<String, Value> =
                redis::cmd("HELLO").query_async(&mut connection).await?;
            let mode = told.get("mode").cloned().unwrap_or(Value::Nil);
            Option::<String>::from_redis_value(mode).map_err(RedisError::from)
        };
        matches!(timeout(self.timeout, told).await, Ok(Ok(Some(mode))) if mode == "cluster")
    }
}

/// Checks a prefix before connecting. A policy name has the same form.
fn prefix(text: &str) -> Result<String, &'static str> {
    let named = Limiter::builder().quota(Quota::per_second(1)).name(text);
    let refused = |_| "it is not 1 to 128 visible ASCII characters without braces";
    named.build().map(|_| text.to_owned()).map_err(refused)
}
