//! The tables of the documentation, the dashboard, and what there is to be seen.

use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::runtime::Builder;

use super::events;
use super::page::{code, rows};
use super::seen::Seen;
use crate::prelude::*;

#[test]
fn each_documented_event_happens_and_no_others_do() {
    let runtime = |paused| {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(paused).build();
        runtime.expect("a runtime")
    };
    let (seen, _guard) = Seen::begin();
    let mut told = BTreeSet::new();
    let mut note = |happens: &dyn Fn()| {
        happens();
        for event in seen.events() {
            told.insert((event.message, event.level.to_string(), event.names));
        }
        seen.forget();
    };
    let paused = runtime(true);
    note(&|| paused.block_on(events::outage(&seen)));
    note(&|| paused.block_on(events::shards(&seen)));
    note(&|| paused.block_on(events::commands(&seen)));
    note(&|| paused.block_on(events::misses(&seen)));
    note(&|| paused.block_on(events::long_waits(&seen)));
    note(&|| paused.block_on(events::clock(&seen)));
    note(&|| paused.block_on(events::lost_leases(&seen)));
    note(&|| events::malformed_headers(&seen));
    note(&|| paused.block_on(events::unknown_units(&seen)));
    note(&|| paused.block_on(events::no_addresses(&seen)));
    let real = runtime(false);
    note(&|| real.block_on(events::restart(&seen)));
    note(&|| real.block_on(events::loss(&seen)));
    let documented = rows("\n# Events\n").into_iter().map(|row| {
        let message = code(row[0])[0].to_owned();
        (message, row[1].to_owned(), code(row[2]))
    });
    assert_eq!(told, documented.collect());
}

/// With names as they are, and as the exporter recommends them.
#[tokio::test]
async fn a_scrape_holds_what_the_documentation_says_and_nothing_else() {
    let server = RedisServer::start();
    for recommended in [false, true] {
        let builder = PrometheusBuilder::new().set_buckets(&[1.0]);
        let builder = builder
            .expect("buckets")
            .with_recommended_naming(recommended);
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        let _here = metrics::set_default_local_recorder(&recorder);
        let builder = under(&["5/50ms"]).name("scrape");
        let limiter = build(builder.store(server.store().await));
        for _ in 0..10 {
            let acquire = limiter.acquire("a").share("tenant", 1);
            acquire.await.expect("a permit");
        }
        assert_eq!(scraped(&handle.render()), documented());
    }
}

/// The kind and the labels of each metric.
type Metrics = BTreeMap<String, (String, BTreeSet<String>)>;

fn documented() -> Metrics {
    let rows = rows("\n# Metrics\n").into_iter();
    let metric = rows.map(|row| {
        let labels = code(row[3]).into_iter().map(str::to_owned);
        let name = code(row[0])[0].to_owned();
        let is_time = name.ends_with("_seconds");
        assert_eq!(row[2], if is_time { "seconds" } else { "count" });
        (name, (row[1].to_owned(), labels.collect()))
    });
    metric.collect()
}

fn scraped(text: &str) -> Metrics {
    let mut metrics = Metrics::new();
    for line in text.lines() {
        let kind = line.strip_prefix("# TYPE ");
        if let Some((name, kind)) = kind.and_then(|it| it.split_once(' ')) {
            metrics.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
        } else if let Some((series, value)) = line.rsplit_once("} ") {
            let value: f64 = value.parse().expect("a number");
            assert!(value.is_finite(), "{line}");
            let (name, labels) = series.split_once('{').expect("labels");
            let whole = histogram(name).filter(|it| metrics.contains_key(*it));
            let (_, known) = metrics.get_mut(whole.unwrap_or(name)).expect("a kind");
            let labels = labels.split("\",").filter_map(|it| it.split_once('='));
            let labels = labels.map(|(name, _)| name.to_owned());
            known.extend(labels.filter(|it| it != "le"));
        }
    }
    metrics
}

fn histogram(series: &str) -> Option<&str> {
    let parts = ["_bucket", "_sum", "_count"];
    parts.iter().find_map(|it| series.strip_suffix(it))
}

#[test]
fn each_panel_says_what_it_shows_and_asks_for_documented_series() {
    let text = include_str!("../../dashboards/tower-throttle.json");
    let dashboard: Value = serde_json::from_str(text).expect("JSON");
    let (documented, mut shown) = (documented(), BTreeSet::new());
    let panels = dashboard["panels"].as_array().expect("panels");
    for panel in panels {
        let text = |field: &str| panel[field].as_str().unwrap_or_default();
        assert!(!text("title").is_empty() && !text("description").is_empty());
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string());
        for target in panel["targets"].as_array().expect("queries") {
            let query = target["expr"].as_str().expect("a query");
            let legend = target["legendFormat"].as_str().expect("a legend");
            let grouped = query.split("by (").nth(1);
            let grouped = grouped.and_then(|it| it.split(')').next());
            let grouped = grouped.into_iter().flat_map(|it| it.split(", "));
            let named = legend.split("{{").skip(1);
            let named = named.filter_map(|it| it.split("}}").next());
            let by: BTreeSet<_> = grouped.filter(|it| *it != "le").collect();
            assert_eq!(by, named.collect(), "{query}");
            for (series, labels) in series(query) {
                let histogram = histogram(&series);
                let name = histogram.unwrap_or(&series);
                let (kind, known) = documented.get(name).expect(name);
                assert_eq!(histogram.is_some(), kind == "histogram", "{query}");
                let is_known = |it: &String| known.contains(it) || it == "job" || it == "le";
                assert!(labels.iter().all(is_known), "{query}: {labels:?}");
                shown.insert(name.to_owned());
            }
        }
    }
    assert_eq!(shown, documented.into_keys().collect());
}

/// The names of series in a query, each with its labels in braces.
fn series(query: &str) -> Vec<(String, Vec<String>)> {
    let found = query.match_indices("tower_throttle_").map(|(at, _)| {
        let rest = &query[at..];
        let (name, rest) = rest.split_once('{').expect("labels");
        let (labels, _) = rest.split_once('}').expect("an end");
        let labels = labels.split(", ").map(|label| {
            let end = label.find(['=', '!']).expect("a value");
            label[..end].to_owned()
        });
        (name.to_owned(), labels.collect())
    });
    found.collect()
}
