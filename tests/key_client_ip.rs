//! Behind axum's own server `key::client_ip` finds the peer of a real connection, and believes the
//! headers of trusted ones alone.

use std::net::{Ipv4Addr, SocketAddr};

use axum::{Router, extract::Request, routing::get};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tower_throttle::key::{self, ClientIp, Extracted, KeyExtractor, MatchedPath};

/// Answers with the key of the request.
fn echo(extractor: (ClientIp, MatchedPath)) -> Router {
    let handler = async move |request: Request| match extractor.extract(&request) {
        Extracted::Key(key) => key.to_string(),
        Extracted::Exempt => "exempt".to_owned(),
        Extracted::Refused(reason) => format!("refused: {reason}"),
        Extracted::Ruled(ruled) => panic!("{ruled:?}"),
    };
    Router::new().nest("/v1", Router::new().route("/users/{id}", get(handler)))
}

fn trusting(network: &str) -> (ClientIp, MatchedPath) {
    let network = network.parse().expect("a network");
    (
        key::client_ip().trusted_proxies([network]),
        key::matched_path(),
    )
}

/// Where it listens. It does so until the test's runtime is dropped.
async fn serve(app: Router, with_connect_info: bool) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let served = match with_connect_info {
            true => {
                let app = app.into_make_service_with_connect_info::<SocketAddr>();
                axum::serve(listener, app).await
            }
            false => axum::serve(listener, app).await,
        };
        served.expect("a server");
    });
    address
}

/// The body of the answer to a request with these header lines.
async fn ask(server: SocketAddr, lines: &[&str]) -> String {
    let mut stream = TcpStream::connect(server).await.expect("a connection");
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let head = format!(
        "GET /v1/users/7?a=b HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n{lines}\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body.to_owned()
}

#[tokio::test]
async fn the_peer_of_the_connection_is_the_client_whatever_it_sends() {
    for extractor in [
        (key::client_ip(), key::matched_path()),
        trusting("10.0.0.0/8"),
    ] {
        let server = serve(echo(extractor), true).await;
        for lines in [
            &[][..],
            &["X-Forwarded-For: 8.8.8.8"],
            &[
                "X-Forwarded-For: 8.8.8.8, 10.0.0.1",
                "Forwarded: for=8.8.8.8",
            ],
        ] {
            let key = ask(server, lines).await;
            assert_eq!(key, "127.0.0.1|/v1/users/{id}");
        }
    }
}

#[tokio::test]
async fn a_trusted_peer_tells_who_the_client_is() {
    let (client_ip, path) = trusting("127.0.0.0/8");
    let standard = (client_ip.clone().forwarded(), path.clone());
    let server = serve(echo((client_ip, path)), true).await;
    for (lines, client) in [
        (&[][..], "127.0.0.1"),
        (&["X-Forwarded-For: 203.0.113.7"], "203.0.113.7"),
        (&["x-forwarded-for: 8.8.8.8,203.0.113.7"], "203.0.113.7"),
        (
            &[
                "X-Forwarded-For: 8.8.8.8, \u{ff}",
                "X-Forwarded-For: 2001:db8::1, 127.0.0.9",
            ],
            "2001:db8::/64",
        ),
        (&["X-Forwarded-For: 8.8.8.8, unknown"], "127.0.0.1"),
        (&["Forwarded: for=8.8.8.8"], "127.0.0.1"),
    ] {
        let key = ask(server, lines).await;
        assert_eq!(key, format!("{client}|/v1/users/{{id}}"), "{lines:?}");
    }
    let server = serve(echo(standard), true).await;
    let line = r#"Forwarded: for=8.8.8.8;a=", for="[2001:db8::1]:4711";proto=https"#;
    assert_eq!(ask(server, &[line]).await, "2001:db8::/64|/v1/users/{id}");
}

#[tokio::test]
async fn a_server_that_keeps_its_peers_to_itself_is_told_how_to_change_that() {
    let server = serve(echo(trusting("0.0.0.0/0")), false).await;
    let answer = ask(server, &["X-Forwarded-For: 8.8.8.8"]).await;
    assert!(answer.starts_with("refused: "), "{answer}");
    let call = "`into_make_service_with_connect_info::<SocketAddr>()`";
    assert!(answer.contains(call), "{answer}");
}
