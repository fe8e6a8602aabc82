//! Errors of servers.

use redis::{ServerError, parse_redis_value};

use super::super::errors::{is_demotion, refused};
use super::*;

pub(super) fn server_error(text: &str) -> ServerError {
    match parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap() {
        Value::ServerError(error) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn errors_of_servers_are_distinguished() {
    let wrapped = "ERR Error running script (call to f_93a1): @user_script:7: @user_script: 7: ";
    for row in "\
        outage => LOADING Redis is loading the dataset|OOM command not allowed|READONLY You can't write
        outage => MISCONF Redis cannot save|MASTERDOWN Link with MASTER is down|NOREPLICAS Not enough replicas
        outage => CLUSTERDOWN The cluster is down|ERR max number of clients + cluster connections reached
        outage => ERR max number of clients reached|ERR Redis is busy running a script.
        outage => EXECABORT Transaction discarded because of: -OOM command|WRAPPED-OOM command
        conflict => TRYAGAIN Multiple keys request during rehashing|ASK 7 host:1
        unrecognized value => WRONGTYPE Operation|WRAPPED-WRONGTYPE Operation|WRAPPEDWRONGTYPE Operation
        refusal => NOPERM this user has no permissions|ERR unknown command 'EVALSHA'
        refusal => CROSSSLOT Keys in request don't hash to the same slot|WRAPPEDThe user may not run this
        refusal => ERR the value of throttle:{-READONLY}:10/s is wrong"
        .lines()
    {
        let (kind, texts) = row.trim().split_once(" => ").unwrap();
        for text in texts.split('|') {
            let error = refused(&server_error(&text.replace("WRAPPED", wrapped)));
            assert_eq!(error.is_outage(), kind == "outage", "{text}");
            assert_eq!(error.is_conflict(), kind == "conflict", "{text}");
            let is_unrecognized = error.is_unrecognized_value();
            assert_eq!(is_unrecognized, kind == "unrecognized value", "{text}");
            assert!(!error.is_outcome_unknown(), "{text}");
        }
    }
    let readonly = server_error(&format!("{wrapped}-READONLY You can't"));
    assert!(is_demotion(&readonly));
    assert!(!is_demotion(&server_error("OOM command not allowed")));
}

#[test]
fn servers_need_a_valid_url() {
    let none: [&str; 0] = [];
    for error in [
        servers::at("http://host/").err(),
        servers::cluster(none).err(),
        servers::cluster(["unix:///socket"]).err(),
        servers::by_sentinels(none, "primary").err(),
    ] {
        let error = error.unwrap();
        assert!(error.is_invalid_url() && !error.is_outage());
    }
}
