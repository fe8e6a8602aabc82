use ecow::{EcoString, eco_format};
use http::HeaderName;
use http::header::COOKIE;
use smallvec::SmallVec;

use super::{Extracted, Key, KeyExtractor, NoKey, NoKeyCause, RequestHead, bearer_token::token};

/// Takes the value of a header as the key, so that each API key, tenant or user has a quota of its own.
///
/// ```
/// use tower_throttle::key::{self, Extracted, KeyExtractor};
///
/// let request = http::Request::get("/").header("x-tenant", "acme").body(()).unwrap();
/// assert_eq!(key::header("x-tenant").extract(&request), Extracted::Key("acme".into()));
/// ```
///
/// Spaces around the value do not count. A backslash, a single or double quotation mark and any byte that is not printable
/// ASCII are written as in a Rust byte string (`\\`, `\'`, `\"`, `\xff`), so that different values never share
/// a key.
///
/// Without the header, or with an empty one, the request is refused, unless [`or_exempt`](Header::or_exempt)
/// or [`or`](Header::or) says otherwise. A request that has the header twice is always refused: the application
/// may read the other one, so a caller could spend the quota of one user and be served as another. HTTP/2 splits `Cookie`
/// into several lines: they are joined as [RFC 9113](https://www.rfc-editor.org/rfc/rfc9113#section-8.2.3) has it.
/// The reason for a refusal names the header and never its value.
///
/// # Secrets and callers you do not trust
///
/// The store contains short keys as plain text. So the key is a hash of the value if the name of the header ends with
/// `key`, such as `x-api-key`, or contains `authorization`, `cookie`, `credential`, `jwt`, `password`, `secret`, `session` or
/// `token`. [`plain`](Header::plain) takes the value all the same, and [`hashed`](Header::hashed) hashes that of any other
/// header.
///
/// A [server](crate::ThrottleLayer::inbound) answers requests that lack such a header with 401, and requests that lack
/// another header with 400.
///
/// In a server, a caller gets a new quota with every new value that it may send. Put the limit behind
/// the layer that checks the header. Even there, `Bearer a` and `bearer a` are two keys of one caller, so use
/// [`bearer_token`](super::bearer_token()) for a token in `Authorization`.
///
/// # Panics
///
/// Panics if the name is a text that is not a header name. To take a name from a configuration, parse it to a
/// [`HeaderName`] first.
#[track_caller]
pub fn header<N>(name: N) -> Header
where
    N: TryInto<HeaderName>,
{
    let name = header_name(name);
    Header {
        hashed: is_secret(&name),
        name,
        is_bearer: false,
        without: None,
    }
}

/// Takes the value of a header as the key; made by [`header`] or [`bearer_token`](super::bearer_token()).
#[derive(Debug, Clone, PartialEq)]
#[must_use = "an extractor does nothing until a request is given to it"]
pub struct Header {
    name: HeaderName,
    hashed: bool,
    /// The key is the token after the scheme `Bearer`.
    pub(super) is_bearer: bool,
    /// The result for requests without the header, unless they are refused.
    without: Option<Extracted>,
}

impl Header {
    /// Takes a hash of the value as the key, so that a secret reaches neither the store nor an error or a trace.
    /// Default: only if the [name](header#secrets-and-callers-you-do-not-trust) looks like that of a secret.
    ///
    /// The key is `sha256:` and the first 128 bits of the SHA-256 of the value, in 32 hexadecimal digits.
    /// That hides values that cannot be guessed, such as random API keys. A number with few digits is found by trying all
    /// of them.
    ///
    /// ```
    /// use tower_throttle::key::{self, Extracted, KeyExtractor};
    ///
    /// let license = key::header("x-license").hashed();
    ///
    /// let request = http::Request::get("/").header("x-license", "abc").body(()).unwrap();
    /// let key = "sha256:ba7816bf8f01cfea414140de5dae2223";
    /// assert_eq!(license.extract(&request), Extracted::Key(key.into()));
    /// ```
    pub fn hashed(mut self) -> Self {
        self.hashed = true;
        self
    }

    /// Takes the value itself as the key, even if the name looks like that of a secret. Everything that shows keys then
    /// shows it, such as Redis, traces and errors.
    pub fn plain(mut self) -> Self {
        self.hashed = false;
        self
    }

    /// Leaves requests without the header unlimited. Default: they are refused.
    ///
    /// In a server, callers avoid the quota by leaving the header out.
    ///
    /// ```
    /// use tower_throttle::key::{self, Extracted, KeyExtractor};
    ///
    /// let request = http::Request::get("/").body(()).unwrap();
    /// assert_eq!(key::header("x-tenant").or_exempt().extract(&request), Extracted::Exempt);
    /// ```
    pub fn or_exempt(mut self) -> Self {
        self.without = Some(Extracted::Exempt);
        self
    }

