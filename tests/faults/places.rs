//! Requests in progress while something goes wrong: three processes share a limit of how many there are.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_throttle::{Limiter, Lost, Quota};

use crate::fault::{Fault, Lasts};
use crate::load::{BUFFER, runtime};
use crate::report;
use crate::stage::{PATIENCE, PROCESSES, Part, Stage};
use crate::table::places as table;
use crate::upstream::{Arrival, Way};
use support::child::now;
use support::errors::panic_text;
use support::progress::most_at_once;

pub(crate) const LIMIT: usize = 6;
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// In each process. No process holds more places.
pub(crate) const CALLERS: usize = 4;

/// The first callers have begun after so long.
const LATER: Duration = Duration::from_millis(1_500);

/// The lines around the rows in the page.
const BEGIN: &str = "<!-- measured places -->\n";

const HEAD: &str = "\
| | work takes | most in progress | dropped | first departure after its end |
| --- | --- | --- | --- | --- |
";

/// A fault, and what holds for requests in progress.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    pub(crate) name: &'static str,
    /// The fault. Its bound and its name are for rates.
    pub(crate) fault: Fault,
    pub(crate) lost: Lost,
    /// How long the work of a request takes.
    pub(crate) takes: Duration,
    /// The most that may be in progress at once.
    pub(crate) most: usize,
}

/// The work of a request, from its begin to its end.
#[derive(Debug, Clone, Copy)]
struct Work {
    from: Duration,
    until: Duration,
    is_dropped: bool,
}

/// A message to the upstream, as the remainder of a key by 3.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Said {
    Begins,
    Ends,
    IsDropped,
}

const SAID: [Said; 3] = [Said::Begins, Said::Ends, Said::IsDropped];

/// Plays a part until it is killed.
pub(crate) fn play(part: &Part) {
    runtime().block_on(async {
        let places = table::find(&part.script);
        let limiter = limiter(places, &part.redis).await;
        let way = Way::new(part.upstream, part.number);
        let number = AtomicUsize::new(0);
        let callers = (0..CALLERS).map(|caller| {
            // Each process gets as many places first.
            let begins = (caller / (LIMIT / PROCESSES)) as u32 * LATER;
            let (limiter, way, number) = (&limiter, &way, &number);
            async move {
                sleep(begins).await;
                call(limiter, places.takes, way, number).await;
            }
        });
        futures_util::future::join_all(callers).await;
    });
}

async fn limiter(places: &Places, redis: &str) -> Limiter {
    let deadline = Instant::now() + PATIENCE;
    let store = loop {
        match (places.fault.connect)(redis.to_owned()).await {
            Ok(store) => break store.timeout(Duration::from_millis(500)),
            Err(error) => assert!(Instant::now() < deadline, "{error:?}"),
        }
    };
    let quota = Quota::concurrent(LIMIT as u32).lease(LEASE);
    let limiter = Limiter::builder().quota(quota).lost(places.lost);
    let limiter = limiter.store((places.fault.store)(store));
    (places.fault.limiter)(limiter)
        .build()
        .expect("a valid policy")
}

/// Does one work after the other.
async fn call(limiter: &Limiter, takes: Duration, way: &Way, number: &AtomicUsize) {
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
        let say = |said: Said, at| way.send(3 * work + said as usize, at);
        say(Said::Begins, from);
        // The time is read while the place is held.
        let ends = async {
            sleep(takes).await;
            now()
        };
        match place.run(ends).await {
            Ok(until) => say(Said::Ends, until),
            Err(_) => say(Said::IsDropped, now()),
        }
    }
}

