//! Which hosts a rule is for: [`HostPattern`], and the [`Seen`] host of a request.

use std::fmt;

use smol_str::SmolStr;

use crate::key::{Authority, RequestHead, Spelling};

/// A host, or all below it, at one port or at any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostPattern {
    /// In its one spelling; with the dot before it, if it is for all hosts below.
    name: SmolStr,
    port: Option<u16>,
}

/// The host that a request goes to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    authority: Authority<'a>,
    name: &'a str,
}

impl HostPattern {
    /// Says what to do where it is none.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let (host, is_below) = match text.strip_prefix('*') {
            Some("") => return Err("it is any host: leave `host` out for that"),
            Some(host) => match host.strip_prefix('.') {
                Some(host) => (host, true),
                None => return Err(WILDCARD),
            },
            None => (text, false),
        };
        if host.contains('*') {
            return Err(WILDCARD);
        }
        let mut spelling = Spelling::new();
        let authority = Authority::parse(host).ok_or_else(|| advice(host))?;
        let name = authority.spell(&mut spelling);
        let name = name.ok_or_else(|| advice(host))?;
        if is_below && name.starts_with('[') {
            return Err("there are no hosts below an address");
        }
        if !name.starts_with('[') && name.split('.').any(str::is_empty) {
            return Err(
                "nothing stands before one of its dots: all hosts below another are `*.example.com`",
            );
        }
        Ok(Self {
            name: match is_below {
                true => format!(".{name}").into(),
                false => name.into(),
            },
            port: authority.port(),
        })
    }

    /// The one host that it is for, if it is one.
    pub(super) fn exact(&self) -> Option<&str> {
        (!self.name.starts_with('.')).then_some(&self.name)
    }

    pub(super) fn matches(&self, seen: Seen<'_>) -> bool {
        self.is_for(seen.name) && self.port.is_none_or(|port| seen.authority.is_at(port))
    }

    /// Whether it is for the host of this name, at whatever port.
    pub(super) fn is_for(&self, name: &str) -> bool {
        match self.exact() {
            Some(exact) => exact == name,
            None => name.len() > self.name.len() && name.ends_with(self.name.as_str()),
        }
    }

    /// Whether every host is its that is the other's.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let names = match (self.exact(), other.exact()) {
            (_, Some(exact)) => self.is_for(exact),
            (None, None) => other.name.ends_with(self.name.as_str()),
            (Some(_), None) => false,
        };
        names && (self.port.is_none() || self.port == other.port)
    }
}

const WILDCARD: &str = "a star stands for all hosts below another alone, as in `*.example.com`";

fn advice(host: &str) -> &'static str {
    if host.contains("://") || host.contains('/') {
        "a host has no scheme and no path: the path goes into `path`"
    } else if host.parse::<std::net::Ipv6Addr>().is_ok() {
        "an IPv6 address stands in brackets, as in `[::1]`"
    } else if !host.is_ascii() {
        "requests have hosts in ASCII, where other letters are written as in `xn--caf-dma.example`"
    } else {
        "it is no host, as in `api.example.com`, `*.example.com` or `[::1]:8080`"
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.exact().is_some() { "" } else { "*" };
        write!(f, "{star}{}", self.name)?;
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

impl<'a> Seen<'a> {
    /// None if the request has none, or one that is malformed.
    pub(super) fn of<R: RequestHead>(request: &'a R, spelling: &'a mut Spelling) -> Option<Self> {
        let authority = Authority::of(request)?;
        let name = authority.spell(spelling)?;
        Some(Self { authority, name })
    }

    pub(super) fn name(&self) -> &'a str {
        self.name
    }
}

