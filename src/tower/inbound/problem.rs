//! The usual answer: [`ProblemDetails`].

use std::fmt::{self, Write as _};

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};

use super::refused::{Refusal, Refused};

/// Answers with problem details ([RFC 9457]), for bodies that are made of a `String`. The default.
///
/// For a request over its limit, these are of the type that
/// [draft-ietf-httpapi-ratelimit-headers-11] defines:
///
/// ```json
/// {
///   "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
///   "title": "Quota Exceeded",
///   "status": 429,
///   "violated-policies": ["api"]
/// }
/// ```
///
/// With the status 400 or 401, `detail` is the [problem](Refused::problem) with the request. When the store does not answer, the body has only the status.
///
/// [RFC 9457]: https://www.rfc-editor.org/rfc/rfc9457
/// [draft-ietf-httpapi-ratelimit-headers-11]: https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/11/
#[derive(Debug, Clone, Copy, Default)]
pub struct ProblemDetails;

impl<B: From<String>> Refusal<B> for ProblemDetails {
    fn answer(&self, refused: &Refused) -> Response<B> {
        let mut response = Response::new(body(refused).into());
        *response.status_mut() = refused.status();
        let content_type = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response
    }
}

fn body(refused: &Refused) -> String {
    let status = refused.status();
    if status == StatusCode::TOO_MANY_REQUESTS {
        let name = Quoted(refused.policy().label());
        return format!(
            r#"{{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"violated-policies":[{name}]}}"#
        );
    }
    // A problem without a type has the title of its status.
    let title = Quoted(status.canonical_reason().unwrap_or_default());
    let mut body = format!(r#"{{"title":{title},"status":{}"#, status.as_u16());
    if let Some(reason) = refused.problem() {
        // Writing to a `String` does not fail.
        let _ = write!(body, r#","detail":{}"#, Quoted(reason));
    }
    body.push('}');
    body
}

/// A text as a JSON string ([RFC 8259, section 7](https://www.rfc-editor.org/rfc/rfc8259#section-7)).
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                '\0'..='\x1f' => write!(f, "\\u{:04x}", u32::from(character))?,
                _ => f.write_char(character)?,
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::acquire::{Cause, Error};
    use crate::error::StoreError;
    use crate::limiter::Limiter;
    use crate::quota::Quota;

    #[test]
    fn a_refusal_by_the_limit_names_the_policy_and_others_their_reason() {
        let limiter = Limiter::builder()
            .name(r#"b"\/"#)
            .quota(Quota::per_second(1));
        let policy = limiter.build().unwrap().policy();
        let full = Cause::QueueFull {
            waiting: 3,
            snapshot: None,
        };
        let exceeded = json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Quota Exceeded",
            "status": 429,
            "violated-policies": [r#"b"\/"#],
        });
        let bad = |why: &str| json!({ "title": "Bad Request", "status": 400, "detail": why });
        // The problem of the store is not for clients.
        let store = Cause::Store(StoreError::new("10.0.0.7 refused the connection"));
        let unavailable = json!({ "title": "Service Unavailable", "status": 503 });
        for (cause, expected) in [
            (full, exceeded),
            (Cause::NoKey("no \"x\"\n".into()), bad("no \"x\"\n")),
            (Cause::EmptyKey, bad("the request has an empty key")),
            (store, unavailable),
        ] {
            let response: Response<String> = ProblemDetails.answer(&Refused {
                key: None,
                error: Error::new(cause, policy.clone()),
                challenge: None,
                is_enforced: true,
                busy: None,
            });
            assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
            let body: Value = serde_json::from_str(response.body()).unwrap();
            assert_eq!(body["status"], response.status().as_u16());
            assert_eq!(body, expected);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_quoted_so_that_it_can_be_read(text in any::<String>()) {
            let read: String = serde_json::from_str(&Quoted(&text).to_string()).unwrap();
            prop_assert_eq!(read, text);
        }
    }
}
