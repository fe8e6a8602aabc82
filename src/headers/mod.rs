//! The header fields that tell a client of its limit.
//!
//! `RateLimit-Policy` and `RateLimit` follow [draft-ietf-httpapi-ratelimit-headers-11], whose values are
//! structured fields ([RFC 9651]); `Retry-After` is that of [RFC 9110, section 10.2.3].
//!
//! [draft-ietf-httpapi-ratelimit-headers-11]: https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/11/
//! [RFC 9651]: https://www.rfc-editor.org/rfc/rfc9651
//! [RFC 9110, section 10.2.3]: https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3

use http::HeaderName;

use crate::policy::Policy;

mod write;

pub(crate) use self::write::{KnownFields, Standing, write_retry_after};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_RATE_LIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATE_LIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATE_LIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// What both fields call the policy as a whole.
pub(crate) fn policy_name(policy: &Policy) -> &str {
    policy.label()
}