impl fmt::Display for Seen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        match self.authority.port() {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, uri: &str) -> bool {
        let request = http::Request::get(uri).body(()).unwrap();
        let mut spelling = Spelling::new();
        let seen = Seen::of(&request, &mut spelling).unwrap();
        HostPattern::parse(pattern).unwrap().matches(seen)
    }

    #[test]
    fn a_host_is_itself_however_it_is_spelled() {
        for (pattern, uri, expected) in [
            ("api.example.com", "https://API.example.com./", true),
            ("API.Example.com.", "http://api.example.com:8080", true),
            ("api.example.com", "https://api.example.org", false),
            ("example.com", "https://api.example.com", false),
            ("[0:0::1]", "http://[::1]:8080", true),
            ("[::1]:8080", "http://[::1]:8080", true),
            ("[::1]:8080", "http://[::1]", false),
            ("127.0.0.1", "http://127.0.0.1:3000", true),
        ] {
            assert_eq!(matches(pattern, uri), expected, "{pattern} {uri}");
        }
    }

    #[test]
    fn a_star_is_for_all_hosts_below_and_not_for_the_host_itself() {
        for (uri, expected) in [
            ("https://a.example.com", true),
            ("https://A.B.c.Example.com.", true),
            ("https://a.example.com:8443", true),
            ("https://example.com", false),
            ("https://.example.com", false),
            ("https://notexample.com", false),
            ("https://a.example.com.org", false),
        ] {
            assert_eq!(matches("*.example.com", uri), expected, "{uri}");
        }
    }

    #[test]
    fn a_port_is_that_port_alone_and_may_be_implied_by_the_scheme() {
        for (pattern, uri, expected) in [
            ("a.example:443", "https://a.example", true),
            ("a.example:443", "http://a.example", false),
            ("a.example:80", "http://a.example", true),
            ("a.example:80", "http://a.example:80", true),
            ("a.example:80", "https://a.example", false),
            ("a.example:443", "a.example", true),
            ("a.example:80", "a.example", true),
            ("a.example:8080", "a.example:8080", true),
            ("a.example:8080", "a.example", false),
            ("*.example:8443", "https://a.example:8443", true),
            ("*.example:8443", "https://a.example", false),
        ] {
            assert_eq!(matches(pattern, uri), expected, "{pattern} {uri}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused_with_advice() {
        for (text, advice) in [
            ("*", "leave `host` out"),
            ("*example.com", "as in `*.example.com`"),
            ("a.*.com", "as in `*.example.com`"),
            ("*.*.com", "as in `*.example.com`"),
            ("https://a.example", "no scheme"),
            ("a.example/b", "no scheme and no path"),
            ("::1", "in brackets"),
            ("*.[::1]", "no hosts below an address"),
            ("", "no host"),
            ("a b", "no host"),
            ("a:99999", "no host"),
            ("me@a.example", "no host"),
            (".example.com", "`*.example.com`"),
            ("..example.com", "`*.example.com`"),
            ("*..example.com", "`*.example.com`"),
            ("a..b", "before one of its dots"),
            ("a.example..", "before one of its dots"),
            (".", "no host"),
            ("caf\u{e9}.example", "`xn--caf-dma.example`"),
            ("*.caf\u{e9}.example", "`xn--caf-dma.example`"),
        ] {
            let problem = HostPattern::parse(text).unwrap_err();
            assert!(problem.contains(advice), "{text}: {problem}");
        }
    }

    #[test]
    fn a_pattern_covers_those_that_are_for_a_part_of_its_hosts() {
        let parse = |text| HostPattern::parse(text).unwrap();
        for (one, other, expected) in [
            ("a.example", "a.example", true),
            ("a.example", "a.example:80", true),
            ("a.example:80", "a.example", false),
            ("a.example:80", "a.example:81", false),
            ("*.example", "a.example", true),
            ("*.example", "*.a.example", true),
            ("*.example", "*.example", true),
            ("*.a.example", "*.example", false),
            ("*.example", "*.notexample", false),
            ("a.example", "*.example", false),
        ] {
            assert_eq!(parse(one).covers(&parse(other)), expected, "{one} {other}");
            assert_eq!(parse(one).to_string(), one);
        }
    }
}
