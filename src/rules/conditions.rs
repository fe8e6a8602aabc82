//! The conditions of a rule: [`Conditions`].

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::error::Mistakes;
use super::host::HostPattern;
use super::rule::{Parsed, Rule};
use crate::key::{Authority, Key, RequestHead, Template, Templates, falls_under};

/// The checked conditions of a rule.
#[derive(Debug)]
pub(super) struct Conditions {
    /// One of these suffices; if there are none, any will do.
    pub(super) hosts: Vec<HostPattern>,
    pub(super) methods: Vec<Method>,
    pub(super) paths: Templates,
    /// The request has to meet all of these.
    pub(super) headers: Vec<HeaderCondition>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeaderCondition {
    pub(super) name: HeaderName,
    wanted: Wanted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    Present,
    Absent,
    Value(HeaderValue),
}

/// A condition of a rule that a request does not meet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Condition {
    /// The rule is for other hosts.
    Host,
    /// The rule is for other methods.
    Method,
    /// The path matches none of the rule's templates.
    Path,
    /// The rule requires another value, or the presence or absence, of this header.
    Header(HeaderName),
}

impl Conditions {
    pub(super) fn of(rule: &Rule, mistakes: &mut Mistakes) -> Self {
        let hosts = mistakes.list("host", &rule.host, |_, host| Ok(host.clone()));
        let methods = mistakes.list("method", &rule.method, |_, method| Ok(method.clone()));
        let paths = mistakes.list("path", &rule.path, |_, template| {
            check_method(template, &methods)?;
            Ok(template.clone())
        });
        let paths = Templates::new(paths).unwrap_or_else(|error| {
            mistakes.add("path", error.to_string());
            Templates::default()
        });
        let mut headers = Vec::<HeaderCondition>::new();
        for (name, header) in &rule.header {
            match header {
                Ok(header) if headers.iter().any(|it| it.name == header.name) => {
                    mistakes.add(format!("header.{name}"), "it is listed twice");
                }
                Ok(header) => headers.push(header.clone()),
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

    /// Returns the template that the path matches, if the rule has templates, or the first condition that the request
    /// does not meet.
    pub(super) fn check<R: RequestHead>(
        &self,
        request: &R,
        host: Option<&Authority<'_>>,
    ) -> Result<Option<&Key>, Condition> {
        let is_host = || host.is_some_and(|host| self.hosts.iter().any(|it| it.matches(host)));
        if !self.hosts.is_empty() && !is_host() {
            return Err(Condition::Host);
        }
        let method = request.method();
        if !self.methods.is_empty() && !self.methods.iter().any(|it| falls_under(method, it)) {
            return Err(Condition::Method);
        }
        let route = self.paths.find(method, request.path());
        if route.is_none() && !self.paths.all().is_empty() {
            return Err(Condition::Path);
        }
        let headers = request.headers();
        match self.headers.iter().find(|it| !it.is_met(headers)) {
            Some(header) => Err(Condition::Header(header.name.clone())),
            None => Ok(route.map(|template| &template.key)),
        }
    }
}

/// A template for a method that the rule excludes would match nothing.
fn check_method(template: &Template, methods: &[Method]) -> Result<(), String> {
    let allows = |method| common(template.method.as_ref(), Some(method)).is_some();
    match methods.is_empty() || methods.iter().any(allows) {
        true => Ok(()),
        false => Err(format!("{:?}: `method` excludes its method", template.key)),
    }
}

/// The method whose requests fall under both, where `None` is any method; `None` if no request does.
pub(super) fn common<'a>(
    one: Option<&'a Method>,
    other: Option<&'a Method>,
) -> Option<Option<&'a Method>> {
    match (one, other) {
        (None, any) | (any, None) => Some(any),
        (Some(one), Some(other)) if falls_under(one, other) => Some(Some(one)),
        (Some(one), Some(other)) if falls_under(other, one) => Some(Some(other)),
        _ => None,
    }
}

impl HeaderCondition {
    pub(super) fn present(name: &str, is_present: bool) -> Parsed<Self> {
        let wanted = match is_present {
            true => Wanted::Present,
            false => Wanted::Absent,
        };
        let name = parse_header_name(name)?;
        Ok(Self { name, wanted })
    }

    pub(super) fn with_value(name: &str, value: &str) -> Parsed<Self> {
        let is_trimmed = !value.is_empty() && value.as_bytes().trim_ascii() == value.as_bytes();
        let wanted = HeaderValue::from_str(value).ok().filter(|_| is_trimmed);
        let problem = "is not a header value: use visible text without surrounding space";
        Ok(Self {
            wanted: Wanted::Value(wanted.ok_or_else(|| format!("{value:?} {problem}"))?),
            name: parse_header_name(name)?,
        })
    }

    fn is_met(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(&self.name).iter();
        match &self.wanted {
            Wanted::Present => values.next().is_some(),
            Wanted::Absent => values.next().is_none(),
            Wanted::Value(wanted) => {
                values.any(|it| it.as_bytes().trim_ascii() == wanted.as_bytes())
            }
        }
    }

    /// True if every request that meets the other condition meets this one.
    pub(super) fn follows_from(&self, other: &Self) -> bool {
        let is_weaker = self.wanted == Wanted::Present && matches!(other.wanted, Wanted::Value(_));
        self.name == other.name && (self.wanted == other.wanted || is_weaker)
    }
}

impl fmt::Display for HeaderCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.wanted {
            Wanted::Present => write!(f, "`{name}` must be present"),
            Wanted::Absent => write!(f, "`{name}` must be absent"),
            Wanted::Value(value) => write!(f, "`{name}` must be {value:?}"),
        }
    }
}

pub(super) fn parse_header_name(name: &str) -> Parsed<HeaderName> {
    let parsed = name.parse();
    parsed.map_err(|_| format!("{name:?} is not a header name"))
}
