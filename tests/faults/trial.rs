//! One fault under load, and the judgment: [`run`].

use crate::load::{BUFFER, CALLERS, KEYS, LIMIT, WINDOW};
use crate::prelude::*;

/// The most connections that a process may make because of a fault, and for each second of it: fewer than requests.
const CONNECTIONS: usize = 10;
const CONNECTIONS_PER_SECOND: f64 = 10.0;

/// The most calls that the queue of a key may make for each second of a fault, beside one for each request.
const CALLS_PER_SECOND: f64 = 10.0;

/// Starts servers and load, applies the fault, and ends it once enough have departed. Returns the
/// row of the table.
pub(crate) fn run(fault: &'static Fault) -> String {
    let mut setup = (fault.setup)();
    setup.start_load("rates", fault.name);
    let warm = |arrivals: &[Arrival]| least_of_keys(arrivals) >= 2 * LIMIT as usize;
    assert!(setup.upstream.wait_for(TIME_LIMIT, warm), "no load");

    let made: Vec<_> = setup.proxies.iter().map(Proxy::made).collect();
    let [injected, healed] = setup.apply(fault, least_of_keys);
    let running = setup.running();
    let each = |arrivals: &[Arrival]| {
        let arrivals = after(arrivals, healed);
        running.iter().all(|&number| {
            let own = arrivals.iter().filter(|it| it.process == number);
            least_of_keys(&own.copied().collect::<Vec<_>>()) > CALLERS
        })
    };
    let has_recovered = setup.upstream.wait_for(TIME_LIMIT, each);
    let connections = setup.proxies.iter().zip(made);
    let connections = connections.map(|(proxy, made)| proxy.made() - made);
    let connections = connections.max().unwrap_or(0);
    let tallies = setup.stop();
    let allowed = (fault.most)(&setup);
    let arrivals = setup.upstream.finish();

    assert!(has_recovered, "not all processes depart again");
    for (number, tally) in &tallies {
        let arrived = arrivals.iter().filter(|it| it.process == *number);
        tally.assert_accounts(*number, arrived.count() as u64);
    }
    let all = tallies.iter().map(|(_, tally)| tally);
    let tally = all.fold(Tally::default(), Tally::join);
    assert_no_excess(&tally, connections, healed - injected);
    let (mut most, mut silence) = (0, Duration::ZERO);
    for key in 0..KEYS {
        let own: Vec<_> = arrivals.iter().filter(|it| it.key == key).collect();
        let arrived = own.iter().map(|it| it.at.min(it.departed + BUFFER));
        let departed: History = own.iter().map(|it| it.departed).collect();
        let times: Vec<_> = departed.times().collect();
        let pairs = times.windows(2).filter(|pair| pair[1] > injected);
        silence = silence.max(pairs.map(|it| it[1] - it[0]).max().unwrap_or_default());
        for (what, history, window) in [
            ("arrived", arrived.collect(), WINDOW),
            ("departed", departed, WINDOW + BUFFER),
        ] {
            let fullest = history.most_in_any(window);
            most = most.max(fullest);
            let is_allowed = allowed.is_none_or(|allowed| fullest <= allowed);
            assert!(is_allowed, "of key {key} {what} in {window:?}: {fullest}");
        }
    }
    let during = after(&arrivals, injected).len() - after(&arrivals, healed).len();
    format!(
        "| {} | {during} of {} | {} | {:.1} s | {:.1} s | {most} of {} | {} | {} | {connections} | {:.2} |\n",
        fault.name,
        arrivals.len(),
        errors(&tally),
        tally.of(Count::Longest) as f64 / 1e6,
        silence.as_secs_f64(),
        allowed.map_or_else(|| "any".to_owned(), |allowed| allowed.to_string()),
        tally.of(Count::Lost),
        tally.of(Count::LostCalls),
        tally.of(Count::Calls) as f64 / tally.answered() as f64,
    )
}

/// How many there are of the key of which there are least.
fn least_of_keys(arrivals: &[Arrival]) -> usize {
    let mut counts = [0; KEYS];
    arrivals.iter().for_each(|it| counts[it.key] += 1);
    counts.into_iter().min().unwrap_or(0)
}

/// Asserts what depends on how busy the machine is.
fn assert_no_excess(tally: &Tally, connections: usize, span: Duration) {
    let most = CONNECTIONS + (span.as_secs_f64() * CONNECTIONS_PER_SECOND) as usize;
    assert!(connections <= most, "{connections} connections in {span:?}");
    let requests = tally.answered() + tally.of(Count::Expired);
    let queues = (PROCESSES * KEYS) as f64;
    let further = (span.as_secs_f64() * queues * CALLS_PER_SECOND) as u64;
    let calls = tally.of(Count::Calls);
    let is_allowed = calls <= requests + further;
    assert!(is_allowed, "{calls} calls for {requests} requests");
    let longest = Duration::from_micros(tally.of(Count::Longest));
    assert!(longest <= span + TIME_LIMIT, "a request took {longest:?}");
}

fn errors(tally: &Tally) -> String {
    let kinds = [
        ("out", Count::Out),
        ("unknown", Count::Unknown),
        ("limited", Count::Limited),
        ("other", Count::Other),
    ];
    let seen = kinds.map(|(what, count)| (tally.of(count), what));
    let seen = seen.iter().filter(|(count, _)| *count > 0);
    let seen: Vec<_> = seen.map(|(count, it)| format!("{count} {it}")).collect();
    match seen.is_empty() {
        true => "none".to_owned(),
        false => seen.join(", "),
    }
}
