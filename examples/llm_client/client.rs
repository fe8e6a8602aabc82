//! A client of an LLM API that keeps to quotas of requests and tokens: [`connect`] and [`chat`].

use std::time::Duration;

use anyhow::Context as _;
use reqwest::Response;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use serde::{Deserialize, Serialize};
use tower_throttle::store::RedisStore;
use tower_throttle::{Charge, Cost, Limiter, Quota, ThrottleMiddleware};

/// The time by which one request may take longer than another on its way to the server.
const BUFFER: Duration = Duration::from_millis(200);

#[derive(Serialize, Deserialize)]
pub(crate) struct ChatRequest {
    pub(crate) model: String,
    pub(crate) messages: Vec<Message>,
    pub(crate) max_tokens: u32,
    pub(crate) stream: bool,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Message {
    pub(crate) role: String,
    pub(crate) content: String,
}

impl ChatRequest {
    /// An estimate of the tokens that it uses at most: one for each 4 bytes of its English prompt, and `max_tokens`.
    fn estimated_tokens(&self) -> u32 {
        let bytes: usize = self.messages.iter().map(|it| it.content.len()).sum();
        let prompt = u32::try_from(bytes.div_ceil(4)).unwrap_or(u32::MAX);
        prompt.saturating_add(self.max_tokens)
    }
}

/// A whole response, or one event of a stream.
#[derive(Deserialize)]
struct ChatResponse {
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Usage {
    total_tokens: u32,
}

/// Makes a client that shares the quotas, of requests and of tokens, with all processes on the same Redis.
pub(crate) async fn connect(
    redis: &str,
    quotas: [Quota; 2],
) -> anyhow::Result<ClientWithMiddleware> {
    let [requests, tokens] = quotas;
    let limiter = Limiter::builder()
        .store(RedisStore::connect(redis).await?)
        .name("llm-api")
        .quota(requests)
        .quota(tokens.unit("tokens"))
        .buffer(BUFFER)
        .build()?;
    // The server is local, so ignore proxy settings of the environment.
    let plain = reqwest::Client::builder().no_proxy().build()?;
    let throttle = ThrottleMiddleware::new(limiter);
    Ok(ClientBuilder::new(plain).with(throttle).build())
}

/// Sends the request when both quotas have room for its estimate. Charges the tokens that it has used, and returns
/// them.
///
/// Only this example has a reason not to `settle`.
pub(crate) async fn chat(
    client: &ClientWithMiddleware,
    url: &str,
    request: &ChatRequest,
    settle: bool,
) -> anyhow::Result<u32> {
    let estimate = Cost::from(("tokens", request.estimated_tokens()));
    let response = client.post(url).json(request).with_extension(estimate);
    let response = response.send().await?.error_for_status()?;
    // Reading the body consumes the response, so take the charge first.
    let charge = response.extensions().get::<Charge>().cloned();
    let usage = if request.stream {
        last_usage(response).await?
    } else {
        response.json::<ChatResponse>().await?.usage
    };
    let tokens = usage.context("the response has no usage")?.total_tokens;
    // It fails if the quotas have changed since, which is no reason to lose the response.
    if let Some(charge) = charge.filter(|_| settle)
        && let Err(error) = charge.settle("tokens", tokens)
    {
        eprintln!("the estimate stays charged: {error}");
    }
    Ok(tokens)
}

/// Reads a stream of server-sent events, in which the last event before `[DONE]` has the usage.
async fn last_usage(mut response: Response) -> anyhow::Result<Option<Usage>> {
    let (mut usage, mut received) = (None, Vec::new());
    while let Some(chunk) = response.chunk().await? {
        received.extend_from_slice(&chunk);
        while let Some(end) = received.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = received.drain(..=end).collect();
            let event = line.trim_ascii_end().strip_prefix(b"data: ");
            if let Some(event) = event.filter(|event| event != b"[DONE]") {
                let event: ChatResponse = serde_json::from_slice(event)?;
                usage = event.usage.or(usage);
            }
        }
    }
    Ok(usage)
}
