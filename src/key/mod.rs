//! The [`Key`] whose quota a request spends, and the extractors that find it in a request.
//!
//! | extractor | the key |
//! | --- | --- |
//! | [`host()`] | the host and port that the request goes to |
//! | [`route()`] | the template that its path matches, such as `GET /repos/{owner}/{repo}` |
//! | [`client_ip()`] | the address of a server's client, also behind proxies |
//! | [`matched_path()`] | the path of the axum route that it matched, such as `/users/{id}` |
//! | [`header()`] | the value of a header, or a hash of it |
//! | [`bearer_token()`] | a hash of the token in `Authorization: Bearer` |
//! | [`constant()`] | the same for all requests |
//! | [`Limiter::by_rules`](crate::Limiter::by_rules) | the key of the limiter's rule for the request |
//! | a closure | [its result](KeyExtractor#closures) |
//! | a tuple of two to four | [the keys of all, joined](KeyExtractor#tuples) |
//!
//! ```
//! use tower_throttle::key::{self, Extracted, KeyExtractor};
//!
//! let extractor = (key::host(), key::route(["GET /repos/{owner}/{repo}"])?);
//!
//! let request = http::Request::get("https://api.example.com/repos/tokio-rs/tokio").body(()).unwrap();
//! let key = "api.example.com|GET /repos/{owner}/{repo}";
//! assert_eq!(extractor.extract(&request), Extracted::Key(key.into()));
//! # Ok::<(), tower_throttle::BuildError>(())
//! ```

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use ecow::EcoString;

use crate::cost::RequestOptions;
use crate::policy::Policy;

mod address;
mod bearer_token;
mod client_ip;
mod combine;
mod forwarded;
mod head;
mod header;
mod host;
#[cfg(feature = "axum")]
mod matched_path;
mod route;
mod template;

pub(crate) use self::{
    address::parse_network,
    combine::join,
    header::sha256,
    host::Authority,
    template::{Template, Templates, falls_under, parse_method},
};

#[cfg(feature = "axum")]
pub use self::matched_path::{MatchedPath, matched_path};
pub use self::{
    bearer_token::bearer_token,
    client_ip::{ClientIp, client_ip},
    combine::With,
    head::RequestHead,
    header::{Header, header},
    host::{Host, host},
    route::{Route, route},
};

/// The name of a quota's owner: a host, a route, a user, an address.
///
/// Any text is a key, of any length and with any characters, except the empty text, which the
/// limiter refuses. Clones are cheap; a key of up to 15 bytes needs no allocation.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(EcoString);

impl Key {
    /// Leaves an empty key.
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        Self(std::mem::take(&mut self.0))
    }

    /// The key of the given text.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self(text.as_ref().into())
    }

    /// The text of the key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

/// Finds the key of a request.
///
/// # Closures
///
/// Closures are extractors if their result converts
/// [into `Extracted`](Extracted#trait-implementations), such as a `String`, a [`Key`], or an
/// `Option` of either, where `None` exempts the request. One that refuses requests returns [`Extracted`] itself, such as
/// `NoKey::from("no tenant").into()`.
///
/// ```
/// use tower_throttle::key::{Extracted, KeyExtractor};
///
/// let by_tenant = |request: &http::Request<()>| {
///     request.uri().path().split('/').nth(1).map(String::from)
/// };
/// let request = http::Request::get("/acme/orders").body(()).unwrap();
/// assert_eq!(by_tenant.extract(&request), Extracted::Key("acme".into()));
/// ```
///
/// # Tuples
///
/// A tuple of two to four extractors joins their keys by `|`. A `|` or a backslash within a part gets a
/// backslash before it, so that different parts never give the same key.
///
/// The first part that refuses the request, or has an empty key, decides the reason for the refusal. A missing credential
/// and an error of the server go before other reasons. If no part refuses the request and one exempts it, it is exempt.
///
/// ```
/// use tower_throttle::key::{self, Extracted, KeyExtractor};
///
/// let extractor = (key::host(), key::header("x-tenant").or_exempt());
///
/// let request = http::Request::get("https://example.com/").header("x-tenant", "a|b");
/// let key = Extracted::Key(r"example.com|a\|b".into());
/// assert_eq!(extractor.extract(&request.body(()).unwrap()), key);
///
/// let no_tenant = http::Request::get("https://example.com/").body(()).unwrap();
/// assert_eq!(extractor.extract(&no_tenant), Extracted::Exempt);
/// let neither = http::Request::get("/").body(()).unwrap();
/// assert_eq!(extractor.extract(&neither), Extracted::Refused("the request has no host".into()));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` finds no key of requests of the type `{R}`",
    note = "set a key by `.key(…)`, such as a closure or `key::constant(\"account\")`"
)]
pub trait KeyExtractor<R> {
    /// The key of this request, or the way to handle it without one.
    fn extract(&self, request: &R) -> Extracted;

