//! Measures permits for many keys on three primaries of a Redis Cluster, beside one.
//!
//! ```sh
//! cargo bench -p tower-throttle-benches --bench cluster                     # a table, in a minute
//! cargo bench -p tower-throttle-benches --bench cluster -- --json --check   # lines of JSON; fails if a bound is not met
//! ```
//!
//! 256 callers of one process take permits of random keys that have capacity, in turns: from a server without slots,
//! from a cluster of one primary, and from one of three. In a cluster, each key has a script call of its own; without slots,
//! up to 16 keys share one. Figures are medians over the rounds. All servers and the callers share the machine, so permits
//! per second need more cores than servers to tell anything; permits per CPU second of the servers do not.
//!
//! Bound: a permit on three primaries takes at most 1.3 times the CPU time of the servers that it takes on one.

use std::time::Duration;

use support::cluster::Cluster;
use support::keyspace;
use support::redis_server::RedisServer;
use tower_throttle::key::Key;
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Quota};
use tower_throttle_benches::load::load;
use tower_throttle_benches::rounds::{Rounds, turns};
use tower_throttle_benches::support::{Cell, Output, Progress, Table, until_asked_to_end};
use tower_throttle_benches::traffic::Meter;

const ROUNDS: usize = 7;
const CALLERS: usize = 256;
const KEYS: u64 = 100_000;
const TIME: Duration = Duration::from_secs(2);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let output = Output::parse("Measures permits on a Redis Cluster");
    until_asked_to_end(run(output)).await
}

/// A limiter, and connections to its servers for their counters.
struct Contestant {
    name: &'static str,
    limiter: Limiter,
    servers: Vec<Meter>,
}

impl Contestant {
    async fn new(
        name: &'static str,
        store: RedisStore,
        servers: &[RedisServer],
    ) -> anyhow::Result<Self> {
        let mut connections = Vec::new();
        for server in servers {
            let connection = server.client().get_multiplexed_async_connection().await?;
            connections.push(Meter::new(connection));
        }
        let limiter = Limiter::builder().store(store.timeout(Duration::from_secs(20)));
        Ok(Self {
            name,
            limiter: limiter.quota(Quota::per_minute(1_000_000)).build()?,
            servers: connections,
        })
    }

    /// The CPU time of all servers, in microseconds.
    async fn cpu(&mut self) -> anyhow::Result<u64> {
        let mut cpu = 0;
        for server in &mut self.servers {
            cpu += server.read().await?.cpu_micros;
        }
        Ok(cpu)
    }
}

async fn run(mut output: Output) -> anyhow::Result<()> {
    let single = [RedisServer::start()];
    let one = [keyspace::start_cluster().await];
    let three = Cluster::start_with(0);
    let store = |urls: Vec<String>| async { RedisStore::connect_cluster(urls).await };
    let mut contestants = [
        Contestant::new(
            "a server without slots",
            RedisStore::connect(&single[0].url()).await?,
            &single,
        )
        .await?,
        Contestant::new("one primary", store(vec![one[0].url()]).await?, &one).await?,
        Contestant::new(
            "three primaries",
            store(three.urls()).await?,
            &three.servers,
        )
        .await?,
    ];
    let count = contestants.len();
    let (mut rates, mut costs) = (Rounds::new(count), Rounds::new(count));
    let mut progress = Progress::new(ROUNDS);
    for round in 0..ROUNDS {
        progress.begin("round");
        for place in turns(round, count) {
            let contestant = &mut contestants[place];
            let before = contestant.cpu().await?;
            let limiter = contestant.limiter.clone();
            let load = load(CALLERS, output.options().time(TIME), move || {
                let limiter = limiter.clone();
                async move {
                    let key = Key::new(format!("user:{}", rand::random_range(0..KEYS)));
                    limiter.acquire(key).await?;
                    Ok(1)
                }
            });
            let load = load.await?;
            let cpu = contestant.cpu().await? - before;
            if round > 0 {
                rates.push(place, load.per_second());
                costs.push(place, cpu as f64 / load.permits as f64);
            }
        }
    }
    let mut table = Table::new(
        "256 callers take permits of 100,000 keys",
        &[
            "servers",
            "permits per second",
            "beside one primary",
            "us of redis CPU per permit",
            "permits per CPU second",
        ],
    );
    for (place, contestant) in contestants.iter().enumerate() {
        table.row([
            Cell::text(contestant.name),
            Cell::Count(rates.median(place) as u64),
            Cell::Ratio(rates.ratio(place, 1)),
            Cell::Figure(costs.median(place)),
            Cell::Count((1e6 / costs.median(place)) as u64),
        ]);
    }
    output.table(&table);
    let claim = "CPU time per permit, three primaries to one";
    output.at_most(claim, costs.ratio(2, 1), 1.3);
    output.finish()
}
