//! Runs the built command `throttle` in separate processes.

mod check;
mod docs;
mod general;
mod keys;
mod simulate;
mod terminal;
mod top;

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::redis_server::RedisServer;

/// Far longer than any operation takes.
const LONG: Duration = Duration::from_secs(60);

const GUIDE: &str = include_str!("../../README.md");

/// The command with these arguments, without the environment variables that it reads.
fn throttle(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throttle"));
    for name in words("CLICOLOR CLICOLOR_FORCE COLUMNS NO_COLOR REDIS_URL") {
        command.env_remove(name);
    }
    command.args(args).stdin(Stdio::null());
    command
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn run(line: &str) -> Ended {
    Ended::of(&mut throttle(&words(line)))
}

/// Runs the words of this command line on the keys of a server.
fn on(server: &RedisServer, line: &str) -> Ended {
    run(&format!("{line} --redis {}", server.url()))
}

struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    fn of(command: &mut Command) -> Self {
        let output = command.output().expect("the command starts");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Self {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Checks that the command succeeded, and returns what it printed.
    #[track_caller]
    fn printed(self) -> String {
        let ends = (self.code, &*self.stderr);
        assert_eq!(ends, (Some(0), ""), "{}", self.stdout);
        self.stdout
    }

    /// Checks that the command succeeded, and parses its line of JSON.
    #[track_caller]
    fn json(self) -> Value {
        let printed = self.printed();
        assert_eq!(printed.lines().count(), 1, "{printed}");
        serde_json::from_str(&printed).expect("JSON")
    }

    /// Checks the exit code and a part of the error, and parses the line of JSON.
    #[track_caller]
    fn failed_json(&self, code: i32, error: &str) -> Value {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        assert_has(&self.stderr, error);
        serde_json::from_str(&self.stdout).expect("JSON")
    }

    /// Checks the exit code and parts of the error, and that nothing was printed to standard output.
    #[track_caller]
    fn failed(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
        assert!(self.stderr.starts_with("error: "), "{}", self.stderr);
        parts.iter().for_each(|part| assert_has(&self.stderr, part));
        assert!(!self.stderr.contains("hunter"), "{}", self.stderr);
    }
}

#[track_caller]
fn assert_has(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} in {text}");
}

/// Checks that a JSON value has these fields, in objects at any depth. Lists are as long as expected.
#[track_caller]
fn assert_includes(value: &Value, expected: &Value) {
    match (value, expected) {
        (Value::Object(fields), Value::Object(expected)) => {
            for (name, expected) in expected {
                assert!(fields.contains_key(name), "{name} in {value}");
                assert_includes(&fields[name], expected);
            }
        }
        (Value::Array(items), Value::Array(expected)) => {
            assert_eq!(items.len(), expected.len(), "{value}");
            let pairs = items.iter().zip(expected);
            pairs.for_each(|(item, expected)| assert_includes(item, expected));
        }
        _ => assert_eq!(value, expected),
    }
}

/// Checks that a text has no control or invisible characters.
#[track_caller]
fn assert_harmless(text: &str) {
    let is_harmful = |char: char| match char {
        '\n' => false,
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => char.is_control(),
    };
    assert!(!text.contains(is_harmful), "{text:?}");
}
