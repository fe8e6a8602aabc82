//! [`Prometheus`]: a real server that scrapes an exporter, and is asked for what it has.

use std::env;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use reqwest::{Client, Url};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::sleep;

use super::PATIENCE;

/// An exporter as the documentation advises it.
pub(crate) fn exporter() -> PrometheusBuilder {
    let waits = [
        0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0,
    ];
    let calls = [
        0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
    ];
    let sizes = [
        1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0,
    ];
    let full = |name: &str| Matcher::Full(name.to_owned());
    let builder = PrometheusBuilder::new();
    let builder = builder.set_buckets_for_metric(full("tower_throttle_wait_seconds"), &waits);
    let builder = builder.expect("buckets");
    let builder = builder.set_buckets_for_metric(full("tower_throttle_store_call_seconds"), &calls);
    let per_call = Matcher::Suffix("_per_call".to_owned());
    let builder = builder
        .expect("buckets")
        .set_buckets_for_metric(per_call, &sizes);
    builder.expect("buckets")
}

/// A free loopback address.
pub(crate) fn spare_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address")
}

/// A `prometheus` process on a loopback port of its own, which scrapes once a second. Dropping it ends it.
///
/// The binary is `$PROMETHEUS`, or else `prometheus` on the `PATH`, or what `scripts/redis` has brought.
#[derive(Debug)]
pub(crate) struct Prometheus {
    process: Child,
    url: Url,
    client: Client,
    dir: TempDir,
}

impl Prometheus {
    /// Scrapes this address, and returns once it answers.
    pub(crate) async fn scrape(exporter: SocketAddr) -> Self {
        for _ in 0..20 {
            let mut this = Self::spawn(exporter);
            if this.is_ready().await {
                return this;
            }
            let log = this.log();
            assert!(log.contains("address already in use"), "{log}");
        }
        panic!("lost the race for a free port twenty times");
    }

    fn spawn(exporter: SocketAddr) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n\
             scrape_configs: [{{job_name: throttle, static_configs: [{{targets: ['{exporter}']}}]}}]\n"
        );
        let (file, data) = (dir.path().join("config.yml"), dir.path().join("data"));
        fs::write(&file, config).expect("our own directory");
        let address = spare_address();
        let log = File::create(dir.path().join("log")).expect("our own directory");
        let process = Command::new(binary())
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Self {
            process: process.expect("a prometheus that runs"),
            url: Url::parse(&format!("http://{address}/")).expect("a URL"),
            client: Client::new(),
            dir,
        }
    }

    async fn is_ready(&mut self) -> bool {
        let start = Instant::now();
        let ready = self.url.join("-/ready").expect("a URL");
        loop {
            let answer = self.client.get(ready.clone()).send().await;
            if answer.is_ok_and(|it| it.status().is_success()) {
                return true;
            }
            if self.process.try_wait().expect("our own child").is_some() {
                return false;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "it does not come up: {}",
                self.log()
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Every value of this query, once a second over the last minute; an error is what the server says.
    pub(crate) async fn values(&self, query: &str) -> Result<Vec<f64>, String> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.expect("a clock").as_secs_f64();
        let (start, end) = ((now - 60.0).to_string(), now.to_string());
        let range = [
            ("query", query),
            ("start", &start),
            ("end", &end),
            ("step", "1"),
        ];
        let answer = self.get("api/v1/query_range", &range).await?;
        let series = answer["data"]["result"].as_array().expect("a matrix");
        let samples = series
            .iter()
            .flat_map(|it| it["values"].as_array().expect("samples"));
        let value = |sample: &Value| {
            sample[1]
                .as_str()
                .expect("a value")
                .parse()
                .expect("a number")
        };
        Ok(samples.map(value).collect())
    }

    /// The values of a label.
    pub(crate) async fn label_values(&self, label: &str, of: &str) -> Result<Vec<String>, String> {
        let path = format!("api/v1/label/{label}/values");
        let answer = self.get(&path, &[("match[]", of)]).await?;
        let values = answer["data"].as_array().expect("values").iter();
        Ok(values
            .map(|it| it.as_str().expect("a text").to_owned())
            .collect())
    }

    async fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value, String> {
        let url = self.url.join(path).expect("a URL");
        let url = Url::parse_with_params(url.as_str(), parameters).expect("a URL");
        let answer = self.client.get(url).send().await.expect("an answer");
        let text = answer.text().await.expect("a text");
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        match answer["status"].as_str() {
            Some("success") => Ok(answer),
            _ => Err(text),
        }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn binary() -> PathBuf {
    if let Some(binary) = env::var_os("PROMETHEUS") {
        return binary.into();
    }
    let on_path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&on_path).map(|it| it.join("prometheus"));
    let brought =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/prometheus/usr/bin/prometheus");
    let missing = "there is no prometheus: install it, set PROMETHEUS, or let `source scripts/redis && find_others` bring it";
    on_path
        .chain([brought])
        .find(|it| it.is_file())
        .expect(missing)
}
