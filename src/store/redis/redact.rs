//! What an error of the client may tell: nothing that was sent to set up a connection.
//!
//! A server that does not know a command quotes what followed it. Where `AUTH` or `HELLO` was renamed, or a proxy
//! does not know them, that is the password.

use std::error::Error as StdError;

use redis::{Client, RedisError};

/// What stands between the name of a command that a server does not know, and its arguments.
const QUOTED: &str = ", with args beginning with";

type Cause = Box<dyn StdError + Send + Sync>;

/// The error, without what a server quotes of the command that it does not know.
pub(super) fn cause(error: RedisError) -> Cause {
    let text = error.to_string();
    match text.split_once(QUOTED) {
        Some((what, _quoted)) => what.into(),
        None => error.into(),
    }
}

/// The same, of an error while a connection is made: whatever it says, not the password.
pub(super) fn cause_of_connecting(error: RedisError, client: &Client) -> Cause {
    let password = client.get_connection_info().redis_settings().password();
    let says = |error: &RedisError, it: &str| format!("{error} {error:?}").contains(it);
    match password.filter(|it| !it.is_empty()) {
        Some(password) if says(&error, password) => match cause(error) {
            cause if format!("{cause} {cause:?}").contains(password) => {
                "the server's answer quotes the password".into()
            }
            cause => cause,
        },
        _ => cause(error),
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

    fn client() -> Client {
        let info = redis::RedisConnectionInfo::default().set_password(SECRET);
        let address = redis::ConnectionAddr::Tcp("localhost".into(), 6379);
        let info = redis::IntoConnectionInfo::into_connection_info(address)
            .unwrap()
            .set_redis_settings(info);
        Client::open(info).unwrap()
    }

    #[test]
    fn what_a_server_quotes_is_cut_off() {
        let detail =
            format!("unknown command 'HELLO', with args beginning with: '3' 'AUTH' '{SECRET}' ");
        for cause in [
            cause(error(&detail)),
            cause_of_connecting(error(&detail), &client()),
        ] {
            let text = format!("{cause} {cause:?}");
            assert!(text.contains("unknown command 'HELLO'"), "{text}");
            assert!(!text.contains(SECRET), "{text}");
        }
    }

    #[test]
    fn a_password_is_not_told_in_other_words_either() {
        let detail = format!("what is {SECRET}?");
        let cause = cause_of_connecting(error(&detail), &client());
        assert!(!format!("{cause} {cause:?}").contains(SECRET));
    }

    #[test]
    fn all_else_is_told() {
        for detail in ["DB index is out of range", ""] {
            let cause = cause_of_connecting(error(detail), &client());
            assert!(cause.is::<RedisError>() && cause.to_string().contains(detail));
        }
    }
}
