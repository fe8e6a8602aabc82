//! What an error of the client may tell: nothing that was sent to set up a connection.
//!
//! A server that does not know a command quotes what followed it. Where `AUTH` or `HELLO` was renamed, or a proxy
//! does not know them, that is the password.

use std::error::Error as StdError;

use redis::{RedisConnectionInfo, RedisError};

use super::failure::is_refused;

/// What stands between the name of a command that a server does not know, and its arguments.
const QUOTED: &str = ", with args beginning with";

/// What is told in any case of who is refused.
const TOLD: [&str; 3] = ["NOAUTH", "NOPERM", "WRONGPASS"];

type Cause = Box<dyn StdError + Send + Sync>;

/// The error, without what a server quotes of the command that it does not know.
pub(super) fn cause(error: RedisError) -> Cause {
    let text = error.to_string();
    match text.split_once(QUOTED) {
        Some((what, _quoted)) => what.into(),
        None => error.into(),
    }
}

/// What nobody is to be told.
#[derive(Debug, Clone, Default)]
pub(super) enum Secrets {
    These(Vec<String>),
    /// There may be some, in what does not show them.
    #[default]
    Unknown,
}

impl Secrets {
    /// Of all who connect with these.
    pub(super) fn of<'a>(all: impl IntoIterator<Item = &'a RedisConnectionInfo>) -> Self {
        let passwords = all.into_iter().filter_map(RedisConnectionInfo::password);
        let passwords = passwords.filter(|it| !it.is_empty());
        Self::These(passwords.map(str::to_owned).collect())
    }

    /// Whether this may quote one of them.
    fn may_be_in(&self, cause: &Cause) -> bool {
        match self {
            Self::These(secrets) => {
                let text = format!("{cause} {cause:?}");
                secrets.iter().any(|it| text.contains(it))
            }
            // What is wrong with a connection quotes nothing.
            Self::Unknown => cause.downcast_ref().is_none_or(is_refused),
        }
    }
}

/// The same, of an error while a connection is made on which these were sent: whatever it says, not them.
pub(super) fn cause_of_connecting(error: RedisError, secrets: &Secrets) -> Cause {
    let code = TOLD.iter().find(|it| error.code() == Some(it));
    let code = code.unwrap_or(&"an error");
    match cause(error) {
        cause if secrets.may_be_in(&cause) => {
            format!("the server answered with {code}, and may quote a password").into()
        }
        cause => cause,
    }
}

#[cfg(test)]
mod tests {
    use redis::ServerErrorKind;

    use super::*;

    const SECRET: &str = "p\u{e4}ss wörd'%41";

    fn error(detail: &str) -> RedisError {
        let kind = ServerErrorKind::ResponseError.into();
        RedisError::from((kind, "An error was signalled by the server", detail.into()))
    }

    fn secrets() -> Secrets {
        Secrets::of([&RedisConnectionInfo::default().set_password(SECRET)])
    }

    #[test]
    fn what_a_server_quotes_is_cut_off() {
        let detail =
            format!("unknown command 'HELLO', with args beginning with: '3' 'AUTH' '{SECRET}' ");
        for cause in [
            cause(error(&detail)),
            cause_of_connecting(error(&detail), &secrets()),
        ] {
            let text = format!("{cause} {cause:?}");
            assert!(text.contains("unknown command 'HELLO'"), "{text}");
            assert!(!text.contains(SECRET), "{text}");
        }
    }

    #[test]
    fn a_password_is_not_told_in_other_words_either() {
        let detail = format!("what is {SECRET}?");
        let cause = cause_of_connecting(error(&detail), &secrets());
        assert!(!format!("{cause} {cause:?}").contains(SECRET));
    }

    #[test]
    fn where_secrets_are_unknown_a_server_is_not_quoted() {
        let quoting = format!("what is {SECRET}?");
        let cause = cause_of_connecting(error(&quoting), &Secrets::Unknown);
        assert!(!format!("{cause} {cause:?}").contains(SECRET));
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let cause = cause_of_connecting(refused.into(), &Secrets::Unknown);
        assert!(cause.is::<RedisError>(), "{cause:?}");
    }

    #[test]
    fn all_else_is_told() {
        for detail in ["DB index is out of range", ""] {
            let cause = cause_of_connecting(error(detail), &secrets());
            assert!(cause.is::<RedisError>() && cause.to_string().contains(detail));
        }
    }
}
