use std::collections::BTreeSet;

use metrics::Unit;

use self::page::{code, rows};
use super::outcome::OUTCOMES;
use super::table::ALL;

mod page;

/// What is recorded has these names, kinds and labels; see `tests/telemetry`.
#[test]
fn the_documentation_has_each_metric_with_its_unit() {
    let documented = rows("\n# Metrics\n").into_iter();
    let documented = documented.map(|row| (code(row[0])[0], row[2]));
    let described = ALL.iter().map(|metric| match metric.unit {
        Unit::Count => (metric.name, "count"),
        unit => (metric.name, unit.as_str()),
    });
    let described: Vec<_> = described.collect();
    assert_eq!(documented.collect::<Vec<_>>(), described);
    for (name, unit) in described {
        assert_eq!(name.ends_with("_seconds"), unit == "seconds", "{name}");
    }
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
