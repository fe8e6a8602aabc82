//! Which requests a rule is for: [`Conditions`].

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::host::{HostPattern, Seen};
use super::key::no_header;
use super::rule::{Rule, Wanted};
use crate::key::{Key, RequestHead, Table, Template, UPPER_CASE};

/// All that a request has to be, found to make sense.
#[derive(Debug)]
pub(super) struct Conditions {
    /// One of these is enough; of none, every request has one.
    pub(super) hosts: Vec<HostPattern>,
    pub(super) methods: Vec<Method>,
    pub(super) paths: Option<Table>,
    /// All of them.
    pub(super) headers: Vec<HeaderCondition>,
}

#[derive(Debug, Clone)]
pub(super) struct HeaderCondition {
    pub(super) name: HeaderName,
    pub(super) is: HeaderIs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HeaderIs {
    There,
    NotThere,
    Value(HeaderValue),
}

/// A condition of a rule that a request does not meet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Condition {
    /// Its host is none of the rule's.
    Host,
    /// Its method is none of the rule's.
    Method,
    /// Its path matches none of the rule's templates.
    Path,
    /// This header of it is not as the rule wants it.
    Header(HeaderName),
}

impl Conditions {
    /// Of a rule, with what is wrong at which place.
    pub(super) fn of(rule: &Rule, mut wrong: impl FnMut(String, String)) -> Self {
        let lists = [
            ("host", &rule.host),
            ("method", &rule.method),
            ("path", &rule.path),
        ];
        for (field, list) in lists {
            if list.is_empty_list() {
                let problem =
                    "it is empty, so that no request would match: leave it out to match all";
                wrong(field.into(), problem.into());
            }
        }
        let mut hosts = Vec::new();
        for (index, text) in &rule.host.items {
            match HostPattern::parse(text) {
                Ok(host) => hosts.push(host),
                Err(problem) => {
                    let problem = format!("{text:?}: {problem}");
                    wrong(rule.host.place("host", *index), problem);
                }
            }
        }
        let mut methods = Vec::new();
        for (index, text) in &rule.method.items {
            match parse_method(text) {
                Ok(method) => methods.push(method),
                Err(problem) => {
                    let problem = format!("{text:?}: {problem}");
                    wrong(rule.method.place("method", *index), problem);
                }
            }
        }
        let paths = paths(rule, &methods, &mut wrong);
        let mut headers = Vec::<HeaderCondition>::new();
        for (name, wanted) in &rule.header {
            match HeaderCondition::of(name, wanted) {
                Ok(header) if headers.iter().any(|it| it.name == header.name) => {
                    let problem = format!("{name:?} stands there twice");
                    wrong("header".into(), problem);
                }
                Ok(header) => headers.push(header),
                Err(problem) => wrong(format!("header.{name}"), problem),
            }
        }
        Self {
            hosts,
            methods,
            paths,
            headers,
        }
    }

    /// The template that the path matches, if there are any; or else the first condition that is not met.
    pub(super) fn check<R: RequestHead>(
        &self,
        request: &R,
        host: Option<Seen<'_>>,
    ) -> Result<Option<&Key>, Missed<'_>> {
        let is_host = || host.is_some_and(|seen| self.hosts.iter().any(|it| it.matches(seen)));
        if !self.hosts.is_empty() && !is_host() {
            return Err(Missed::Host);
        }
        let method = request.method();
        if !self.methods.is_empty() && !self.methods.iter().any(|it| is_under(method, it)) {
            return Err(Missed::Method);
        }
        let route = match &self.paths {
            Some(paths) => Some(paths.find(method, request.path()).ok_or(Missed::Path)?),
            None => None,
        };
        let headers = request.headers();
        match self.headers.iter().find(|it| !it.is_met(headers)) {
            Some(header) => Err(Missed::Header(header)),
            None => Ok(route.map(|template| &template.key)),
        }
    }
}

/// The first condition that is not met.
#[derive(Debug, Clone, Copy)]
pub(super) enum Missed<'a> {
    Host,
    Method,
    Path,
    Header(&'a HeaderCondition),
}

/// Whether a request of this method falls under rules for that.
pub(super) fn is_under(method: &Method, rule: &Method) -> bool {
    method == rule || (method == Method::HEAD && rule == Method::GET)
}

fn parse_method(text: &str) -> Result<Method, &'static str> {
    match Method::from_bytes(text.as_bytes()) {
        Ok(_) if text.bytes().any(|byte| byte.is_ascii_lowercase()) => Err(UPPER_CASE),
        Ok(method) => Ok(method),
        Err(_) => Err("it is no method"),
    }
}

fn paths(rule: &Rule, methods: &[Method], wrong: &mut impl FnMut(String, String)) -> Option<Table> {
    let mut templates = Vec::new();
    for (index, text) in &rule.path.items {
        let mut wrong = |problem| wrong(rule.path.place("path", *index), problem);
        match Template::parse(text) {
            Ok(template) => {
                let own = template.method.as_ref();
                let is_for = |method: &Method| own.is_none_or(|own| do_meet(own, method));
                if methods.is_empty() || methods.iter().any(is_for) {
                    templates.push(template);
                } else {
                    wrong(format!(
                        "{text:?}: `method` lets no request of its method pass"
                    ));
                }
            }
            Err(error) => wrong(error.to_string()),
        }
    }
    if templates.is_empty() {
        return None;
    }
    match Table::new(templates) {
        Ok(table) => Some(table),
        Err(error) => {
            wrong("path".into(), error.to_string());
            None
        }
    }
}

/// Whether there are methods that fall under both.
pub(super) fn do_meet(one: &Method, other: &Method) -> bool {
    is_under(one, other) || is_under(other, one)
}

impl HeaderCondition {
    fn of(name: &str, wanted: &Wanted) -> Result<Self, String> {
        let is = match wanted {
            Wanted::There => HeaderIs::There,
            Wanted::NotThere => HeaderIs::NotThere,
            Wanted::Value(value) => match HeaderValue::from_str(value) {
                Ok(it) if it.as_bytes().trim_ascii() == it.as_bytes() && !it.is_empty() => {
                    HeaderIs::Value(it)
                }
                Ok(_) | Err(_) => {
                    return Err(format!(
                        "{value:?} is no value of a header: it is visible text, without space around it"
                    ));
                }
            },
        };
        match name.parse() {
            Ok(name) => Ok(Self { name, is }),
            Err(error) => Err(no_header(name, &error)),
        }
    }

    fn is_met(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(&self.name).iter();
        match &self.is {
            HeaderIs::There => values.next().is_some(),
            HeaderIs::NotThere => values.next().is_none(),
            HeaderIs::Value(wanted) => {
                values.any(|value| value.as_bytes().trim_ascii() == wanted.as_bytes())
            }
        }
    }

    /// Whether this is met wherever the other is.
    pub(super) fn follows_from(&self, other: &Self) -> bool {
        let is_there = || self.is == HeaderIs::There && matches!(other.is, HeaderIs::Value(_));
        self.name == other.name && (self.is == other.is || is_there())
    }
}

impl fmt::Display for HeaderCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.is {
            HeaderIs::There => write!(f, "`{name}` is there"),
            HeaderIs::NotThere => write!(f, "`{name}` is not there"),
            HeaderIs::Value(value) => write!(f, "`{name}` is {value:?}"),
        }
    }
}

impl From<Missed<'_>> for Condition {
    fn from(missed: Missed<'_>) -> Self {
        match missed {
            Missed::Host => Self::Host,
            Missed::Method => Self::Method,
            Missed::Path => Self::Path,
            Missed::Header(header) => Self::Header(header.name.clone()),
        }
    }
}
