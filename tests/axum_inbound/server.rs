//! A server on a loopback port, a client that reads its answers, and the limits between them.

use std::net::SocketAddr;

use axum::body::to_bytes;
use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap};
use tokio::net::TcpListener;
use tower_throttle::key::Header;

use crate::prelude::*;

/// Serves until the runtime of the test ends. Returns the address.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

pub(crate) fn limiter(quota: Quota) -> Limiter {
    build(Limiter::builder().quota(quota))
}

/// By client, which is whatever the request says here.
pub(crate) fn by_client(limiter: &Limiter) -> InboundLayer<Header> {
    ThrottleLayer::new(limiter.clone()).inbound(key::header("x-client"), FailureMode::Closed)
}

/// A client of the name that it tells the server.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    app: Router,
    name: Option<&'static str>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) extensions: Extensions,
    pub(crate) body: String,
}

impl Client {
    pub(crate) fn new(app: &Router, name: impl Into<Option<&'static str>>) -> Self {
        Self {
            app: app.clone(),
            name: name.into(),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        let mut request = Request::get(path);
        if let Some(name) = self.name {
            request = request.header("x-client", name);
        }
        let request = request.body(Body::empty()).expect("a request");
        let answer = self.app.clone().oneshot(request).await.expect("infallible");
        let (parts, body) = answer.into_parts();
        let body = to_bytes(body, usize::MAX).await.expect("a body");
        Answer {
            status: parts.status,
            headers: parts.headers,
            extensions: parts.extensions,
            body: String::from_utf8(body.to_vec()).expect("text"),
        }
    }
}

impl Answer {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.headers.contains_key(name)
    }

    /// A field that occurs once.
    pub(crate) fn text(&self, name: &str) -> &str {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next().unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(values.next(), None, "{name} twice");
        value.to_str().expect("ASCII")
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        self.text(name).parse().expect("a number")
    }

    /// The one item of `RateLimit`: its name, `r` and `t`, or 0 where that is left out.
    pub(crate) fn rate_limit(&self) -> (&str, u64, u64) {
        let (name, numbers) = self.text("ratelimit").split_once(';').expect("numbers");
        let number = |prefix: &str| {
            let mut numbers = numbers.split(';').filter_map(|it| it.strip_prefix(prefix));
            numbers.next().map_or(0, |it| it.parse().expect("a number"))
        };
        (name.trim_matches('"'), number("r="), number("t="))
    }

    pub(crate) fn problem(&self) -> Value {
        assert_eq!(self.headers[CONTENT_TYPE], "application/problem+json");
        serde_json::from_str(&self.body).expect("JSON")
    }
}
