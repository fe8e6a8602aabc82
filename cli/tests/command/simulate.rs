//! `throttle simulate`.

use std::time::Duration;

use serde_json::{Value, json};
use tower_throttle::test_util::history::History;

use super::{Ended, assert_has, assert_includes, throttle, words};

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
fn the_figures_match_the_departures_and_are_reproducible() {
    for (quota, most) in [
        ("10/s", 10),
        ("10/s gcra burst=20", 29),
        ("10/s fixed-window", 20),
    ] {
        let figures = simulate(&[quota], "--duration 10s");
        assert_eq!(simulate(&[quota], "--duration 10s"), figures);
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
        assert!(of("p50") <= of("p99") && of("p99") <= of("longest"));
        assert!(of("mean") <= of("longest") && of("longest") < 10.0);
    }
}

#[test]
fn costs_are_those_of_the_unit_of_each_quota() {
    let tokens = "600/m unit=tokens default_cost=10";
    let figures = simulate(&["10/s", tokens], "--duration 120s");
    let most = |most: u64| json!({ "most_in_any_window": most });
    let expected = json!({ "departed": 120, "cost": 1, "quotas": [most(10), most(600)],
        "rate": { "reached": 10.0, "quota": 10.0 } });
    assert_includes(&figures, &expected);
    let figures = simulate(&["100/s default_cost=50"], "--duration 10s");
    assert_includes(&figures, &json!({ "departed": 20, "cost": 50 }));
}

#[test]
fn capacity_is_divided_by_share_among_replicas() {
    let options = "--duration 60s --share a:3=100 --share b:1=100 --replicas 3";
    let figures = simulate(&["10/s"], options);
    let part = number(&figures["groups"][0]["part"]);
    assert!((part - 0.75).abs() < 0.02, "{figures}");
    let share = json!({ "priority": "normal", "share": "a", "weight": 3, "callers": 100 });
    assert_includes(&figures["groups"][0], &share);
    let departed = [0, 1].map(|group| number(&figures["groups"][group]["departed"]));
    assert_eq!(departed.iter().sum::<f64>(), number(&figures["departed"]));
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
        assert_has(&hint, &format!("{early} 50ms of computing"));
        assert_eq!(figures["cut"], "patience");
        let of = |name: &str| number(&figures[name]);
        assert!(of("duration_seconds") < 365.0 * 86_400.0, "{options}");
        assert!(of("departed") + of("refused") < 1e6, "{options}");
        assert!(of("waiting") <= of("callers"), "{options}");
    }
}
