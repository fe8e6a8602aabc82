//! The span of a request.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::poll_immediate;
use tokio::time::sleep;
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::{FailingStore, Fault};
use tower_throttle::{ErrorKind, Limiter, LimiterBuilder, Outage, Quota};
use tracing::{Instrument as _, Level, Span};

use super::seen::{Seen, SpanSeen};
use super::stores::Sharded;

/// One per second.
fn one() -> LimiterBuilder {
    Limiter::builder().quota(Quota::per_second(1)).name("one")
}

fn out() -> (LimiterBuilder, Sharded) {
    let store = Sharded::default();
    store.out(&["a"]);
    (one().store(store.clone()), store)
}

#[tokio::test(start_paused = true)]
async fn a_span_has_the_key_the_policy_and_the_outcome() {
    let (seen, _guard) = Seen::begin();
    let limiter = one().build().unwrap();
    let acquire = limiter.acquire("a").cost(1);
    assert!(seen.spans().is_empty(), "it was not polled yet");
    let _permit = acquire.await.unwrap();
    let SpanSeen {
        name,
        level,
        fields,
        parent,
        is_closed,
        ..
    } = seen.span();
    assert_eq!((name, level, parent), ("throttle", Level::DEBUG, None));
    assert_eq!((fields.text("key"), fields.text("policy")), ("a", "one"));
    assert_eq!((fields.number("cost"), fields.number("wait")), (1.0, 0.0));
    assert_eq!(fields.text("outcome"), "granted");
    assert!(is_closed, "it ends before its permit");
}

/// The span is open while the request waits, and entered while it is polled.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_has_a_span_until_it_departs() {
    let (seen, _guard) = Seen::begin();
    let limiter = one().build().unwrap();
    limiter.acquire("a").await.unwrap();
    seen.forget();
    let waiting = limiter
        .acquire("a")
        .instrument(tracing::info_span!("caller"));
    let waiting = tokio::spawn(waiting);
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
    assert_eq!(span.fields.text("outcome"), "granted");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_while_it_waits_is_cancelled() {
    let (seen, _guard) = Seen::begin();
    let limiter = one().build().unwrap();
    limiter.acquire("a").await.unwrap();
    seen.forget();
    {
        let mut acquire = pin!(limiter.acquire("a"));
        assert!(poll_immediate(acquire.as_mut()).await.is_none());
        sleep(Duration::from_millis(300)).await;
        assert!(!seen.span().is_closed);
    }
    let span = seen.span();
    assert_eq!(span.fields.text("outcome"), "cancelled");
    assert!(span.is_closed && span.fields.number("wait") >= 0.3);
    // A request that was never polled has no span.
    drop(limiter.acquire("a"));
    assert_eq!(seen.spans().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn every_refusal_has_a_name() {
    let (seen, _guard) = Seen::begin();
    let outcome = || {
        let spans = seen.spans();
        seen.forget();
        let last = spans.last().expect("a span");
        assert!(last.is_closed);
        last.fields.text("outcome").to_owned()
    };
    let limiter = one().max_waiting(1).build().unwrap();
    limiter.acquire("a").await.unwrap();
    assert!(!limiter.try_acquire("a").await.unwrap().is_granted());
    assert_eq!(outcome(), "limited");
    limiter
        .acquire("a")
        .max_wait(Duration::from_millis(9))
        .await
        .unwrap_err();
    assert_eq!(outcome(), "limited");
    let mut waiting = pin!(limiter.acquire("a"));
    assert!(poll_immediate(waiting.as_mut()).await.is_none());
    assert_eq!(
        limiter.acquire("a").await.unwrap_err().kind(),
        ErrorKind::QueueFull
    );
    assert_eq!(outcome(), "queue_full");
    assert!(limiter.acquire("a").cost(2).await.unwrap_err().kind() == ErrorKind::InvalidCost);
    assert_eq!(outcome(), "invalid");
    assert_eq!(
        limiter.acquire("").await.unwrap_err().kind(),
        ErrorKind::EmptyKey
    );
    assert_eq!(outcome(), "invalid");

    let (builder, _) = out();
    let limiter = builder.build().unwrap();
    assert!(limiter.try_acquire("a").await.unwrap_err().is_store());
    assert_eq!(outcome(), "store_out");
    assert!(limiter.acquire("a").await.unwrap_err().is_store());
    assert_eq!(outcome(), "store_out");
    for outage in [Outage::Allow, Outage::Local { share: 1.0 }] {
        let (builder, _) = out();
        let limiter = builder.outage(outage).build().unwrap();
        // The first calls the store; the second finds the outage.
        for _ in 0..2 {
            limiter.acquire("a").await.unwrap();
            assert_eq!(outcome(), "fallback");
        }
    }
    let store = FailingStore::new(MemoryStore::new());
    store.fail_with(Fault::Refusal);
    let limiter = one().store(store).build().unwrap();
    assert!(limiter.acquire("a").await.unwrap_err().is_store());
    assert_eq!(outcome(), "store_error");
}
