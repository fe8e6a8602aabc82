//! Errors, and the passwords that they must not reveal.

use std::net::TcpListener;

use redis::{ServerError, parse_redis_value};

use super::super::errors::{demoted, refused};
use super::*;

const SECRET: &str = "p\u{e4}ss-w\u{f6}rd'7";

/// The secret as it is written in a URL.
const ENCODED: &str = "p%C3%A4ss-w%C3%B6rd%277";

fn assert_hidden(error: &StoreError) {
    let text = everything(error);
    for secret in [SECRET, ENCODED, "p%C3", "ss-w"] {
        assert!(!text.contains(secret), "{text}");
    }
}

fn with_password(url: &str) -> String {
    url.replace("redis://", &format!("redis://user:{ENCODED}@"))
}

/// A server that gives each command the same answer.
fn answering(answer: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let answer = answer.repeat(10);
            let _ = client.write_all(answer.as_bytes());
            // The client closes the connection.
            let _ = std::io::copy(&mut client, &mut std::io::sink());
        }
    });
    format!("redis://127.0.0.1:{port}/")
}

pub(super) fn server_error(text: &str) -> ServerError {
    match parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap() {
        Value::ServerError(error) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_answer_that_quotes_the_password_is_cut() {
    for (answer, shown) in [
        (format!("-ERR {SECRET} is wrong"), "answered with ERR"),
        (format!("-{SECRET} is wrong"), "answered with an error"),
        (format!("-LOADING {SECRET}"), "answered with LOADING"),
        (SECRET.to_owned(), ""),
    ] {
        let url = with_password(&answering(format!("{answer}\r\n")));
        let error = get(&Servers::at(&url).unwrap()).await.unwrap_err();
        assert_hidden(&error);
        let error = get(&Servers::at(&(url + "?protocol=resp3")).unwrap()).await;
        let error = error.unwrap_err();
        assert_hidden(&error);
        assert!(everything(&error).contains(shown), "{answer}: {error:?}");
        assert_eq!(
            error.is_outage(),
            shown.contains("LOADING") || shown.is_empty()
        );
    }
}

#[test]
fn errors_of_servers_are_distinguished() {
    let wrapped = "ERR Error running script (call to f_93a1): @user_script:7: @user_script: 7: ";
    for (kind, texts) in [
        (
            "outage",
            "LOADING Redis is loading the dataset|OOM command not allowed|READONLY You can't write|\
             MISCONF Redis cannot save|MASTERDOWN Link with MASTER is down|NOREPLICAS Not enough replicas|\
             CLUSTERDOWN The cluster is down|TRYAGAIN Multiple keys request during rehashing|\
             ERR max number of clients reached|ERR Redis is busy running a script.|\
             EXECABORT Transaction discarded because of: -OOM command|WRAPPED-OOM command",
        ),
        (
            "unrecognized value",
            "WRONGTYPE Operation|WRAPPED-WRONGTYPE Operation|WRAPPEDWRONGTYPE Operation",
        ),
        (
            "refusal",
            "NOPERM this user has no permissions|ERR unknown command 'EVALSHA'|\
             CROSSSLOT Keys in request don't hash to the same slot|\
             ERR the value of throttle:{-READONLY}:10/s is wrong|WRAPPEDThe user may not run this",
        ),
    ] {
        for text in texts.split('|') {
            let error = refused(&server_error(&text.replace("WRAPPED", wrapped)));
            assert_eq!(error.is_outage(), kind == "outage", "{text}");
            let is_unrecognized = error.is_unrecognized_value();
            assert_eq!(is_unrecognized, kind == "unrecognized value", "{text}");
            assert!(!error.is_outcome_unknown(), "{text}");
        }
    }
    let readonly = server_error(&format!("{wrapped}-READONLY You can't"));
    assert!(demoted(&readonly).is_some_and(|error| error.is_outage()));
    assert!(demoted(&server_error("OOM command not allowed")).is_none());
}

#[test]
fn servers_need_a_valid_url() {
    let none: [&str; 0] = [];
    for error in [
        Servers::at("http://host/").err(),
        Servers::cluster(none).err(),
        Servers::cluster(["unix:///socket"]).err(),
        Servers::by_sentinels(none, "primary").err(),
    ] {
        let error = error.unwrap();
        assert!(error.is_invalid_url() && !error.is_outage());
    }
}
