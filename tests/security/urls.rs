//! URLs with passwords.

use std::error::Error as _;

use crate::prelude::*;
use crate::security::shown;
use redis::sentinel::{SentinelClient, SentinelServerType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// The text in the URL, and its meaning.
const PASSWORDS: [(&str, &str); 5] = [
    ("hunter2hunter2", "hunter2hunter2"),
    ("p%40ss%2Fw%3Ard%23%3F", "p@ss/w:rd#?"),
    ("100%25%20sure%27%22", "100% sure'\""),
    ("%7Bb%7D%0D%0APING%0D%0A", "{b}\r\nPING\r\n"),
    ("%C3%A4%E2%82%AC-%F0%9F%97%9D", "\u{e4}\u{20ac}-\u{1f5dd}"),
];

/// Checks for the password as in the URL, as it is, and as `Debug` writes it.
#[track_caller]
fn assert_hidden(text: &str, (encoded, password): (&str, &str)) {
    let debug = format!("{password:?}");
    for it in [encoded, password, debug.trim_matches('"')] {
        assert!(!text.contains(it), "{it} in {text}");
    }
}

async fn error(url: &str) -> StoreError {
    let connected = bounded(RedisStore::connect(url)).await;
    let error = connected.expect_err(url);
    assert_readable(&error);
    error
}

/// With the right password, for a database that there is not; and then for one that there is.
#[tokio::test]
async fn what_was_made_of_a_url_does_not_tell_it() {
    for password in PASSWORDS {
        let (encoded, plain) = password;
        let mut server = RedisServer::start();
        let rule = format!(">{plain}");
        server.command::<()>(&["ACL", "SETUSER", "user", "on", &rule, "~*", "&*", "+@all"]);
        let url = format!("redis://user:{encoded}@127.0.0.1:{}/", server.port());
        let no_database = error(&format!("{url}999")).await;
        let text = everything(&no_database);
        assert!(text.contains("DB index"), "{text}");
        assert_hidden(&text, password);

        let store = RedisStore::connect(&url).await.expect("a connection");
        let mut says = shown(&store);
        let without_scripts = store.clone().scripting(false).expect("its own connections");
        says += &shown(&without_scripts);
        for store in [store, without_scripts] {
            let builder = under(&["5/h", "7/h"]).store(store);
            says += &shown(&builder);
            let limiter = build(builder);
            // A task of the store may have tried to connect while the user was gone.
            let permit = until_ok(async || limiter.acquire("a").await).await;
            says += &shown(&permit);
            says += &shown(&limiter);
            says += &shown(&limiter.policy());
            // The user is gone when the store connects again.
            server.restart();
            let fails = async || match limiter.try_acquire("b").await {
                Err(error) if error.is_store() => Ok(error),
                answer => Err(answer),
            };
            says += &everything(&until_ok(fails).await);
            server.command::<()>(&["ACL", "SETUSER", "user", "on", &rule, "~*", "&*", "+@all"]);
        }
        assert_hidden(&says, password);
    }
}

/// A server that allows nothing, and says what it was sent in words of its own.
async fn quoting() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut sent = vec![0; 4_096];
                while let Ok(length @ 1..) = stream.read(&mut sent).await {
                    let text = String::from_utf8_lossy(&sent[..length]).replace("\r\n", " ");
                    // Each command is an array. A client waits for the answers to all that it has sent.
                    let commands = sent[..length].iter().filter(|byte| **byte == b'*');
                    let answer = format!("-ERR what is {text}?\r\n").repeat(commands.count());
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn no_password_of_a_sentinel_is_told() {
    let port = quoting().await;
    for password in PASSWORDS {
        let (encoded, _) = password;
        for query in ["", "?protocol=resp3"] {
            let sentinel = format!("redis://user:{encoded}@127.0.0.1:{port}/{query}");
            let connected = bounded(RedisStore::connect_sentinel([&sentinel], "primary"));
            let error = connected.await.expect_err("nothing is allowed");
            assert_hidden(&everything(&error), password);
            let role = SentinelServerType::Master;
            let client = SentinelClient::build(vec![sentinel], "primary", None, role);
            let client = client.expect("a valid url");
            let connected = bounded(RedisStore::connect_sentinel_with(client));
            let error = connected.await.expect_err("nothing is allowed");
            assert_hidden(&everything(&error), password);
        }
    }
}

#[tokio::test]
async fn no_url_that_fails_is_told() {
    let server = RedisServer::start();
    server.command::<()>(&["CONFIG", "SET", "requirepass", "another"]);
    let no_auth = RedisServer::start_with(&["--rename-command", "AUTH", ""]);
    let no_hello = RedisServer::start_with(&["--rename-command", "HELLO", ""]);
    let [server, no_auth, no_hello] = [server.port(), no_auth.port(), no_hello.port()];
    for password in PASSWORDS {
        let (encoded, _) = password;
        let unusable = [
            format!("user:{encoded}@host"),
            format!("http://user:{encoded}@host/"),
            format!("redis:user:{encoded}@host/"),
            format!("redis://user:{encoded}@"),
            format!("redis://user:{encoded}@host:99999/"),
            format!("redis://user:{encoded}@ho st/"),
            format!("redis://user:{encoded}@host/database"),
            format!("redis://user:{encoded}@host/-1"),
            format!("redis://:{encoded}@host/0?protocol=resp9"),
            format!("redis://user:%FF{encoded}@host/"),
            format!("rediss://user:{encoded}@127.0.0.1:1/"),
            format!("redis://user:{encoded}@127.0.0.1:1/"),
            format!("redis://user:{encoded}@nowhere.invalid/"),
            format!("unix:///nowhere/redis.sock?user=user&pass={encoded}"),
        ];
        let refused = [
            format!("redis://user:{encoded}@127.0.0.1:{no_hello}/0?protocol=resp3"),
            format!("redis://user:{encoded}@127.0.0.1:{no_auth}/"),
            format!("redis://:{encoded}@127.0.0.1:{no_auth}/"),
            format!("redis://user:{encoded}@127.0.0.1:{server}/"),
            format!("redis://:{encoded}@127.0.0.1:{server}/"),
            format!("redis://user:{encoded}@127.0.0.1:{server}/?protocol=resp3"),
        ];
        for url in &unusable {
            assert_hidden(&everything(&error(url).await), password);
        }
        for url in &refused {
            let error = error(url).await;
            assert!(error.source().is_some(), "{error:?} says no cause");
            assert_hidden(&everything(&error), password);
        }
    }
}
