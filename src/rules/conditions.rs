//! The conditions of a rule: [`Conditions`].

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::error::Mistakes;
use super::host::HostPattern;
use super::report::joined;
use super::rule::{Rule, Wanted};
use crate::key::{Authority, Key, RequestHead, Template, Templates, falls_under, parse_method};

/// The checked conditions of a rule.
#[derive(Debug, PartialEq)]
pub(super) struct Conditions {
    /// One of these suffices; if there are none, any will do.
    hosts: Vec<HostPattern>,
    methods: Vec<Method>,
    paths: Templates,
    /// The request has to meet all of these.
    headers: Vec<HeaderCondition>,
}

/// A request that meets all conditions.
pub(super) struct Matched<'a, R> {
    pub(super) request: &'a R,
    pub(super) host: Option<&'a Authority<'a>>,
    /// The template that the path matches, if the rule has templates.
    pub(super) route: Option<&'a Key>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct HeaderCondition {
    name: HeaderName,
    wanted: Wanted,
}

impl Conditions {
    pub(super) fn of(rule: &Rule, mistakes: &mut Mistakes) -> Self {
        let hosts = mistakes.list("host", &rule.host.0, |text| HostPattern::parse(text));
        let methods = mistakes.list("method", &rule.method.0, |text| parse_method(text));
        let paths = mistakes.list("path", &rule.path.0, |text| {
            let template = Template::parse(text).map_err(|error| error.to_string())?;
            check_method(&template, &methods)?;
            Ok(template)
        });
        let paths = Templates::new(paths).unwrap_or_else(|error| {
            mistakes.add("path", error.to_string());
            Templates::default()
        });
        let mut headers = Vec::<HeaderCondition>::new();
        for (name, wanted) in &rule.header.0 {
            match HeaderCondition::new(name, wanted.clone()) {
                Ok(header) if headers.iter().any(|it| it.name == header.name) => {
                    mistakes.add(format!("header.{name}"), "it is listed twice");
                }
                Ok(header) => headers.push(header),
                Err(problem) => mistakes.add(format!("header.{name}"), problem),
            }
        }
        Self {
            hosts,
            methods,
            paths,
            headers,
        }
    }

    /// Calls `missed` for the first condition that the request does not meet, with a function that returns the reason.
    pub(super) fn check<'a, R: RequestHead>(
        &'a self,
        request: &'a R,
        host: Option<&'a Authority<'a>>,
        missed: impl FnOnce(&dyn Fn() -> String),
    ) -> Option<Matched<'a, R>> {
        let is_host = || host.is_some_and(|host| self.hosts.iter().any(|it| it.matches(host)));
        if !self.hosts.is_empty() && !is_host() {
            let hosts = || joined(&self.hosts, " or ");
            missed(&|| match host {
                Some(host) => format!("the host is {host}, not {}", hosts()),
                None => format!("the request has no host, such as {}", hosts()),
            });
            return None;
        }
        let method = request.method();
        if !self.methods.is_empty() && !self.methods.iter().any(|it| falls_under(method, it)) {
            missed(&|| {
                format!(
                    "the method is {method}, not {}",
                    joined(&self.methods, " or ")
                )
            });
            return None;
        }
        let (path, paths) = (request.path(), &self.paths.0);
        let route = self.paths.find(method, path).map(|it| &it.key);
        if route.is_none() && !paths.is_empty() {
            let keys = || joined(paths.iter().map(|it| &it.key), " or ");
            missed(&|| format!("the path {path} does not match {}", keys()));
            return None;
        }
        let headers = request.headers();
        if let Some(header) = self.headers.iter().find(|it| !it.is_met(headers)) {
            missed(&|| header.to_string());
            return None;
        }
        Some(Matched {
            request,
            host,
            route,
        })
    }

    /// True if every request that meets the other conditions certainly meets these.
    pub(super) fn cover(&self, other: &Self) -> bool {
        let covers_host = |host: &HostPattern| self.hosts.iter().any(|it| it.covers(host));
        let covers_hosts = !other.hosts.is_empty() && other.hosts.iter().all(covers_host);
        let covers_pair = |method: Option<&Method>, path: Option<&Template>| {
            // A request of the other rule falls under both of its methods, and so under all that one of them falls under.
            let named = [method, path.and_then(|path| path.method.as_ref())];
            let takes = |own: &Method| named.iter().flatten().any(|it| falls_under(it, own));
            let takes_path = |own: &Template| {
                own.method.as_ref().is_none_or(takes)
                    && path.is_some_and(|it| own.covers_path_of(it))
            };
            let (methods, paths) = (&self.methods, &self.paths.0);
            (methods.is_empty() || methods.iter().any(takes))
                && (paths.is_empty() || paths.iter().any(takes_path))
        };
        let covers_method = |method| each(&other.paths.0).all(|path| covers_pair(method, path));
        let follows = |own: &HeaderCondition| other.headers.iter().any(|it| own.follows_from(it));
        (self.hosts.is_empty() || covers_hosts)
            && each(&other.methods).all(covers_method)
            && self.headers.iter().all(follows)
    }
}

/// Each of the values, or `None` once if there are none.
fn each<T>(values: &[T]) -> impl Iterator<Item = Option<&T>> {
    let none = values.is_empty().then_some(None);
    none.into_iter().chain(values.iter().map(Some))
}

/// A template for a method that the rule excludes would match nothing.
fn check_method(template: &Template, methods: &[Method]) -> Result<(), String> {
    let allows = |own: &Method, it: &Method| falls_under(own, it) || falls_under(it, own);
    match &template.method {
        Some(own) if !methods.is_empty() && !methods.iter().any(|it| allows(own, it)) => {
            Err(format!("{:?}: `method` excludes its method", template.key))
        }
        _ => Ok(()),
    }
}

impl HeaderCondition {
    fn new(name: &str, wanted: Wanted) -> Result<Self, String> {
        if let Wanted::Value(value) = &wanted
            && (value.is_empty()
                || value.trim_ascii() != value.as_str()
                || HeaderValue::from_str(value).is_err())
        {
            return Err(format!(
                "{value:?} is not a header value: use visible text without surrounding space"
            ));
        }
        let name = parse_header_name(name)?;
        Ok(Self { name, wanted })
    }

    fn is_met(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(&self.name).iter();
        match &self.wanted {
            Wanted::Present(is_present) => values.next().is_some() == *is_present,
            Wanted::Value(wanted) => {
                values.any(|it| it.as_bytes().trim_ascii() == wanted.as_bytes())
            }
        }
    }

    /// True if every request that meets the other condition meets this one.
    fn follows_from(&self, other: &Self) -> bool {
        let is_weaker =
            self.wanted == Wanted::Present(true) && matches!(other.wanted, Wanted::Value(_));
        self.name == other.name && (self.wanted == other.wanted || is_weaker)
    }
}

impl fmt::Display for HeaderCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.wanted {
            Wanted::Present(true) => write!(f, "`{name}` must be present"),
            Wanted::Present(false) => write!(f, "`{name}` must be absent"),
            Wanted::Value(value) => write!(f, "`{name}` must be {value:?}"),
        }
    }
}

pub(super) fn parse_header_name(name: &str) -> Result<HeaderName, String> {
    let parsed = name.parse();
    parsed.map_err(|_| format!("{name:?} is not a header name"))
}
