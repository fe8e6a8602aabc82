//! Why a call failed, and what that means for who asked: [`Failure`].

use redis::{ErrorKind, RedisError};
use tokio::time::error::Elapsed;

use super::redact::{self, Secrets};
use crate::store::StoreError;

/// Why a call has no answer.
pub(super) enum Failure {
    /// It was never sent.
    Unsent(StoreError),
    /// The server refused it, or the connection was lost.
    Answered(RedisError),
    /// No answer came in time.
    Late(Elapsed),
}

/// The code of a primary that has become a replica.
pub(super) const READONLY: &str = "READONLY";

impl Failure {
    /// Of a call that may record something. What the server refused did not: the scripts check all state
    /// before they take a slot.
    pub(super) fn explain(self) -> StoreError {
        match self {
            Self::Unsent(error) => error,
            Self::Answered(error) => explain(error),
            Self::Late(elapsed) => too_late().caused_by(elapsed).outcome_unknown(),
        }
    }

    /// Of a call that records nothing.
    pub(super) fn explain_look(self) -> StoreError {
        match self {
            Self::Unsent(error) => error,
            Self::Answered(error) => explain_look(error),
            Self::Late(elapsed) => too_late().caused_by(elapsed),
        }
    }

    /// Whether a new connection may lead to a better server.
    pub(super) fn is_demoted(&self) -> bool {
        match self {
            Self::Answered(error) => code(error).is_some_and(|it| is_demoted(&it)),
            Self::Unsent(_) | Self::Late(_) => false,
        }
    }

    /// Whether the connection is of no more use.
    pub(super) fn is_lost(&self) -> bool {
        match self {
            Self::Answered(error) => error.is_unrecoverable_error() || error.is_io_error(),
            Self::Unsent(_) | Self::Late(_) => false,
        }
    }
}

/// See [`Failure::explain`].
pub(super) fn explain(error: RedisError) -> StoreError {
    let is_lost = !is_refused(&error) && !error.is_connection_refusal();
    let explained = explain_look(error);
    if is_lost {
        explained.outcome_unknown()
    } else {
        explained
    }
}

/// See [`Failure::explain_look`].
pub(super) fn explain_look(error: RedisError) -> StoreError {
    if is_refused(&error) {
        let code = code(&error).unwrap_or_default();
        return refused(&code).caused_by(redact::cause(error));
    }
    if error.kind() == ErrorKind::UnexpectedReturnType {
        // As where a user lacks the right to `EXEC`: the client does not pass on what the server said.
        let strange = StoreError::new("redis answered with something else");
        return strange.no_outage().caused_by(redact::cause(error));
    }
    let what = if error.is_connection_refusal() {
        "redis cannot be reached"
    } else {
        "the connection to redis was lost"
    };
    StoreError::new(what).caused_by(redact::cause(error))
}

/// Of an attempt to connect, on which these secrets were sent, as far as it came to that.
pub(super) fn explain_attempt(error: RedisError, secrets: &Secrets) -> StoreError {
    let cause = |error| redact::cause_of_connecting(error, secrets);
    if is_refused(&error) {
        let code = code(&error).unwrap_or_default();
        let refused = StoreError::new("redis refused the connection").caused_by(cause(error));
        return if is_outage(&code) {
            refused
        } else {
            refused.no_outage()
        };
    }
    let is_config = matches!(
        error.kind(),
        ErrorKind::InvalidClientConfig | ErrorKind::RESP3NotSupported
    );
    let unreachable = unreachable().caused_by(cause(error));
    if is_config {
        unreachable.no_outage()
    } else {
        unreachable
    }
}

/// By a server that answers with this [code](code_in).
pub(super) fn refused(code: &str) -> StoreError {
    let refused = StoreError::new("redis refused the call");
    match code {
        _ if is_outage(code) => refused,
        FOREIGN | WRONG_TYPE => refused.foreign_value(),
        _ => refused.no_outage(),
    }
}

pub(super) fn unreachable() -> StoreError {
    StoreError::new("redis cannot be reached")
}

pub(super) fn too_late() -> StoreError {
    StoreError::new("redis did not answer in time")
}

pub(super) fn shut_down() -> StoreError {
    StoreError::new("the runtime that called redis has shut down")
}

/// Whether the server that answers with this code takes no writes, as a primary does that has become a
/// replica.
pub(super) fn is_demoted(code: &str) -> bool {
    code == READONLY
}

/// The code of an error that a server answers with, as a whole: of the one that a script met, if it did
/// not catch it.
///
/// Redis 6.2 says so within the text, `ERR Error running script (call to ...): @user_script:1: -OOM command
/// ...`, later ones have the code in front.
pub(super) fn code_in(text: &str) -> &str {
    // No name of a key can bring this about: there are no spaces in any.
    if text.contains("was not written by a throttle") {
        return FOREIGN;
    }
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or_default();
    let is_wrapped = first == "ERR" || first == "EXECABORT" || first.starts_with("@user_script");
    if !is_wrapped {
        return first;
    }
    if text.contains("max number of clients reached") {
        return FULL;
    }
    if text.contains("busy running a script") {
        return "BUSY";
    }
    let is_known = |code: &&str| is_outage(code) || *code == WRONG_TYPE;
    let wrapped = words.find_map(|word| word.strip_prefix('-').filter(is_known));
    wrapped.unwrap_or(first)
}

