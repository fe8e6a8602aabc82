//! What a server's refusal means within a cluster: [`Redirect`].

use redis::{RedisError, ServerErrorKind};

use crate::store::redis::failure::{Failure, explain_look};

/// To which server a key has moved.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    Moved(String),
    /// This one call only.
    Ask(String),
}

impl Redirect {
    pub(super) fn of(failure: &Failure) -> Option<Self> {
        let Failure::Answered(error) = failure else {
            return None;
        };
        let errors = error.clone().into_server_errors()?;
        errors.iter().find_map(|(_, error)| {
            let (_, address) = error.details()?.split_once(' ')?;
            match error.kind()? {
                ServerErrorKind::Moved => Some(Self::Moved(address.to_owned())),
                ServerErrorKind::Ask => Some(Self::Ask(address.to_owned())),
                _ => None,
            }
        })
    }

    pub(super) fn address(&self) -> &str {
        let (Self::Moved(address) | Self::Ask(address)) = self;
        address
    }
}

/// Whether any other server would say the same.
pub(super) fn is_final(failure: &Failure) -> bool {
    let is_outage = |error: &RedisError| explain_look(error.clone()).is_outage();
    matches!(failure, Failure::Answered(error) if !is_outage(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(text: &str) -> Option<Redirect> {
        let answer = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
        Redirect::of(&Failure::Answered(answer.extract_error().unwrap_err()))
    }

    #[test]
    fn a_redirection_says_where_to() {
        let moved = Redirect::Moved("127.0.0.1:6381".to_owned());
        assert_eq!(redirect("MOVED 3999 127.0.0.1:6381"), Some(moved));
        let ask = Redirect::Ask("::1:6381".to_owned());
        assert_eq!(redirect("ASK 3999 ::1:6381"), Some(ask));
        assert_eq!(redirect("CLUSTERDOWN The cluster is down"), None);
    }
}
