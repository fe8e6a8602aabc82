//! A client that reads what it is answered.

use std::collections::BTreeMap;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use sfv::{BareItem, List, ListEntry, Parser};

use crate::axum_inbound::server::Server;
use support::errors::bounded;

/// A client of the name that it tells the server.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    client: reqwest::Client,
    base: String,
    name: Option<&'static str>,
}

/// The items of a list, with their parameters.
pub(crate) type Items = Vec<(String, BTreeMap<String, i64>)>;

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Client {
    pub(crate) fn new(server: &Server, name: impl Into<Option<&'static str>>) -> Self {
        // The server is on this machine, whatever proxy the environment names.
        let client = reqwest::Client::builder().no_proxy().build();
        Self {
            client: client.expect("a client"),
            base: format!("http://{}", server.address),
            name: name.into(),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        let mut request = self.client.get(format!("{}{path}", self.base));
        if let Some(name) = self.name {
            request = request.header("x-client", name);
        }
        bounded(async {
            let response = request.send().await.expect("an answer");
            Answer {
                status: response.status(),
                headers: response.headers().clone(),
                body: response.text().await.expect("a body"),
            }
        })
        .await
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

    /// A field that is a list of strings, all its lines together.
    pub(crate) fn items(&self, name: &str) -> Items {
        let lines = self.headers.get_all(name).iter();
        let lines: Vec<_> = lines.map(http::HeaderValue::as_bytes).collect();
        let list: List = Parser::new(&lines.join(&b", "[..]))
            .parse()
            .expect("a structured field");
        list.into_iter().map(item).collect()
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

fn item(entry: ListEntry) -> (String, BTreeMap<String, i64>) {
    let ListEntry::Item(item) = entry else {
        panic!("an inner list: {entry:?}");
    };
    let BareItem::String(name) = item.bare_item else {
        panic!("not a string: {item:?}");
    };
    let parameters = item.params.into_iter().map(|(key, value)| match value {
        BareItem::Integer(value) => (key.as_str().to_owned(), value.into()),
        other => panic!("not an integer: {other:?}"),
    });
    (name.as_str().to_owned(), parameters.collect())
}
