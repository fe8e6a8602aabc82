//! Behavior of all commands: exit codes, output streams, passwords.

use std::process::Stdio;

use super::{Ended, assert_harmless, run, throttle};

/// The commands that use Redis, with their required arguments.
const ASKING: [&[&str]; 5] = [
    &["top", "--json", "--count", "1"],
    &["show", "key"],
    &["pause", "key", "1s"],
    &["resume", "key"],
    &["reset", "key", "--yes"],
];

/// No server listens on this port.
const UNREACHABLE: &str = "redis://user:hunter2@127.0.0.1:1/";

#[test]
fn an_unreachable_server_has_its_own_exit_code_and_no_password_is_printed() {
    for args in ASKING {
        let ended = Ended::of(throttle(args).env("REDIS_URL", UNREACHABLE));
        ended.assert_failed(3, "redis cannot be reached");
        assert!(
            ended.stderr.contains("hint: set `--redis`"),
            "{}",
            ended.stderr
        );
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
    }
}

#[test]
fn invalid_urls_are_not_repeated() {
    for url in [
        "hunter2",
        "http://user:hunter2@host/",
        "redis://user:hunter2@host:port/",
    ] {
        let ended = run(&["show", "key", "--redis", url]);
        ended.assert_failed(2, "the url is not one of a redis server");
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
    }
}

#[test]
fn misplaced_passwords_are_not_repeated() {
    const URL: &str = "redis://user:hunter2@host/";
    const FIELD: &str = "unix:///run/redis.sock?user=u&pass=hunter2";
    for args in [
        &["top", URL][..],
        &["top", FIELD],
        &[URL],
        &["show", "key", URL],
        &["show", "key", "--timeout", URL],
        &[
            "show",
            "key",
            "--sentinel",
            "name",
            "--cluster",
            "--redis",
            URL,
        ],
        &["show", "key", "--redos=redis://user:hunter2@host/"],
        &["top", "--json=redis://user:hunter2@host/"],
        &["pause", "key", URL],
        &["check", "rules.toml", "--client-ip", "user:hunter2@host"],
        &["simulate", "--quota", URL],
    ] {
        let ended = run(args);
        ended.assert_failed(2, "error: ");
        assert!(
            !ended.stderr.contains("hunter2"),
            "{args:?}: {}",
            ended.stderr
        );
    }
    assert!(run(&["top", URL]).stderr.contains("redis://***@host/"));
}

#[test]
fn control_characters_in_errors_are_escaped() {
    for args in [
        &["\u{1b}]0;x\u{7}"][..],
        &["show", "\u{202e}key", "extra\u{1b}[31m"],
        &["show", "\u{202e}\u{1b}[31m", "--redis", UNREACHABLE],
        &["check", "\u{1b}[31m.toml"],
        &["simulate", "--rules", "\u{202e}.toml"],
        &["pause", "\u{1b}", "\u{1b}s"],
    ] {
        let ended = run(args);
        assert!(ended.code.is_some_and(|code| code > 0), "{args:?}");
        assert_harmless(&ended.stderr);
    }
}

#[test]
fn help_does_not_print_the_url_of_the_environment() {
    for args in [["show", "--help"], ["help", "show"], ["show", "--nonsense"]] {
        let ended = Ended::of(throttle(&args).env("REDIS_URL", UNREACHABLE));
        assert!(!ended.stdout.contains("hunter2") && !ended.stderr.contains("hunter2"));
    }
}

#[test]
fn contradictory_arguments_fail_before_connecting() {
    let several = ["--redis", UNREACHABLE, "--redis", UNREACHABLE];
    for (args, says) in [
        (
            &["--cluster", "--sentinel", "name"][..],
            "cannot be used with",
        ),
        (&several, "more than one URL"),
        (&["--redis", ""], "is empty"),
        (&["--prefix", "{}"], "'--prefix <TEXT>'"),
        (&["--timeout", "1"], "time unit needed"),
    ] {
        run(&[&["show", "key"], args].concat()).assert_failed(2, says);
    }
    run(&["nonsense"]).assert_failed(2, "unrecognized subcommand");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let args = ["simulate", "--quota", "1000/s", "--json"];
    let mut process = throttle(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(process.stdout.take());
    let ended = process.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert_eq!(String::from_utf8(ended.stderr).unwrap(), "");
}

#[test]
#[cfg(target_os = "linux")]
fn output_that_cannot_be_written_is_a_failure() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let mut command = throttle(&["simulate", "--quota", "1/s"]);
    let process = command.stdout(full.unwrap()).stderr(Stdio::piped()).spawn();
    let ended = process.unwrap().wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert!(
        stderr.starts_with("error: cannot write to standard output"),
        "{stderr}"
    );
}

#[test]
fn colors_are_only_for_terminals() {
    let wrong = ["show", "key", "--redis", UNREACHABLE];
    assert!(!run(&wrong).stderr.contains('\u{1b}'));
    let forced = Ended::of(throttle(&wrong).env("CLICOLOR_FORCE", "1"));
    assert!(
        forced
            .stderr
            .starts_with("\u{1b}[1m\u{1b}[31merror:\u{1b}[0m "),
        "{:?}",
        forced.stderr
    );
    let mut both = throttle(&wrong);
    let without = Ended::of(both.env("CLICOLOR_FORCE", "0").env("NO_COLOR", "1"));
    assert!(!without.stderr.contains('\u{1b}'), "{:?}", without.stderr);
}

#[test]
fn all_shells_have_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ended = run(&["completions", shell]);
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{shell}");
        for command in [
            "top", "show", "pause", "resume", "reset", "check", "simulate",
        ] {
            assert!(ended.stdout.contains(command), "{command} in {shell}");
        }
        let json = run(&["completions", shell, "--json"]).json();
        assert_eq!(
            json,
            serde_json::json!({"shell": shell, "script": ended.stdout})
        );
    }
}
