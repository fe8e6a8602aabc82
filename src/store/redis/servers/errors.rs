//! Maps errors of the Redis client to [`StoreError`]s, which reveal no password.

use std::fmt::Display;

use redis::{ErrorKind, RedisError, ServerError};

use crate::store::StoreError;

/// A part of the answer if the number of the database is too large.
const NO_DATABASE: &str = "DB index is out of range";

const REFUSED: &str = "redis refused the call";

/// A call that failed as a whole. The command may have been executed unless the server refused it.
pub(super) fn of_call(error: RedisError) -> StoreError {
    if let Some(text) = answer_of(&error) {
        // A `ConnectionManager` also returns its failed `AUTH` here.
        return by_code(REFUSED, code_in(&text)).caused_by(answered_with(&text));
    }
    if error.is_connection_refusal() {
        return unreachable().caused_by(error);
    }
    let lost = StoreError::new("the connection to redis was lost");
    lost.caused_by(error).outcome_unknown()
}

/// The error of a single command that the server refused. The command had no effect.
pub(crate) fn refused(error: &ServerError) -> StoreError {
    let text = text_of(error);
    // A script has read a value that was cut off.
    let is_cut = text.contains("data string too short");
    let code = if is_cut { "WRONGTYPE" } else { code_in(&text) };
    // For `AUTH`, the arguments of an unknown command are the password.
    let shown = text.split(", with args beginning with").next();
    by_code(REFUSED, code).caused_by(shown.unwrap_or_default())
}

/// True if the server has become a replica. A new connection may reach the new primary.
pub(super) fn is_demotion(error: &ServerError) -> bool {
    ["MASTERDOWN", "READONLY"].contains(&code_in(&text_of(error)))
}

/// An attempt to connect to this address that failed.
pub(super) fn of_attempt(error: RedisError, address: &str) -> StoreError {
    use ErrorKind::{InvalidClientConfig, RESP3NotSupported};
    if let Some(text) = answer_of(&error) {
        let refused = by_code("redis refused the connection", code_in(&text));
        return refused.caused_by(answered_with(&text));
    }
    if error.is_io_error() {
        return unreachable_at(address, error);
    }
    let failed = unreachable_at(address, error.category());
    match error.kind() {
        InvalidClientConfig | RESP3NotSupported => failed.no_outage(),
        _ => failed,
    }
}

pub(super) fn unreachable() -> StoreError {
    StoreError::new("redis cannot be reached")
}

pub(super) fn unreachable_at(address: &str, why: impl Display) -> StoreError {
    unreachable().caused_by(format!("{address}: {why}"))
}

pub(super) fn too_late() -> StoreError {
    StoreError::new("redis did not answer in time")
}

/// The call can be repeated: the server that holds the key has changed.
pub(crate) fn moved() -> StoreError {
    StoreError::new("the slot of the key moves to another server").conflict()
}

fn by_code(message: &'static str, code: &str) -> StoreError {
    let refused = StoreError::new(message);
    match code {
        "WRONGTYPE" => refused.unrecognized_value(),
        // The slot moves to another server: other slots are served.
        "ASK" | "TRYAGAIN" => refused.conflict(),
        code if is_temporary(code) => refused,
        _ => refused.no_outage(),
    }
}

/// True if a server with this error code does not serve the call for now, and may recover without an operator.
fn is_temporary(code: &str) -> bool {
    const CODES: [&str; 12] = [
        "ASK",
        "BUSY",
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        "MAXCLIENTS",
        "MISCONF",
        "MOVED",
        "NOREPLICAS",
        "OOM",
        "READONLY",
        "TRYAGAIN",
    ];
    CODES.contains(&code)
}

/// The error that a server or a proxy sent, so that the call had no effect; `None` of other errors.
fn answer_of(error: &RedisError) -> Option<String> {
    use ErrorKind::{AuthenticationFailed, Extension, Server};
    if !matches!(error.kind(), Server(_) | Extension | AuthenticationFailed) {
        return None;
    }
    let errors = error.clone().into_server_errors();
    Some(match errors.as_deref() {
        Some([(_, error), ..]) => text_of(error),
        // The client rewords the errors of its handshake.
        _ => {
            let code = match error.kind() {
                AuthenticationFailed => "AUTH",
                _ => error.code().unwrap_or("ERR"),
            };
            format!("{code} {}", error.detail().unwrap_or_default())
        }
    })
}

fn text_of(error: &ServerError) -> String {
    format!("{} {}", error.code(), error.details().unwrap_or_default())
}

/// The code in the text of an error. If a script passed on the error of a command, it is that command's code.
///
/// Redis 6.2 wraps that error: `ERR Error running script (call to ...): @user_script:1: -OOM command ...`. The
/// name of a key cannot imitate a code, because names contain no spaces.
fn code_in(text: &str) -> &str {
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or_default();
    let is_wrapped = first == "ERR" || first == "EXECABORT" || first.starts_with("@user_script");
    if !is_wrapped {
        return first;
    }
    if text.contains("max number of clients") {
        // Servers lack a code for this error.
        return "MAXCLIENTS";
    }
    if text.contains("busy running a script") {
        return "BUSY";
    }
    let is_known = |code: &&str| is_temporary(code) || *code == "WRONGTYPE";
    let mut codes = words.map(|word| word.strip_prefix('-').unwrap_or(word));
    codes.find(is_known).unwrap_or(first)
}

/// Quotes only what cannot be part of a password: a proxy, or a server with a renamed `AUTH`, repeats that in its answer.
fn answered_with(text: &str) -> String {
    let shown = match code_in(text) {
        "ERR" if text.contains(NO_DATABASE) => NO_DATABASE,
        code @ ("ERR" | "NOAUTH" | "NOPERM" | "WRONGPASS" | "EXECABORT" | "DENIED") => code,
        code if is_temporary(code) => code,
        "AUTH" => "an error to AUTH: check the user, the password and `maxclients`",
        _ => "an error",
    };
    format!("the server answered with {shown}")
}
