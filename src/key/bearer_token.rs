use http::header::AUTHORIZATION;

use super::{Header, header};

/// Takes a hash of the token in `Authorization: Bearer` as the key, so that each token has a quota of its
/// own.
///
/// The key is `sha256:` and the first 128 bits of the SHA-256 of the token, in 32 hexadecimal digits. The
/// token itself reaches neither the store nor an error or a trace. The scheme may be written in upper or
/// lower case ([RFC 9110, section 11.1]), and any number of spaces may surround the token.
///
/// Without the header, with another scheme such as `Basic`, or with an empty token, the request is refused,
/// unless [`or_exempt`](Header::or_exempt) or [`or`](Header::or) says otherwise. A request that
/// has the header twice is always refused, because the application may read the other one.
///
/// ```
/// use tower_throttle::key::{self, Extracted, KeyExtractor};
///
/// let token = key::bearer_token().or("anonymous");
///
/// let request = http::Request::get("/").header("authorization", "Bearer abc").body(()).unwrap();
/// let key = "sha256:ba7816bf8f01cfea414140de5dae2223";
/// assert_eq!(token.extract(&request), Extracted::Key(key.into()));
///
/// let without = http::Request::get("/").body(()).unwrap();
/// assert_eq!(token.extract(&without), Extracted::Key("anonymous".into()));
/// ```
///
/// # Not for unverified tokens
///
/// The extractor cannot check that a token is valid, and a caller that makes up tokens gets a new quota with each.
/// Put the limit behind the layer that verifies tokens, or limit by [`client_ip`](super::client_ip()) as well.
///
/// [RFC 9110, section 11.1]: https://www.rfc-editor.org/rfc/rfc9110#section-11.1
pub fn bearer_token() -> Header {
    let mut header = header(AUTHORIZATION);
    header.is_bearer = true;
    header
}

/// The text after the scheme. The grammar of RFC 6750 is not enforced, because tokens in use break it.
pub(super) fn token(credentials: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = credentials.split_at_checked("Bearer".len())?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"Bearer") && token.starts_with(b" ");
    is_bearer.then(|| token.trim_ascii_start())
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;
    use crate::key::{Extracted, Key, KeyExtractor as _, NoKey, NoKeyCause, header::hash};

    fn request(value: &[u8]) -> Request<()> {
        let value = HeaderValue::from_bytes(value).unwrap();
        let request = Request::builder().header(AUTHORIZATION, value);
        request.body(()).unwrap()
    }

    #[test]
    fn the_key_is_the_hash_of_the_token_however_it_is_written() {
        for (value, token) in [
            (&b"Bearer a1.b2~c+/-_=="[..], &b"a1.b2~c+/-_=="[..]),
            (b" BEARER \t a \t", b"a"),
            (b"bearer a, Bearer b", b"a, Bearer b"),
            (b"Bearer \xff", b"\xff"),
        ] {
            let key = Extracted::Key(Key(hash(token)));
            assert_eq!(bearer_token().extract(&request(value)), key);
        }
    }

    #[test]
    fn without_a_token_the_request_is_refused() {
        let values = "|Bearer|Bearer |Bearer\ttoken|Bearertoken|Basic dXNlcjpwYXNz|Digest realm=a|token|\u{ff}";
        let requests = values.split('|').map(|value| request(value.as_bytes()));
        for request in requests.chain([Request::new(())]) {
            let refused = Extracted::Refused(NoKey {
                reason: "the request has no bearer token".into(),
                cause: NoKeyCause::Credential("Bearer"),
            });
            assert_eq!(bearer_token().extract(&request), refused);
        }
    }
}
