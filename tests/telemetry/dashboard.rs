//! The dashboard shows documented metrics by their documented labels, and all of them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::page::{code, rows};

#[test]
fn each_panel_says_what_it_shows_and_asks_for_documented_series() {
    let text = include_str!("../../dashboards/tower-throttle.json");
    let dashboard: Value = serde_json::from_str(text).expect("JSON");
    let documented = rows("\n# Metrics\n").into_iter().map(|row| {
        let labels: BTreeSet<_> = code(row[3]).into_iter().chain(["job", "le"]).collect();
        (code(row[0])[0], (row[1], labels))
    });
    let documented: BTreeMap<_, _> = documented.collect();
    let mut shown = BTreeSet::new();
    let panels = dashboard["panels"].as_array().expect("panels");
    for panel in panels {
        let text = |field: &str| panel[field].as_str().unwrap_or_default();
        assert!(!text("title").is_empty() && !text("description").is_empty());
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string());
        for target in panel["targets"].as_array().expect("queries") {
            let query = target["expr"].as_str().expect("a query");
            for (series, labels) in series(query) {
                let parts = ["_bucket", "_sum", "_count"];
                let histogram = parts.iter().find_map(|it| series.strip_suffix(it));
                let name = histogram.unwrap_or(&series);
                let (kind, known) = documented.get(name).expect(name);
                assert_eq!(histogram.is_some(), *kind == "histogram", "{query}");
                let is_known = labels.iter().all(|label| known.contains(&**label));
                assert!(is_known, "{query}: {labels:?}");
                shown.insert(name.to_owned());
            }
        }
    }
    let all = documented.keys().map(|&name| name.to_owned());
    assert_eq!(shown, all.collect());
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
