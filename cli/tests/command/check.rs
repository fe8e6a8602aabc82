//! `throttle check`.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Ended, assert_harmless, run, throttle};

const RULES: &str = r#"
[[rules]]
name = "search"
host = "api.example.com"
path = "/search"
header = { x-plan = "free" }
quota = ["30/m", "1_000/h"]
key = ["host", { header = "x-account" }]
cost = 2

[[rules]]
host = ["*.internal.example", "localhost"]
exempt = true

[[rules]]
name = "others"
quota = "10/s"
"#;

const WRONG: &str = r#"
[[rules]]
name = "search"
quota = ["30/m", "1_000/x"]
max_wait = "30"

[[rules]]
name = "others"
quota = "0/s"
"#;

/// Rules of which the first matches all requests of the second.
const UNREACHED: &str = r#"
[[rules]]
name = "api"
host = "*.example.com"
quota = "5/s"

[[rules]]
name = "search"
host = "api.example.com"
path = "/search"
quota = "30/m"

[[rules]]
exempt = true
"#;

/// Runs `throttle check` on a file with this name and text.
fn check(name: &str, text: &str, args: &[&str]) -> Ended {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::write(directory.path().join(name), text).expect("a file");
    let mut command = throttle(&[&["check", name], args].concat());
    Ended::of(command.current_dir(&directory))
}

/// Matches a request against [`RULES`].
fn matched(args: &[&str]) -> Value {
    let checked = check("rules.toml", RULES, &[&["--json"], args].concat()).json();
    checked["request"].clone()
}

#[test]
fn rules_are_shown_in_their_written_form() {
    let ended = check("rules.toml", RULES, &[]);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{}", ended.stdout);
    for (line, parts) in [
        (
            1,
            &[
                "0 search",
                "host api.example.com, path /search, header x-plan=free",
                "30/m and 1_000/h, cost 2, key host and header=x-account",
            ][..],
        ),
        (2, &["1 ", "host *.internal.example or localhost", "exempt"]),
        (3, &["2 others", "all others", "10/s"]),
    ] {
        for part in parts {
            assert!(lines[line].contains(part), "{part:?} in {:?}", lines[line]);
        }
    }
    let checked = check("rules.toml", RULES, &["--json"]).json();
    assert_eq!(
        (&checked["mistakes"], &checked["warnings"]),
        (&json!([]), &json!([]))
    );
    assert_eq!(
        checked["rules"][1],
        json!({ "rule": 1, "exempt": true, "host": ["*.internal.example", "localhost"] })
    );
}

#[test]
fn all_formats_yield_the_same_rules() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/rules/files");
    let all = ["toml", "yaml", "json"].map(|extension| {
        let name = format!("every.{extension}");
        let text = fs::read_to_string(files.join(&name)).unwrap();
        let by_name = check(&name, &text, &["--json"]).json()["rules"].clone();
        let by_option = check("rules", &text, &["--json", "--format", extension]).json();
        assert_eq!(by_option["rules"], by_name);
        by_name
    });
    assert!(
        all[0].as_array().is_some_and(|rules| rules.len() == 4),
        "{}",
        all[0]
    );
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0], all[2]);
}

#[test]
fn all_mistakes_are_listed_with_their_places() {
    let ended = check("rules.toml", WRONG, &[]);
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.stderr, "error: rules.toml has 3 mistakes\n");
    let places: Vec<_> = ended
        .stdout
        .lines()
        .map(|line| line.split(": ").next().unwrap())
        .collect();
    let expected = ["rules[0].quota[1]", "rules[0].max_wait", "rules[1].quota"];
    assert_eq!(places, expected, "{}", ended.stdout);

    let ended = check("rules.toml", WRONG, &["--json"]);
    assert_eq!(ended.code, Some(1));
    let checked: Value = serde_json::from_str(&ended.stdout).unwrap();
    let places: Vec<_> = checked["mistakes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["place"].clone())
        .collect();
    assert_eq!(places, expected);
}

#[test]
fn syntax_errors_are_mistakes() {
    for (name, text, says) in [
        ("rules.toml", "[[rules]]\nname =\n", "line 2"),
        ("rules.json", "[\n{ \"name\" }]", "line 2"),
        (
            "rules.json",
            "[{ \"name\": \"a\", \"quota\": \"1/s\" }] [",
            "trailing characters",
        ),
        ("rules.yaml", "- name: a\n  quota: [\n", "line"),
        ("rules.yml", "", "rules"),
        ("rules.toml", "", "rules"),
        ("rules.toml", "[[rules]]\nlabel = 'a'", "label"),
    ] {
        let ended = check(name, text, &[]);
        assert_eq!(
            ended.code,
            Some(1),
            "{text:?}: {}{}",
            ended.stdout,
            ended.stderr
        );
        assert!(ended.stdout.contains(says), "{text:?}: {}", ended.stdout);
        let expected = format!("error: {name} has a mistake; there may be more after it\n");
        assert_eq!(ended.stderr, expected);
    }
}

