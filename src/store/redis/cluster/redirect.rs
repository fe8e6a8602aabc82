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

/// Whether the server says so of this one slot, as it does while that moves, and serves others.
pub(super) fn is_of_slot(failure: &Failure) -> bool {
    const MOVING: [ServerErrorKind; 3] = [
        ServerErrorKind::TryAgain,
        ServerErrorKind::Ask,
        ServerErrorKind::Moved,
    ];
    let Failure::Answered(error) = failure else {
        return false;
    };
    let errors = error.clone().into_server_errors().unwrap_or_default();
    errors.iter().any(|(_, error)| match error.kind() {
        Some(ServerErrorKind::ClusterDown) => error.details().is_some_and(|it| it.contains("slot")),
        kind => kind.is_some_and(|it| MOVING.contains(&it)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(text: &str) -> Failure {
        let answer = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
        Failure::Answered(answer.extract_error().unwrap_err())
    }

    fn redirect(text: &str) -> Option<Redirect> {
        Redirect::of(&failure(text))
    }

    #[test]
    fn a_slot_that_moves_is_told_from_a_server_that_is_out() {
        for text in [
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "CLUSTERDOWN Hash slot not served",
            "ASK 3999 127.0.0.1:6381",
        ] {
            assert!(is_of_slot(&failure(text)), "{text}");
        }
        for text in [
            "CLUSTERDOWN The cluster is down",
            "LOADING Redis is loading the dataset in memory",
            "OOM command not allowed when used memory > 'maxmemory'.",
        ] {
            assert!(!is_of_slot(&failure(text)), "{text}");
        }
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
