use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, Response, StatusCode};

use super::limits::{self, Limit};
use super::lines::{Lines, age};
use super::{Advice, Feedback};
use crate::quota::{CONCURRENT, REQUESTS};

/// Reads the headers in which HTTP APIs state their limits.
///
/// Defaults: a pause is at most an [hour](Self::longest_pause), and a 429 that does not say how long it
/// holds is a pause of a [second](Self::unstated_pause).
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::feedback::{Advice, Feedback, Headers};
///
/// let response = http::Response::builder()
///     .status(403)
///     .header("date", "Tue, 14 Nov 2023 22:13:20 GMT")
///     .header("x-ratelimit-limit", "5000")
///     .header("x-ratelimit-remaining", "0")
///     .header("x-ratelimit-reset", "1700000300")
///     .body(())
///     .unwrap();
/// assert_eq!(Headers::new().read(&response), Advice::pause(Duration::from_secs(300)));
/// ```
///
/// # What is read
///
/// [`Retry-After`] on a 429, a 503 and, as GitHub sends it, a 403: a pause of that many seconds, or until that date. It is
/// read as any other reset. On other statuses, it is ignored.
///
/// What remains of a quota, by the first of these forms that is there and not malformed:
///
/// | headers | as in | the reset |
/// | --- | --- | --- |
/// | `RateLimit: "hour";r=15;t=40` | [draft 11][11] | in seconds |
/// | `RateLimit: limit=50, remaining=15, reset=40` | [draft 07][07] | in seconds |
/// | `RateLimit-Remaining`, `RateLimit-Reset` | drafts before that; GitLab | any |
/// | `X-RateLimit-Remaining`, `X-RateLimit-Reset` | GitHub, Discord, Reddit | any |
/// | `X-Rate-Limit-Remaining`, `X-Rate-Limit-Reset` | Twitter, Okta | any |
///
/// And what remains of quotas in several units:
///
/// | headers | as in | the reset |
/// | --- | --- | --- |
/// | `RateLimit-Policy: "t";q=9;qu="tokens"` with `RateLimit: "t";r=7;t=40` | draft 11, which does not list `tokens` itself | in seconds |
/// | `x-ratelimit-remaining-tokens`, `x-ratelimit-reset-tokens` | [OpenAI], Groq, and Azure where it sends resets | any |
/// | `x-ratelimit-remaining-tokens-minute`, `x-ratelimit-reset-tokens-minute` | Cerebras | any |
/// | `anthropic-ratelimit-tokens-remaining`, `anthropic-ratelimit-tokens-reset` | [Anthropic] | any |
///
/// The unit in the name of a header is `requests`, `tokens`, `input-tokens` or `output-tokens`. It is that of a
/// [quota](crate::Quota::unit).
///
/// A reset of any kind is a number of seconds from now, a time of the Unix clock in seconds or
/// milliseconds, depending on its size, a duration such as `6m0s` or `120ms`, or a date of HTTP or of RFC 3339 in UTC. Numbers
/// may have a fraction. A reset in milliseconds from now is read as seconds: read it by a closure. A `-Reset-After` beside it, which Discord sends, is in seconds, and goes before it.
///
/// - Where no requests remain by a 429, 403 or 503, it is a pause until the reset; of several, until the latest.
/// - Where nothing remains of a unit otherwise, the requests that cost something in it are held back until the reset, unless
///   the limiter [holds them back by itself](Advice::remaining_of). If no quota counts the unit, it is a pause.
/// - Where something remains, it is an [allowance](Advice::remaining_of) until the reset: of several in the same unit the
///   smallest, and of those the one that lasts longest. One that is over by the end of a pause is left out.
/// - Without a reset, or with one that is over, it says nothing.
/// - Where no `concurrent-requests` are left, requests that take a place are held back for a second, as no reset lifts that
///   limit. This is so only if a quota [limits](crate::Quota::concurrent) how many requests are in progress, and less than
///   half of its places are in use: others use the upstream's.
///
/// # Which goes before which
///
/// A `Retry-After` is the pause, whatever the resets. With one of zero, or of a moment that is over, it is as
/// if it were missing.
///
/// A 403 is taken for a refusal by a limit only with a `Retry-After`, or if nothing remains.
///
/// A response with an `Age` above 0 comes from a cache. Its status and `Retry-After` count; its limits are outdated.
///
/// # Clocks
///
/// Dates and Unix times are measured from the response's own `Date`, so that the clocks of the two hosts
/// need not agree. Without a `Date`, they are measured from the system clock. Of several, the first one counts.
///
/// # Values that cannot be trusted
///
/// Each malformed header is ignored, and the first one is an event. A `RateLimit` that is malformed in any part is ignored
/// whole, as the draft demands. A number with too many digits is the largest, unless it has a time unit. If one of the other
/// headers has several values, in one line or in many, the longest wait and the smallest remainder count.
///
/// An upstream, or a proxy that alters its responses, can make all requests wait for the
/// [longest pause](Self::longest_pause), again and again. For an upstream that you do not trust, make it
/// short.
///
/// [`Retry-After`]: https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3
/// [11]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11
/// [OpenAI]: https://platform.openai.com/docs/guides/rate-limits
/// [Anthropic]: https://docs.anthropic.com/en/api/rate-limits
/// [07]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-07
#[derive(Debug, Clone)]
#[must_use = "a reader does nothing until a response is given to it"]
pub struct Headers {
    longest_pause: Duration,
    unstated_pause: Duration,
    /// Whether a malformed header was reported before, by a clone, too.
    is_warned: Arc<AtomicBool>,
}

