//! Patterns of hosts: [`HostPattern`].

use std::fmt;
use std::net::Ipv6Addr;

use smol_str::SmolStr;

use crate::key::Authority;

/// A host or all hosts below one, at one port or at any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostPattern {
    /// In the spelling of [`Authority`]; with a dot before it if the pattern is for all hosts below.
    name: SmolStr,
    port: Option<u16>,
}

impl HostPattern {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        Self::read(text).map_err(|problem| format!("{text:?}: {problem}"))
    }

    fn read(text: &str) -> Result<Self, &'static str> {
        if text == "*" {
            return Err("leave `host` out to match any host");
        }
        let (is_below, host) = match text.strip_prefix("*.") {
            Some(host) => (true, host),
            None => (false, text),
        };
        if host.contains('*') {
            return Err(
                "write all hosts below another as `*.example.com`; there are no other wildcards",
            );
        }
        let Authority {
            host: name, port, ..
        } = Authority::parse(host).ok_or_else(|| advice(host))?;
        if is_below && name.starts_with('[') {
            return Err("there are no hosts below an address");
        }
        if !name.starts_with('[') && name.split('.').any(str::is_empty) {
            return Err("a label is empty: write all hosts below another as `*.example.com`");
        }
        let name = match is_below {
            true => format!(".{name}").into(),
            false => name,
        };
        Ok(Self { name, port })
    }

    pub(super) fn matches(&self, authority: &Authority<'_>) -> bool {
        self.matches_name(&authority.host) && self.port.is_none_or(|port| authority.is_at(port))
    }

    fn is_below(&self) -> bool {
        self.name.starts_with('.')
    }

    fn matches_name(&self, name: &str) -> bool {
        match self.is_below() {
            true => name.len() > self.name.len() && name.ends_with(self.name.as_str()),
            false => name == self.name,
        }
    }

    /// True if this pattern matches every host that the other one matches.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let is_name = self.name == other.name || self.matches_name(&other.name);
        is_name && (self.port.is_none() || self.port == other.port)
    }
}

fn advice(host: &str) -> &'static str {
    if host.contains('/') {
        "a host has no scheme and no path: the path goes into `path`"
    } else if host.parse::<Ipv6Addr>().is_ok() {
        "write an IPv6 address in brackets, as in `[::1]`"
    } else if !host.is_ascii() {
        "requests have hosts in ASCII, where other letters are written as in `xn--caf-dma.example`"
    } else {
        "it is not a host, such as `api.example.com`, `*.example.com` or `[::1]:8080`"
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.is_below() { "*" } else { "" };
        write!(f, "{star}{}", self.name)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, uri: &str) -> bool {
        let request = http::Request::get(uri).body(()).unwrap();
        let authority = Authority::of(&request).unwrap();
        HostPattern::parse(pattern).unwrap().matches(&authority)
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
            ("*example.com", "as `*.example.com`"),
            ("a.*.com", "as `*.example.com`"),
            ("*.*.com", "as `*.example.com`"),
            ("https://a.example", "no scheme"),
            ("a.example/b", "no scheme and no path"),
            ("::1", "in brackets"),
            ("*.[::1]", "no hosts below an address"),
            ("", "not a host"),
            ("a b", "not a host"),
            ("a:99999", "not a host"),
            ("me@a.example", "not a host"),
            (".example.com", "`*.example.com`"),
            ("..example.com", "`*.example.com`"),
            ("*..example.com", "`*.example.com`"),
            ("a..b", "a label is empty"),
            ("a.example..", "a label is empty"),
            (".", "not a host"),
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
