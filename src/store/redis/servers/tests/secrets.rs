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

fn server_error(text: &str) -> ServerError {
    match parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap() {
        Value::ServerError(error) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_invalid_url_is_not_quoted() {
    for url in [
        "redis://user:SECRET@host:port/",
        "http://:SECRET@host/",
        "SECRET",
    ] {
        let url = url.replace("SECRET", ENCODED);
        for error in [
            Servers::at(&url).err().unwrap(),
            Servers::cluster([&url]).err().unwrap(),
            Servers::by_sentinels([&url], "primary").err().unwrap(),
        ] {
            assert!(error.is_invalid_url() && !error.is_outage());
            assert_hidden(&error);
        }
    }
    let none: [&str; 0] = [];
    assert!(Servers::cluster(none).err().unwrap().is_invalid_url());
    assert!(
        Servers::by_sentinels(none, "primary")
            .err()
            .unwrap()
            .is_invalid_url()
    );
    assert!(
        Servers::cluster(["unix:///socket"])
            .err()
            .unwrap()
            .is_invalid_url()
    );
}

#[tokio::test]
async fn a_wrong_password_is_no_outage_and_is_not_quoted() {
    let server = RedisServer::start();
    let servers = Servers::at(&with_password(&server.url())).unwrap();
    let error = get(&servers).await.unwrap_err();
    assert!(
        !error.is_outage() && !error.is_outcome_unknown(),
        "{error:?}"
    );
    assert_hidden(&error);
}

#[tokio::test]
async fn an_unknown_command_is_shown_without_the_password_in_its_arguments() {
    let server = RedisServer::start_with(&["--rename-command", "HELLO", ""]);
    let url = with_password(&server.url()) + "?protocol=resp3";
    let error = get(&Servers::at(&url).unwrap()).await.unwrap_err();
    assert_hidden(&error);
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
fn errors_of_servers_are_told_apart() {
    let wrapped = "ERR Error running script (call to f_93a1): @user_script:7: @user_script: 7: ";
    for (text, is_outage, is_unrecognized) in [
        (
            "LOADING Redis is loading the dataset in memory",
            true,
            false,
        ),
        ("OOM command not allowed", true, false),
        (
            "READONLY You can't write against a read only replica.",
            true,
            false,
        ),
        ("CLUSTERDOWN The cluster is down", true, false),
        (
            "TRYAGAIN Multiple keys request during rehashing of slot",
            true,
            false,
        ),
        ("ERR max number of clients reached", true, false),
        ("ERR Redis is busy running a script.", true, false),
        (
            "EXECABORT Transaction discarded because of: -OOM command",
            true,
            false,
        ),
        ("NOPERM this user has no permissions", false, false),
        (
            "ERR unknown command 'EVALSHA', with args beginning with: ",
            false,
            false,
        ),
        (
            "CROSSSLOT Keys in request don't hash to the same slot",
            false,
            false,
        ),
        ("WRONGTYPE Operation against a key", false, true),
        (
            "ERR the value of throttle:{-READONLY}:10/s is wrong",
            false,
            false,
        ),
        (&format!("{wrapped}-OOM command not allowed"), true, false),
        (
            &format!("{wrapped}-WRONGTYPE Operation against a key"),
            false,
            true,
        ),
        (
            &format!("{wrapped}WRONGTYPE Operation against a key"),
            false,
            true,
        ),
        (
            &format!("{wrapped}The user may not run this command"),
            false,
            false,
        ),
    ] {
        let error = refused(&server_error(text));
        assert_eq!(error.is_outage(), is_outage, "{text}");
        assert_eq!(error.is_unrecognized_value(), is_unrecognized, "{text}");
        assert!(!error.is_outcome_unknown(), "{text}");
    }
    let readonly = server_error(&format!("{wrapped}-READONLY You can't"));
    assert!(demoted(&readonly).is_some_and(|error| error.is_outage()));
    assert!(demoted(&server_error("OOM command not allowed")).is_none());
}
