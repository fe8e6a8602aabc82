//! The usual answer: [`ProblemDetails`].

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};

use super::headers::whole;
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
/// With the status 400 or 401, `detail` is the [problem](Refused::problem) with the request. Otherwise, the body has only the status.
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
        let names: Vec<_> = violated(refused).iter().map(|it| quoted(it)).collect();
        let names = names.join(",");
        return format!(
            r#"{{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"violated-policies":[{names}]}}"#
        );
    }
    // A problem without a type has the title of its status.
    let title = quoted(status.canonical_reason().unwrap_or_default());
    let problem = refused.problem();
    let detail = problem.map(|problem| format!(r#","detail":{}"#, quoted(problem)));
    let (code, detail) = (status.as_u16(), detail.unwrap_or_default());
    format!(r#"{{"title":{title},"status":{code}{detail}}}"#)
}

/// The names in `RateLimit` of the units of which less is left than the request costs; of all, if it waits for others.
fn violated(refused: &Refused) -> Vec<String> {
    let left = refused.error().snapshot().map(|it| it.remaining.left);
    let left = left.unwrap_or_default().0;
    let costs = left.into_iter().zip(refused.costs.0);
    let names = whole(refused.policy()).map(|(name, ..)| name.into_owned());
    let (short, enough): (Vec<_>, Vec<_>) =
        names.zip(costs).partition(|(_, (left, cost))| left < cost);
    let violated = if short.is_empty() { enough } else { short };
    violated.into_iter().map(|(name, _)| name).collect()
}

/// A text as a JSON string ([RFC 8259, section 7](https://www.rfc-editor.org/rfc/rfc8259#section-7)).
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\0'..='\x1f' => quoted.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_quoted_so_that_it_can_be_read(text in any::<String>()) {
            let read: String = serde_json::from_str(&quoted(&text)).unwrap();
            prop_assert_eq!(read, text);
        }
    }
}
