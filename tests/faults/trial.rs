//! One fault under load, and the judgment: [`run`].

use std::panic::catch_unwind;
use std::thread;
use std::time::Duration;

use tower_throttle::test_util::history::History;

use crate::fault::{Fault, Lasts};
use crate::load::{BUFFER, CALLERS, KEYS, LIMIT, WINDOW};
use crate::stage::{PATIENCE, PROCESSES};
use crate::upstream::Arrival;
use support::child::now;
use support::errors::panic_text;
use support::proxy::Proxy;
use support::tally::{Count, Tally};

/// The most connections that a process may make because of a fault, and for each second of it: not one for
/// each request that fails.
const CONNECTIONS: usize = 10;
const CONNECTIONS_PER_SECOND: f64 = 10.0;

/// The most calls that the line of a key may make for each second of a fault, beside one for each request.
const CALLS_PER_SECOND: f64 = 10.0;

/// The figures of a fault.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// How many departed while it lasted, and in all.
    pub(crate) during: usize,
    pub(crate) departed: usize,
    /// The most in any window, by departures or arrivals, and what is promised.
    pub(crate) most: u64,
    pub(crate) allowed: Option<u64>,
    /// The longest time without a departure of some key, from the fault on.
    pub(crate) gap: Duration,
    /// The most connections that one process made from the fault on.
    pub(crate) connections: usize,
    /// The sum over all processes that were not killed.
    pub(crate) tally: Tally,
    /// Broken promises.
    pub(crate) complaints: Vec<String>,
}

/// Sets the stage, starts the load, lets it go wrong and puts it right.
///
/// Nothing here takes a time that was guessed: it goes on once enough have departed, and only if that takes
/// far longer than it should is something wrong.
pub(crate) fn run(fault: &'static Fault) -> Row {
    let mut stage = (fault.stage)();
    stage.play("process", fault.name);
    let warm = |arrivals: &[Arrival]| least_of_keys(arrivals) >= 2 * LIMIT as usize;
    assert!(stage.upstream().wait_for(PATIENCE, warm), "no load");

    let made: Vec<_> = stage.proxies.iter().map(Proxy::made).collect();
    let injected = now();
    (fault.inject)(&mut stage);
    match fault.lasts {
        Lasts::For(span) => thread::sleep(span),
        Lasts::UntilDeparted(count) => {
            let since = now();
            let enough = |arrivals: &[Arrival]| least_of_keys(&after(arrivals, since)) >= count;
            let has_gone_on = stage.upstream().wait_for(PATIENCE, enough);
            assert!(has_gone_on, "no request departs while it lasts");
        }
    }
    (fault.heal)(&mut stage);
    let healed = now();

    let living: Vec<_> = stage
        .processes
        .iter()
        .flatten()
        .map(|it| it.number)
        .collect();
    // More than there are slots of old.
    let each = |arrivals: &[Arrival]| {
        let arrivals = after(arrivals, healed);
        living.iter().all(|&number| {
            let own: Vec<_> = arrivals
                .iter()
                .filter(|it| it.process == number)
                .copied()
                .collect();
            least_of_keys(&own) > CALLERS
        })
    };
    let has_recovered = stage.upstream().wait_for(PATIENCE, each);
    let connections = stage
        .proxies
        .iter()
        .zip(made)
        .map(|(proxy, made)| proxy.made() - made);
    let connections = connections.max().unwrap_or(0);
    let tallies = stage.stop();
    let allowed = (fault.most)(&stage);
    let arrivals = stage.arrivals();

    let mut complaints = Vec::new();
    if !has_recovered {
        complaints.push(format!(
            "not all processes depart again within {PATIENCE:?}"
        ));
    }
    for (number, tally) in &tallies {
        complaints.extend(accounts(*number, tally, &arrivals));
    }
    let tally = tallies
        .into_iter()
        .fold(Tally::default(), |all, (_, it)| all.join(&it));
    let span = healed - injected;
    complaints.extend(excesses(&tally, connections, span));
    let mut most = 0;
    for key in 0..KEYS {
        let own: Vec<_> = arrivals.iter().filter(|it| it.key == key).collect();
        // A buffer promises no more than that it is long enough for what it is as long as.
        let arrived = own
            .iter()
            .map(|it| it.at.min(it.departed + BUFFER))
            .collect();
        let departed = own.iter().map(|it| it.departed).collect();
        for (what, times, window) in [
            ("arrived", arrived, WINDOW),
            ("departed", departed, WINDOW + BUFFER),
        ] {
            let (seen, excess) = judge(times, window, allowed);
            most = most.max(seen);
            complaints.extend(excess.map(|excess| format!("of key {key} {what} {excess}")));
        }
    }
    Row {
        name: fault.name,
        during: before(&after(&arrivals, injected), healed).len(),
        departed: arrivals.len(),
        most,
        allowed,
        gap: longest_gap(&arrivals, injected),
        connections,
        tally,
        complaints,
    }
}

