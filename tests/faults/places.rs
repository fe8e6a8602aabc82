//! Requests in progress while something goes wrong: three processes share a limit of how many there are.

use std::sync::atomic::AtomicUsize;

use tokio::time::sleep;

use crate::load::{BUFFER, connect, runtime};
use crate::prelude::*;
use crate::table::places as table;
use support::progress::most_at_once;

pub(crate) const LIMIT: usize = 6;
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// In each process. No process holds more places.
pub(crate) const CALLERS: usize = 4;

/// The first callers have begun after so long.
const LATER: Duration = Duration::from_millis(1_500);

/// A message to the upstream has the number of a work as its key, and one of these marks.
const BEGINS: u64 = 0;
const ENDS: u64 = 1;
const IS_DROPPED: u64 = 2;

/// A fault, and what holds for requests in progress.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    pub(crate) name: &'static str,
    /// The fault. Its bound and its name are for rates.
    pub(crate) fault: Fault,
    pub(crate) lost: Lost,
    pub(crate) takes: Duration,
    pub(crate) most: usize,
}

/// Runs until the process is killed.
pub(crate) fn run_process(args: &Args) {
    runtime().block_on(async {
        let places = table::find(&args.script);
        let quota = Quota::concurrent(LIMIT as u32).lease(LEASE);
        let limiter = Limiter::builder().quota(quota).lost(places.lost);
        let limiter = limiter.store(connect(&places.fault, &args.redis).await);
        let limiter = build((places.fault.limiter)(limiter));
        let sender = Sender::new(&args.upstream, args.number);
        let number = AtomicUsize::new(0);
        let callers = (0..CALLERS).map(|caller| {
            // Each process gets as many places first.
            let begins = (caller / (LIMIT / PROCESSES)) as u32 * LATER;
            let (limiter, sender, number) = (&limiter, &sender, &number);
            async move {
                sleep(begins).await;
                call(limiter, places.takes, sender, number).await;
            }
        });
        futures_util::future::join_all(callers).await;
    });
}

async fn call(limiter: &Limiter, takes: Duration, sender: &Sender, number: &AtomicUsize) {
    loop {
        let Ok(permit) = limiter.acquire("key-0").await else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let from = now();
        if !permit.is_valid() {
            permit.forfeit();
            continue;
        }
        let work = number.fetch_add(1, Ordering::SeqCst);
        let place = permit.hold();
        sender.send(work, BEGINS, from);
        // The time is read while the place is held.
        let ends = async {
            sleep(takes).await;
            now()
        };
        match place.run(ends).await {
            Ok(until) => sender.send(work, ENDS, until),
            Err(_) => sender.send(work, IS_DROPPED, now()),
        }
    }
}

/// Returns the row of the table.
pub(crate) fn run(places: &'static Places) -> String {
    let mut setup = (places.fault.setup)();
    setup.start_load("places", places.name);
    let all = |arrivals: &[Arrival]| most_at_once(&works(arrivals, &[], now()).0) == LIMIT;
    assert!(setup.upstream.wait_for(TIME_LIMIT, all), "no load");
    let before = setup.running();
    let [injected, healed] = setup.apply(&places.fault, <[_]>::len);
    let left = setup.running();
    let again = |arrivals: &[Arrival]| {
        let begins = after(arrivals, healed).into_iter();
        let begins: Vec<_> = begins.filter(|it| it.mark == BEGINS).collect();
        let of = |number| begins.iter().any(|it| it.process == number);
        left.iter().all(|&number| of(number))
    };
    let has_recovered = setup.upstream.wait_for(TIME_LIMIT, again);
    thread::sleep(LEASE);
    setup.processes.clear();
    let ended = now();

    let killed = before.into_iter().filter(|it| !left.contains(it));
    let killed: Vec<_> = killed.map(|it| (it, injected)).collect();
    let (works, dropped) = works(&setup.upstream.finish(), &killed, ended);
    let most = most_at_once(&works);
    let begins = works.iter().map(|it| it.0);
    let first = begins.filter(|&it| it >= healed).min().unwrap_or(ended);
    assert!(most <= places.most, "{most} at once, of {}", places.most);
    assert!(has_recovered, "not all processes depart again");
    format!(
        "| {} | {} s | {most} of {} | {dropped} | {:.1} s |\n",
        places.name,
        places.takes.as_secs(),
        places.most,
        (first - healed).as_secs_f64(),
    )
}

/// The begin and the end of the work of all requests, and how many were dropped. That of a killed process has ended then,
/// and all other by the end.
fn works(
    arrivals: &[Arrival],
    killed: &[(usize, Duration)],
    end: Duration,
) -> (Vec<(Duration, Duration)>, usize) {
    let (mut works, mut dropped) = (BTreeMap::new(), 0);
    let (begins, ends): (Vec<Arrival>, Vec<_>) =
        arrivals.iter().copied().partition(|it| it.mark == BEGINS);
    for it in begins {
        let killed = killed.iter().find(|(number, _)| *number == it.process);
        let until = killed.map_or(end, |(_, at)| *at);
        works.insert((it.process, it.key), (it.departed, until));
    }
    for it in ends {
        // It was dropped a little earlier than a busy machine could record it.
        let is_dropped = it.mark == IS_DROPPED;
        let early = if is_dropped { BUFFER } else { Duration::ZERO };
        let work = works.get_mut(&(it.process, it.key)).expect("it has begun");
        work.1 = it.departed - early;
        dropped += usize::from(is_dropped);
    }
    (works.into_values().collect(), dropped)
}
