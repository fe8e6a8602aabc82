//! The metrics and the spans of a limiter, also with rules; and their cost where nothing collects them.

use std::pin::pin;

use allocation_counter::measure;
use futures_util::future::poll_immediate;
use tokio::runtime::Builder;
use tracing::level_filters::LevelFilter;
use tracing::{Instrument as _, Level, Span};
use tracing_subscriber::prelude::*;

use super::figures::Figures;
use super::seen::Seen;
use super::stores::Sharded;
use crate::prelude::*;

fn ten() -> LimiterBuilder {
    Limiter::builder().quota(Quota::per_second(10)).name("ten")
}

pub(super) fn far(store: &Sharded) -> LimiterBuilder {
    ten().store(store.clone())
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_outcome_and_their_spans_name_it() {
    let (figures, store) = (Figures::new(), Sharded::default());
    let (seen, _guard) = Seen::begin();
    let limiter = figures.build(far(&store).max_waiting(2).outage(Outage::Allow));
    for cost in [8, 2] {
        limiter.acquire("a").cost(cost).await.unwrap();
    }
    for _ in 0..3 {
        assert!(!limiter.try_acquire("a").await.unwrap().is_granted());
    }
    {
        let mut waiting = pin!(join_all((0..2).map(|_| limiter.acquire("a"))));
        assert!(poll_immediate(waiting.as_mut()).await.is_none());
        let full = limiter.acquire("a").await.unwrap_err();
        assert_eq!(full.kind(), ErrorKind::QueueFull);
    }
    limiter.acquire("").await.unwrap_err();
    limiter.acquire("a").cost(11).await.unwrap_err();
    store.out(&["b"]);
    for _ in 0..5 {
        limiter.acquire("b").await.unwrap();
    }
    for (fault, outage) in [
        (Fault::Unreachable, Outage::Deny),
        (Fault::Unreachable, Outage::Allow),
        (Fault::Unreachable, Outage::Local { share: 1.0 }),
        (Fault::Refusal, Outage::Deny),
    ] {
        let store = FailingStore::new(MemoryStore::new());
        store.fail_with(fault);
        let limiter = figures.build(one().store(store).outage(outage));
        // The first calls the store; the second finds the outage.
        for _ in 0..2 {
            drop(limiter.acquire("a").await);
        }
    }
    // Only the first of the refused requests has called the store.
    figures.assert_numbers(
        "requests_total{outcome=granted,policy=ten} 2
        requests_total{outcome=fallback,policy=ten} 5
        requests_total{outcome=limited,policy=ten} 3
        requests_total{outcome=queue_full,policy=ten} 1
        requests_total{outcome=invalid,policy=ten} 2
        requests_total{outcome=cancelled,policy=ten} 2
        requests_total{outcome=store_out,policy=ten} 0
        requests_total{outcome=store_error,policy=ten} 0
        wait_seconds_count{policy=ten,priority=normal} 7
        spent_total{policy=ten,unit=requests} 15
        remembered_total{policy=ten} 2
        requests_total{outcome=fallback,policy=one} 4
        requests_total{outcome=store_out,policy=one} 2
        requests_total{outcome=store_error,policy=one} 2",
    );
    let mut outcomes = BTreeMap::new();
    for span in seen.spans() {
        assert!(span.is_closed);
        let [outcome, policy] = ["outcome", "policy"].map(|name| span.fields.text(name));
        let series = format!("requests_total{{outcome={outcome},policy={policy}}}");
        *outcomes.entry(series).or_insert(0.0) += 1.0;
    }
    assert_eq!(outcomes.len(), 9, "{outcomes:?}");
    for (series, count) in outcomes {
        assert_eq!(figures.number(&series), count, "{series}");
    }
}

#[tokio::test(start_paused = true)]
async fn costs_and_their_corrections_are_counted_by_unit() {
    let (figures, tokens) = (Figures::new(), Quota::per_minute(1_000).unit("tokens"));
    let limiter = figures.build(ten().quota(tokens).quota(Quota::concurrent(9)));
    let permit = async || limiter.acquire("a").cost_of("tokens", 100).await.unwrap();
    for actual in [50, 120, 100] {
        let charge = permit().await.into_charge();
        charge.settle("tokens", actual).unwrap();
    }
    permit().await.forfeit();
    figures.assert_numbers(
        "spent_total{policy=ten,unit=requests} 4
        spent_total{policy=ten,unit=tokens} 400
        refunded_total{policy=ten,unit=tokens} 150
        debt_total{policy=ten,unit=tokens} 20
        refunded_total{policy=ten,unit=requests} 1",
    );
}

#[tokio::test(start_paused = true)]
async fn a_cost_is_counted_in_the_units_under_which_it_was_granted() {
    let figures = Figures::new();
    let spaced = Quota::per_second(2).algorithm(Algorithm::Spacing);
    let tokens = spaced.unit("tokens").default_cost(1);
    let builder = Limiter::builder().quota(tokens).name("ten");
    let limiter = figures.build(builder.store(Sharded::default()));
    limiter.acquire("a").await.unwrap();
    let granted = tokio::spawn(limiter.acquire("a"));
    sleep(Duration::from_millis(480)).await;
    let change = || limiter.set_quotas([Quota::per_second(10), tokens]);
    figures.within(change).unwrap();
    granted.await.unwrap().unwrap();
    figures.assert_numbers("spent_total{policy=ten,unit=tokens} 2");
}

#[tokio::test(start_paused = true)]
async fn departures_of_shares_are_counted_by_name_and_combined_where_there_are_too_many() {
    let figures = Figures::new();
    let limiter = figures.build(ten());
    let _recorder = figures.here();
    let spend = |share: String| limiter.acquire("a").share(share, 2).cost(2);
    join_all((0..60).map(|nth| spend(format!("s{nth}")))).await;
    // Other quotas change nothing about which shares have series.
    limiter.set_quota(Quota::per_second(20)).unwrap();
    join_all(["s59", "s0"].map(|share| spend(share.to_owned()))).await;
    figures.assert_numbers(
        "share_spent_total{policy=ten,share=s0,unit=requests} 4
        share_spent_total{policy=ten,share=s49,unit=requests} 2
        share_spent_total{policy=ten,share=(others),unit=requests} 22
        inversions_total{policy=ten} 0",
    );
    // The first five depart at once, the next 14 have a queue of their own, and so do those that follow when these are gone.
    let combined = figures.number("combined_total{policy=ten}");
    assert!((30.0..=41.0).contains(&combined), "{combined}");
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
    figures.assert_numbers("inversions_total{policy=ten} 1");
}

#[tokio::test(start_paused = true)]
async fn waits_and_waiting_requests_are_counted_once_by_policy_and_label() {
    let figures = Figures::new();
    let limiter = figures.build(ten());
    let waiting = ["a", "b"].map(|key| join_all((0..15).map(|_| limiter.acquire(key))));
    let waiting = tokio::spawn(join_all(waiting));
    sleep(Duration::from_millis(500)).await;
    figures.assert_numbers(
        "wait_seconds_count{policy=ten,priority=normal} 20
        wait_seconds_sum{policy=ten,priority=normal} 0
        waiting{policy=ten,priority=normal} 10
        queues{policy=ten} 2",
    );
    waiting.await.unwrap();
    let waited = figures.number("wait_seconds_sum{policy=ten,priority=normal}");
    assert!((10.0..11.0).contains(&waited), "{waited}");
    figures.assert_numbers(
        "wait_seconds_count{policy=ten,priority=normal} 30
        waiting{policy=ten,priority=normal} 0
        queues{policy=ten} 0",
    );
    // Without a name, the label changes with the quotas.
    let limiter = figures.build(Limiter::builder().quota(Quota::per_second(1)));
    let waiting = tokio::spawn(join_all((0..3).map(|_| limiter.acquire("a"))));
    sleep(Duration::from_millis(500)).await;
    let change = || limiter.set_quota(Quota::per_second(2));
    figures.within(change).unwrap();
    for label in ["1/s", "2/s"] {
        let waiting = format!("waiting{{policy={label},priority=normal}}");
        let waiting = figures.number(&waiting);
        assert!((0.0..=2.0).contains(&waiting), "{label}: {waiting}");
    }
    waiting.await.unwrap();
    figures.assert_numbers(
        "waiting{policy=1/s,priority=normal} 0
        waiting{policy=2/s,priority=normal} 0
        queues{policy=1/s} 0
        queues{policy=2/s} 0",
    );
}

#[tokio::test(start_paused = true)]
async fn keys_are_labels_only_if_that_is_set() {
    let without = Figures::new();
    let limiter = without.build(ten());
    limiter.acquire("secret").await.unwrap();
    let mut series = without.series().into_iter();
    assert!(!series.any(|series| series.contains("key=")));

    let figures = Figures::new();
    let limiter = figures.build(ten().key_labels(true));
    let _recorder = figures.here();
    for (key, cost) in [("a", 1), ("a", 2), ("b", 10)] {
        limiter.acquire(key).cost(cost).await.unwrap();
    }
    let mut waiting = pin!(limiter.acquire("b"));
    assert!(poll_immediate(waiting.as_mut()).await.is_none());
    figures.assert_numbers(
        "requests_total{key=a,outcome=granted,policy=ten} 2
        requests_total{key=b,outcome=granted,policy=ten} 1
        spent_total{key=b,policy=ten,unit=requests} 10
        waiting{key=b,policy=ten,priority=normal} 1",
    );
    // Nothing is counted twice.
    let series = figures.series();
    let of = |name: &str| series.iter().filter(|it| it.starts_with(name)).count();
    let counts = ["requests_total", "spent_total", "waiting"].map(of);
    assert_eq!(counts, [2, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn each_rule_is_a_policy_that_is_counted_by_its_name() {
    let figures = Figures::new();
    let search = Rule::named("search").path("/search");
    let search = search.quota(Quota::per_second(2)).outage(Outage::Allow);
    let others = Rule::named("others").quota(Quota::per_second(10));
    let rules = Rules::new([search, others]).expect("valid rules");
    let builder = Limiter::builder().rules(rules);
    let limiter = figures.build(builder.store(Sharded::default()));
    let search = limiter.rule("search").unwrap();
    join_all((0..4).map(|_| search.acquire("a"))).await;
    limiter.acquire("a").await.unwrap();
    let granted = |policy| format!("requests_total{{outcome=granted,policy={policy}}}");
    assert_eq!(figures.number(&granted("search")), 4.0);
    assert_eq!(figures.number(&granted("others")), 1.0);
}

#[tokio::test(start_paused = true)]
async fn exempt_requests_have_no_span_and_are_not_counted() {
    let figures = Figures::new();
    let (seen, _guard) = Seen::begin();
    let rules = Rules::new([Rule::exempt()]).unwrap();
    let limiter = figures.build(Limiter::builder().rules(rules));
    let _recorder = figures.here();
    limiter.acquire("a").share("s", 1).await.unwrap();
    assert!(seen.spans().is_empty());
    let series = figures.series();
    let is_of_store = |it: &String| it.contains("policy=rules") || it.starts_with("reconnects");
    assert!(series.iter().all(is_of_store), "{series:?}");
}

fn one() -> LimiterBuilder {
    Limiter::builder().quota(Quota::per_second(1)).name("one")
}

/// The span is open while the request waits, and entered while it is polled.
#[tokio::test(start_paused = true)]
async fn a_span_lasts_until_the_departure_and_has_the_key_the_policy_and_the_outcome() {
    let (seen, _guard) = Seen::begin();
    let limiter = one().build().unwrap();
    let acquire = limiter.acquire("a");
    assert!(seen.spans().is_empty(), "it was not polled yet");
    let _permit = acquire.await.unwrap();
    let span = seen.span();
    let shown = (span.name, span.level, span.parent);
    assert_eq!(shown, ("throttle", Level::DEBUG, None));
    let fields = &span.fields;
    assert_eq!((fields.text("key"), fields.text("policy")), ("a", "one"));
    assert_eq!((fields.number("cost"), fields.number("wait")), (1.0, 0.0));
    assert_eq!(fields.text("outcome"), "granted");
    assert!(span.is_closed, "it ends before its permit");

    seen.forget();
    let caller = tracing::info_span!("caller");
    let waiting = tokio::spawn(limiter.acquire("a").into_future().instrument(caller));
    sleep(Duration::from_millis(500)).await;
    let span = seen.span();
    assert_eq!(span.parent, Some("caller"));
    assert!(!span.is_closed && !span.fields.has("outcome"));
    assert!(span.entered > 0 && span.entered == span.left, "{span:?}");
    assert!(Span::current().is_none());
    waiting.await.unwrap().unwrap();
    let span = seen.span();
    assert!(span.is_closed && span.entered == span.left, "{span:?}");
    assert!(span.fields.number("wait") >= 1.0, "{span:?}");
}

#[test]
fn a_permit_that_departs_at_once_allocates_nothing() {
    let quota = Quota::per_second(1_000_000).algorithm(Algorithm::Gcra { burst: 1_000_000 });
    let limiter = Limiter::builder().quota(quota).build().unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let key = Key::new("api.example.com");
    let allocations = || {
        let _entered = runtime.enter();
        let one = |_| {
            let counted = measure(|| {
                let permit = limiter.acquire(key.clone()).now_or_never();
                permit.expect("at once").expect("a permit");
            });
            counted.count_total
        };
        // A request that is interrupted for longer than the guard has to wait.
        (0..100).map(one).min()
    };
    assert_eq!(allocations(), Some(0));
    let subscriber = tracing_subscriber::registry().with(LevelFilter::from_level(Level::INFO));
    let _here = subscriber.set_default();
    assert_eq!(allocations(), Some(0));
}