impl Headers {
    /// A reader with the defaults.
    pub fn new() -> Self {
        Self {
            longest_pause: Duration::from_secs(3600),
            unstated_pause: Duration::from_secs(1),
            is_warned: Arc::default(),
        }
    }

    /// Sets the longest pause, and the longest time of an allowance. Longer ones are cut. Default: 1 hour.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::feedback::{Advice, Feedback, Headers};
    ///
    /// let minute = Duration::from_secs(60);
    /// let response = http::Response::builder().status(503).header("retry-after", "86400").body(()).unwrap();
    /// assert_eq!(Headers::new().longest_pause(minute).read(&response), Advice::pause(minute));
    /// ```
    pub fn longest_pause(mut self, pause: Duration) -> Self {
        self.longest_pause = pause;
        self
    }

    /// Sets the pause after a 429 that does not say for how long it holds. Default: 1 second.
    ///
    /// Zero means no pause.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::feedback::{Advice, Feedback, Headers};
    ///
    /// let response = http::Response::builder().status(429).body(()).unwrap();
    /// assert_eq!(Headers::new().read(&response), Advice::pause(Duration::from_secs(1)));
    /// assert_eq!(Headers::new().unstated_pause(Duration::ZERO).read(&response), Advice::none());
    /// ```
    pub fn unstated_pause(mut self, pause: Duration) -> Self {
        self.unstated_pause = pause;
        self
    }

    /// Reads the head of a response of any type, as a closure for [another one](Feedback#closures) does.
    pub fn read_head(&self, status: StatusCode, headers: &HeaderMap) -> Advice {
        self.read_at(status, headers, SystemTime::now())
    }

    fn read_at(&self, status: StatusCode, headers: &HeaderMap, local: SystemTime) -> Advice {
        let lines = &Lines {
            headers,
            local,
            is_warned: &self.is_warned,
        };
        let mut limits = match age(headers).is_zero() {
            true => limits::read(lines),
            false => vec![],
        };
        for limit in &mut limits {
            limit.reset = limit.reset.min(self.longest_pause);
        }
        let retry_after = retry_after(status, lines);
        let exhausted = || limits.iter().filter(|limit| limit.remaining == 0);
        if status == StatusCode::FORBIDDEN && retry_after.is_zero() && exhausted().next().is_none()
        {
            return Advice::none();
        }
        let is_refusal = REFUSALS.contains(&status);
        let of_requests = exhausted().filter(|limit| is_refusal && limit.unit == REQUESTS);
        let reset = of_requests.map(|limit| limit.reset).max();
        // It is not known when requests in progress end.
        let states = |limit: &Limit| !limit.reset.is_zero() && limit.unit != CONCURRENT;
        let is_stated = exhausted().any(states);
        let pauses = [
            retry_after,
            reset.unwrap_or_default(),
            match status {
                StatusCode::TOO_MANY_REQUESTS if !is_stated => self.unstated_pause,
                _ => Duration::ZERO,
            },
        ];
        let stated = pauses.into_iter().find(|pause| !pause.is_zero());
        let pause = stated.unwrap_or_default().min(self.longest_pause);

        let outlasts =
            |limit: &Limit| limit.reset > pause && (limit.remaining > 0 || retry_after.is_zero());
        let left = limits.into_iter().filter(outlasts);
        let advice = left
            .map(|limit| Advice::remaining_of(limit.unit, limit.remaining, limit.reset))
            .fold(Advice::pause(pause), Advice::and);
        if is_refusal { advice.refused() } else { advice }
    }
}

impl Default for Headers {
    fn default() -> Self {
        Self::new()
    }
}

impl<B> Feedback<Response<B>> for Headers {
    fn read(&self, response: &Response<B>) -> Advice {
        self.read_head(response.status(), response.headers())
    }
}

#[cfg(feature = "reqwest")]
impl Feedback<reqwest::Response> for Headers {
    fn read(&self, response: &reqwest::Response) -> Advice {
        self.read_head(response.status(), response.headers())
    }
}

/// The statuses by which an upstream refuses a request.
const REFUSALS: [StatusCode; 3] = [
    StatusCode::FORBIDDEN,
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::SERVICE_UNAVAILABLE,
];

/// The longest `Retry-After`, where the status is one that it refuses with; else zero.
fn retry_after(status: StatusCode, lines: &Lines<'_>) -> Duration {
    if !REFUSALS.contains(&status) {
        return Duration::ZERO;
    }
    let waits = lines.values(RETRY_AFTER.as_str(), |text| lines.until(text));
    waits.into_iter().max().unwrap_or_default()
}

#[cfg(test)]
mod tests;
