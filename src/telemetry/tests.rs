use std::collections::BTreeSet;

use metrics::Unit;

use self::page::{code, rows};
use super::outcome::OUTCOMES;
use super::table::{ALL, Kind};

mod page;

#[test]
fn the_documentation_has_each_metric_with_its_unit_and_labels() {
    let documented = rows("\n# Metrics\n").into_iter().map(|row| {
        let [name, kind, unit, labels, _] = row[..] else {
            panic!("{row:?}");
        };
        (code(name)[0], kind, unit, code(labels))
    });
    let described = ALL.iter().map(|metric| {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let unit = match metric.unit {
            Unit::Count => "count",
            unit => unit.as_str(),
        };
        let name = metric.name;
        assert!(name.starts_with("tower_throttle_"), "{name}");
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        assert_eq!(name.ends_with("_seconds"), unit == "seconds", "{name}");
        (name, kind, unit, metric.labels.to_vec())
    });
    let described: Vec<_> = described.collect();
    assert_eq!(documented.collect::<Vec<_>>(), described);
    let names: BTreeSet<_> = described.iter().map(|metric| metric.0).collect();
    assert_eq!(names.len(), ALL.len());
}

#[test]
fn the_documentation_has_each_outcome() {
    let documented: Vec<_> = rows("\n# The span of a request\n")
        .into_iter()
        .map(|row| code(row[0])[0])
        .collect();
    let fields = ["key", "policy", "cost", "wait", "outcome"];
    let known: BTreeSet<_> = fields.into_iter().chain(OUTCOMES).collect();
    assert_eq!(documented.into_iter().collect::<BTreeSet<_>>(), known);
}
