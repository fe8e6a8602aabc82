//! One rule before it is checked: [`Rule`].

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;

use super::key::KeyPart;
use crate::policy::{Lost, Outage, Recovery};
use crate::priority::Priority;
use crate::quota::Quota;

/// Conditions for requests, and the policy of the requests that meet them.
///
/// A rule takes every request that meets all of its conditions. If a condition has several values, such as
/// hosts, one of them suffices. Fields that are not set have the default in the [table of fields](super#fields-of-a-rule).
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
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[must_use = "a rule does nothing until it is part of a table"]
pub struct Rule {
    pub(super) name: Given<String>,
    pub(super) exempt: Given<bool>,
    pub(super) host: List<String>,
    pub(super) method: List<String>,
    pub(super) path: List<String>,
    pub(super) header: Map<String, Wanted>,
    pub(super) quota: List<Parsed<Quota>>,
    pub(super) key: List<KeyPart>,
    pub(super) trusted_proxies: List<String>,
    pub(super) cost: Given<u32>,
    pub(super) priority: Given<Priority>,
    pub(super) share: Given<KeyPart>,
    pub(super) weight: Given<u32>,
    pub(super) reserve: Map<Priority, f64>,
    pub(super) max_wait: Given<Parsed<Duration>>,
    pub(super) max_waiting: Given<usize>,
    pub(super) buffer: Given<Parsed<Duration>>,
    pub(super) guard: Given<Parsed<Duration>>,
    pub(super) outage: Given<Outage>,
    pub(super) recovery: Given<Recovery>,
    pub(super) lost: Given<Lost>,
}

/// A field that may be missing. In a file, a field without a value is an error, because a condition such as an empty
/// `host:` in YAML would match every request.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Field<C>(pub(super) C);

pub(super) type Given<T> = Field<Option<T>>;

/// In a file, one value or a list of values.
pub(super) type List<T> = Field<Vec<T>>;

pub(super) type Map<K, V> = Field<BTreeMap<K, V>>;

/// A value, or the problem with its text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Parsed<T>(pub(super) Result<T, String>);

/// The condition of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(untagged, expecting = "expected the value of a header, or a boolean")
)]
pub(super) enum Wanted {
    Present(bool),
    Value(String),
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
            exempt: Field(Some(true)),
            ..Self::default()
        }
    }

    /// Sets the name. For an [exempt](Self::exempt) rule, it is optional and appears in an
    /// [`Explanation`](super::Explanation).
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Field(Some(name.into()));
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
        self.host.0.push(host.into());
        self
    }

    /// Adds a method. Default: any. `HEAD` falls under `GET`, too.
    pub fn method(mut self, method: Method) -> Self {
        self.method.0.push(method.to_string());
        self
    }

    /// Adds a [template](crate::key::route()#templates) of paths, such as `/repos/{owner}/{repo}`. Default: any path.
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path.0.push(path.into());
        self
    }

    /// Adds a header that must have exactly this value. A request has to meet the conditions of all headers. If it has
    /// a header several times, one of them suffices. A condition on the same header replaces an earlier one.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, wanted) = (name.into(), Wanted::Value(value.into()));
        self.header.0.insert(name.to_ascii_lowercase(), wanted);
        self
    }

    /// Adds a header that must be present, or one that must be absent.
    pub fn has_header(mut self, name: impl Into<String>, is_present: bool) -> Self {
        let (name, wanted) = (name.into(), Wanted::Present(is_present));
        self.header.0.insert(name.to_ascii_lowercase(), wanted);
        self
    }

    /// Adds a quota; all hold jointly, so a request departs once every one allows it.
    pub fn quota(mut self, quota: Quota) -> Self {
        self.quota.0.push(Parsed(Ok(quota)));
        self
    }

    /// Adds a part of the [key](KeyPart) whose quota a request spends. Default: the host.
    pub fn key(mut self, part: KeyPart) -> Self {
        self.key.0.push(part);
        self
    }

    /// Sets the proxies whose headers are trusted for the client's address; see
    /// [`ClientIp::trusted_proxies`](crate::key::ClientIp::trusted_proxies). Default: none, as with an empty list.
    pub fn trusted_proxies(mut self, networks: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let networks = networks.into_iter();
        self.trusted_proxies.0 = networks.map(|it| it.as_ref().to_owned()).collect();
        self
    }

    /// Sets the cost in requests of each request that names none. Default: that of the quotas, 1 unless they set another.
    pub fn cost(mut self, cost: u32) -> Self {
        self.cost = Field(Some(cost));
        self
    }

    /// Sets the priority of each request that has none of its own. Default: [`Priority::Normal`].
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Field(Some(priority));
        self
    }

    /// Sets the part of each request that names its [`Share`](crate::Share), with a weight of 1 or of
    /// [`weight`](Self::weight). A request that has its own keeps it, and one without that part has none. Default: none.
    pub fn share(mut self, part: KeyPart) -> Self {
        self.share = Field(Some(part));
        self
    }

    /// Sets the weight of each [share](Self::share). Default: 1, as of requests without a share.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = Field(Some(weight));
        self
    }

    /// Guarantees requests of a priority a part of the capacity; see
    /// [`LimiterBuilder::reserve`](crate::LimiterBuilder::reserve).
    pub fn reserve(mut self, priority: Priority, part: f64) -> Self {
        self.reserve.0.insert(priority, part);
        self
    }

    /// Sets the longest wait; see [`LimiterBuilder::max_wait`](crate::LimiterBuilder::max_wait).
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Field(Some(Parsed(Ok(max_wait))));
        self
    }

    /// Sets the longest queue; see [`LimiterBuilder::max_waiting`](crate::LimiterBuilder::max_waiting).
    pub fn max_waiting(mut self, max_waiting: usize) -> Self {
        self.max_waiting = Field(Some(max_waiting));
        self
    }

    /// Keeps requests further apart; see [`LimiterBuilder::buffer`](crate::LimiterBuilder::buffer).
    pub fn buffer(mut self, buffer: Duration) -> Self {
        self.buffer = Field(Some(Parsed(Ok(buffer))));
        self
    }

    /// Sets how late a request may depart; see [`LimiterBuilder::guard`](crate::LimiterBuilder::guard).
    pub fn guard(mut self, guard: Duration) -> Self {
        self.guard = Field(Some(Parsed(Ok(guard))));
        self
    }

    /// Sets the policy for requests while the store is unavailable; see
    /// [`LimiterBuilder::outage`](crate::LimiterBuilder::outage).
    pub fn outage(mut self, outage: Outage) -> Self {
        self.outage = Field(Some(outage));
        self
    }

    /// Sets the policy for keys whose state the store has lost; see
    /// [`LimiterBuilder::recovery`](crate::LimiterBuilder::recovery).
    pub fn recovery(mut self, recovery: Recovery) -> Self {
        self.recovery = Field(Some(recovery));
        self
    }

    /// Sets the treatment of work whose place is lost; see [`LimiterBuilder::lost`](crate::LimiterBuilder::lost).
    pub fn lost(mut self, lost: Lost) -> Self {
        self.lost = Field(Some(lost));
        self
    }
}