    /// Lets all requests without the header share one key. Default: they are refused.
    ///
    /// No caller reaches that key by sending its text: that value gets a different key.
    ///
    /// ```
    /// use tower_throttle::key::{self, Extracted, KeyExtractor};
    ///
    /// let tenant = key::header("x-tenant").or("anonymous");
    ///
    /// let without = http::Request::get("/").body(()).unwrap();
    /// assert_eq!(tenant.extract(&without), Extracted::Key("anonymous".into()));
    ///
    /// let posing = http::Request::get("/").header("x-tenant", "anonymous").body(()).unwrap();
    /// assert_ne!(tenant.extract(&posing), tenant.extract(&without));
    /// ```
    pub fn or(mut self, key: impl Into<Key>) -> Self {
        self.without = Some(Extracted::Key(key.into()));
        self
    }

    fn cause(&self) -> NoKeyCause {
        match self.name.as_str() {
            _ if !is_secret(&self.name) => NoKeyCause::Request,
            "cookie" => NoKeyCause::Credential("Cookie"),
            name if name.contains("authorization") => NoKeyCause::Credential("Bearer"),
            _ => NoKeyCause::Credential("ApiKey"),
        }
    }

    fn key(&self, value: &[u8]) -> EcoString {
        let text = match self.hashed {
            true => hash(value),
            false => eco_format!("{}", value.escape_ascii()),
        };
        match &self.without {
            // No escaped value and no hash contains `\=`.
            Some(Extracted::Key(shared)) if shared.as_str() == text => eco_format!("\\={text}"),
            _ => text,
        }
    }
}

impl<R: RequestHead> KeyExtractor<R> for Header {
    fn extract(&self, request: &R) -> Extracted {
        let name = &self.name;
        let lines = request.headers().get_all(name).iter();
        let lines: SmallVec<[_; 1]> = lines.map(|line| line.as_bytes().trim_ascii()).collect();
        let joined;
        let value = match &lines[..] {
            [_, _, ..] if name == COOKIE => {
                joined = lines.join(&b"; "[..]);
                Some(&joined[..])
            }
            [_, _, ..] => {
                let twice = format!("the request has more than one {name} header");
                return Extracted::Refused(twice.into());
            }
            lines => lines.first().copied(),
        };
        let value = match self.is_bearer {
            true => value.and_then(token),
            false => value,
        };
        match (value.filter(|value| !value.is_empty()), &self.without) {
            (Some(value), _) => Extracted::Key(Key(self.key(value))),
            (None, Some(without)) => without.clone(),
            (None, None) => Extracted::Refused(NoKey {
                reason: match self.is_bearer {
                    true => "the request has no bearer token".into(),
                    false => format!("the request has no {name} header").into(),
                },
                cause: self.cause(),
            }),
        }
    }
}

/// Whether the value of this header is probably a secret.
fn is_secret(name: &HeaderName) -> bool {
    let name = name.as_str();
    let words = [
        "authorization",
        "cookie",
        "credential",
        "jwt",
        "password",
        "secret",
        "session",
        "token",
    ];
    name.ends_with("key") || words.iter().any(|word| name.contains(word))
}

/// The name of a header.
#[track_caller]
pub(super) fn header_name(name: impl TryInto<HeaderName>) -> HeaderName {
    match name.try_into() {
        Ok(name) => name,
        Err(_) => panic!("not a valid header name"),
    }
}

/// Replaces a secret in a key. 128 bits suffice: no two values in use have the same.
pub(super) fn hash(secret: &[u8]) -> EcoString {
    eco_format!("sha256:{:032x}", sha256(secret)[0])
}

