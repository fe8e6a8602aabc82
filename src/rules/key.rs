//! The key of a rule: [`KeyPart`].

use std::sync::Arc;

use ipnet::IpNet;

use super::conditions::{Matched, parse_header_name};
use super::error::Mistakes;
use super::rule::Rule;
use crate::key::{
    self, ClientIp, Extracted, Header, Key, KeyExtractor as _, NoKey, RequestHead, join,
    parse_network,
};
use crate::priority::Share;

/// A part of the key of a rule; several are joined as those of a [tuple](crate::key::KeyExtractor#tuples) are.
///
/// Each works like the extractor of [`key`](crate::key) with the same name. A request without that part, such as the
/// header, is refused. As a [share](super::Rule::share), a missing part means that the request has no share.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
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
    /// The value of this header; in a file `{ header = "x-tenant" }`.
    ///
    /// As with [`key::header`], it is hashed if the name looks like that of a secret, such as `x-api-key`. A server then
    /// answers 401 to a request without it.
    Header(String),
    /// A hash of the value of this header; in a file `{ hashed_header = "x-api-key" }`.
    HashedHeader(String),
    /// The method, as the client wrote it; in a file `method`.
    Method,
    /// This text for all requests; in a file `{ constant = "all" }`.
    Constant(String),
}

/// The checked key of a rule, and the share of its requests.
#[derive(Debug, PartialEq)]
pub(super) struct RuleKey {
    parts: Vec<Part>,
    share: Option<Part>,
    weight: u32,
}

#[derive(Debug, PartialEq)]
enum Part {
    Host,
    Route,
    ClientIp(ClientIp),
    Header(Header),
    Method,
    Constant(Key),
}

impl RuleKey {
    pub(super) fn of(rule: &Rule, mistakes: &mut Mistakes) -> Self {
        let proxies = mistakes.list("trusted_proxies", &rule.trusted_proxies.0, |network| {
            parse_network(network)
        });
        let proxies = proxies.into();
        let mut given = Vec::new();
        let mut parts = mistakes.list("key", &rule.key.0, |part| {
            if given.contains(&part) {
                return Err("it is listed twice".into());
            }
            given.push(part);
            Part::of(part, rule, &proxies)
        });
        if rule.key.0.is_empty() {
            parts.push(Part::Host);
        }
        given.extend(&rule.share.0);
        if !rule.trusted_proxies.0.is_empty() && !given.contains(&&KeyPart::ClientIp) {
            let problem =
                "only the client's address depends on it: add `client_ip` to `key` or `share`";
            mistakes.add("trusted_proxies", problem);
        }
        let weight = rule.weight.0.unwrap_or(1);
        if rule.share.0.is_none() && rule.weight.0.is_some() {
            mistakes.add("weight", "only a `share` has a weight: add one");
        } else if !Share::is_weight(weight) {
            mistakes.add("weight", format!("{weight} is not from 1 to 65,535"));
        }
        let share = rule.share.0.as_slice();
        let share = mistakes.list("share", share, |part| Part::of(part, rule, &proxies));
        Self {
            parts,
            share: share.into_iter().next(),
            weight,
        }
    }

    /// The key of a request, or the reason why it has none.
    pub(super) fn extract<R: RequestHead>(&self, matched: &Matched<'_, R>) -> Result<Key, NoKey> {
        let extracted = match &self.parts[..] {
            [part] => part.extract(matched),
            parts => join(parts.iter().map(|part| part.extract(matched))),
        };
        match extracted {
            Extracted::Key(key) => Ok(key),
            Extracted::Refused(no_key) => Err(no_key),
            Extracted::Exempt | Extracted::Ruled(_) => Err("the request has no key".into()),
        }
    }

    /// The share of a request, if it has the part that names it.
    pub(super) fn share<R: RequestHead>(&self, matched: &Matched<'_, R>) -> Option<Share> {
        match self.share.as_ref()?.extract(matched) {
            Extracted::Key(name) => Some(Share::new(name.as_str(), self.weight)),
            _ => None,
        }
    }
}

impl Part {
    fn of(part: &KeyPart, rule: &Rule, proxies: &Arc<[IpNet]>) -> Result<Self, String> {
        Ok(match part {
            KeyPart::Host => Self::Host,
            KeyPart::Route if rule.path.0.is_empty() => {
                return Err("the rule has no `path` whose template could be the key".into());
            }
            KeyPart::Route => Self::Route,
            KeyPart::ClientIp => Self::ClientIp(key::client_ip().trusting(proxies.clone())),
            KeyPart::BearerToken => Self::Header(key::bearer_token()),
            KeyPart::Header(name) => Self::Header(key::header(parse_header_name(name)?)),
            KeyPart::HashedHeader(name) => {
                Self::Header(key::header(parse_header_name(name)?).hashed())
            }
            KeyPart::Method => Self::Method,
            KeyPart::Constant(text) if text.is_empty() => return Err("the text is empty".into()),
            KeyPart::Constant(text) => Self::Constant(text.into()),
        })
    }

    fn extract<R: RequestHead>(&self, matched: &Matched<'_, R>) -> Extracted {
        let request = matched.request;
        match self {
            Self::Host => key::host().key_of(matched.host),
            Self::Route => matched.route.cloned().into(),
            Self::ClientIp(client_ip) => client_ip.extract(request),
            Self::Header(header) => header.extract(request),
            Self::Method => request.method().as_str().into(),
            Self::Constant(key) => key.clone().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Authority;

    #[test]
    fn each_part_works_like_the_extractor_of_its_name() {
        let request = http::Request::put("https://A.example:8443/a/1")
            .header("x-tenant", "acme")
            .header("authorization", "Bearer secret")
            .extension(std::net::IpAddr::from([10, 0, 0, 1]))
            .header("x-forwarded-for", "203.0.113.7")
            .body(())
            .unwrap();
        let rule = || Rule::named("a").path("/a/{b}");
        let (header, hashed) = (KeyPart::Header, KeyPart::HashedHeader);
        let text = KeyPart::Constant("a|b".into());
        let proxied = rule().trusted_proxies(["10.0.0.0/8"]);
        let missing = rule().key(header("x-other".into()));
        for (rule, expected) in [
            (rule(), "a.example:8443"),
            (rule().key(KeyPart::Host), "a.example:8443"),
            (rule().key(KeyPart::Route), "/a/{b}"),
            (rule().key(KeyPart::ClientIp), "10.0.0.1"),
            (proxied.key(KeyPart::ClientIp), "203.0.113.7"),
            (rule().key(KeyPart::BearerToken), "sha256:"),
            (rule().key(header("X-Tenant".into())), "acme"),
            (rule().key(hashed("x-tenant".into())), "sha256:"),
            (rule().key(KeyPart::Method).key(text), r"PUT|a\|b"),
            (missing, "the request has no x-other header"),
        ] {
            let mut mistakes = Mistakes::default();
            let key = RuleKey::of(&rule, &mut mistakes);
            assert!(mistakes.found.is_empty());
            let (host, route) = (Authority::of(&request), "/a/{b}".into());
            let key = key.extract(&Matched {
                request: &request,
                host: host.as_ref(),
                route: Some(&route),
            });
            let key = key.map_or_else(|it| it.reason.into(), |key| key.to_string());
            let is_hashed = expected == "sha256:" && key.starts_with(expected);
            assert!(is_hashed || key == expected, "{key}");
        }
    }
}
