//! Errors of commands, with exit codes: [`Failure`].

use std::error::Error as StdError;
use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use tower_throttle::store::StoreError;
use tower_throttle::{BuildError, Error, ErrorKind};

use crate::printable::printable;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();

/// The error of a command, with its hint and its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
    hint: Option<String>,
}

impl Failure {
    /// A check failed, a request would be refused, a key or a value is missing or invalid, or a change was not made: exit
    /// code 1.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            code: 1,
            message: message.into(),
            hint: None,
        }
    }

    /// Arguments are invalid or contradict each other: exit code 2.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            code: 2,
            ..Self::new(message)
        }
    }

    /// Redis cannot be reached, or refuses the command: exit code 3.
    pub(crate) fn redis(message: impl Into<String>) -> Self {
        Self {
            code: 3,
            ..Self::new(message)
        }
    }

    /// Summarizes several failures, with the highest of their exit codes.
    pub(crate) fn of_all(message: impl Into<String>, failures: &[Self]) -> Self {
        let codes = failures.iter().map(|it| it.code);
        Self {
            code: codes.max().unwrap_or(1),
            ..Self::new(message)
        }
    }

    /// Appends an error and its causes to the message.
    pub(crate) fn caused_by(mut self, error: &dyn StdError) -> Self {
        self.message = format!("{}: {}", self.message, with_causes(error));
        self
    }

    /// Sets the hint.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the hint unless there is one.
    pub(crate) fn or_hint(self, hint: &str) -> Self {
        match self.hint {
            Some(_) => self,
            None => self.hint(hint),
        }
    }

    /// Prints the error and the hint to standard error, and ignores write errors there.
    pub(crate) fn print(&self) -> ExitCode {
        let mut stderr = anstream::stderr().lock();
        let _ = writeln!(
            stderr,
            "{ERROR}error:{ERROR:#} {}",
            printable(&self.message)
        );
        if let Some(hint) = &self.hint {
            let _ = writeln!(stderr, "{HINT}hint:{HINT:#} {}", printable(hint));
        }
        ExitCode::from(self.code)
    }
}

/// The message, without the hint.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Prints a hint to standard error, for a command that has succeeded.
pub(crate) fn print_hint(hint: impl AsRef<str>) {
    let mut stderr = anstream::stderr().lock();
    let _ = writeln!(stderr, "{HINT}hint:{HINT:#} {}", printable(hint.as_ref()));
}

/// The text of an error and its causes, without the causes that the text already includes.
fn with_causes(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let error_text = error.to_string();
        if !text.ends_with(&error_text) {
            text = format!("{text}: {error_text}");
        }
        cause = error.source();
    }
    text
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        if error.is_unrecognized_value() {
            Self::new(with_causes(&error))
        } else if error.is_invalid_url() {
            Self::usage(with_causes(&error))
        } else {
            Self::redis(with_causes(&error))
        }
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        Self::usage(with_causes(&error))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let cause = error
            .source()
            .and_then(|it| it.downcast_ref::<StoreError>());
        if let Some(cause) = cause.filter(|_| error.is_store()) {
            let executed = match cause.is_outcome_unknown() {
                true => "; it may have executed the command all the same",
                false => "",
            };
            Self::redis(with_causes(cause) + executed)
        } else if matches!(error.kind(), ErrorKind::InvalidCost | ErrorKind::EmptyKey) {
            Self::usage(with_causes(&error))
        } else {
            Self::new(with_causes(&error))
        }
    }
}
