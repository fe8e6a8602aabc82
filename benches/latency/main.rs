//! Compares a free permit for one caller with simpler calls to Redis.
//!
//! One task makes one call after another, of each kind in turns, on one connection to a separate `redis-server`. So other
//! load on the machine affects all of them. The cost for Redis is measured in blocks of calls of one kind. Figures are
//! medians over the rounds: of the quantiles in each round, and of their ratios.
//!
//! No limit is reached, so no request waits. The windows and guards are so short that this is also true of N = 10. The
//! departures through this crate are checked at the end.

use redis::Cmd;
use redis::aio::MultiplexedConnection;
use tower_throttle::store::RedisStore;
use tower_throttle_benches::*;

const ROUNDS: usize = 7;
const CALLS: u32 = 2_000;
/// Number of calls in a block that measures the cost for Redis.
const BLOCK: u32 = 250;
const MOST_TO_SCRIPT: f64 = 1.1;

/// The limit of all but the shortest log. A window is far longer than the calls in it take.
const RATE: Quota = Quota::per_second(100_000);

struct Call {
    name: String,
    kind: Kind,
}

enum Kind {
    Command(MultiplexedConnection, Cmd),
    Peer(Peer),
    Ours(Ours),
}

struct Ours {
    limiter: Limiter,
    departures: Departures,
    quota: Quota,
    tokens: Option<Tokens>,
}

/// A second quota, of tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tokens {
    Estimated,
    Corrected,
}

fn main() -> anyhow::Result<()> {
    measure(0, run)
}

async fn run(output: &mut Output) -> anyhow::Result<()> {
    let server = RedisServer::start();
    let mut meter = Meter::new(&server).await?;
    let all = calls(&connect(&server).await?).await?;
    let calls = output.count(CALLS) as usize;
    let [mut p50, mut p99, mut script, mut cpu, mut bytes] = Rounds::several(all.len());
    for round in 0..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        let mut times = vec![Vec::with_capacity(calls); all.len()];
        for (_, place) in turns(calls, all.len()) {
            let start = Instant::now();
            all[place].send().await?;
            times[place].push(start.elapsed().as_secs_f64() * 1e6);
        }
        for (place, call) in all.iter().enumerate() {
            let mark = meter.mark().await?;
            for _ in 0..BLOCK {
                call.send().await?;
            }
            let traffic = meter.since(&mark).await?.per(BLOCK.into());
            // The first round includes loading scripts and creating keys.
            if round > 0 {
                p50.push(place, quantile(times[place].clone(), 0.5));
                p99.push(place, quantile(times[place].clone(), 0.99));
                script.push(place, traffic.script_micros);
                cpu.push(place, traffic.cpu_micros);
                bytes.push(place, traffic.bytes);
            }
        }
    }
    let mut table = Table::new(
        "one call by one caller, in microseconds and bytes",
        "call | p50 | p99 | p50 to a GCRA script | in the script | CPU of Redis | bytes",
    );
    let gcra = all.iter().position(|call| call.name == "gcra script");
    for (place, call) in all.iter().enumerate() {
        let to_gcra = p50.ratio(place, gcra.unwrap_or(0));
        table.row([
            text(&call.name),
            figure(p50.median(place)),
            figure(p99.median(place)),
            ratio(to_gcra),
            figure(script.median(place)),
            figure(cpu.median(place)),
            figure(bytes.median(place)),
        ]);
        if call.name.starts_with("tower-throttle, sliding log") {
            let claim = format!("one caller, p50 of {} to a GCRA script", call.name);
            output.at_most(claim, to_gcra, MOST_TO_SCRIPT);
        }
        if let Kind::Ours(ours) = &call.kind {
            ours.departures.check(&ours.quota)?;
        }
    }
    println!("{table}");
    Ok(())
}

async fn calls(connection: &MultiplexedConnection) -> anyhow::Result<Vec<Call>> {
    let call = |name: &str, kind| Call {
        name: name.to_owned(),
        kind,
    };
    let empty = Script::load(connection.clone(), "return 1").await?;
    let command = |command| Kind::Command(connection.clone(), command);
    let mut all = vec![
        call("PING", command(redis::cmd("PING"))),
        call("an empty script", command(empty.call("empty"))),
    ];
    for peer in Peer::scripts(connection, RATE).await? {
        all.push(call(peer.name, Kind::Peer(peer)));
    }
    let (limit, window) = (RATE.limit(), RATE.window());
    let gcra = Algorithm::Gcra { burst: limit };
    let fixed = Algorithm::FixedWindow {
        start: WindowStart::Clock,
    };
    let brief = Duration::from_micros(100);
    let log = |limit| Quota::new(limit, if limit == 10 { brief } else { window });
    let (estimated, corrected) = (Some(Tokens::Estimated), Some(Tokens::Corrected));
    let quotas = [
        ("sliding log, N = 10", log(10), None),
        ("sliding log, N = 10,000", log(10_000), None),
        ("GCRA", RATE.algorithm(gcra), None),
        ("fixed window", RATE.algorithm(fixed), None),
        ("requests and tokens", RATE, estimated),
        ("requests and tokens, corrected", RATE, corrected),
    ];
    for (name, quota, tokens) in quotas {
        let mut limiter = Limiter::builder()
            .store(RedisStore::from(connection.clone()))
            // Limiters of the same name would share the departures of the key.
            .name(format!("policy-{}", all.len()))
            .quota(quota);
        if quota.window() == brief {
            limiter = limiter.guard(brief);
        }
        if tokens.is_some() {
            limiter = limiter.quota(Quota::new(1_000 * limit, window).unit("tokens"));
        }
        let ours = Ours {
            limiter: limiter.build()?,
            departures: Departures::default(),
            quota,
            tokens,
        };
        all.push(call(&format!("tower-throttle, {name}"), Kind::Ours(ours)));
    }
    Ok(all)
}

impl Call {
    async fn send(&self) -> anyhow::Result<()> {
        match &self.kind {
            Kind::Command(connection, command) => {
                command.exec_async(&mut connection.clone()).await?;
            }
            Kind::Peer(peer) => {
                let granted = peer.ask(&self.name).await?;
                ensure!(granted, "{} refused a request below its limit", self.name);
            }
            Kind::Ours(ours) => ours.acquire().await?,
        }
        Ok(())
    }
}

impl Ours {
    async fn acquire(&self) -> anyhow::Result<()> {
        let mut acquire = self.limiter.acquire(Key::new("latency"));
        if self.tokens.is_some() {
            acquire = acquire.cost_of("tokens", 100);
        }
        let permit = acquire.await?;
        self.departures.record(&permit);
        if self.tokens == Some(Tokens::Corrected) {
            permit.into_charge().settle("tokens", 40)?;
        }
        Ok(())
    }
}
