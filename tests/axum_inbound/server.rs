//! A server on a loopback port, a client that reads its answers, and the limits between them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, to_bytes};
use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap, Request, StatusCode};
use serde_json::Value;
use tokio::net::TcpListener;
use tower::ServiceExt as _;
use tower_throttle::key::{self, Header};
use tower_throttle::tower::inbound::InboundLayer;
use tower_throttle::{FailureMode, ThrottleLayer};

use crate::prelude::*;

pub(crate) use support::spend::build;

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

/// The items of a list, with their parameters.
pub(crate) type Items = Vec<(String, BTreeMap<String, i64>)>;

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

    /// A number in a field that occurs once.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next().unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(values.next(), None, "{name} twice");
        let text = value.to_str().expect("ASCII");
        assert!(text.bytes().all(|byte| byte.is_ascii_digit()), "{text}");
        text.parse().expect("a number")
    }

    /// A field that is a list of strings with numbers as parameters, all its lines together.
    pub(crate) fn items(&self, name: &str) -> Items {
        let lines = self.headers.get_all(name).iter();
        let items = lines.flat_map(|line| line.to_str().expect("ASCII").split(", "));
        let items = items.map(|item| {
            let (name, parameters) = item.split_once(';').expect("parameters");
            let pairs = parameters.split(';').filter_map(|it| it.split_once('='));
            let numbers =
                pairs.map(|(key, value)| (key.to_owned(), value.parse().expect("a number")));
            (name.trim_matches('"').to_owned(), numbers.collect())
        });
        items.collect()
    }

    /// The one item of `RateLimit`: who it is about, `r` and `t`, or 0 where that is left out.
    pub(crate) fn rate_limit(&self) -> (String, i64, u64) {
        let mut items = self.items("ratelimit");
        let (name, parameters) = items.pop().expect("an item");
        assert!(items.is_empty(), "{items:?}");
        let t = parameters.get("t").copied().unwrap_or(0);
        let t = t.try_into().expect("a time to come");
        (name, parameters["r"], t)
    }

    pub(crate) fn problem(&self) -> Value {
        assert_eq!(self.headers[CONTENT_TYPE], "application/problem+json");
        serde_json::from_str(&self.body).expect("JSON")
    }
}
