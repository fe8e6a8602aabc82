//! One rule before it is checked: [`Rule`].

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use ipnet::IpNet;

use super::conditions::HeaderCondition;
use super::host::HostPattern;
use super::key::KeyPart;
use crate::key::{Template, parse_method};
use crate::policy::{Outage, Recovery};
use crate::quota::Quota;

/// Conditions for requests, and the policy of the requests that meet them.
///
/// A rule takes every request that meets all of its conditions. If a condition has several values, such as
/// hosts, one of them suffices. Fields that are not set have the default in the [table of fields](super#fields).
/// [`Rules::new`](super::Rules::new) reports all mistakes at once.
///
/// ```
/// use std::time::Duration;
/// use http::Method;
/// use tower_throttle::Quota;
/// use tower_throttle::rules::{KeyPart, Rule};
///
/// let search = Rule::named("search")
///     .host("api.github.com")
///     .method(Method::GET)
///     .path("/search/{*rest}")
///     .quota(Quota::per_minute(30))
///     .key(KeyPart::Host)
///     .key(KeyPart::Route)
///     .max_wait(Duration::from_secs(30));
/// let internal = Rule::exempt().host("*.internal.example");
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use = "a rule does nothing until it is part of a table"]
pub struct Rule {
    pub(super) name: Option<Arc<str>>,
    pub(super) exempt: bool,
    pub(super) host: List<HostPattern>,
    pub(super) method: List<Method>,
    pub(super) path: List<Template>,
    pub(super) header: Vec<(String, Result<HeaderCondition, String>)>,
    pub(super) quota: List<Quota>,
    pub(super) key: List<KeyPart>,
    pub(super) trusted_proxies: List<IpNet>,
    pub(super) cost: Option<u32>,
    pub(super) max_wait: Option<Parsed<Duration>>,
    pub(super) max_waiting: Option<usize>,
    pub(super) buffer: Option<Parsed<Duration>>,
    pub(super) guard: Option<Parsed<Duration>>,
    pub(super) outage: Option<Outage>,
    pub(super) recovery: Option<Recovery>,
}

/// A value, or the problem with its text.
pub(super) type Parsed<T> = Result<T, String>;

/// The values of a field; `None` if the field is not set.
pub(super) type List<T> = Option<Vec<Parsed<T>>>;

pub(super) fn parse_template(text: &str) -> Parsed<Template> {
    Template::parse(text).map_err(|error| error.to_string())
}

fn push<T>(list: &mut List<T>, value: Parsed<T>) {
    list.get_or_insert_default().push(value);
}

impl Rule {
    /// A rule that limits requests.
    ///
    /// The name is that of its policy: it keeps the rule's state in the store apart from that of other rules, and appears
    /// in metrics and errors. It has 1 to 128 visible ASCII characters without braces, and no two rules have the same.
    pub fn named(name: impl Into<String>) -> Self {
        Self::default().name(name)
    }

    /// A rule whose requests are not limited.
    pub fn exempt() -> Self {
        Self {
            exempt: true,
            ..Self::default()
        }
    }

    /// Sets the name. For an [exempt](Self::exempt) rule, it is optional and appears in an
    /// [`Explanation`](super::Explanation).
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into().into());
        self
    }

    /// Adds a host: `api.example.com`, or `*.example.com` for every host below that, at any depth, but not for
    /// `example.com` itself. Default: any host, or none.
    ///
    /// Hosts are those of [`key::host`](crate::key::host()): case and a dot at the end do not matter; where
    /// the URI has no host, the `Host` header counts. They are compared in ASCII, as requests have them: `café.example` is
    /// `xn--caf-dma.example`. With a port, as in `example.com:8443` or `[::1]:8080`, the rule is for
    /// that port alone, and without one for any. A request that names no port goes to that of its scheme; if the
    /// scheme is not known, it matches both 80 and 443.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        push(&mut self.host, HostPattern::parse(&host.into()));
        self
    }

    /// Adds a method. Default: any. `HEAD` falls under `GET`, too.
    pub fn method(mut self, method: Method) -> Self {
        push(&mut self.method, parse_method(method.as_str()));
        self
    }

    /// Adds a [template](crate::key::route()#templates) of paths, such as `/repos/{owner}/{repo}`. Default: any path.
    pub fn path(mut self, path: impl Into<String>) -> Self {
        push(&mut self.path, parse_template(&path.into()));
        self
    }

    /// Adds a header that must have exactly this value. A request has to meet the conditions of all headers. If it has
    /// a header several times, one of them suffices.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into();
        let condition = HeaderCondition::with_value(&name, &value.into());
        self.header.push((name, condition));
        self
    }

    /// Adds a header that must be present, or one that must be absent.
    pub fn has_header(mut self, name: impl Into<String>, is_present: bool) -> Self {
        let name = name.into();
        let condition = HeaderCondition::present(&name, is_present);
        self.header.push((name, condition));
        self
    }

    /// Adds a quota; all hold jointly, so a request departs once every one allows it.
    pub fn quota(mut self, quota: Quota) -> Self {
        push(&mut self.quota, Ok(quota));
        self
    }

    /// Adds a part of the [key](KeyPart) whose quota a request spends. Default: the host.
    pub fn key(mut self, part: KeyPart) -> Self {
        push(&mut self.key, Ok(part));
        self
    }

    /// Sets the proxies whose headers are trusted for the client's address; see
    /// [`ClientIp::trusted_proxies`](crate::key::ClientIp::trusted_proxies). Default: none.
    pub fn trusted_proxies(mut self, networks: impl IntoIterator<Item = IpNet>) -> Self {
        let networks: Vec<_> = networks.into_iter().map(Ok).collect();
        self.trusted_proxies = (!networks.is_empty()).then_some(networks);
        self
    }

    /// Sets the cost of each request. Default: 1.
    pub fn cost(mut self, cost: u32) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Sets the longest wait; see [`LimiterBuilder::max_wait`](crate::LimiterBuilder::max_wait).
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(Ok(max_wait));
        self
    }

    /// Sets the longest queue; see [`LimiterBuilder::max_waiting`](crate::LimiterBuilder::max_waiting).
    pub fn max_waiting(mut self, max_waiting: usize) -> Self {
        self.max_waiting = Some(max_waiting);
        self
    }

    /// Keeps requests further apart; see [`LimiterBuilder::buffer`](crate::LimiterBuilder::buffer).
    pub fn buffer(mut self, buffer: Duration) -> Self {
        self.buffer = Some(Ok(buffer));
        self
    }

    /// Sets how late a request may depart; see [`LimiterBuilder::guard`](crate::LimiterBuilder::guard).
    pub fn guard(mut self, guard: Duration) -> Self {
        self.guard = Some(Ok(guard));
        self
    }

    /// Sets the policy for requests while the store is unavailable; see
    /// [`LimiterBuilder::outage`](crate::LimiterBuilder::outage).
    pub fn outage(mut self, outage: Outage) -> Self {
        self.outage = Some(outage);
        self
    }

    /// Sets the policy for keys whose state the store has lost; see
    /// [`LimiterBuilder::recovery`](crate::LimiterBuilder::recovery).
    pub fn recovery(mut self, recovery: Recovery) -> Self {
        self.recovery = Some(recovery);
        self
    }
}
