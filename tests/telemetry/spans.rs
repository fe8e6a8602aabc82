//! The span of a request.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::poll_immediate;
use tokio::time::sleep;
use tower_throttle::test_util::{FailingStore, Fault};
use tower_throttle::{Limiter, LimiterBuilder, Outage, Quota};
use tracing::{Instrument as _, Level, Span};

use super::seen::Seen;

/// One per second.
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
    assert_eq!(
        (span.name, span.level, span.parent),
        ("throttle", Level::DEBUG, None)
    );
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
    let mut waiting = pin!(limiter.acquire("a"));
    assert!(poll_immediate(waiting.as_mut()).await.is_none());
    for (acquire, expected) in [
        (limiter.acquire("b").cost(2), "invalid"),
        (limiter.acquire(""), "invalid"),
        (
            limiter.acquire("a").max_wait(Duration::from_millis(9)),
            "queue_full",
        ),
    ] {
        acquire.await.unwrap_err();
        assert_eq!(outcome(), expected);
    }

    let local = Outage::Local { share: 1.0 };
    for (fault, outage, expected) in [
        (Fault::Unreachable, Outage::Deny, "store_out"),
        (Fault::Unreachable, Outage::Allow, "fallback"),
        (Fault::Unreachable, local, "fallback"),
        (Fault::Refusal, Outage::Deny, "store_error"),
    ] {
        let store = FailingStore::new(tower_throttle::store::MemoryStore::new());
        store.fail_with(fault);
        let limiter = one().store(store).outage(outage).build().unwrap();
        // The first calls the store; the second finds the outage.
        for _ in 0..2 {
            let answer = limiter.acquire("a").await;
            assert_eq!(answer.is_ok(), expected == "fallback");
            assert_eq!(outcome(), expected);
        }
    }
}
