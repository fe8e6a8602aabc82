//! A request to match against the rules: [`Request`].

use std::net::IpAddr;

use http::{HeaderName, HeaderValue, Method, Uri};
use serde::Serialize;
use tower_throttle::rules::{Explanation, Miss, Rules};

use crate::failure::Failure;

/// The parts of the request that rules can match.
#[derive(clap::Args)]
#[command(next_help_heading = "Request to match")]
#[group(requires = "url")]
pub(super) struct Request {
    /// URL of the request: https://…, or only a path, as servers receive it
    #[arg(long, required = false)]
    url: Uri,

    /// Method of the request
    #[arg(long, default_value = "GET")]
    method: Method,

    /// Header of the request, such as "name: value"; repeat for several
    #[arg(long = "header", value_name = "HEADER")]
    headers: Vec<String>,

    /// IP address of the client
    #[arg(long, value_name = "ADDRESS")]
    client_ip: Option<IpAddr>,
}

/// The rule that matches.
#[derive(Serialize)]
pub(super) struct Answer {
    rule: usize,
    name: Option<String>,
    exempt: bool,
    key: Option<String>,
    cost: Option<u32>,
    quotas: Vec<String>,
    /// Why the limiter would refuse the request, if it has no key.
    pub(super) refused: Option<String>,
    /// The earlier rules, which do not match.
    misses: Vec<Missed>,
    #[serde(skip)]
    pub(super) text: String,
}

/// Why a rule does not match.
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
            // The header may be a secret, so the error does not repeat it.
            let invalid = || Failure::usage("a `--header` is not of the form `name: value`");
            let (name, value) = header.split_once(':').ok_or_else(invalid)?;
            let name = HeaderName::try_from(name.trim()).map_err(|_| invalid())?;
            let value = HeaderValue::try_from(value.trim()).map_err(|_| invalid())?;
            request = request.header(name, value);
        }
        if let Some(address) = self.client_ip {
            request = request.extension(address);
        }
        let wrong = |error: http::Error| Failure::usage("the request is invalid").caused_by(&error);
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
            cost: ruled.map(|it| it.cost.unwrap_or(1)),
            quotas: quotas.collect(),
            refused: ruled.and_then(|it| it.key.as_ref().err().map(|it| it.reason.to_string())),
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
