//! A client of your own, and its tests, without Redis, without a network, and without sleeping.
//!
//! Tokio's time is paused in all tests: it advances while all tasks wait, so that a test of a minute takes no time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::join_all;
use http::Extensions;
use reqwest::{Client, Request, Response, ResponseBuilderExt as _};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use tokio::time::{Instant, advance, sleep};
use tower_throttle::store::{MemoryStore, Store};
use tower_throttle::test_util::history::History;
use tower_throttle::test_util::{FailingStore, Fault};
use tower_throttle::{BuildError, Error, Limiter, Quota, ThrottleMiddleware};

const SECOND: Duration = Duration::from_secs(1);

/// The provider's limit per second.
const LIMIT: u32 = 10;

/// A client for forecasts.
#[derive(Clone)]
struct Forecasts(ClientWithMiddleware);

impl Forecasts {
    /// In production, the store is a `RedisStore`, and `network` is none.
    fn new(
        store: impl Store,
        network: Option<Arc<dyn Middleware>>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let client = Client::builder().timeout(30 * SECOND).build()?;
        let client = ClientBuilder::new(client).with(ThrottleMiddleware::new(limiter(store)?));
        let client = match network {
            Some(network) => client.with_arc(network),
            None => client,
        };
        Ok(Self(client.build()))
    }

    async fn of(&self, city: &str) -> Result<String, reqwest_middleware::Error> {
        let url = format!("http://forecasts.example.com/{city}");
        let response = self.0.get(url).send().await?;
        Ok(response.text().await?)
    }
}

/// A request that would wait for more than five seconds fails.
fn limiter(store: impl Store) -> Result<Limiter, BuildError> {
    Limiter::builder()
        .store(store)
        .quota(Quota::per_second(LIMIT))
        .max_wait(5 * SECOND)
        .build()
}

/// Replaces the network and the provider: it notes when requests arrive, and answers them.
#[derive(Default)]
struct Provider {
    arrivals: Mutex<Vec<Instant>>,
    /// The first answers; all others are 200.
    troubles: Mutex<VecDeque<http::response::Builder>>,
}

#[async_trait::async_trait]
impl Middleware for Provider {
    async fn handle(
        &self,
        request: Request,
        _: &mut Extensions,
        _: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        lock(&self.arrivals).push(Instant::now());
        let answer = lock(&self.troubles).pop_front().unwrap_or_default();
        // The URL of the answer, because limits of another origin are ignored.
        let answer = answer.url(request.url().clone());
        Ok(answer.body("sunny").expect("valid headers").into())
    }
}

impl Provider {
    fn arrivals(&self) -> History {
        lock(&self.arrivals).iter().copied().collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while it is held")
}

/// A client on this store, and its provider.
fn start(store: impl Store) -> (Forecasts, Arc<Provider>) {
    let provider = Arc::new(Provider::default());
    let forecasts = Forecasts::new(store, Some(provider.clone()));
    (forecasts.expect("a client"), provider)
}

/// Why the client did not send a request.
fn refusal(answer: Result<String, reqwest_middleware::Error>) -> Error {
    let error = answer.expect_err("it is refused");
    Error::find(&error).expect("the throttle's").clone()
}

#[tokio::test(start_paused = true)]
async fn never_sends_more_than_the_provider_allows_in_any_second() {
    let (forecasts, provider) = start(MemoryStore::new());
    let answers = join_all((0..35).map(|_| forecasts.of("Lisbon"))).await;
    for answer in answers {
        assert_eq!(answer.expect("an answer"), "sunny");
    }
    let arrivals = provider.arrivals();
    assert_eq!(arrivals.len(), 35);
    arrivals.assert_at_most(LIMIT.into(), SECOND);
    // It does not wait too long either.
    assert!(arrivals.span() < Some(4 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn refuses_requests_that_would_wait_longer_than_five_seconds() {
    let (forecasts, provider) = start(MemoryStore::new());
    // Five windows of requests wait.
    let others = forecasts.clone();
    let waiting = tokio::spawn(async move {
        let waiting = (0..LIMIT * 5).map(|_| others.of("Lisbon"));
        join_all(waiting).await.len()
    });
    sleep(Duration::from_millis(1)).await;
    let error = refusal(forecasts.of("Lisbon").await);
    let promised = error.wait().expect("a wait");
    assert!(promised > 5 * SECOND);

    advance(promised - 5 * SECOND).await;
    let start = Instant::now();
    forecasts.of("Lisbon").await.expect("a forecast");
    assert!(start.elapsed() >= 4 * SECOND);
    assert_eq!(
        waiting.await.expect("no panic"),
        provider.arrivals().len() - 1
    );
}

#[tokio::test(start_paused = true)]
async fn sends_nothing_for_as_long_as_the_provider_asks() {
    let (forecasts, provider) = start(MemoryStore::new());
    let too_many = http::Response::builder()
        .status(429)
        .header("retry-after", "3");
    lock(&provider.troubles).push_back(too_many);
    for _ in 0..2 {
        forecasts.of("Lisbon").await.expect("an answer");
    }
    assert!(provider.arrivals().span() >= Some(3 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn waits_for_a_store_that_is_out_and_sends_each_request_once() {
    let store = FailingStore::new(MemoryStore::new());
    let (forecasts, provider) = start(store.clone());
    store.fail_with(Fault::Unreachable);
    let waiting = join_all((0..3).map(|_| forecasts.of("Lisbon")));
    let recovery = async {
        sleep(3 * SECOND).await;
        assert!(provider.arrivals().is_empty());
        store.recover();
    };
    let (answers, ()) = tokio::join!(waiting, recovery);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(provider.arrivals().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn gives_up_on_a_store_that_stays_out_and_has_sent_nothing() {
    let store = FailingStore::new(MemoryStore::new());
    let (forecasts, provider) = start(store.clone());
    store.fail_with(Fault::Unreachable);
    let start = Instant::now();
    assert!(refusal(forecasts.of("Lisbon").await).is_store());
    assert!(start.elapsed() >= 5 * SECOND);
    assert!(provider.arrivals().is_empty());
}

#[tokio::test(start_paused = true)]
async fn calls_the_store_twice_for_a_burst_however_large() {
    let latency = Duration::from_millis(2);
    let store = FailingStore::new(MemoryStore::new()).latency(latency);
    let (forecasts, provider) = start(store.clone());
    forecasts.of("Lisbon").await.expect("a forecast");
    sleep(2 * SECOND).await;
    let before = store.calls();

    join_all((0..LIMIT).map(|_| forecasts.of("Lisbon"))).await;
    assert_eq!(provider.arrivals().len(), LIMIT as usize + 1);
    assert!(store.calls() - before <= 2);
}
