//! One replica, in a separate process: [`Replica`].

use std::io;
use std::sync::Once;
use std::{process, thread};

use anyhow::Context as _;
use clap::Args;
use reqwest_middleware::ClientWithMiddleware;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Quota, ThrottleMiddleware};

use super::Limit;
use super::fleet::share;

/// Printed by a replica when all of its callers are ready.
pub(crate) const READY: &str = "ready";

/// Sent by the parent to start the callers.
pub(crate) const GO: &str = "go";

/// Printed by a replica at the end, followed by the number of failed requests.
pub(crate) const DONE: &str = "done";

static FIRST_FAILURE: Once = Once::new();

/// Sends its share of the requests.
#[derive(Args)]
pub(crate) struct Replica {
    #[command(flatten)]
    pub(crate) limit: Limit,
    #[arg(long)]
    pub(crate) callers: u32,
    #[arg(long)]
    pub(crate) requests: u32,
    #[arg(long)]
    pub(crate) upstream: String,
    #[arg(long)]
    pub(crate) redis: String,
}

impl Replica {
    /// The command line arguments for the process of this replica.
    pub(crate) fn to_args(&self) -> Vec<String> {
        let micros = |duration: std::time::Duration| format!("{}us", duration.as_micros());
        let flags = [
            ("--window", micros(self.limit.window)),
            ("--limit", self.limit.limit.to_string()),
            ("--buffer", micros(self.limit.buffer)),
            ("--callers", self.callers.to_string()),
            ("--requests", self.requests.to_string()),
            ("--upstream", self.upstream.clone()),
            ("--redis", self.redis.clone()),
        ];
        let flags = flags
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value]);
        [String::from("replica")].into_iter().chain(flags).collect()
    }

    #[tokio::main]
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let client = self.client().await?;
        let (start, started) = watch::channel(false);
        let mut callers = JoinSet::new();
        for number in 0..self.callers {
            let requests = share(self.requests, self.callers, number);
            let (client, upstream, mut started) =
                (client.clone(), self.upstream.clone(), started.clone());
            callers.spawn(async move {
                started.wait_for(|started| *started).await?;
                anyhow::Ok(call(&client, &upstream, requests).await)
            });
        }
        println!("{READY}");
        wait_for_go(start);
        let mut failed = 0;
        while let Some(caller) = callers.join_next().await {
            failed += caller??;
        }
        println!("{DONE} {failed}");
        Ok(())
    }

    async fn client(&self) -> anyhow::Result<ClientWithMiddleware> {
        let store = RedisStore::connect(&self.redis).await?;
        let quota = Quota::new(self.limit.limit, self.limit.window);
        let limiter = Limiter::builder()
            .store(store)
            .quota(quota)
            .buffer(self.limit.buffer)
            .build()?;
        let client = reqwest::Client::builder().no_proxy().build()?;
        let throttled =
            reqwest_middleware::ClientBuilder::new(client).with(ThrottleMiddleware::new(limiter));
        Ok(throttled.build())
    }
}

/// Sends requests one after another. Returns the number of failures.
async fn call(client: &ClientWithMiddleware, upstream: &str, requests: u32) -> u64 {
    let mut failed = 0;
    for _ in 0..requests {
        let answer = async {
            let response = client.get(upstream).send().await?;
            response
                .error_for_status()?
                .bytes()
                .await
                .context("the response is incomplete")
        };
        if let Err(error) = answer.await {
            failed += 1;
            // Thousands of requests may fail with the same error, so only the first one is printed.
            FIRST_FAILURE.call_once(|| eprintln!("a request failed: {error:#}"));
        }
    }
    failed
}

/// Starts the callers when the parent sends [`GO`]. Ends this process when the parent closes its stdin.
///
/// Runs in a separate thread, because reading from stdin blocks.
fn wait_for_go(start: watch::Sender<bool>) {
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            if line == GO {
                start.send_replace(true);
            }
        }
        process::exit(1);
    });
}
