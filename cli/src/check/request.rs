//! A request of which somebody wants to know where it falls: [`Request`].

use std::net::IpAddr;

use http::{HeaderName, HeaderValue, Method, Uri};
use serde::Serialize;
use tower_throttle::rules::{Explanation, Miss, Rules};

use crate::failure::Failure;

/// What is known of it.
#[derive(clap::Args)]
#[command(next_help_heading = "A request, to see which rule it falls under")]
#[group(requires = "url")]
pub(super) struct Request {
    /// Where it goes to: https://…, or a path alone, as a server sees it
    #[arg(long, required = false)]
    url: Uri,

    /// Its method
    #[arg(long, default_value = "GET")]
    method: Method,

    /// A header of it, as "name: value"; several if given several times
    #[arg(long = "header", value_name = "HEADER")]
    headers: Vec<String>,

    /// The address that it comes from, as a server sees it
    #[arg(long, value_name = "ADDRESS")]
    client_ip: Option<IpAddr>,
}

/// Which rule it falls under.
#[derive(Serialize)]
pub(super) struct Answer {
    rule: usize,
    name: Option<String>,
    exempt: bool,
    key: Option<String>,
    cost: Option<u32>,
    quotas: Vec<String>,
    /// Why it is refused, as it has no key.
    refused: Option<String>,
    /// The rules before.
    misses: Vec<Missed>,
    #[serde(skip)]
    pub(super) text: String,
}

/// Why it does not fall under a rule.
#[derive(Serialize)]
struct Missed {
    rule: usize,
    name: Option<String>,
    reason: String,
}

impl Request {
    pub(super) fn build(&self) -> Result<http::Request<()>, Failure> {
        let mut request = http::Request::builder()
            .method(self.method.clone())
            .uri(self.url.clone());
        for header in &self.headers {
            // It may be a secret, and is not repeated.
            let none = || Failure::usage("a header is not of the form `name: value`");
            let (name, value) = header.split_once(':').ok_or_else(none)?;
            let name = HeaderName::try_from(name.trim()).map_err(|_| none())?;
            let value = HeaderValue::try_from(value.trim()).map_err(|_| none())?;
            request = request.header(name, value);
        }
        if let Some(address) = self.client_ip {
            request = request.extension(address);
        }
        let wrong =
            |error: http::Error| Failure::usage("there is no such request").caused_by(&error);
        request.body(()).map_err(wrong)
    }
}

impl Answer {
    pub(super) fn of(rules: &Rules, request: &http::Request<()>) -> Self {
        let explanation = rules.explain(request);
        let ruled = explanation.ruled.as_ref();
        let quotas = ruled.map(|ruled| ruled.policy.quotas());
        let quotas = quotas.unwrap_or_default().iter().map(ToString::to_string);
        Self {
            rule: explanation.rule.place(),
            name: explanation.rule.name().map(str::to_owned),
            exempt: ruled.is_none(),
            key: ruled.and_then(|it| it.key.as_ref().ok().map(ToString::to_string)),
            cost: ruled.map(|it| it.cost),
            quotas: quotas.collect(),
            refused: ruled.and_then(|it| it.key.as_ref().err().map(ToString::to_string)),
            misses: explanation.misses.iter().map(Missed::from).collect(),
            text: Explanation::to_string(&explanation),
        }
    }
}

impl From<&Miss> for Missed {
    fn from(miss: &Miss) -> Self {
        Self {
            rule: miss.rule.place(),
            name: miss.rule.name().map(str::to_owned),
            reason: miss.reason.clone(),
        }
    }
}