/// Runs all trials, and checks their bounds.
pub(crate) fn run_all() {
    let only = env::var("FAULTS_ONLY").unwrap_or_default();
    let waiting: Vec<_> = table::ALL
        .iter()
        .filter(|it| it.name.contains(&only))
        .collect();
    let waiting = Mutex::new(waiting);
    let (rows, complaints) = (Mutex::new(BTreeMap::new()), Mutex::new(Vec::new()));
    let lane = || {
        while let Some(places) = { waiting.lock().expect("no panic").pop() } {
            let row = std::panic::catch_unwind(|| run(places));
            let row = row.map_err(panic_text).and_then(|(row, complaint)| {
                rows.lock().expect("no panic").insert(places.name, row);
                complaint.map_or(Ok(()), Err)
            });
            if let Err(complaint) = row {
                let complaint = format!("{}: {complaint}", places.name);
                complaints.lock().expect("no panic").push(complaint);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..crate::LANES {
            scope.spawn(lane);
        }
    });
    let rows = rows.into_inner().expect("no panic");
    let in_order = table::ALL.iter().filter_map(|it| rows.get(it.name));
    let text = in_order.fold(HEAD.to_owned(), |text, row| text + row);
    println!("{text}");
    let complaints = complaints.into_inner().expect("no panic");
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    if only.is_empty() && env::var("FAULTS_MD").is_ok_and(|how| how == "write") {
        report::replace(BEGIN, &text);
    }
}

/// The names of the rows in the page.
pub(crate) fn documented() -> Vec<String> {
    report::names(&report::between(BEGIN))
}

/// One row, and what is wrong with it.
fn run(places: &'static Places) -> (String, Option<String>) {
    let mut stage = (places.fault.stage)();
    stage.play("places_process", places.name);
    let all = |arrivals: &[Arrival]| at_once(&works(arrivals, &[], now())) == LIMIT;
    assert!(stage.upstream().wait_for(PATIENCE, all), "no load");
    // Where the work takes long, all leases are renewed while nothing goes wrong.
    let before: Vec<_> = numbers(&stage);

    (places.fault.inject)(&mut stage);
    let injected = now();
    let left: Vec<_> = numbers(&stage);
    let killed: Vec<_> = before.into_iter().filter(|it| !left.contains(it)).collect();
    match places.fault.lasts {
        Lasts::For(span) => thread::sleep(span),
        Lasts::UntilDeparted(_) => thread::sleep(places.takes),
    }
    (places.fault.heal)(&mut stage);
    let healed = now();
    let again = |arrivals: &[Arrival]| {
        numbers(&stage).iter().all(|&number| {
            let begins = |it: &Arrival| it.process == number && said(it) == Said::Begins;
            let mut begins = arrivals.iter().filter(|it| begins(it));
            begins.any(|it| it.departed >= healed)
        })
    };
    let has_recovered = stage.upstream().wait_for(PATIENCE, again);
    thread::sleep(LEASE);
    stage.processes.clear();
    let ended = now();

    let killed: Vec<_> = killed.into_iter().map(|it| (it, injected)).collect();
    let works = works(&stage.arrivals(), &killed, ended);
    let most = at_once(&works);
    let dropped = works.iter().filter(|it| it.is_dropped).count();
    let begins = works.iter().map(|it| it.from);
    let first = begins.filter(|&it| it >= healed).min().unwrap_or(ended);
    let mut complaints = String::new();
    if most > places.most {
        let _ = write!(complaints, "{most} at once, of {}", places.most);
    }
    if !has_recovered {
        let _ = write!(complaints, " not all processes depart again");
    }
    let row = format!(
        "| {} | {} s | {most} of {} | {dropped} | {:.1} s |\n",
        places.name,
        places.takes.as_secs(),
        places.most,
        (first - healed).as_secs_f64(),
    );
    (row, Some(complaints).filter(|it| !it.is_empty()))
}

fn numbers(stage: &Stage) -> Vec<usize> {
    let living = stage.processes.iter().flatten();
    living.map(|it| it.number).collect()
}

fn said(arrival: &Arrival) -> Said {
    SAID[arrival.key % SAID.len()]
}

/// The work of all requests. That of a killed process has ended then, and all other by the end.
fn works(arrivals: &[Arrival], killed: &[(usize, Duration)], end: Duration) -> Vec<Work> {
    let mut works = BTreeMap::new();
    let name = |it: &Arrival| (it.process, it.key / SAID.len());
    for it in arrivals.iter().filter(|it| said(it) == Said::Begins) {
        let killed = killed.iter().find(|(number, _)| *number == it.process);
        let work = Work {
            from: it.departed,
            until: killed.map_or(end, |(_, at)| *at),
            is_dropped: false,
        };
        works.insert(name(it), work);
    }
    for it in arrivals.iter().filter(|it| said(it) != Said::Begins) {
        // It was dropped a little earlier than a busy machine could record it.
        let is_dropped = said(it) == Said::IsDropped;
        let until = it.departed - if is_dropped { BUFFER } else { Duration::ZERO };
        let work = works.get_mut(&name(it)).expect("it has begun");
        (work.until, work.is_dropped) = (until, is_dropped);
    }
    works.into_values().collect()
}

/// The most in progress at once.
fn at_once(works: &[Work]) -> usize {
    let spans: Vec<_> = works.iter().map(|it| (it.from, it.until)).collect();
    most_at_once(&spans)
}