fn after(arrivals: &[Arrival], time: Duration) -> Vec<Arrival> {
    let after = arrivals.iter().filter(|it| it.departed >= time);
    after.copied().collect()
}

fn before(arrivals: &[Arrival], time: Duration) -> Vec<Arrival> {
    let before = arrivals.iter().filter(|it| it.departed < time);
    before.copied().collect()
}

/// How many there are of the key of which there are least.
fn least_of_keys(arrivals: &[Arrival]) -> usize {
    let mut counts = [0; KEYS];
    arrivals.iter().for_each(|it| counts[it.key] += 1);
    counts.into_iter().min().unwrap_or(0)
}

/// The most in any window of these times, in their order or not; and if that is more than allowed, where.
fn judge(
    mut times: Vec<Duration>,
    window: Duration,
    allowed: Option<u64>,
) -> (u64, Option<String>) {
    times.sort_unstable();
    let first = times.first().copied().unwrap_or_default();
    let history: History = times.into_iter().map(|at| at - first).collect();
    let check = || {
        if let Some(allowed) = allowed {
            history.assert_at_most(allowed, window);
        }
    };
    let excess = catch_unwind(check).err().map(panic_text);
    (history.most_in_any(window), excess)
}

/// Checks that each request was answered once, and that only requests with a permit departed.
fn accounts(number: usize, tally: &Tally, arrivals: &[Arrival]) -> Vec<String> {
    let arrived = arrivals.iter().filter(|it| it.process == number).count() as u64;
    let asked = tally.of(Count::Asked);
    [
        ("requests are lost", tally.of(Count::Lost), 0),
        ("errors are of an unknown kind", tally.of(Count::Other), 0),
        ("requests are answered", tally.answered(), asked),
        ("requests arrived", arrived, tally.of(Count::Departed)),
    ]
    .into_iter()
    .filter(|(_, is, should)| is != should)
    .map(|(what, is, should)| format!("{is} and not {should} {what} in process {number}"))
    .collect()
}

/// What is more than it should be, though that depends on how busy the machine is.
fn excesses(tally: &Tally, connections: usize, span: Duration) -> Vec<String> {
    let most = CONNECTIONS + (span.as_secs_f64() * CONNECTIONS_PER_SECOND) as usize;
    let requests = tally.answered() + tally.of(Count::Expired);
    let lines = (PROCESSES * KEYS) as f64;
    let further = (span.as_secs_f64() * lines * CALLS_PER_SECOND) as u64;
    let longest = Duration::from_micros(tally.of(Count::Longest));
    let calls = tally.of(Count::Calls);
    [
        (connections > most).then(|| format!("{connections} connections in {span:?}")),
        (calls > requests + further).then(|| format!("{calls} calls for {requests} requests")),
        (longest > span + PATIENCE).then(|| format!("a request took {longest:?}")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The longest from one departure of a key to the next, of those that were over after this time.
fn longest_gap(arrivals: &[Arrival], since: Duration) -> Duration {
    let gaps = (0..KEYS).filter_map(|key| {
        let own = arrivals.iter().filter(|it| it.key == key);
        let mut times: Vec<_> = own.map(|it| it.departed).collect();
        times.sort_unstable();
        let pairs = times.windows(2).filter(|pair| pair[1] > since);
        pairs.map(|pair| pair[1] - pair[0]).max()
    });
    gaps.max().unwrap_or_default()
}
