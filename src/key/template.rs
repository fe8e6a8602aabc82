use std::{error::Error, fmt};

use http::Method;
use matchit::{InsertError, Router};

use super::{Key, shape::Shape};

/// One template of a [`Route`](super::Route): an optional method and a path with parameters.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) method: Option<Method>,
    pub(crate) path: String,
    pub(crate) shape: Shape,
    pub(crate) key: Key,
}

impl Template {
    pub(crate) fn parse(text: &str) -> Result<Self, RouteError> {
        let err = |kind| RouteError::new(text, kind);
        let mut words = text.split_ascii_whitespace();
        let (method, path) = match (words.next(), words.next(), words.next()) {
            (None, ..) => return Err(err(Kind::Empty)),
            (Some(path), None, _) if path.starts_with('/') => (None, path),
            (Some(_), None, _) => return Err(err(Kind::NoPath)),
            (Some(method), Some(path), None) => (Some(parse_method(method).map_err(err)?), path),
            (_, _, Some(_)) => return Err(err(Kind::Space)),
        };
        let shape = Shape::of(path);
        check_path(path, &shape).map_err(err)?;
        Ok(Self {
            shape,
            path: path.to_owned(),
            key: match &method {
                Some(method) => format!("{method} {path}").into(),
                None => path.into(),
            },
            method,
        })
    }
}

/// What is wrong with a method that is not.
pub(crate) const UPPER_CASE: &str = "a method is written in upper case";

fn parse_method(text: &str) -> Result<Method, Kind> {
    match Method::from_bytes(text.as_bytes()) {
        Ok(_) if text.bytes().any(|b| b.is_ascii_lowercase()) => Err(Kind::LowerCaseMethod),
        Ok(method) => Ok(method),
        Err(_) => Err(Kind::Method),
    }
}

/// `matchit` panics beyond this many.
const MOST_PARAMETERS: usize = 25;

fn check_path(path: &str, shape: &Shape) -> Result<(), Kind> {
    if !path.starts_with('/') {
        return Err(Kind::NoPath);
    }
    if let Some(found) = path
        .chars()
        .find(|&c| !c.is_ascii_graphic() || c == '?' || c == '#')
    {
        return Err(Kind::Character(found));
    }
    // As other routers write parameters: nobody means that literally.
    let foreign = |segment: &str| segment.starts_with([':', '*', '<']);
    if path.split('/').any(foreign) {
        return Err(Kind::Parameter);
    }
    if shape.parameters() > MOST_PARAMETERS {
        return Err(Kind::Parameters);
    }
    Router::new().insert(path, ()).map_err(Kind::from)
}

/// Says which template [`route`](super::route()) cannot use, and why.
///
/// ```
/// use tower_throttle::key;
///
/// let err = key::route(["GET /repos/{owner"]).unwrap_err();
/// assert_eq!(err.template(), "GET /repos/{owner");
/// assert_eq!(
///     err.to_string(),
///     r#"route template "GET /repos/{owner": a parameter is written as {name}, and a literal brace twice"#,
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteError {
    template: String,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Empty,
    NoPath,
    Space,
    Method,
    LowerCaseMethod,
    Character(char),
    Parameters,
    Parameter,
    ParameterSegment,
    CatchAll,
    Twice,
    Conflict(String),
}

impl RouteError {
    fn new(template: &str, kind: Kind) -> Self {
        Self {
            template: template.to_owned(),
            kind,
        }
    }

    pub(crate) fn twice(template: &Template) -> Self {
        Self::new(template.key.as_str(), Kind::Twice)
    }

    pub(crate) fn same_shape(template: &Template, before: &Template) -> Self {
        Self::new(
            template.key.as_str(),
            Kind::Conflict(before.key.to_string()),
        )
    }

    pub(crate) fn insert(template: &Template, err: InsertError) -> Self {
        Self::new(template.key.as_str(), err.into())
    }

    /// The template that cannot be used.
    #[must_use]
    pub fn template(&self) -> &str {
        &self.template
    }

    /// Whether the template is fine by itself, but stands twice or matches the same paths as another one.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self.kind, Kind::Twice | Kind::Conflict(_))
    }
}

