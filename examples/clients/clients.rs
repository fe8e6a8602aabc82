//! The clients of kube and octocrab with a limit. They call local servers instead of Kubernetes and GitHub.
//!
//! ```sh
//! cargo run -p tower-throttle-clients
//! ```

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::future::try_join_all;
use http::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::client::ClientBuilder;
use kube::{Api, Config};
use octocrab::service::middleware::base_uri::BaseUriLayer;
use octocrab::{AuthState, Octocrab, OctocrabBuilder};
use serde_json::{Value, json};
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, Quota, ThrottleLayer, key};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

const LIMIT: u32 = 4;
const REQUESTS: usize = 10;
const SECOND: Duration = Duration::from_secs(1);

/// A client of Kubernetes.
fn kube_client(mut config: Config, limiter: Limiter) -> anyhow::Result<kube::Client> {
    // These retries are inside of the throttle, so they would not count. A `RetryLayer` after the throttle counts.
    config.default_retry = false;
    // The service of kube is not `Clone`. Here the requests do not have their host yet.
    let throttle = ThrottleLayer::new(limiter)
        .key(key::constant("kubernetes"))
        .shared();
    let builder = ClientBuilder::try_from(config)?;
    Ok(builder.with_layer(&throttle).build())
}

/// A client of GitHub.
fn github_client(base: Uri, limiter: Limiter) -> anyhow::Result<Octocrab> {
    // For the real API, this needs a connector with TLS.
    let client = Client::builder(TokioExecutor::new()).build_http();
    let client = OctocrabBuilder::new_empty()
        .with_service(client)
        .with_layer(&ThrottleLayer::new(limiter))
        .with_layer(&BaseUriLayer::new(base))
        .with_auth(AuthState::None);
    Ok(client.build()?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let empty = json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [] });
    let kubernetes = Upstream::start(empty).await;
    let client = kube_client(Config::new(kubernetes.uri()?), limiter()?)?;
    let pods: Api<Pod> = Api::default_namespaced(client);
    let list = async || pods.list(&ListParams::default()).await;
    try_join_all((0..REQUESTS).map(|_| list())).await?;
    kubernetes.check("kube")?;

    let github = Upstream::start(json!({ "login": "octocat" })).await;
    let client = github_client(github.uri()?, limiter()?)?;
    let user = async || client.get::<Value, _, ()>("/users/octocat", None).await;
    try_join_all((0..REQUESTS).map(|_| user())).await?;
    github.check("octocrab")
}

fn limiter() -> anyhow::Result<Limiter> {
    let quota = Quota::per_second(LIMIT);
    let buffer = Duration::from_millis(100);
    Ok(Limiter::builder().quota(quota).buffer(buffer).build()?)
}

/// A local server that records when requests arrive.
struct Upstream {
    server: MockServer,
    arrivals: Arc<Mutex<History>>,
}

impl Upstream {
    async fn start(body: Value) -> Self {
        let (server, arrivals) = (MockServer::start().await, Arc::<Mutex<History>>::default());
        let (record, start) = (arrivals.clone(), Instant::now());
        let answer = move |_: &wiremock::Request| {
            let mut record = record.lock().expect("no panic while recording");
            record.push(start.elapsed());
            ResponseTemplate::new(200).set_body_json(&body)
        };
        Mock::given(any()).respond_with(answer).mount(&server).await;
        Self { server, arrivals }
    }

    fn uri(&self) -> anyhow::Result<Uri> {
        self.server.uri().parse().context("the URI of the server")
    }

    fn check(&self, client: &str) -> anyhow::Result<()> {
        let arrivals = self.arrivals.lock().expect("no panic while recording");
        let most = arrivals.most_in_any(SECOND);
        let sent = arrivals.len();
        println!(
            "{client}: {sent} requests, most in any {SECOND:?} window: {most} (limit {LIMIT})"
        );
        anyhow::ensure!(sent == REQUESTS, "{sent} of {REQUESTS} requests arrived");
        anyhow::ensure!(
            most <= u64::from(LIMIT),
            "more arrived than the limit allows"
        );
        Ok(())
    }
}
