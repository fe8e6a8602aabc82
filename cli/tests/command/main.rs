//! Runs the built command `throttle` in separate processes.

mod check;
mod docs;
mod failures;
mod general;
mod keys;
mod simulate;
mod terminal;
mod top;

use std::process::{Command, Output};

/// The command with these arguments, without the environment variables that it reads.
pub(crate) fn throttle(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throttle"));
    for variable in [
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "COLUMNS",
        "NO_COLOR",
        "REDIS_URL",
    ] {
        command.env_remove(variable);
    }
    command.args(args);
    command
}

/// The result of a command.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn of(command: &mut Command) -> Self {
        let Output {
            status,
            stdout,
            stderr,
        } = command.output().expect("the command starts");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Self {
            code: status.code(),
            stdout: text(stdout),
            stderr: text(stderr),
        }
    }

    /// Checks that the command succeeded, and parses its line of JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!((self.code, &*self.stderr), (Some(0), ""), "{}", self.stdout);
        assert_eq!(self.stdout.lines().count(), 1, "{}", self.stdout);
        serde_json::from_str(&self.stdout).expect("JSON")
    }

    /// Checks the exit code and the error, and that nothing was printed to standard output.
    #[track_caller]
    pub(crate) fn assert_failed(&self, code: i32, says: &str) {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
        assert!(self.stderr.starts_with("error: "), "{}", self.stderr);
        assert!(self.stderr.contains(says), "{}", self.stderr);
    }
}

/// Checks that a text has no control or invisible characters.
#[track_caller]
pub(crate) fn assert_harmless(text: &str) {
    let is_harmful = |char: char| match char {
        '\n' => false,
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => char.is_control(),
    };
    assert!(!text.contains(is_harmful), "{text:?}");
}

/// Runs the command with these arguments.
pub(crate) fn run(args: &[&str]) -> Ended {
    Ended::of(&mut throttle(args))
}
