//! `throttle check`.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Ended, assert_harmless, assert_has, assert_includes, run, throttle, words};

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

#[test]
fn rules_are_shown_in_their_written_form() {
    let printed = check("rules.toml", RULES, &[]).printed();
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines.len(), 4, "{printed}");
    let search = "host api.example.com, path /search, header x-plan=free";
    let limit = "30/m and 1_000/h, cost 2, key host and header=x-account";
    for (line, parts) in [
        (lines[1], ["0 search", search, limit]),
        (
            lines[2],
            ["1 ", "host *.internal.example or localhost", "exempt"],
        ),
        (lines[3], ["2 others", "all others", "10/s"]),
    ] {
        parts.iter().for_each(|part| assert_has(line, part));
    }
    let checked = check("rules.toml", RULES, &["--json"]).json();
    assert_includes(&checked, &json!({ "mistakes": [], "warnings": [] }));
    let exempt = json!({ "rule": 1, "exempt": true, "host": ["*.internal.example", "localhost"] });
    assert_eq!(checked["rules"][1], exempt);
}

#[test]
fn all_formats_yield_the_same_rules() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/rules/files");
    let all = ["toml", "yaml", "json"].map(|extension| {
        let name = format!("every.{extension}");
        let text = fs::read_to_string(files.join(&name)).expect("a file");
        let by_name = check(&name, &text, &["--json"]).json()["rules"].clone();
        let by_option = check("rules", &text, &["--json", "--format", extension]).json();
        assert_eq!(by_option["rules"], by_name);
        by_name
    });
    assert_eq!(all[0].as_array().map(Vec::len), Some(4), "{}", all[0]);
    assert!(all.iter().all(|it| *it == all[0]));
}

#[test]
fn all_mistakes_are_listed_with_their_places() {
    let places = ["rules[0].quota[1]", "rules[0].max_wait", "rules[1].quota"];
    let ended = check("rules.toml", WRONG, &[]);
    assert_eq!(ended.stderr, "error: rules.toml has 3 mistakes\n");
    let lines = ended.stdout.lines();
    let shown: Vec<_> = lines.filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(shown, places, "{}", ended.stdout);
    let checked = check("rules.toml", WRONG, &["--json"]).failed_json(1, "3 mistakes");
    let expected = places.map(|place| json!({ "place": place }));
    assert_includes(&checked["mistakes"], &json!(expected));
}

#[test]
fn a_syntax_error_is_a_mistake_and_is_printed_without_control_characters() {
    let followed = "[{ \"name\": \"a\", \"quota\": \"1/s\" }] [";
    let escaped = r#"[{"\u001b[31m\u202e": 1, "name": "\u202e", "quota": "\u001b"}]"#;
    for (name, text, part) in [
        ("rules.toml", "[[rules]]\nname =\n", "line 2"),
        ("rules.json", "[\n{ \"name\" }]", "line 2"),
        ("rules.json", followed, "trailing characters"),
        ("rules.yaml", "- name: a\n  quota: [\n", "line"),
        ("rules.yml", "", "rules"),
        ("rules.toml", "", "rules"),
        ("rules.toml", "[[rules]]\nlabel = 'a'", "label"),
        ("rules.toml", "[[rules]]\nname = # \u{202e}\u{2066}x\n", ""),
        ("rules.toml", "[[rules]]\n\"\\u001b[31m\\u202e\" = 1\n", ""),
        ("rules.json", escaped, ""),
        (
            "rules.yaml",
            "- name: \"\\e[31m\\u202e\"\n  \"\\e\": [\n",
            "",
        ),
    ] {
        let ended = check(name, text, &[]);
        assert_has(&ended.stdout, part);
        assert!(!ended.stdout.is_empty());
        assert_harmless(&ended.stdout);
        let expected = format!("error: {name} has a mistake; there may be more after it\n");
        assert_eq!((ended.code, ended.stderr), (Some(1), expected), "{text:?}");
    }
    let text = r#"[{"name": "a", "quota": "1/s", "path": "/\u202e\u001b"}]"#;
    assert_harmless(&check("rules.json", text, &[]).stdout);
}

