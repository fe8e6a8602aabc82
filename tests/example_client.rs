//! How to test a client of one's own: without Redis, without a network, and without sleeping.
//!
//! Above is a client as a program would have it, and below are its tests. Time is paused in all of them, so that
//! it passes when everybody waits, and a test of a minute takes none.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::join_all;
use http::Extensions;
use reqwest::{Client, Request, Response, ResponseBuilderExt as _};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use tokio::time::{Instant, advance, sleep};
use tower_throttle::store::{MemoryStore, Store};
use tower_throttle::test_util::history::History;
use tower_throttle::test_util::{FailingStore, Fault, Operation, RecordingStore};
use tower_throttle::{BuildError, Error, Limiter, Quota, ThrottleMiddleware};

const SECOND: Duration = Duration::from_secs(1);

/// What the provider of the forecasts allows.
const LIMIT: u32 = 10;

/// Asks for forecasts.
#[derive(Clone)]
struct Forecasts(ClientWithMiddleware);

impl Forecasts {
    /// In production, the store is a `RedisStore`, and there is nothing to stand in for the network.
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

/// Whoever would wait for more than five seconds would rather have no forecast.
fn limiter(store: impl Store) -> Result<Limiter, BuildError> {
    Limiter::builder()
        .store(store)
        .quota(Quota::per_second(LIMIT))
        .max_wait(5 * SECOND)
        .build()
}

/// Stands in for the network and the provider behind it: notes when requests arrive, and answers them.
#[derive(Default)]
struct Provider {
    arrivals: Mutex<Vec<Instant>>,
    /// Statuses and headers to answer with, before all is well.
    troubles: Mutex<Vec<http::response::Builder>>,
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
        let answer = lock(&self.troubles).pop().unwrap_or_default();
        // Where it comes from, as no other origin's limits are heeded.
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

/// A client that is to be tested on this store, and its provider.
fn start(store: impl Store) -> (Forecasts, Arc<Provider>) {
    let provider = Arc::new(Provider::default());
    let forecasts = Forecasts::new(store, Some(provider.clone()));
    (forecasts.expect("a client"), provider)
}

/// Why the client has not sent a request.
fn refusal(answer: Result<String, reqwest_middleware::Error>) -> Error {
    match answer.expect_err("it is refused") {
        reqwest_middleware::Error::Middleware(error) => error.downcast().expect("the throttle's"),
        error @ reqwest_middleware::Error::Reqwest(_) => panic!("{error}"),
    }
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
    // Nor does it dawdle.
    assert!(arrivals.span() < Some(4 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn refuses_who_would_wait_too_long_until_the_very_tick_at_which_nobody_would() {
    let (forecasts, provider) = start(MemoryStore::new());
    // Five windows' worth wait already, and then one more.
    let others = forecasts.clone();
    let waiting = tokio::spawn(async move {
        let waiting = (0..LIMIT * 5).map(|_| others.of("Lisbon"));
        join_all(waiting).await.len()
    });
    sleep(Duration::from_millis(1)).await;
    let promised = refusal(forecasts.of("Lisbon").await)
        .wait()
        .expect("a wait");
    assert!(promised > 5 * SECOND);

    let tick = Duration::from_micros(1);
    advance(promised - 5 * SECOND - tick).await;
    assert!(refusal(forecasts.of("Lisbon").await).is_limited());
    advance(tick).await;
    let start = Instant::now();
    forecasts.of("Lisbon").await.expect("a forecast");
    assert!(start.elapsed() >= 5 * SECOND);
    assert_eq!(
        waiting.await.expect("no panic"),
        provider.arrivals().len() - 1
    );
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_has_had_enough_is_left_alone_for_as_long_as_it_says() {
    let (forecasts, provider) = start(MemoryStore::new());
    let enough = http::Response::builder()
        .status(429)
        .header("retry-after", "3");
    lock(&provider.troubles).push(enough);
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
    let healing = async {
        sleep(3 * SECOND).await;
        assert!(provider.arrivals().is_empty());
        store.recover();
    };
    let (answers, ()) = tokio::join!(waiting, healing);
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
async fn asks_the_store_twice_for_a_burst_however_large() {
    let latency = Duration::from_millis(2);
    let store = RecordingStore::new(FailingStore::new(MemoryStore::new()).latency(latency));
    let (forecasts, provider) = start(store.clone());
    forecasts.of("Lisbon").await.expect("a forecast");
    store.take_calls();

    join_all((0..40).map(|_| forecasts.of("Lisbon"))).await;
    assert_eq!(provider.arrivals().len(), 41);
    let calls = store.take_calls();
    let requests = calls.iter().map(|call| (call.operation(), call.requests()));
    // The first for itself, and those who come meanwhile all together.
    let expected = [(Operation::Reserve, 1), (Operation::Reserve, 39)];
    assert_eq!(requests.collect::<Vec<_>>(), expected);
}
