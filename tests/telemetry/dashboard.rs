//! Prometheus answers every query of the dashboard with what happened.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::Value;
use tokio::time::{self, sleep};
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Quota, Recovery};

use super::prometheus::{self, Prometheus};
use support::redis_server::RedisServer;

/// The longest time for everything that a dashboard shows to happen, and to be scraped.
const LONGEST: Duration = Duration::from_secs(120);

struct Dashboard(Value);

impl Dashboard {
    fn read() -> Self {
        let text = include_str!("../../dashboards/tower-throttle.json");
        Self(serde_json::from_str(text).expect("JSON"))
    }

    /// The title of each panel, with one of its queries.
    fn queries(&self) -> Vec<(String, String)> {
        let panels = self.0["panels"].as_array().expect("panels");
        let queries = panels.iter().flat_map(|panel| {
            let title = panel["title"].as_str().expect("a title");
            let targets = panel["targets"].as_array().expect("queries").iter();
            targets.map(|target| {
                let query = target["expr"].as_str().expect("a query");
                (title.to_owned(), query.to_owned())
            })
        });
        queries.collect()
    }

    /// Each variable, with the label and the metric that it takes its values from.
    fn variables(&self) -> Vec<(String, String, String)> {
        let list = self.0["templating"]["list"].as_array().expect("variables");
        let list = list.iter().filter(|it| it["type"] == "query");
        let parts = list.map(|variable| {
            let query = variable["query"]["query"].as_str().expect("a query");
            let inner = query
                .strip_prefix("label_values(")
                .expect("values of a label");
            let inner = inner.strip_suffix(')').expect("an end");
            let (of, label) = inner.rsplit_once(", ").expect("a metric and a label");
            let name = variable["name"].as_str().expect("a name");
            (name.to_owned(), label.to_owned(), of.to_owned())
        });
        parts.collect()
    }
}

/// The query with Grafana's variables replaced, as if all values were chosen.
fn substituted(query: &str) -> String {
    let query = query.replace("$__rate_interval", "5s");
    let query = query.replace("$policy", ".*").replace("$job", ".*");
    assert!(!query.contains('$'), "{query}");
    query
}

