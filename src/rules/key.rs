//! Whose quota the requests of a rule spend: [`KeyPart`].

use std::borrow::Cow;

use http::{HeaderName, header::InvalidHeaderName};
use smallvec::SmallVec;

use super::rule::Rule;
use crate::key::{
    self, BearerToken, ClientIp, Constant, Extracted, Header, Host, Key, KeyExtractor, RequestHead,
    join,
};

/// A part of the key of a rule; several are joined as those of a [tuple](crate::key::KeyExtractor#tuples) are.
///
/// Each does as the extractor of [`key`](crate::key) that it is named after; without its part, such as the header, a request is
/// refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyPart {
    /// The host and port that the request goes to; in a file `host`. The default.
    Host,
    /// The template of the rule that the path matches; in a file `route`. Every path of it shares a quota.
    Route,
    /// The address of a server's client; in a file `client_ip`.
    ClientIp,
    /// A hash of the token in `Authorization: Bearer`; in a file `bearer_token`.
    BearerToken,
    /// The value of this header; in a file `header:x-tenant`.
    ///
    /// Secrets have to be [hashed](Self::HashedHeader).
    Header(String),
    /// A hash of the value of this header; in a file `hashed-header:x-api-key`.
    HashedHeader(String),
    /// The method; in a file `method`.
    Method,
    /// Always this text; in a file `{ constant = "all" }`.
    Constant(String),
}

/// The key of a rule, found to make sense.
#[derive(Debug, Clone)]
pub(super) struct RuleKey(SmallVec<[Part; 2]>);

#[derive(Debug, Clone)]
enum Part {
    Host(Host),
    Route,
    ClientIp(ClientIp),
    BearerToken(BearerToken),
    Header(Header),
    Method,
    Constant(Constant),
}

impl RuleKey {
    /// Of a rule, with what is wrong at which place.
    pub(super) fn of(rule: &Rule, mut wrong: impl FnMut(String, String)) -> Self {
        let mut parts = SmallVec::new();
        for (place, (index, part)) in rule.key.items.iter().enumerate() {
            let is_twice = rule.key.values().take(place).any(|before| before == part);
            let made = match is_twice {
                true => Err("it stands there twice".into()),
                false => Part::of(part, rule),
            };
            match made {
                Ok(part) => parts.push(part),
                Err(problem) => wrong(rule.key.place("key", *index), problem),
            }
        }
        if !rule.key.is_given() {
            parts.push(Part::Host(key::host()));
        }
        if rule.trusted_proxies.is_given() && !rule.key.values().any(|it| *it == KeyPart::ClientIp)
        {
            let problem = "they are asked for the client's address alone: add `client_ip` to `key`";
            wrong("trusted_proxies".into(), problem.into());
        }
        Self(parts)
    }

    /// The key of a request whose path has matched this template.
    pub(super) fn extract<R: RequestHead>(
        &self,
        request: &R,
        route: Option<&Key>,
    ) -> Result<Key, Cow<'static, str>> {
        let extracted = match &self.0[..] {
            [part] => part.extract(request, route),
            parts => join(parts.iter().map(|part| part.extract(request, route))),
        };
        match extracted {
            Extracted::Key(key) => Ok(key),
            Extracted::Refused(reason) => Err(reason),
            Extracted::Exempt | Extracted::Ruled(_) => Err("the request has no key".into()),
        }
    }
}

impl Part {
    fn of(part: &KeyPart, rule: &Rule) -> Result<Self, String> {
        let header = |name: &str| match name.parse::<HeaderName>() {
            Ok(name) => Ok(key::header(name)),
            Err(error) => Err(no_header(name, &error)),
        };
        Ok(match part {
            KeyPart::Host => Self::Host(key::host()),
            KeyPart::Route if !rule.path.is_given() => {
                return Err("the rule has no `path` whose template could be the key".into());
            }
            KeyPart::Route => Self::Route,
            KeyPart::ClientIp => {
                let proxies = rule.trusted_proxies.values().copied();
                Self::ClientIp(key::client_ip().trusted_proxies(proxies))
            }
            KeyPart::BearerToken => Self::BearerToken(key::bearer_token()),
            KeyPart::Header(name) => Self::Header(header(name)?),
            KeyPart::HashedHeader(name) => Self::Header(header(name)?.hashed()),
            KeyPart::Method => Self::Method,
            KeyPart::Constant(text) if text.is_empty() => {
                return Err("the text is empty, which is no key".into());
            }
            KeyPart::Constant(text) => Self::Constant(key::constant(text)),
        })
    }

    fn extract<R: RequestHead>(&self, request: &R, route: Option<&Key>) -> Extracted {
        match self {
            Self::Host(host) => host.extract(request),
            Self::Route => route.cloned().into(),
            Self::ClientIp(client_ip) => client_ip.extract(request),
            Self::BearerToken(token) => token.extract(request),
            Self::Header(header) => header.extract(request),
            Self::Method => request.method().as_str().into(),
            Self::Constant(constant) => constant.extract(request),
        }
    }
}

pub(super) fn no_header(name: &str, error: &InvalidHeaderName) -> String {
    format!("{name:?} is no name of a header: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extract(rule: &Rule, request: &http::Request<()>) -> Result<String, String> {
        let wrong = |place, problem| panic!("{place}: {problem}");
        let key = RuleKey::of(rule, wrong).extract(request, Some(&"/a/{b}".into()));
        key.map(|key| key.to_string()).map_err(Cow::into_owned)
    }

    #[test]
    fn each_part_does_as_the_extractor_of_its_name() {
        let request = http::Request::put("https://A.example:8443/a/1")
            .header("x-tenant", "acme")
            .header("authorization", "Bearer secret")
            .extension(std::net::IpAddr::from([10, 0, 0, 1]))
            .header("x-forwarded-for", "203.0.113.7")
            .body(())
            .unwrap();
        let of = |part| extract(&Rule::named("a").path("/a/{b}").key(part), &request).unwrap();
        assert_eq!(of(KeyPart::Host), "a.example:8443");
        assert_eq!(of(KeyPart::Route), "/a/{b}");
        assert_eq!(of(KeyPart::ClientIp), "10.0.0.1");
        assert!(of(KeyPart::BearerToken).starts_with("sha256:"));
        assert_eq!(of(KeyPart::Header("X-Tenant".into())), "acme");
        assert!(of(KeyPart::HashedHeader("x-tenant".into())).starts_with("sha256:"));
        assert_eq!(of(KeyPart::Method), "PUT");
        assert_eq!(of(KeyPart::Constant("all".into())), "all");
        let proxied = Rule::named("a").key(KeyPart::ClientIp);
        let proxied = proxied.trusted_proxies(["10.0.0.0/8".parse().unwrap()]);
        assert_eq!(extract(&proxied, &request).unwrap(), "203.0.113.7");
        let joined = Rule::named("a")
            .key(KeyPart::Method)
            .key(KeyPart::Constant("a|b".into()));
        assert_eq!(extract(&joined, &request).unwrap(), r"PUT|a\|b");
        assert_eq!(
            extract(&Rule::named("a"), &request).unwrap(),
            "a.example:8443"
        );
    }

    #[test]
    fn a_request_without_the_part_is_refused() {
        let request = http::Request::get("/").body(()).unwrap();
        let rule = Rule::named("a")
            .key(KeyPart::Method)
            .key(KeyPart::Header("x-tenant".into()));
        let refused = extract(&rule, &request).unwrap_err();
        assert_eq!(refused, "the request has no x-tenant header");
        let refused = extract(&Rule::named("a"), &request).unwrap_err();
        assert_eq!(refused, "the request has no host");
    }
}
