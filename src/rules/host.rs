//! Patterns of hosts: [`HostPattern`].

use std::fmt;
use std::net::Ipv6Addr;

use ecow::EcoString;

use crate::key::Authority;

/// A host or all hosts below one, at one port or at any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostPattern {
    /// In the spelling of [`Authority`]; with a dot before it if the pattern is for all hosts below.
    name: EcoString,
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

    #[test]
    fn a_pattern_matches_a_host_or_all_below_it_at_its_port() {
        let patterns = "
            api.a.com | https://API.a.com./ http://api.a.com:8080 | https://api.a.org https://b.api.a.com
            API.a.com. | http://api.a.com | https://a.com
            [0:0::1] | http://[::1]:8080 | http://[::2]
            [::1]:8080 | http://[::1]:8080 | http://[::1]
            *.a.com | https://b.a.com https://B.c.d.A.com. https://b.a.com:8443 | https://a.com https://.a.com
            *.a.com | https://b.a.com | https://nota.com https://b.a.com.org
            a.b:443 | https://a.b a.b:443 | http://a.b
            a.b:80 | http://a.b http://a.b:80 a.b:80 | https://a.b
            a.b:8080 | a.b:8080 | a.b
            *.b:8443 | https://a.b:8443 | https://a.b";
        for line in patterns.lines().skip(1) {
            let [pattern, matching, others] = line.trim().split(" | ").collect::<Vec<_>>()[..]
            else {
                panic!("{line}");
            };
            let pattern = HostPattern::parse(pattern).unwrap();
            let matches = |uri: &str| {
                let request = http::Request::get(uri).body(()).unwrap();
                pattern.matches(&Authority::of(&request).unwrap())
            };
            assert!(matching.split(' ').all(matches), "{pattern} {matching}");
            assert!(!others.split(' ').any(matches), "{pattern} {others}");
        }
    }

    #[test]
    fn a_malformed_pattern_is_refused_with_advice() {
        for row in "\
            leave `host` out => *
            as `*.example.com` => *example.com|a.*.com|*.*.com|.example.com|*..example.com
            no scheme and no path => https://a.example|a.example/b
            in brackets => ::1
            no hosts below an address => *.[::1]
            not a host => |a b|a:99999|me@a.example|.
            a label is empty => a..b|a.example..
            `xn--caf-dma.example` => caf\u{e9}.example|*.caf\u{e9}.example"
            .lines()
        {
            let (advice, texts) = row.trim().split_once(" => ").unwrap();
            for text in texts.split('|') {
                let problem = HostPattern::parse(text).unwrap_err();
                assert!(problem.contains(advice), "{text}: {problem}");
            }
        }
    }
}