#[test]
fn each_panel_says_what_it_shows() {
    let Dashboard(json) = Dashboard::read();
    let panels = json["panels"].as_array().expect("panels");
    for panel in panels {
        let text = |field: &str| panel[field].as_str().unwrap_or_default();
        assert!(!text("title").is_empty() && !text("description").is_empty());
        assert_eq!(
            panel["datasource"]["uid"],
            "${datasource}",
            "{}",
            text("title")
        );
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string());
    }
    let ids: std::collections::BTreeSet<_> = panels.iter().map(|it| it["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len());
}

/// The rules of a limiter share its store: its metrics have the policy `rules`.
#[test]
fn metrics_of_the_store_are_shown_whichever_rules_are_chosen() {
    let of_stores = ["store_", "outages_", "returned_", "per_call_"];
    for (title, query) in Dashboard::read().queries() {
        for metric in query.split("tower_throttle_").skip(1) {
            let (name, _) = metric.split_once('{').expect("labels");
            let is_of_store = of_stores.iter().any(|it| name.contains(it));
            let shows_rules = metric.contains("policy=~\"$policy|rules\"");
            assert_eq!(shows_rules, is_of_store, "{title}: {query}");
        }
    }
}

#[tokio::test]
async fn every_query_shows_what_happened() {
    let address = prometheus::spare_address();
    let exporter = prometheus::exporter().with_http_listener(address).build();
    let (recorder, listening) = exporter.expect("an exporter");
    let listening = tokio::spawn(listening);
    let _here = metrics::set_default_local_recorder(&recorder);
    let server = RedisServer::start();
    let mischief = Mischief::new(server).await;
    let prometheus = Prometheus::scrape(address).await;
    let mischief = tokio::spawn(mischief.go_on());

    let dashboard = Dashboard::read();
    let start = Instant::now();
    let mut unseen = dashboard.queries();
    while !unseen.is_empty() {
        let mut still = Vec::new();
        for (title, query) in unseen {
            let values = prometheus.values(&substituted(&query)).await;
            let values = values.unwrap_or_else(|why| panic!("{title}: {query}: {why}"));
            // A histogram without samples has no quantile.
            let is_seen = values.iter().any(|it| it.is_finite() && *it > 0.0);
            let is_infinite = values.iter().any(|it| it.is_infinite());
            assert!(!is_infinite, "{title}: {query}: {values:?}");
            if !is_seen {
                still.push((title, query));
            }
        }
        unseen = still;
        let elapsed = start.elapsed();
        assert!(
            elapsed < LONGEST,
            "{unseen:?} after {elapsed:?}: {}",
            prometheus.log()
        );
        assert!(!mischief.is_finished() && !listening.is_finished());
        sleep(Duration::from_millis(500)).await;
    }
    for (name, label, of) in dashboard.variables() {
        let values = prometheus.label_values(&label, &substituted(&of)).await;
        let values = values.unwrap_or_else(|why| panic!("{name}: {why}"));
        assert!(!values.is_empty(), "{name}");
    }
    mischief.abort();
    listening.abort();
}

/// Makes everything happen again and again that a dashboard shows.
struct Mischief {
    server: RedisServer,
    usual: Limiter,
    strict: Limiter,
}

impl Mischief {
    async fn new(server: RedisServer) -> Self {
        let limiter = async |name: &str| {
            let store = RedisStore::connect(&server.url())
                .await
                .expect("a connection");
            let quota = Quota::new(20, Duration::from_millis(200));
            Limiter::builder().quota(quota).name(name).store(store)
        };
        let usual = limiter("usual").await.build();
        let strict = limiter("strict").await.recovery(Recovery::Strict);
        let strict = strict.max_wait(Duration::from_millis(500)).build();
        Self {
            usual: usual.expect("a valid policy"),
            strict: strict.expect("a valid policy"),
            server,
        }
    }

    async fn go_on(mut self) {
        loop {
            self.ask().await;
            self.come_too_late().await;
            self.leave().await;
            self.pause().await;
            self.ask().await;
            self.restart().await;
        }
    }

    /// Requests for many keys at once, and more for each than may depart.
    async fn ask(&self) {
        for _ in 0..5 {
            let keys = (0..10).flat_map(|key| std::iter::repeat_n(key.to_string(), 30));
            let asking = keys.map(|key| self.usual.acquire(key).max_wait(Duration::from_secs(5)));
            drop(join_all(asking).await);
            drop(self.strict.acquire("a").await);
            for _ in 0..30 {
                drop(self.usual.try_acquire("a").await);
            }
        }
    }

    /// The only thread is blocked.
    async fn come_too_late(&self) {
        let waiting = join_all((0..40).map(|_| self.usual.acquire("late")));
        let waiting = tokio::spawn(waiting);
        sleep(Duration::from_millis(50)).await;
        std::thread::sleep(Duration::from_millis(500));
        drop(waiting.await);
    }

    /// Permits are given back.
    async fn leave(&self) {
        for _ in 0..10 {
            if let Ok(permit) = self.usual.acquire("left").await {
                permit.forfeit();
            }
        }
    }

    /// Long enough for a scrape to see the requests that wait.
    async fn pause(&self) {
        let until = time::Instant::now() + Duration::from_millis(1_500);
        drop(self.usual.pause("paused", until).await);
        drop(join_all((0..10).map(|_| self.usual.acquire("paused"))).await);
    }

    /// The server loses everything, and is away for long enough for a scrape to see it.
    async fn restart(&mut self) {
        drop(self.strict.acquire("a").await);
        self.server.kill9();
        // This key is unknown, so the server is called.
        drop(self.usual.try_acquire("away").await);
        sleep(Duration::from_millis(1_500)).await;
        self.server.restart();
    }
}