#[test]
fn control_characters_in_files_are_escaped() {
    for (name, text) in [
        ("rules.toml", "[[rules]]\nname = # \u{202e}\u{2066}x\n"),
        ("rules.toml", "[[rules]]\n\"\\u001b[31m\\u202e\" = 1\n"),
        (
            "rules.json",
            r#"[{"\u001b[31m\u202e": 1, "name": "\u202e", "quota": "\u001b"}]"#,
        ),
        (
            "rules.json",
            r#"[{"name": "a", "quota": "1/s", "path": "/\u202e\u001b"}]"#,
        ),
        ("rules.yaml", "- name: \"\\e[31m\\u202e\"\n  \"\\e\": [\n"),
    ] {
        let ended = check(name, text, &[]);
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(!ended.stdout.is_empty());
        assert_harmless(&ended.stdout);
        assert_harmless(&ended.stderr);
    }
}

#[test]
fn warnings_fail_the_check_only_on_request() {
    let warning =
        "warning: rules[1] `search` is never reached: rules[0] `api` takes all of its requests";
    let ended = check("rules.toml", UNREACHED, &[]);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    assert!(
        ended.stdout.ends_with(&format!("\n{warning}\n")),
        "{}",
        ended.stdout
    );
    let denied = check("rules.toml", UNREACHED, &["--deny-warnings"]);
    assert_eq!(
        (denied.code, &*denied.stderr),
        (Some(1), "error: rules.toml has 1 warning\n")
    );
    assert_eq!(denied.stdout, ended.stdout);
    let checked = check("rules.toml", UNREACHED, &["--json"]).json();
    assert_eq!(
        (
            &checked["warnings"][0]["rule"],
            &checked["warnings"][0]["by"]
        ),
        (&json!(1), &json!([0]))
    );
    assert_eq!(
        check("rules.toml", RULES, &["--deny-warnings"]).code,
        Some(0)
    );
}

#[test]
fn the_first_matching_rule_is_found() {
    let search = [
        "--url",
        "https://api.example.com/search?q=1",
        "--header",
        "x-plan: free",
        "--header",
        "X-Account:7",
    ];
    let answer = matched(&search);
    assert_eq!(
        (&answer["name"], &answer["cost"]),
        (&json!("search"), &json!(2))
    );
    assert_eq!(
        answer["key"].as_str().unwrap(),
        "api.example.com|7",
        "the host and the account"
    );
    assert_eq!(answer["quotas"], json!(["30/m", "1_000/h"]));
    assert_eq!(answer["misses"], json!([]));

    let answer = matched(&["--url", "http://a.internal.example/"]);
    assert_eq!(
        (&answer["rule"], &answer["exempt"], &answer["key"]),
        (&json!(1), &json!(true), &Value::Null)
    );

    let answer = matched(&["--url", "https://api.example.com/search"]);
    assert_eq!(answer["name"], "others");
    let misses = answer["misses"].as_array().unwrap();
    assert_eq!(misses.len(), 2);
    assert!(
        misses[0]["reason"].as_str().unwrap().contains("x-plan"),
        "{answer}"
    );
    assert!(
        misses[1]["reason"]
            .as_str()
            .unwrap()
            .contains("the host is api.example.com"),
        "{answer}"
    );
}

#[test]
fn a_request_without_a_key_is_reported_as_refused() {
    let search = [
        "--url",
        "/search",
        "--header",
        "host: api.example.com",
        "--header",
        "x-plan: free",
    ];
    let ended = check("rules.toml", RULES, &[&["--json"], &search[..]].concat());
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.starts_with("error: the request is refused: ")
            && ended.stderr.contains("x-account"),
        "{}",
        ended.stderr
    );
    let checked: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let answer = &checked["request"];
    assert_eq!(
        (&answer["name"], &answer["key"]),
        (&json!("search"), &Value::Null)
    );
    assert!(
        answer["refused"]
            .as_str()
            .is_some_and(|why| why.contains("x-account")),
        "{answer}"
    );
}

#[test]
fn the_client_address_can_be_a_key() {
    let rules = r#"[{ "name": "all", "quota": "1/s", "key": "client_ip" }]"#;
    let args = ["--json", "--url", "/", "--client-ip", "192.0.2.7"];
    let checked = check("rules.json", rules, &args).json();
    assert_eq!(checked["request"]["key"], "192.0.2.7");
}

#[test]
fn rules_are_read_from_standard_input() {
    let check = |args: &[&str]| {
        let mut process = throttle(&[&["check", "-"], args].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Without a format, the command does not read its input, so the write may fail.
        let _ = process.stdin.take().unwrap().write_all(RULES.as_bytes());
        process.wait_with_output().unwrap()
    };
    assert!(check(&["--format", "toml"]).status.success());
    assert_eq!(check(&["--format", "json"]).status.code(), Some(1));
    let untold = check(&[]);
    assert_eq!(untold.status.code(), Some(2));
    assert!(
        String::from_utf8(untold.stderr)
            .unwrap()
            .contains("hint: pass `--format")
    );
}

#[test]
fn an_invalid_request_is_a_usage_error_that_repeats_no_secrets() {
    let usage = |args: &[&str], says| check("rules.toml", RULES, args).assert_failed(2, says);
    usage(&["--method", "GET"], "--url");
    usage(&["--url", "http://[/"], "invalid value");
    for header in ["hunter2", "authorization : \u{1}hunter2", "a b: hunter2"] {
        let ended = check("rules.toml", RULES, &["--url", "/", "--header", header]);
        ended.assert_failed(2, "a `--header` is not of the form");
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
    }
    run(&["check", "/missing/rules.toml"]).assert_failed(1, "cannot be read");
}