impl From<InsertError> for Kind {
    fn from(err: InsertError) -> Self {
        match err {
            InsertError::Conflict { with } => Self::Conflict(with),
            InsertError::InvalidParamSegment => Self::ParameterSegment,
            InsertError::InvalidCatchAll => Self::CatchAll,
            _ => Self::Parameter,
        }
    }
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "route template {:?}: ", self.template)?;
        match &self.kind {
            Kind::Empty => f.write_str("it is empty"),
            Kind::NoPath => f.write_str("it needs a path, which starts with a slash"),
            Kind::Space => f.write_str("it is at most a method, a space and a path"),
            Kind::Method => f.write_str("what stands before the path is not a method"),
            Kind::LowerCaseMethod => f.write_str(UPPER_CASE),
            Kind::Character('?') => f.write_str("a path has no query"),
            Kind::Character(c) => {
                write!(
                    f,
                    "{c:?} in a path must be percent-encoded, as it is in a request"
                )
            }
            Kind::Parameters => write!(f, "it has more than {MOST_PARAMETERS} parameters"),
            Kind::Parameter => {
                f.write_str("a parameter is written as {name}, and a literal brace twice")
            }
            Kind::ParameterSegment => {
                f.write_str("there can be only one parameter between two slashes")
            }
            Kind::CatchAll => f.write_str("a catch-all parameter must be the end of the path"),
            Kind::Twice => f.write_str("it stands there twice"),
            Kind::Conflict(with) => {
                write!(f, "it conflicts with {with:?}, as paths may match either")
            }
        }
    }
}

impl Error for RouteError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters_of_other_routers_are_errors_and_no_literals() {
        for path in [
            "/repos/:owner",
            "/repos/*",
            "/repos/*rest",
            "/repos/<owner>",
        ] {
            let error = Template::parse(path).unwrap_err().to_string();
            assert!(error.contains("{name}"), "{error}");
        }
        assert!(Template::parse("/v1/things:batchGet").is_ok());
    }

    #[test]
    fn a_template_that_cannot_match_is_an_error_that_names_it() {
        let many = "/{a}".repeat(26);
        let parameter = "a parameter is written as {name}, and a literal brace twice";
        for (template, reason) in [
            ("", "it is empty"),
            (" \n", "it is empty"),
            ("GET", "it needs a path, which starts with a slash"),
            ("GET repos", "it needs a path, which starts with a slash"),
            ("https://a/b", "it needs a path, which starts with a slash"),
            ("GET /a b", "it is at most a method, a space and a path"),
            ("G{T /a", "what stands before the path is not a method"),
            ("GET, /a", "what stands before the path is not a method"),
            ("/a /b", "what stands before the path is not a method"),
            ("get /a", "a method is written in upper case"),
            ("Get /a", "a method is written in upper case"),
            ("/a?b=c", "a path has no query"),
            (
                "/a#b",
                "'#' in a path must be percent-encoded, as it is in a request",
            ),
            (
                "/a\0",
                "'\\0' in a path must be percent-encoded, as it is in a request",
            ),
            (
                "/caf\u{e9}",
                "'\u{e9}' in a path must be percent-encoded, as it is in a request",
            ),
            ("/{a", parameter),
            ("/a}", parameter),
            ("/{}", parameter),
            ("/{*}", parameter),
            ("/{a/b}", parameter),
            ("/{a*}", parameter),
            (
                "/{a}{b}",
                "there can be only one parameter between two slashes",
            ),
            (
                "/{a}-{b}",
                "there can be only one parameter between two slashes",
            ),
            (
                "/{*a}/b",
                "a catch-all parameter must be the end of the path",
            ),
            (&many, "it has more than 25 parameters"),
        ] {
            let err = Template::parse(template).unwrap_err();
            assert_eq!(
                err.to_string(),
                format!("route template {template:?}: {reason}")
            );
            assert_eq!(err.template(), template);
            assert!(!err.is_conflict());
        }
    }

    #[test]
    fn the_key_is_the_template() {
        for (template, expected) in [
            ("GET /repos/{owner}/{repo}", "GET /repos/{owner}/{repo}"),
            ("\tGET\r\n /a ", "GET /a"),
            ("/", "/"),
            ("/{{a}}/{*rest}", "/{{a}}/{*rest}"),
            ("PURGE /a%20b|c\\d", "PURGE /a%20b|c\\d"),
        ] {
            assert_eq!(Template::parse(template).unwrap().key.as_str(), expected);
        }
    }

    #[test]
    fn a_template_may_be_long() {
        let long = format!("/{}/{{{}}}", "a".repeat(50 * 1024), "b".repeat(50 * 1024));
        assert_eq!(Template::parse(&long).unwrap().key.as_str(), long);
    }

    proptest! {
        #[test]
        fn no_text_makes_parsing_panic(text in "(GET )?/[{}*/ab\\\\\0?\u{e9} ]{0,12}") {
            let _ = Template::parse(&text);
        }
    }
}