/// The two halves of a digest.
pub(crate) fn sha256(bytes: &[u8]) -> [u128; 2] {
    let digest = hmac_sha256::Hash::hash(bytes);
    let (halves, _) = digest.as_chunks();
    [
        u128::from_be_bytes(halves[0]),
        u128::from_be_bytes(halves[1]),
    ]
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};
    use proptest::prelude::*;

    use super::*;

    fn request(values: &[&[u8]]) -> Request<()> {
        let mut request = Request::new(());
        for value in values {
            let value = HeaderValue::from_bytes(value).unwrap();
            request.headers_mut().append("x-name", value);
        }
        request
    }

    fn key(extractor: &Header, value: &[u8]) -> Key {
        match extractor.extract(&request(&[value])) {
            Extracted::Key(key) => key,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_value_is_the_key() {
        let long = "a".repeat(100 * 1024);
        for (value, expected) in [
            (&b" acme\t"[..], "acme"),
            (b"two words", "two words"),
            (b"{a}|%00:*", "{a}|%00:*"),
            (b"a\\xff", "a\\\\xff"),
            (b"a\xff", "a\\xff"),
            (b"a\tb", "a\\tb"),
            (long.as_bytes(), &long),
        ] {
            assert_eq!(key(&header("X-Name"), value).as_str(), expected);
        }
    }

    #[test]
    fn without_one_value_the_request_is_refused_unless_configured_otherwise() {
        for extractor in [header("x-name"), header("x-name").hashed()] {
            let refused = |reason: &'static str| Extracted::Refused(reason.into());
            let shared = extractor.clone().or("anonymous");
            let exempt = extractor.clone().or_exempt();
            for values in [&[][..], &[&b""[..]], &[&b" \t "[..]]] {
                let request = request(values);
                let none = refused("the request has no x-name header");
                assert_eq!(extractor.extract(&request), none);
                assert_eq!(exempt.extract(&request), Extracted::Exempt);
                let anonymous = Extracted::Key("anonymous".into());
                assert_eq!(shared.extract(&request), anonymous);
            }
            let two = refused("the request has more than one x-name header");
            for values in [
                [&b"secret-a"[..], b"secret-b"],
                [b"secret-a", b"secret-a"],
                [b" ", b" "],
            ] {
                for extractor in [&extractor, &exempt, &shared] {
                    assert_eq!(extractor.extract(&request(&values)), two);
                }
            }
        }
    }

    #[test]
    fn a_cookie_has_one_key_however_its_client_splits_it() {
        let key = |lines: &[&str]| {
            let request = Request::get("/");
            let lines = lines.iter();
            let request = lines.fold(request, |it, line| it.header("cookie", *line));
            header("cookie").extract(&request.body(()).unwrap())
        };
        assert_eq!(key(&["a=1; b=2; c=3"]), key(&["a=1", "b=2; c=3"]));
        assert_ne!(key(&["a=1"]), key(&["a=1", "b=2"]));
    }

    /// The vectors are those of FIPS 180-2.
    #[test]
    fn a_value_is_hashed_if_that_is_set_or_its_name_looks_like_that_of_a_secret() {
        let two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        let hashed = "sha256:248d6a61d20638b8e5c026930c3e6039";
        assert_eq!(hash(b"abc"), "sha256:ba7816bf8f01cfea414140de5dae2223");
        let secrets = "authorization proxy-authorization cookie x-api-key ApiKey x-auth-token \
            x-session-id x-client-secret x-jwt-assertion x-credentials | x-tenant x-keyboard user-agent";
        let (secrets, others) = secrets.split_once(" | ").unwrap();
        for (names, expected) in [(secrets, hashed), (others, two_blocks)] {
            for name in names.split_whitespace() {
                let request = Request::get("/").header(name, two_blocks).body(()).unwrap();
                let key = |text: &str| Extracted::Key(text.into());
                assert_eq!(header(name).extract(&request), key(expected), "{name}");
                assert_eq!(header(name).hashed().extract(&request), key(hashed));
                assert_eq!(header(name).plain().extract(&request), key(two_blocks));
            }
        }
    }

    #[test]
    #[should_panic(expected = "not a valid header name")]
    fn a_text_that_is_no_header_name_panics() {
        let _ = header("x key");
    }

    fn value() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            Just(b'\\'),
            Just(b'='),
            Just(b'x'),
            Just(b'f'),
            Just(b'"'),
            0x21..0x7f_u8,
            0x80..=0xff_u8,
        ];
        prop::collection::vec(byte, 1..8)
    }

    proptest! {
        #[test]
        fn different_values_have_different_keys(a in value(), b in value(), shared in value()) {
            let shared = String::from_utf8_lossy(&shared).into_owned();
            for extractor in [header("x-name"), header("x-name").or(shared)] {
                prop_assert_eq!(a == b, key(&extractor, &a) == key(&extractor, &b));
            }
        }

        #[test]
        fn no_value_reaches_the_shared_key(value in value(), shared in value()) {
            let shared = shared.escape_ascii().to_string();
            for text in [shared.clone(), format!("\\={shared}"), value.escape_ascii().to_string()] {
                let extractor = header("x-name").or(text.as_str());
                prop_assert_ne!(key(&extractor, &value), Key::from(text));
            }
        }
    }
}