    /// The cost, the priority and the share of the request, if they depend on the request. Default: none, for those of its rule.
    fn options(&self, _: &R) -> RequestOptions {
        RequestOptions::default()
    }
}

impl<R, F, K> KeyExtractor<R> for F
where
    F: Fn(&R) -> K,
    K: Into<Extracted>,
{
    fn extract(&self, request: &R) -> Extracted {
        self(request).into()
    }
}

impl<R, E: KeyExtractor<R> + ?Sized> KeyExtractor<R> for Arc<E> {
    fn extract(&self, request: &R) -> Extracted {
        (**self).extract(request)
    }

    fn options(&self, request: &R) -> RequestOptions {
        (**self).options(request)
    }
}

/// The result of a [`KeyExtractor`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Extracted {
    /// The request spends the quota of this key.
    Key(Key),
    /// The request is not limited.
    Exempt,
    /// The request must not be sent.
    Refused(NoKey),
    /// A rule decides the policy, the key and the cost of the request; made by
    /// [`Limiter::by_rules`](crate::Limiter::by_rules).
    Ruled(Ruled),
}

/// The reason why a request has no key and must not be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoKey {
    /// Such as "the request has no host".
    pub reason: Cow<'static, str>,
    /// It decides with which status a server answers.
    pub cause: NoKeyCause,
}

/// The cause for which a request has no key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoKeyCause {
    /// The request is malformed. A server answers with 400.
    #[default]
    Request,
    /// The request lacks a credential. A server answers with 401, and names this authentication scheme in `WWW-Authenticate`.
    Credential(&'static str),
    /// The server is not set up for the extractor. It answers with 500, without the reason, which a log event has.
    Server,
}

/// A request that a rule limits; see [`Extracted::Ruled`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Ruled {
    /// The rule's policy.
    pub policy: Arc<Policy>,
    /// The key whose quota the request spends, or the reason why it has none.
    pub key: Result<Key, NoKey>,
    /// The cost of the request in requests, if the rule has one and the request names none.
    pub cost: Option<u32>,
    /// The priority, if the rule has one, and the share that it names, if the request has that part.
    pub options: RequestOptions,
}

impl Ruled {
    /// The rule's name.
    pub fn rule(&self) -> &str {
        self.policy.name().unwrap_or_default()
    }
}

macro_rules! impl_from {
    ($($to:ident from $from:ty: $convert:expr;)+) => {$(
        impl From<$from> for $to {
            fn from(from: $from) -> Self {
                $convert(from)
            }
        }
    )+};
}

impl_from! {
    Key from &str: Key::new;
    Key from &String: Key::new;
    Key from String: |text| Key(EcoString::from(text));
    Key from Cow<'_, str>: |text: Cow<'_, str>| Key::new(text);
    Key from &Key: Key::clone;
    Extracted from Key: Extracted::Key;
    Extracted from &str: |text| Extracted::Key(Key::new(text));
    Extracted from String: |text| Extracted::Key(Key::from(text));
    Extracted from NoKey: Extracted::Refused;
    NoKey from &'static str: |reason| NoKey { reason: Cow::Borrowed(reason), cause: NoKeyCause::Request };
    NoKey from String: |reason| NoKey { reason: Cow::Owned(reason), cause: NoKeyCause::Request };
}

impl<K: Into<Key>> From<Option<K>> for Extracted {
    fn from(key: Option<K>) -> Self {
        key.map_or(Self::Exempt, |key| Self::Key(key.into()))
    }
}

/// Gives every request the same key, so that all of them spend one quota.
///
/// Use it for an upstream that counts everything together, or for a part of a joined key that does not
/// depend on the request, such as an account. It takes requests of any type.
///
/// ```
/// use tower_throttle::key::{self, Extracted, KeyExtractor};
///
/// let everything = key::constant("github");
/// assert_eq!(everything.extract(&"any request"), Extracted::Key("github".into()));
/// ```
pub fn constant(text: impl Into<Key>) -> Key {
    text.into()
}

/// Gives every request this key; see [`constant`].
impl<R> KeyExtractor<R> for Key {
    fn extract(&self, _: &R) -> Extracted {
        Extracted::Key(self.clone())
    }
}