#[test]
fn warnings_fail_the_check_only_on_request() {
    let warning =
        "\nwarning: rules[1] `search` is never reached: rules[0] `api` takes all of its requests\n";
    let printed = check("rules.toml", UNREACHED, &[]).printed();
    assert!(printed.ends_with(warning), "{printed}");
    let denied = check("rules.toml", UNREACHED, &["--deny-warnings"]);
    let error = "error: rules.toml has 1 warning\n";
    assert_eq!((denied.code, &*denied.stderr), (Some(1), error));
    assert_eq!(denied.stdout, printed);
    let checked = check("rules.toml", UNREACHED, &["--json"]).json();
    assert_includes(&checked, &json!({ "warnings": [{ "rule": 1, "by": [0] }] }));
    check("rules.toml", RULES, &["--deny-warnings"]).printed();
}

#[test]
fn the_first_matching_rule_is_found_and_a_refused_request_fails_the_check() {
    let (plan, account) = (["--header", "x-plan: free"], ["--header", "X-Account:7"]);
    let with = |url, headers: &[[&str; 2]]| {
        let headers = headers.as_flattened();
        check(
            "rules.toml",
            RULES,
            &[&["--json", "--url", url], headers].concat(),
        )
    };
    let url = "https://api.example.com/search?q=1";
    // The key is the host and the account.
    let found = json!({ "name": "search", "cost": 2, "key": "api.example.com|7",
        "quotas": ["30/m", "1_000/h"], "misses": [] });
    assert_includes(&with(url, &[plan, account]).json()["request"], &found);
    let exempt = json!({ "rule": 1, "exempt": true, "key": null });
    let answer = with("http://a.internal.example/", &[]).json();
    assert_includes(&answer["request"], &exempt);
    let others = with(url, &[]).json()["request"].clone();
    assert_includes(&others, &json!({ "name": "others", "misses": [{}, {}] }));
    let reasons = [0, 1].map(|place| others["misses"][place]["reason"].to_string());
    assert_has(&reasons[0], "x-plan");
    assert_has(&reasons[1], "the host is api.example.com");

    let host = ["--header", "host: api.example.com"];
    let refused = with("/search", &[host, plan]);
    let refused = refused.failed_json(1, "error: the request is refused: ");
    assert_includes(
        &refused["request"],
        &json!({ "name": "search", "key": null }),
    );
    assert_has(&refused["request"]["refused"].to_string(), "x-account");

    let rules = r#"[{ "name": "all", "quota": "1/s", "key": "client_ip" }]"#;
    let args = words("--json --url / --client-ip 192.0.2.7");
    let checked: Value = check("rules.json", rules, &args).json();
    assert_eq!(checked["request"]["key"], "192.0.2.7");
}

#[test]
fn rules_are_read_from_standard_input() {
    for (args, code, part) in [
        ("check - --format toml", 0, ""),
        ("check - --format json", 1, "error: "),
        ("check -", 2, "hint: pass `--format"),
    ] {
        let mut command = throttle(&words(args));
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut process = command.stderr(Stdio::piped()).spawn().expect("it starts");
        // Without a format, the command does not read its input, so the write may fail.
        let _ = process
            .stdin
            .take()
            .expect("a pipe")
            .write_all(RULES.as_bytes());
        let output = process.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(code), "{args}");
        assert_has(&String::from_utf8(output.stderr).expect("text"), part);
    }
}

#[test]
fn an_invalid_request_is_a_usage_error_that_repeats_no_secrets() {
    let usage = |args: &[&str], part| check("rules.toml", RULES, args).failed(2, &[part]);
    usage(&["--method", "GET"], "--url");
    usage(&["--url", "http://[/"], "invalid value");
    for header in ["hunter2", "authorization : \u{1}hunter2", "a b: hunter2"] {
        let part = "a `--header` is not of the form";
        usage(&["--url", "/", "--header", header], part);
    }
    run("check /missing/rules.toml").failed(1, &["cannot be read"]);
}
