//! One rule, before it was found to make sense: [`Rule`].

use std::time::Duration;

use http::Method;
use ipnet::IpNet;

use super::key::KeyPart;
use crate::outage::Outage;
use crate::quota::Quota;
use crate::recovery::Recovery;

/// Which requests, and what holds for them: a policy, or nothing.
///
/// A rule takes every request that meets all of its conditions; of those that are given several times, such as
/// hosts, one is enough. Whatever is not set has the default that the [table of fields](super#fields) names. Nothing is
/// checked before [`Rules::new`](super::Rules::new), which names all that is wrong at once.
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
#[must_use = "a rule does nothing until it stands in a table"]
pub struct Rule {
    pub(super) name: Option<String>,
    pub(super) exempt: bool,
    pub(super) host: Listed<String>,
    pub(super) method: Listed<String>,
    pub(super) path: Listed<String>,
    pub(super) header: Vec<(String, Wanted)>,
    pub(super) quota: Listed<Quota>,
    pub(super) key: Listed<KeyPart>,
    pub(super) trusted_proxies: Listed<IpNet>,
    pub(super) cost: Option<u32>,
    pub(super) max_wait: Option<Duration>,
    pub(super) max_waiting: Option<usize>,
    pub(super) buffer: Option<Duration>,
    pub(super) guard: Option<Duration>,
    pub(super) outage: Option<Outage>,
    pub(super) recovery: Option<Recovery>,
}

/// What a header has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    There,
    NotThere,
    Value(String),
}

/// One or several, each with its place among all that were given: some of those may have been malformed.
#[derive(Debug, Clone)]
pub(super) struct Listed<T> {
    pub(super) items: Vec<(usize, T)>,
    pub(super) count: usize,
    /// Whether it is written as a list, if it is one of one.
    pub(super) is_list: bool,
}

impl Rule {
    /// A rule that limits: the name is its policy's.
    ///
    /// It names the state of the rule's quotas in the store, so that rules do not share it, whatever their place;
    /// metrics and errors call the rule by it. 1 to 128 visible ASCII characters without braces, of which no two rules have the same.
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

    /// Sets the name, which an [exempt](Self::exempt) rule may have, too: an [`Explanation`](super::Explanation) calls
    /// it by that.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Adds a host: `api.example.com`, or `*.example.com` for every host below that, at any depth, but not for
    /// itself. Default: any host, or none.
    ///
    /// Hosts are those of [`key::host`](crate::key::host()): case does not matter, nor a dot at the end; where
    /// the URI has none, the `Host` header counts. They are compared in ASCII, as requests have them: `café.example` is
    /// `xn--caf-dma.example`. With a port, as in `example.com:8443` or `[::1]:8080`, it is
    /// that port alone, and without one any. A request that names no port goes to that of its scheme; where the
    /// scheme is not known, to 80 or to 443, as it may be.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host.push(host.into());
        self
    }

    /// Adds a method. Default: any. `HEAD` falls under `GET`, too.
    pub fn method(mut self, method: Method) -> Self {
        self.method.push(method.as_str().to_owned());
        self
    }

    /// Adds a [template](crate::key::route()#templates) of paths, such as `/repos/{owner}/{repo}`. Default: any path.
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path.push(path.into());
        self
    }

    /// Adds a header that has to have this value, exactly. All headers have to be as they are to be; of one that a request
    /// has several times, any may have the value.
    pub fn header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.wants(name, Wanted::Value(value.into()))
    }

    /// Adds a header that has to be there, or that must not be.
    pub fn has_header(self, name: impl Into<String>, is_there: bool) -> Self {
        let wanted = match is_there {
            true => Wanted::There,
            false => Wanted::NotThere,
        };
        self.wants(name, wanted)
    }

    /// Adds a quota; all hold jointly, so a request departs once every one allows it.
    pub fn quota(mut self, quota: Quota) -> Self {
        self.quota.push(quota);
        self
    }

    /// Adds a part of the [key](KeyPart), which says whose quota a request spends. Default: the host.
    pub fn key(mut self, part: KeyPart) -> Self {
        self.key.push(part);
        self
    }

    /// Sets the proxies that are believed as to the client's address; see
    /// [`ClientIp::trusted_proxies`](crate::key::ClientIp::trusted_proxies). Default: none.
    pub fn trusted_proxies(mut self, networks: impl IntoIterator<Item = IpNet>) -> Self {
        self.trusted_proxies = Listed::of(networks, true);
        self
    }

    /// Sets what each request costs. Default: 1.
    pub fn cost(mut self, cost: u32) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Sets the longest wait; see [`LimiterBuilder::max_wait`](crate::LimiterBuilder::max_wait).
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(max_wait);
        self
    }

    /// Sets the longest line; see [`LimiterBuilder::max_waiting`](crate::LimiterBuilder::max_waiting).
    pub fn max_waiting(mut self, max_waiting: usize) -> Self {
        self.max_waiting = Some(max_waiting);
        self
    }

    /// Keeps requests further apart; see [`LimiterBuilder::buffer`](crate::LimiterBuilder::buffer).
    pub fn buffer(mut self, buffer: Duration) -> Self {
        self.buffer = Some(buffer);
        self
    }

    /// Sets how late a request may depart; see [`LimiterBuilder::guard`](crate::LimiterBuilder::guard).
    pub fn guard(mut self, guard: Duration) -> Self {
        self.guard = Some(guard);
        self
    }

    /// Sets what becomes of requests while the store is out; see
    /// [`LimiterBuilder::outage`](crate::LimiterBuilder::outage).
    pub fn outage(mut self, outage: Outage) -> Self {
        self.outage = Some(outage);
        self
    }

    /// Sets what becomes of a key whose state is lost; see
    /// [`LimiterBuilder::recovery`](crate::LimiterBuilder::recovery).
    pub fn recovery(mut self, recovery: Recovery) -> Self {
        self.recovery = Some(recovery);
        self
    }

    /// Whether it is for some requests alone, as far as it says, rightly or wrongly.
    pub(super) fn has_conditions(&self) -> bool {
        let lists = [&self.host, &self.method, &self.path];
        !self.header.is_empty() || lists.iter().any(|list| list.is_given())
    }

    fn wants(mut self, name: impl Into<String>, wanted: Wanted) -> Self {
        self.header.push((name.into(), wanted));
        self
    }
}

impl<T> Listed<T> {
    pub(super) fn of(items: impl IntoIterator<Item = T>, is_list: bool) -> Self {
        let items: Vec<_> = items.into_iter().enumerate().collect();
        Self {
            count: items.len(),
            items,
            is_list,
        }
    }

    fn push(&mut self, item: T) {
        self.items.push((self.count, item));
        self.count += 1;
        self.is_list = self.count > 1;
    }

    /// Whether anything was given, if only an empty list.
    pub(super) fn is_given(&self) -> bool {
        self.is_list || self.count > 0
    }

    pub(super) fn is_empty_list(&self) -> bool {
        self.is_list && self.count == 0
    }

    /// Where that one stands.
    pub(super) fn place(&self, field: &str, index: usize) -> String {
        match self.is_list {
            true => format!("{field}[{index}]"),
            false => field.to_owned(),
        }
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.items.iter().map(|(_, item)| item)
    }
}

/// By what it says, however it is written.
impl<T: PartialEq> PartialEq for Listed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.values().eq(other.values())
    }
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            count: 0,
            is_list: false,
        }
    }
}
