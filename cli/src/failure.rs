//! Why a command ends with an exit code other than 0: [`Failure`].

use std::error::Error as StdError;
use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use tower_throttle::store::StoreError;
use tower_throttle::{BuildError, Error};

use crate::printable::printable;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();

/// Why a command has failed, what may help, and by which code the process says so.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
    hint: Option<String>,
}

impl Failure {
    /// What was looked at is wrong or not there, or what was asked for was not done: 1.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            code: 1,
            message: message.into(),
            hint: None,
        }
    }

    /// Arguments that make no sense together, or not to the library: 2.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            code: 2,
            ..Self::new(message)
        }
    }

    /// Redis cannot be reached, or refuses: 3.
    pub(crate) fn redis(message: impl Into<String>) -> Self {
        Self {
            code: 3,
            ..Self::new(message)
        }
    }

    /// What is common to several, by the code of the gravest.
    pub(crate) fn of_all(message: impl Into<String>, failures: &[Self]) -> Self {
        let codes = failures.iter().map(|it| it.code);
        Self {
            code: codes.max().unwrap_or(1),
            ..Self::new(message)
        }
    }

    /// The same, with all that has led to it.
    pub(crate) fn caused_by(mut self, error: &dyn StdError) -> Self {
        self.message = format!("{}: {}", self.message, whole(error));
        self
    }

    /// The same, with what may help.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same, with what may help if nothing else does.
    pub(crate) fn perhaps_hint(self, hint: &str) -> Self {
        match self.hint {
            Some(_) => self,
            None => self.hint(hint),
        }
    }

    /// Says so on the standard error. That this may be closed, too, changes nothing.
    pub(crate) fn tell(&self) -> ExitCode {
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

/// What is wrong, without what may help.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Says on the standard error what is worth knowing, though nothing has failed.
pub(crate) fn remark(hint: impl AsRef<str>) {
    let mut stderr = anstream::stderr().lock();
    let _ = writeln!(stderr, "{HINT}hint:{HINT:#} {}", printable(hint.as_ref()));
}

/// An error with its causes, but for those that it has quoted already.
fn whole(error: &dyn StdError) -> String {
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
            Self::new(whole(&error))
        } else if error.is_invalid_url() {
            Self::usage(whole(&error))
        } else {
            Self::redis(whole(&error))
        }
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        Self::usage(whole(&error))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if error.is_store() {
            Self::redis(whole(&error))
        } else if error.is_invalid_cost() || error.is_invalid_key() {
            Self::usage(whole(&error))
        } else {
            Self::new(whole(&error))
        }
    }
}
