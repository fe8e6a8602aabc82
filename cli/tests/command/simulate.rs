//! `throttle simulate`.

use std::time::Duration;

use serde_json::{Value, json};
use tower_throttle::test_util::history::History;

use super::{Ended, assert_includes, throttle, words};

/// Simulates with these quotas, which may have spaces, and the words of these options.
fn ended(quotas: &[&str], options: &str) -> Ended {
    let quotas = quotas.iter().flat_map(|quota| ["--quota", *quota]);
    let args: Vec<_> = words("simulate --json").into_iter().chain(quotas).collect();
    Ended::of(&mut throttle(&[args, words(options)].concat()))
}

fn simulate(quotas: &[&str], options: &str) -> Value {
    ended(quotas, options).json()
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

#[test]
fn the_figures_match_the_departures() {
    for (quota, most) in [
        ("10/s", 10),
        ("10/s gcra burst=20", 29),
        ("10/s fixed-window", 20),
    ] {
        let figures = simulate(&[quota], "--duration 10s");
        let times = figures["departures_seconds"].as_array().expect("a list");
        let time = |at| Duration::from_secs_f64(number(at));
        let history: History = times.iter().map(time).collect();
        assert_eq!(history.most_in_any(Duration::from_secs(1)), most, "{quota}");
        let rate = history.len() as f64 / 10.0;
        let expected = json!({ "departed": history.len(), "rate": { "reached": rate, "quota": 10.0 },
            "quotas": [{ "quota": quota, "most_in_any_window": most }] });
        assert_includes(&figures, &expected);
        let wait = &figures["wait_seconds"];
        let of = |name: &str| number(&wait[name]);
        assert!(
            of("p50") <= of("p99") && of("p99") <= of("longest"),
            "{wait}"
        );
        assert!(
            of("mean") <= of("longest") && of("longest") < 10.0,
            "{wait}"
        );
    }
}

#[test]
fn work_holds_a_place_and_has_no_rate() {
    let figures = simulate(&["5 concurrent", "600/m"], "--work 1s --replicas 3");
    let limit = json!({ "quota": "5 concurrent lease=30s", "most_in_progress": 5 });
    let expected = json!({ "departed": 25, "work_seconds": 1.0, "rate": { "quota": null },
        "quotas": [limit, { "quota": "600/m", "most_in_any_window": 25 }] });
    assert_includes(&figures, &expected);
}

#[test]
fn results_are_reproducible() {
    let several = [
        "50/s sliding-buckets buckets=7",
        "70/1700ms fixed-window",
        "200/3s fixed-window",
    ];
    for quotas in [
        &["7/s"][..],
        &["3/700ms leaky-bucket capacity=5"],
        &["7/1300ms sliding-buckets buckets=3"],
        &["100/7s fixed-window start=first-request"],
        &several,
    ] {
        let options = "--latency 7ms";
        let first = simulate(quotas, options);
        for _ in 0..5 {
            assert_eq!(simulate(quotas, options), first, "{quotas:?}");
        }
    }
}

#[test]
fn quotas_hold_jointly_with_any_cost() {
    let options = "--cost 3 --duration 20s --replicas 2";
    let figures = simulate(&["10/s", "30/10s"], options);
    let quotas = json!([{ "most_in_any_window": 9 }, { "most_in_any_window": 30 }]);
    // N/W of the second quota, which is the slowest.
    let expected = json!({ "quotas": quotas, "rate": { "quota": 3.0 } });
    assert_includes(&figures, &expected);
    // A window that is longer than the simulation has no rate.
    let figures = simulate(&["100/h"], "--duration 5s");
    let expected = json!({ "rate": { "quota": null }, "departed": 100, "waiting": 50 });
    assert_includes(&figures, &expected);
}

#[test]
fn requests_beyond_the_bounds_on_waiting_are_refused() {
    let figures = simulate(&["10/s"], "--max-wait 500ms");
    assert!(
        number(&figures["wait_seconds"]["longest"]) <= 0.51,
        "{figures}"
    );
    assert!(number(&figures["refused"]) > 40.0, "{figures}");
    let figures = simulate(&["10/s"], "--max-waiting 5");
    assert!(number(&figures["waiting"]) <= 5.0, "{figures}");
    assert!(number(&figures["refused"]) > 40.0, "{figures}");
}

#[test]
fn capacity_is_divided_by_priority_share_and_reserve() {
    let parts = |options: &str| {
        let figures = simulate(&["10/s"], &format!("--duration 60s {options}"));
        let groups = figures["groups"].as_array().expect("a list").clone();
        let number_of = |group: &Value, name: &str| number(&group[name]);
        let departed = groups.iter().map(|group| number_of(group, "departed"));
        assert_eq!(departed.sum::<f64>(), number(&figures["departed"]));
        let callers = groups.iter().map(|group| number_of(group, "callers"));
        assert_eq!(callers.sum::<f64>(), number(&figures["callers"]));
        groups
    };
    let levels = "--priority high=20 --priority low=45";
    let high = json!({ "priority": "high", "share": null, "part": 1.0, "rate": 10.0 });
    let low = json!({ "priority": "low", "departed": 0, "part": 0.0, "wait_seconds": null });
    assert_includes(&json!(parts(levels)), &json!([high, low]));
    let reserved = parts(&format!("{levels} --reserve low=0.2"));
    assert!((number(&reserved[1]["part"]) - 0.2).abs() < 0.02);
    let shares = parts("--share a:3=100 --share b:1=100 --replicas 3");
    assert!((number(&shares[0]["part"]) - 0.75).abs() < 0.02);
    assert_includes(&shares[0], &json!({ "share": "a", "weight": 3 }));
    let others = parts("--priority low=5 --share normal:1=2 --callers 10");
    let normal = json!({ "priority": "normal", "share": null, "callers": 3 });
    assert_includes(&others[2], &normal);
    assert!(simulate(&["10/s"], "").get("groups").is_none());
}

#[test]
fn a_rule_gives_quotas_bounds_and_cost() {
    let rules = "--rules tests/command/cases.in/simulated.toml";
    let figures = simulate(&[], &format!("{rules} --rule search"));
    assert_eq!(figures["cost"], 2);
    assert!(number(&figures["refused"]) > 0.0, "{figures}");
    let by_hand = simulate(&["6/s", "30/m"], "--cost 2 --max-wait 500ms");
    assert_eq!(by_hand, figures);
    let others = simulate(&[], &format!("{rules} --rule others --cost 5"));
    assert_includes(&others, &json!({ "cost": 5, "departed": 10 }));

    let options = "--priority high=20 --priority low=45 --duration 60s";
    let reserved = simulate(&[], &format!("{rules} --rule others {options}"));
    let by_hand = simulate(&["10/s"], &format!("{options} --reserve low=0.2"));
    assert_eq!(by_hand, reserved);
}

/// Without the limits, each of these would take seconds or far longer.
#[test]
fn a_simulation_stops_after_a_million_requests_and_at_its_computing_limit() {
    let early = "hint: the simulation stopped early, after";
    let run = |quota: &str, options: &str| {
        let ended = ended(&[quota], options);
        (ended.failed_json(0, early), ended.stderr)
    };
    let (figures, hint) = run("2_000_000/s", "--latency 0s --patience 1h");
    assert_eq!(hint, format!("{early} 1000000 requests\n"));
    let expected = json!({ "cut": "requests", "rate": { "reached": null } });
    assert_includes(&figures, &expected);
    for (quota, options) in [
        ("2_000_000/s", "--latency 0s"),
        ("1_000/s", "--duration 365d"),
        ("10/s", "--duration 365d --max-wait 1ms"),
        ("1_000/s", "--duration 365d --callers 10000"),
    ] {
        let (figures, hint) = run(quota, &format!("--patience 50ms {options}"));
        assert!(
            hint.starts_with(&format!("{early} 50ms of computing")),
            "{hint}"
        );
        assert_eq!(figures["cut"], "patience");
        let of = |name: &str| number(&figures[name]);
        assert!(of("duration_seconds") < 365.0 * 86_400.0, "{options}");
        assert!(of("departed") + of("refused") < 1e6, "{options}");
        assert!(of("waiting") <= of("callers"), "{options}");
    }
}
