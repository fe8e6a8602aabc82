//! `throttle check`, where `cases.trycmd` does not show it.

use std::fs::{self, File};
use std::path::Path;

use super::{Ended, assert_harmless, assert_has, throttle, words};

/// Runs `throttle check` on a file with this name and text.
fn check(name: &str, text: &str, args: &[&str]) -> Ended {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::write(directory.path().join(name), text).expect("a file");
    let mut command = throttle(&[&["check", name], args].concat());
    Ended::of(command.current_dir(&directory))
}

#[test]
fn all_formats_yield_the_same_rules() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/rules/files");
    let [toml, yaml] = ["every.toml", "every.yaml"]
        .map(|name| fs::read_to_string(files.join(name)).expect("a file"));
    let json: serde_json::Value = toml::from_str(&toml).expect("rules");
    let texts = [("toml", toml), ("yaml", yaml), ("json", json.to_string())];
    let all = texts.map(|(extension, text)| {
        let name = format!("every.{extension}");
        let by_name = check(&name, &text, &["--json"]).json()["rules"].clone();
        let by_option = check("rules", &text, &["--json", "--format", extension]).json();
        assert_eq!(by_option["rules"], by_name);
        by_name
    });
    assert_eq!(all[0].as_array().map(Vec::len), Some(4), "{}", all[0]);
    assert!(all.iter().all(|it| *it == all[0]));
}

#[test]
fn a_syntax_error_is_a_mistake_and_is_printed_without_control_characters() {
    let followed = "{ \"rules\": [{ \"name\": \"a\", \"quota\": \"1/s\" }] } [";
    let escaped = r#"{"rules": [{"\u001b[31m\u202e": 1, "name": "\u202e", "quota": "\u001b"}]}"#;
    for (name, text, part) in [
        ("rules.toml", "[[rules]]\nname =\n", "line 2"),
        ("rules.json", "{ \"rules\": [\n{ \"name\" }]", "line 2"),
        ("rules.json", followed, "trailing characters"),
        ("rules.yaml", "rules:\n- name: a\n  quota: [\n", "line"),
        ("rules.yml", "", "rules"),
        ("rules.toml", "", "rules"),
        ("rules.toml", "[[rules]]\nlabel = 'a'", "label"),
        ("rules.toml", "[[rules]]\nname = # \u{202e}\u{2066}x\n", ""),
        ("rules.toml", "[[rules]]\n\"\\u001b[31m\\u202e\" = 1\n", ""),
        ("rules.json", escaped, ""),
        (
            "rules.yaml",
            "rules:\n- name: \"\\e[31m\\u202e\"\n  \"\\e\": [\n",
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
    let text = r#"{"rules": [{"name": "a", "quota": "1/s", "path": "/\u202e\u001b"}]}"#;
    assert_harmless(&check("rules.json", text, &[]).stdout);
}

#[test]
fn rules_are_read_from_standard_input() {
    for (args, code, part) in [
        ("check - --format toml", 0, ""),
        ("check - --format json", 1, "error: "),
        ("check -", 2, "hint: pass `--format"),
    ] {
        let rules = File::open("tests/command/cases.in/rules.toml").expect("a file");
        let ended = Ended::of(throttle(&words(args)).stdin(rules));
        assert_eq!(ended.code, Some(code), "{args}");
        assert_has(&ended.stderr, part);
    }
}