/// In place of the code that a server has not for it.
const FULL: &str = "MAXCLIENTS";

/// Of what the scripts say themselves.
const FOREIGN: &str = "FOREIGN";

const WRONG_TYPE: &str = "WRONGTYPE";

/// Whether a server that answers with this code serves nobody at present, and may again without anybody's
/// help: while it loads its data, runs somebody's script, has no memory left, is a replica that was the
/// primary, or while the servers of a cluster do not agree on who holds a key.
fn is_outage(code: &str) -> bool {
    const CODES: [&str; 12] = [
        "ASK",
        "BUSY",
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        FULL,
        "MISCONF",
        "MOVED",
        "NOREPLICAS",
        "OOM",
        READONLY,
        "TRYAGAIN",
    ];
    CODES.contains(&code)
}

/// Whether it is a server's answer.
pub(super) fn is_refused(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed
    )
}

/// The code, of several the first that tells of an outage.
fn code(error: &RedisError) -> Option<String> {
    let Some(errors) = error.clone().into_server_errors() else {
        // What the client makes of an answer while it connects.
        let text = format!("{} {}", error.code()?, error.detail().unwrap_or_default());
        return Some(code_in(&text).to_owned());
    };
    let code = |(_, error): &(usize, redis::ServerError)| {
        let text = format!("{} {}", error.code(), error.details().unwrap_or_default());
        code_in(&text).to_owned()
    };
    let codes: Vec<_> = errors.iter().map(code).collect();
    let outage = codes.iter().find(|code| is_outage(code));
    outage.or(codes.first()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(text: &str) -> Failure {
        let answer = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
        Failure::Answered(answer.extract_error().unwrap_err())
    }

    #[test]
    fn a_server_that_may_answer_again_by_itself_is_out() {
        for text in [
            "LOADING Redis is loading the dataset in memory",
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "OOM command not allowed when used memory > 'maxmemory'.",
            "READONLY You can't write against a read only replica.",
            "MISCONF Errors writing to the AOF file: No space left on device",
            "NOREPLICAS Not enough good replicas to write.",
            "CLUSTERDOWN The cluster is down",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "ERR max number of clients reached",
            "ERR Error running script (call to f_93a1): @user_script:7: @user_script: 7: -OOM command \
             not allowed when used memory > 'maxmemory'.",
            "ERR Error running script (call to f_93a1): @user_script:7: @user_script: 7: -READONLY You \
             can't write against a read only replica.",
        ] {
            let error = answered(text).explain();
            assert!(error.is_outage(), "{text}");
            assert!(!error.is_outcome_unknown(), "{text}");
        }
    }

    #[test]
    fn what_an_operator_has_to_mend_is_no_outage() {
        for text in [
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "NOAUTH Authentication required.",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "ERR unknown command 'EVALSHA', with args beginning with: ",
            "ERR DB index is out of range",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "CROSSSLOT Keys in request don't hash to the same slot",
            "ERR Error running script (call to f_93a1): @user_script:7: The user executing the script \
             can't run this command or subcommand",
            "@user_script:7: the value of throttle:{-READONLY}:10/s was not written by a throttle",
            "the value of -OOM:{a}:10/s was not written by a throttle",
        ] {
            assert!(!answered(text).explain().is_outage(), "{text}");
        }
    }

    #[test]
    fn what_something_else_has_written_is_told_apart() {
        for (text, is_foreign) in [
            (
                "WRONGTYPE Operation against a key holding the wrong kind of value",
                true,
            ),
            (
                "ERR Error running script (call to f_93a1): @user_script:7: @user_script: 7: -WRONGTYPE \
                 Operation against a key holding the wrong kind of value",
                true,
            ),
            (
                "ERR the value of throttle:{a}:10/s was not written by a throttle",
                true,
            ),
            (
                "@user_script:7: the value of throttle:{-READONLY}:10/s was not written by a throttle",
                true,
            ),
            (
                "ERR Error running script (call to f_-WRONGTYPE): @user_script:7: it is wrong",
                false,
            ),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                false,
            ),
        ] {
            assert_eq!(
                answered(text).explain().is_foreign_value(),
                is_foreign,
                "{text}"
            );
        }
    }

    #[test]
    fn a_primary_that_became_a_replica_is_told_apart() {
        let wrapped = "ERR Error running script (call to f_1): @user_script:7: -READONLY You can't";
        assert!(answered(wrapped).is_demoted());
        assert!(answered("READONLY You can't write").is_demoted());
        assert!(!answered("OOM command not allowed").is_demoted());
    }
}
