//! Measures permits for many keys on three primaries of a Redis Cluster, beside one.
//!
//! 256 callers of one process take permits of random keys that have capacity, in turns: from a server without slots,
//! from a cluster of one primary, and from one of three. In a cluster, each key has a script call of its own; without slots,
//! up to 16 keys share one. Figures are medians over the rounds. All servers and the callers share the machine, so permits
//! per second need more cores than servers to tell anything; permits per CPU second of the servers do not.
//!
//! Bound: a permit on three primaries takes at most 1.3 times the CPU time of the servers that it takes on one.

use support::cluster::{self, Cluster};
use tower_throttle::store::RedisStore;
use tower_throttle_benches::*;

const ROUNDS: usize = 7;
const CALLERS: usize = 256;
const KEYS: u64 = 100_000;
const TIME: Duration = Duration::from_secs(2);

fn main() -> anyhow::Result<()> {
    measure(0, run)
}

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
        let mut meters = Vec::new();
        for server in servers {
            meters.push(Meter::new(server).await?);
        }
        let limiter = Limiter::builder().store(store.timeout(Duration::from_secs(20)));
        Ok(Self {
            name,
            limiter: limiter.quota(Quota::per_minute(1_000_000)).build()?,
            servers: meters,
        })
    }

    async fn cpu(&mut self) -> anyhow::Result<f64> {
        let mut cpu = 0.0;
        for server in &mut self.servers {
            cpu += server.read().await?.cpu_micros;
        }
        Ok(cpu)
    }
}

async fn run(output: &mut Output) -> anyhow::Result<()> {
    let single = [RedisServer::start()];
    let one = [cluster::start_one().await];
    let three = Cluster::start_with(0);
    let without = RedisStore::connect(&single[0].url()).await?;
    let of_one = RedisStore::connect_cluster([one[0].url()]).await?;
    let of_three = RedisStore::connect_cluster(three.urls()).await?;
    let mut contestants = [
        Contestant::new("a server without slots", without, &single).await?,
        Contestant::new("one primary", of_one, &one).await?,
        Contestant::new("three primaries", of_three, &three.servers).await?,
    ];
    let [mut rates, mut costs] = Rounds::several(contestants.len());
    for (round, place) in turns(ROUNDS, contestants.len()) {
        let contestant = &mut contestants[place];
        eprintln!("{}", contestant.name);
        let before = contestant.cpu().await?;
        let limiter = contestant.limiter.clone();
        let load = load(CALLERS, output.time(TIME), move || {
            let limiter = limiter.clone();
            async move {
                let key = Key::new(format!("user:{}", rand::random_range(0..KEYS)));
                limiter.acquire(key).await?;
                Ok(())
            }
        });
        let load = load.await?;
        let cpu = contestant.cpu().await? - before;
        if round > 0 {
            rates.push(place, load.per_second());
            costs.push(place, cpu / load.calls);
        }
    }
    let mut table = Table::new(
        "256 callers take permits of 100,000 keys",
        "servers | permits per second | beside one primary | us of redis CPU per permit | permits per CPU second",
    );
    for (place, contestant) in contestants.iter().enumerate() {
        let cost = costs.median(place);
        table.row([
            text(contestant.name),
            count(rates.median(place)),
            ratio(rates.ratio(place, 1)),
            figure(cost),
            count(1e6 / cost),
        ]);
    }
    println!("{table}");
    let claim = "CPU time per permit, three primaries to one";
    output.at_most(claim, costs.ratio(2, 1), 1.3);
    Ok(())
}
