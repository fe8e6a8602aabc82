//! `throttle simulate`.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use tower_throttle::test_util::history::History;

use super::run;

fn simulate(args: &[&str]) -> Value {
    run(&[&["simulate", "--json"], args].concat()).json()
}

/// The printed departures.
fn history(figures: &Value) -> History {
    let times = figures["departures_seconds"].as_array().expect("a list");
    let time = |at: &Value| Duration::from_secs_f64(at.as_f64().expect("a number"));
    times.iter().map(time).collect()
}

#[test]
fn the_figures_match_the_departures() {
    let second = Duration::from_secs(1);
    for (quota, most) in [
        ("10/s", 10),
        ("10/s gcra burst=20", 29),
        ("10/s fixed-window", 20),
    ] {
        let figures = simulate(&["--quota", quota, "--duration", "10s"]);
        let history = history(&figures);
        assert_eq!(figures["departed"], history.len());
        assert_eq!(figures["quotas"][0]["quota"], quota);
        assert_eq!(
            figures["quotas"][0]["most_in_any_window"],
            history.most_in_any(second)
        );
        assert_eq!(history.most_in_any(second), most, "{quota}");
        let rate = history.len() as f64 / 10.0;
        assert_eq!(figures["rate"]["reached"], rate);
        assert_eq!(figures["rate"]["quota"], 10.0);
        let wait = &figures["wait_seconds"];
        let of = |name: &str| wait[name].as_f64().unwrap();
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
fn results_are_reproducible() {
    for quota in [
        "7/s",
        "10/s fixed-window",
        "3/700ms leaky-bucket capacity=5",
        "50/s sliding-buckets buckets=7",
        "7/1300ms sliding-buckets buckets=3",
        "100/7s fixed-window start=first-request",
    ] {
        let args = ["--quota", quota, "--latency", "7ms"];
        let first = simulate(&args);
        for _ in 0..5 {
            assert_eq!(simulate(&args), first, "{quota}");
        }
    }
}

#[test]
fn results_with_several_aligned_windows_are_reproducible() {
    let args = [
        "--quota",
        "50/s sliding-buckets buckets=7",
        "--quota",
        "70/1700ms fixed-window",
        "--quota",
        "200/3s fixed-window",
    ];
    let first = simulate(&args);
    for _ in 0..5 {
        assert_eq!(simulate(&args), first);
    }
}

#[test]
fn quotas_hold_jointly_with_any_cost() {
    let quotas = ["--quota", "10/s", "--quota", "30/10s"];
    let figures = simulate(
        &[
            &quotas[..],
            &["--cost", "3", "--duration", "20s", "--replicas", "2"],
        ]
        .concat(),
    );
    let most = |place: usize| {
        figures["quotas"][place]["most_in_any_window"]
            .as_u64()
            .unwrap()
    };
    assert_eq!((most(0), most(1)), (9, 30));
    // N/W of the second quota, which is the slowest.
    assert_eq!(figures["rate"]["quota"], 3.0);
}

#[test]
fn a_window_longer_than_the_simulation_has_no_rate() {
    let figures = simulate(&["--quota", "100/h", "--duration", "5s"]);
    assert_eq!(figures["rate"]["quota"], Value::Null);
    assert_eq!(figures["departed"], 100);
    assert_eq!(figures["waiting"], 50);
}

#[test]
fn requests_beyond_the_bounds_on_waiting_are_refused() {
    let figures = simulate(&["--quota", "10/s", "--max-wait", "500ms"]);
    assert!(
        figures["wait_seconds"]["longest"].as_f64().unwrap() <= 0.51,
        "{figures}"
    );
    assert!(figures["refused"].as_u64().unwrap() > 40, "{figures}");
    let figures = simulate(&["--quota", "10/s", "--max-waiting", "5"]);
    assert!(figures["waiting"].as_u64().unwrap() <= 5, "{figures}");
    assert!(figures["refused"].as_u64().unwrap() > 40, "{figures}");
}

#[test]
fn a_rule_gives_quotas_bounds_and_cost() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.toml");
    let text = r#"
        [[rules]]
        name = "search"
        path = "/search"
        quota = ["6/s", "30/m"]
        cost = 2
        max_wait = "500ms"
        [[rules]]
        name = "others"
        quota = "10/s"
        [[rules]]
        exempt = true
    "#;
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();

    let figures = simulate(&["--rules", path, "--rule", "search"]);
    assert_eq!(figures["cost"], 2);
    assert_eq!(figures["quotas"][1]["quota"], "30/m");
    assert!(figures["refused"].as_u64().unwrap() > 0, "{figures}");
    let by_hand = [
        "--quota",
        "6/s",
        "--quota",
        "30/m",
        "--cost",
        "2",
        "--max-wait",
        "500ms",
    ];
    assert_eq!(simulate(&by_hand), figures);
    let figures = simulate(&["--rules", path, "--rule", "others", "--cost", "5"]);
    assert_eq!(
        (&figures["cost"], &figures["departed"]),
        (&5.into(), &10.into())
    );

    let failed = |args: &[&str], says| {
        let simulate = [&["simulate", "--rules", path], args].concat();
        run(&simulate).assert_failed(2, says);
    };
    failed(
        &[],
        "the last rule is exempt or has no name\nhint: pass `--rule` with one of these names: search, others",
    );
    failed(&["--rule", "unknown"], "there is no rule `unknown`");
    failed(&["--quota", "1/s"], "cannot be used with");
    fs::write(path, text.replace("10/s", "0/s")).unwrap();
    run(&["simulate", "--rules", path]).assert_failed(1, "`throttle check");
}

#[test]
fn a_simulation_stops_after_a_million_requests() {
    let args = [
        "simulate",
        "--json",
        "--quota",
        "2_000_000/s",
        "--latency",
        "0s",
        "--patience",
        "1h",
    ];
    let ended = run(&args);
    assert_eq!(ended.code, Some(0));
    assert_eq!(
        ended.stderr,
        "hint: the simulation stopped early, after 1000000 requests\n"
    );
    let figures: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(figures["cut"], "requests");
    assert_eq!(figures["rate"]["reached"], Value::Null);
}

/// Without the limit, each of these would take seconds or far longer.
#[test]
fn a_simulation_stops_at_its_computing_limit() {
    for args in [
        &["--quota", "2_000_000/s", "--latency", "0s"][..],
        &["--quota", "1_000/s", "--duration", "365d"],
        &["--quota", "10/s", "--duration", "365d", "--max-wait", "1ms"],
        &[
            "--quota",
            "1_000/s",
            "--duration",
            "365d",
            "--callers",
            "10000",
        ],
    ] {
        let ended = run(&[&["simulate", "--json", "--patience", "50ms"], args].concat());
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(
            ended
                .stderr
                .starts_with("hint: the simulation stopped early, after 50ms of computing"),
            "{}",
            ended.stderr
        );
        let figures: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(figures["cut"], "patience");
        let number = |name: &str| figures[name].as_f64().unwrap();
        assert!(number("duration_seconds") < 365.0 * 86_400.0, "{args:?}");
        assert!(number("departed") + number("refused") < 1e6, "{args:?}");
        assert!(number("waiting") <= number("callers"), "{args:?}");
    }
}

#[test]
fn invalid_arguments_are_usage_errors() {
    for (args, says) in [
        (&["--quota", "10/"][..], "expected LIMIT/WINDOW"),
        (&["--quota", "0/s"], "the limit is zero"),
        (
            &["--quota", "2/s", "--cost", "3"],
            "a cost of 3 can never depart",
        ),
        (&["--quota", "2/s", "--cost", "0"], "invalid value '0'"),
        (&["--quota", "2/s", "--callers", "0"], "invalid value '0'"),
        (&["--quota", "2/s", "--duration", "0s"], "duration"),
        (
            &["--quota", "2/s", "--duration", "500000000000y"],
            "must be at most a year",
        ),
        (
            &["--quota", "2/s", "--latency", "500000000000y"],
            "must be at most a year",
        ),
        (&["--quota", "2/s", "--quota", "2/s"], "given twice"),
        (&[], "--quota"),
    ] {
        run(&[&["simulate"], args].concat()).assert_failed(2, says);
    }
}
