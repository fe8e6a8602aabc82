//! Behavior of all commands: control characters, refusals, output streams, colors.

use serde_json::json;

use super::{Ended, assert_harmless, assert_has, run, throttle, words};
use support::redis_server::RedisServer;
use support::spend::{spend, under};

/// No server listens on this port.
const UNREACHABLE: &str = "redis://user:hunter2@127.0.0.1:1/";

#[test]
fn control_characters_in_errors_are_escaped() {
    for line in [
        "\u{1b}]0;x\u{7}",
        "show \u{202e}key extra\u{1b}[31m",
        &format!("show \u{202e}\u{1b}[31m --redis {UNREACHABLE}"),
        "check \u{1b}[31m.toml",
        "simulate --rules \u{202e}.toml",
        "pause \u{1b} \u{1b}s",
    ] {
        let ended = run(line);
        assert!(ended.code.is_some_and(|code| code > 0), "{line:?}");
        assert_harmless(&ended.stderr);
    }
}

#[test]
fn help_does_not_print_the_url_of_the_environment() {
    for line in ["show --help", "help show", "show --nonsense"] {
        let ended = Ended::of(throttle(&words(line)).env("REDIS_URL", UNREACHABLE));
        assert!(!ended.stdout.contains("hunter2") && !ended.stderr.contains("hunter2"));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn output_that_cannot_be_written_is_a_failure() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let mut command = throttle(&words("simulate --quota 1/s"));
    let ended = Ended::of(command.stdout(full.expect("a device")));
    ended.failed(1, &["cannot write to standard output"]);
}

#[test]
fn colors_are_only_for_terminals() {
    const ERROR: &str = "\u{1b}[1m\u{1b}[31merror:\u{1b}[0m ";
    for (variables, is_colored) in [
        (&[][..], false),
        (&[("CLICOLOR_FORCE", "1")], true),
        (&[("CLICOLOR_FORCE", "0"), ("NO_COLOR", "1")], false),
    ] {
        let mut command = throttle(&["show", "key", "--redis", UNREACHABLE]);
        let ended = Ended::of(command.envs(variables.iter().copied()));
        let error = ended.stderr;
        assert_eq!(error.starts_with(ERROR), is_colored, "{error:?}");
        assert_eq!(error.contains('\u{1b}'), is_colored);
    }
}

#[test]
fn all_shells_have_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = run(&format!("completions {shell}")).printed();
        for command in words("top show pause resume reset check simulate") {
            assert_has(&script, command);
        }
        let json = run(&format!("completions {shell} --json")).json();
        assert_eq!(json, json!({ "shell": shell, "script": script }));
    }
}

#[test]
fn refused_commands_fail_without_printing_the_password() {
    let server = RedisServer::start();
    server.command::<()>(&words("ACL SETUSER user on >hunter2 ~* &* +@all -scan"));
    let show = |password| {
        let url = format!("redis://user:{password}@127.0.0.1:{}/", server.port());
        Ended::of(throttle(&["show", "api"]).env("REDIS_URL", url))
    };
    show("hunter2").failed(3, &["redis refused the call", "'scan'"]);
    show("hunter3").failed(3, &["redis refused the connection"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_characters_in_keys_are_escaped() {
    const KEY: &str = "\u{1b}[31m\u{202e}a\u{200b}\u{7f}\nb";
    let server = RedisServer::start();
    spend(&server.store().await, under(&["10/h"]), KEY, 1).await;
    let show = ["show", KEY, "--json", "--redis", &server.url()];
    assert_eq!(Ended::of(&mut throttle(&show)).json()["key"], KEY);
    for args in [
        &["show", KEY][..],
        &["pause", KEY, "1h"],
        &["resume", KEY],
        &["reset", KEY, "--yes"],
        &["show", KEY],
        &["reset", KEY],
    ] {
        let ended = Ended::of(throttle(args).args(["--redis", &server.url()]));
        assert_harmless(&ended.stdout);
        assert_harmless(&ended.stderr);
        let is_safe = |line: &str| !line.starts_with('b');
        assert!(ended.stdout.lines().all(is_safe), "{}", ended.stdout);
    }
}
