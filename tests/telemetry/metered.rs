//! The metrics of a limiter.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{join_all, poll_immediate};
use tokio::time::{Instant, advance, sleep};
use tower_throttle::{Algorithm, ErrorKind, Limiter, LimiterBuilder, Outage, Priority, Quota};

use super::figures::Figures;
use super::stores::Sharded;

fn ten() -> LimiterBuilder {
    Limiter::builder().quota(Quota::per_second(10)).name("ten")
}

fn far(store: &Sharded) -> LimiterBuilder {
    ten().store(store.clone())
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_outcome() {
    let figures = Figures::new();
    let store = Sharded::default();
    let limiter = figures.build(far(&store).max_waiting(2).outage(Outage::Allow));
    limiter.acquire("a").cost(8).await.unwrap();
    limiter.acquire("a").cost(2).await.unwrap();
    for _ in 0..3 {
        assert!(!limiter.try_acquire("a").await.unwrap().is_granted());
    }
    {
        let mut waiting = pin!(join_all((0..2).map(|_| limiter.acquire("a"))));
        assert!(poll_immediate(waiting.as_mut()).await.is_none());
        assert_eq!(
            limiter.acquire("a").await.unwrap_err().kind(),
            ErrorKind::QueueFull
        );
    }
    limiter.acquire("").await.unwrap_err();
    limiter.acquire("a").cost(11).await.unwrap_err();
    store.out(&["b"]);
    for _ in 0..5 {
        limiter.acquire("b").await.unwrap();
    }
    let read = figures.read();
    let requests = |outcome: &str| {
        let series = format!("requests_total{{outcome={outcome},policy=ten}}");
        read.number(&series)
    };
    let all = [
        "granted",
        "fallback",
        "limited",
        "queue_full",
        "invalid",
        "cancelled",
    ];
    assert_eq!(all.map(requests), [2.0, 5.0, 3.0, 1.0, 2.0, 2.0]);
    assert_eq!(["store_out", "store_error"].map(requests), [0.0, 0.0]);
    assert_eq!(read.number("spent_total{policy=ten,unit=requests}"), 15.0);
    assert_eq!(
        read.recorded("wait_seconds{policy=ten,priority=normal}")
            .len(),
        7
    );
    // Only the first of the refused requests has called the store.
    assert_eq!(read.number("remembered_total{policy=ten}"), 2.0);
}

#[tokio::test(start_paused = true)]
async fn costs_and_their_corrections_are_counted_by_unit() {
    let figures = Figures::new();
    let tokens = Quota::per_minute(1_000).unit("tokens");
    let limiter = figures.build(ten().quota(tokens));
    for actual in [50, 120, 100] {
        let permit = limiter.acquire("a").cost_of("tokens", 100).await;
        let charge = permit.unwrap().into_charge();
        charge.settle("tokens", actual).unwrap();
    }
    let read = figures.read();
    for (series, expected) in [
        ("spent_total{policy=ten,unit=requests}", 3.0),
        ("spent_total{policy=ten,unit=tokens}", 300.0),
        ("refunded_total{policy=ten,unit=tokens}", 50.0),
        ("debt_total{policy=ten,unit=tokens}", 20.0),
        ("refunded_total{policy=ten,unit=requests}", 0.0),
    ] {
        assert_eq!(read.number(series), expected, "{series}");
    }
}

#[tokio::test(start_paused = true)]
async fn departures_of_shares_are_counted_by_name_and_combined_where_there_are_too_many() {
    let figures = Figures::new();
    let limiter = figures.build(ten());
    let _recorder = figures.here();
    let spend = |share: String| limiter.acquire("a").share(share, 2).cost(2);
    join_all((0..60).map(|nth| spend(format!("s{nth}")))).await;
    spend("s0".to_owned()).await.unwrap();
    let read = figures.read();
    let spent = |name: &str| {
        let series = format!("share_spent_total{{policy=ten,share={name},unit=requests}}");
        read.number(&series)
    };
    assert_eq!(["s0", "s49", "(others)"].map(spent), [4.0, 2.0, 20.0]);
    // The first five depart at once, the next 14 have a queue of their own, and so do those that follow when these are gone.
    let combined = read.number("combined_total{policy=ten}");
    assert!((30.0..=41.0).contains(&combined), "{combined}");
    assert_eq!(read.number("inversions_total{policy=ten}"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_departure_before_a_request_of_a_higher_priority_is_counted() {
    let figures = Figures::new();
    let quota = Quota::per_second(10).algorithm(Algorithm::Spacing);
    let builder = Limiter::builder().quota(quota).name("ten");
    let limiter = figures.build(builder.store(Sharded::default()));
    limiter.acquire("a").await.unwrap();
    let low = tokio::spawn(limiter.acquire("a").priority(Priority::Low));
    sleep(Duration::from_millis(60)).await;
    // It costs more than what was granted, and cannot take that.
    let high = limiter.acquire("a").priority(Priority::High).cost(2);
    high.await.unwrap();
    low.await.unwrap().unwrap();
    assert_eq!(figures.read().number("inversions_total{policy=ten}"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn waits_and_waiting_requests_are_counted_by_policy() {
    let figures = Figures::new();
    let limiter = figures.build(ten());
    let waiting = ["a", "b"].map(|key| join_all((0..15).map(|_| limiter.acquire(key))));
    let waiting = tokio::spawn(join_all(waiting));
    sleep(Duration::from_millis(500)).await;
    let read = figures.read();
    assert_eq!(read.number("waiting{policy=ten,priority=normal}"), 10.0);
    assert_eq!(read.number("queues{policy=ten}"), 2.0);
    assert!(
        read.recorded("wait_seconds{policy=ten,priority=normal}")
            .iter()
            .all(|&it| it == 0.0)
    );
    waiting.await.unwrap();
    let read = figures.read();
    assert_eq!(read.number("waiting{policy=ten,priority=normal}"), 0.0);
    assert_eq!(read.number("queues{policy=ten}"), 0.0);
    let waits = read.recorded("wait_seconds{policy=ten,priority=normal}");
    assert_eq!(waits.len(), 10);
    assert!(
        waits.iter().all(|&it| (1.0..1.1).contains(&it)),
        "{waits:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_shown_for_as_long_as_it_lasts() {
    let figures = Figures::new();
    let store = Sharded::default();
    let limiter = figures.build(far(&store));
    let out = || figures.read().number("store_out{policy=ten}");
    assert_eq!(out(), 0.0);
    store.out(&["a", "b"]);
    for key in ["a", "b", "a", "b"] {
        limiter.try_acquire(key).await.unwrap_err();
    }
    assert_eq!(out(), 2.0);
    store.out(&["b"]);
    limiter.acquire("a").await.unwrap();
    assert_eq!(out(), 1.0);
    let read = figures.read();
    assert_eq!(read.number("outages_total{policy=ten}"), 1.0);
    let pings = "store_calls_total{operation=ping,policy=ten,result=";
    assert!(read.number(&format!("{pings}ok}}")) >= 1.0);
    assert!(read.number(&format!("{pings}out}}")) >= 1.0);
    drop(limiter);
    // Its probes end.
    sleep(Duration::from_secs(5)).await;
    assert_eq!(out(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn keys_are_labels_only_if_that_is_set() {
    let figures = Figures::new();
    let without = figures.build(ten());
    let keyed = |read: &[&str]| read.iter().any(|series| series.contains("key="));
    without.acquire("secret").await.unwrap();
    assert!(!keyed(&figures.read().series()));

    let figures = Figures::new();
    let limiter = figures.build(ten().key_labels(true));
    let _recorder = figures.here();
    for (key, cost) in [("a", 1), ("a", 2), ("b", 10)] {
        limiter.acquire(key).cost(cost).await.unwrap();
    }
    let mut waiting = pin!(limiter.acquire("b"));
    assert!(poll_immediate(waiting.as_mut()).await.is_none());
    let read = figures.read();
    let requests = |key: &str| {
        let labels = format!("key={key},outcome=granted,policy=ten");
        read.number(&format!("requests_total{{{labels}}}"))
    };
    assert_eq!([requests("a"), requests("b")], [2.0, 1.0]);
    assert_eq!(
        read.number("spent_total{key=b,policy=ten,unit=requests}"),
        10.0
    );
    assert_eq!(
        read.recorded("wait_seconds{key=a,policy=ten,priority=normal}"),
        [0.0, 0.0]
    );
    assert_eq!(
        read.number("waiting{key=b,policy=ten,priority=normal}"),
        1.0
    );
    // Nothing is counted twice.
    let series = read.series();
    let of = |name: &str| series.iter().filter(|it| it.starts_with(name)).count();
    assert_eq!(
        [of("requests_total"), of("spent_total"), of("waiting")],
        [2, 2, 1]
    );
}

/// Calls to the store run in tasks, which may be on other threads.
#[test]
fn metrics_go_to_the_recorder_in_which_the_limiter_was_built() {
    let figures = Figures::new();
    let limiter = figures.build(Limiter::builder().quota(Quota::new(2, Duration::from_millis(50))));
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let asking = (0..4).map(|_| {
        let limiter = limiter.clone();
        runtime.spawn(async move { drop(limiter.acquire("a").await.unwrap()) })
    });
    let asking: Vec<_> = asking.collect();
    runtime.block_on(join_all(asking));
    let read = figures.read();
    let requests = "requests_total{outcome=granted,policy=2/50ms}";
    assert_eq!(read.number(requests), 4.0);
    assert_eq!(read.number("waiting{policy=2/50ms,priority=normal}"), 0.0);
    // Without a name, the quotas are the label.
    figures
        .within(|| limiter.set_quota(Quota::per_second(3)))
        .unwrap();
    runtime.block_on(limiter.acquire("a")).unwrap();
    let read = figures.read();
    assert_eq!(
        read.number("requests_total{outcome=granted,policy=3/s}"),
        1.0
    );
    assert_eq!(read.number(requests), 4.0);
}

#[tokio::test(start_paused = true)]
async fn calls_are_counted_by_operation_and_result() {
    let figures = Figures::new();
    let store = Sharded::default();
    let limiter = figures.build(far(&store));
    let calls = |operation: &str, result: &str| {
        let labels = format!("operation={operation},policy=ten,result={result}");
        figures
            .read()
            .number(&format!("store_calls_total{{{labels}}}"))
    };
    limiter.acquire("a").await.unwrap();
    limiter.peek("a").await.unwrap();
    limiter.reset("a").await.unwrap();
    // The first call follows a ping.
    for operation in ["take", "peek", "control", "ping"] {
        assert_eq!(calls(operation, "ok"), 1.0, "{operation}");
    }
    store.out(&["b"]);
    limiter.try_acquire("b").await.unwrap_err();
    assert_eq!(calls("take", "out"), 1.0);
    limiter.peek("b").await.unwrap_err();
    assert_eq!(calls("peek", "out"), 1.0);
    assert_eq!(calls("take", "error"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn grants_that_are_missed_and_returned_are_counted() {
    let figures = Figures::new();
    let limiter = figures.build(far(&Sharded::default()));
    assert_eq!(figures.read().number("guard_seconds{policy=ten}"), 0.012);
    let waiting = tokio::spawn(join_all((0..20).map(|_| limiter.acquire("a"))));
    sleep(Duration::from_millis(980)).await;
    advance(Duration::from_secs(2)).await;
    waiting.await.unwrap();
    let read = figures.read();
    let missed = read.number("missed_total{policy=ten}");
    assert!((1.0..=10.0).contains(&missed), "{missed}");
    assert!(read.number("guard_seconds{policy=ten}") > 0.02);
    let returned = read.number("returned_total{policy=ten}");

    limiter.acquire("b").await.unwrap().forfeit();
    sleep(Duration::from_millis(200)).await;
    let read = figures.read();
    assert_eq!(read.number("returned_total{policy=ten}") - returned, 1.0);
    assert_eq!(read.number("waiting{policy=ten,priority=normal}"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn pauses_are_counted_by_the_limiter_that_sends_them() {
    let figures = Figures::new();
    let limiter = figures.build(far(&Sharded::default()));
    for seconds in [10, 20] {
        let until = Instant::now() + Duration::from_secs(seconds);
        limiter.pause("a", until).await.unwrap();
    }
    limiter.resume("a").await.unwrap();
    assert_eq!(figures.read().number("pauses_total{policy=ten}"), 2.0);
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_are_counted_once_when_the_label_changes() {
    let figures = Figures::new();
    let limiter = figures.build(Limiter::builder().quota(Quota::per_second(1)));
    let waiting = tokio::spawn(join_all((0..3).map(|_| limiter.acquire("a"))));
    sleep(Duration::from_millis(500)).await;
    figures
        .within(|| limiter.set_quota(Quota::per_second(2)))
        .unwrap();
    let level = |series: &str, label: &str| {
        let (name, rest) = series.split_once(',').unwrap_or((series, ""));
        let comma = if rest.is_empty() { "" } else { "," };
        let series = format!("{name}{{policy={label}{comma}{rest}}}");
        figures.read().number(&series)
    };
    const WAITING: &str = "waiting,priority=normal";
    for label in ["1/s", "2/s"] {
        let waiting = level(WAITING, label);
        assert!((0.0..=2.0).contains(&waiting), "{label}: {waiting}");
    }
    waiting.await.unwrap();
    for (series, label) in [
        (WAITING, "1/s"),
        (WAITING, "2/s"),
        ("queues", "1/s"),
        ("queues", "2/s"),
    ] {
        assert_eq!(level(series, label), 0.0, "{series} of {label}");
    }
}
