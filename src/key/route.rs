use std::sync::Arc;

use ecow::eco_format;

use super::template::{Template, Templates};
use super::{Extracted, Key, KeyExtractor, RequestHead};
use crate::error::BuildError;

/// The key of all requests that match no template. It cannot be a template, because those have a slash.
pub(super) const UNMATCHED: &str = "unmatched";

/// Takes the template that a request's path matches as its key, so that each route has a quota of its own.
///
/// An upstream often limits `GET /repos/{owner}/{repo}` as one thing, whatever the owner and the
/// repository. So the key is the template itself, and there are never more keys than templates and one:
/// all requests that match no template share the key `unmatched`, unless
/// [`or_exempt`](Route::or_exempt) leaves them unlimited.
///
/// ```
/// use tower_throttle::key::{self, Extracted, KeyExtractor};
///
/// let route = key::route(["GET /repos/{owner}/{repo}", "/repos/{*rest}", "/health"])?;
///
/// let key = |method: &str, path: &str| {
///     let request = http::Request::builder().method(method).uri(path).body(()).unwrap();
///     match route.extract(&request) {
///         Extracted::Key(key) => key.to_string(),
///         other => panic!("{other:?}"),
///     }
/// };
/// assert_eq!(key("GET", "/repos/tokio-rs/tokio?page=2"), "GET /repos/{owner}/{repo}");
/// assert_eq!(key("DELETE", "/repos/tokio-rs/tokio"), "/repos/{*rest}");
/// assert_eq!(key("GET", "/users/carllerche"), "unmatched");
/// # Ok::<(), tower_throttle::BuildError>(())
/// ```
///
/// # Templates
///
/// A template is a path, or a method in upper case, a space and a path. In the path, `{name}` matches
/// one segment or the rest of one (`/v{version}/files`), `{*name}` at the end matches everything that follows,
/// which must not be empty, and `{{` and `}}` are braces.
///
/// - **The most specific path wins**: one without `{*name}` before one with it, and the more segments
///   precede `{*name}` the better. Then, segment by segment from left to right, fixed text wins over
///   `{name}`, and of two with `{name}` the one with the longer prefix, or with the same prefix and the longer suffix:
///   `/v{version}` before `/{name}.json`, and that before `/{name}`. Only among
///   templates of the same path, one with the request's method wins over one for any method.
/// - `HEAD` falls under the templates for `GET`, unless there is one for `HEAD` with the same path.
/// - Paths are compared as they are sent: upper and lower case differ, `/a` and `/a/` differ, `%61` is not
///   `a`, and `/b/../a` is not `/a`. A caller that sends such variants reaches the key `unmatched`, not a key of
///   its own.
/// - In a router that `Router::nest` or `nest_service` adds to another one, axum removes the prefix from the path before layers
///   of the inner router see it: put the layer around the outer router, or leave the prefix out of the templates.
/// - The query never counts, nor does the host. To limit by host, too, join this with [`host`](super::host()):
///   `(key::host(), key::route(templates)?)`.
///
/// # Errors
///
/// Fails if a template is empty, has a malformed method or path, is listed twice, or matches the same paths as
/// another one: `/{owner}` and `/{name}`.
pub fn route<I, S>(templates: I) -> Result<Route, BuildError>
where
    I: IntoIterator<Item = S>,
    S: AsRef<str>,
{
    let templates = templates
        .into_iter()
        .map(|template| Template::parse(template.as_ref()))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Route {
        templates: Arc::new(Templates::new(templates)?),
        without: UNMATCHED.into(),
        values: false,
    })
}

/// Takes the template that a request's path matches as its key; made by [`route`].
///
/// Clones are cheap.
#[derive(Debug, Clone)]
#[must_use = "an extractor does nothing until a request is given to it"]
pub struct Route {
    templates: Arc<Templates>,
    /// The result for requests that match no template.
    without: Extracted,
    values: bool,
}

impl Route {
    /// Leaves requests that match no template unlimited. Default: they share the key `unmatched`.
    ///
    /// ```
    /// use tower_throttle::key::{self, Extracted, KeyExtractor};
    ///
    /// let search = key::route(["GET /search"])?.or_exempt();
    /// let request = http::Request::get("/health").body(()).unwrap();
    /// assert_eq!(search.extract(&request), Extracted::Exempt);
    /// # Ok::<(), tower_throttle::BuildError>(())
    /// ```
    pub fn or_exempt(mut self) -> Self {
        self.without = Extracted::Exempt;
        self
    }

    /// Makes the values of the parameters part of the key, so that each path has a quota of its own.
    /// Default: all paths of a template share one.
    ///
    /// The key is then the template's method, if it has one, and the path as it is sent. In a server, a
    /// caller gets a new quota with every new value.
    ///
    /// ```
    /// use tower_throttle::key::{self, Extracted, KeyExtractor};
    ///
    /// let channel = key::route(["POST /channels/{id}/messages"])?.with_values();
    /// let request = http::Request::post("/channels/81/messages").body(()).unwrap();
    /// assert_eq!(channel.extract(&request), Extracted::Key("POST /channels/81/messages".into()));
    /// # Ok::<(), tower_throttle::BuildError>(())
    /// ```
    pub fn with_values(mut self) -> Self {
        self.values = true;
        self
    }
}

impl<R: RequestHead> KeyExtractor<R> for Route {
    fn extract(&self, request: &R) -> Extracted {
        let path = request.path();
        match self.templates.find(request.method(), path) {
            None => self.without.clone(),
            Some(template) if !self.values => Extracted::Key(template.key.clone()),
            Some(template) => match &template.method {
                Some(method) => Extracted::Key(Key(eco_format!("{method} {path}"))),
                None => path.into(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn key(route: &Route, method: &str, uri: &str) -> String {
        let request = Request::builder().method(method).uri(uri).body(()).unwrap();
        match route.extract(&request) {
            Extracted::Key(key) => key.to_string(),
            other => format!("{other:?}"),
        }
    }

    // `finds_what_the_documented_rule_says` of the templates covers the order among them.
    #[test]
    fn paths_are_compared_as_they_are_sent_and_without_the_query() {
        let templates = [
            "GET /r/{id}",
            "/a",
            "/{{b}}",
            "/v{n}/c",
            "/d%20e",
            "PURGE /{x}.b",
        ];
        let route = route(templates).unwrap();
        for (expected, requests) in [
            ("GET /r/{id}", "HEAD /r/1"),
            ("/a", "GET /a?b=/c|GET https://me@example.com:8443/a"),
            ("/{{b}}", "GET /{b}"),
            ("/v{n}/c", "GET /v2/c"),
            ("/d%20e", "GET /d%20e"),
            ("PURGE /{x}.b", "PURGE /a.b"),
            (
                "unmatched",
                "purge /a.b|GET /a/|GET //a|GET /A|GET /%61|GET /x/../a|OPTIONS *|\
                 CONNECT example.com:443|GET /caf\u{e9}|POST /r/1|GET /",
            ),
        ] {
            for request in requests.split('|') {
                let (method, path) = request.split_once(' ').unwrap();
                assert_eq!(key(&route, method, path), expected, "{request}");
            }
        }
        let long = format!("/r/{}", "a".repeat(60_000));
        assert_eq!(key(&route, "GET", &long), "GET /r/{id}");
    }

    #[test]
    fn values_are_part_of_the_key_if_wanted() {
        let route = route(["GET /a/{b}", "/a/{c}", "/{*rest}"]);
        let route = route.unwrap().with_values().or_exempt();
        for (method, path, expected) in [
            ("HEAD", "/a/1?q", "GET /a/1"),
            ("PUT", "/a/1", "/a/1"),
            ("PUT", "/unmatched", "/unmatched"),
            ("GET", "/", "Exempt"),
        ] {
            assert_eq!(key(&route, method, path), expected);
        }
    }

    #[test]
    fn templates_that_match_the_same_paths_are_an_error() {
        let twice = route(["GET /a", " GET  /a "]).unwrap_err();
        let expected = r#"route template "GET /a": it is listed twice"#;
        assert_eq!(twice.to_string(), expected);
        for (one, other, is_alike) in [
            ("/a/{b}/{*c}", "/a/{d}/{*e}", true),
            ("/a/{b}/{*c}", "/a/{d}/{e}", false),
            ("/v{a}.json", "/v{b}.json", true),
            ("/v{b}.json", "/v{b}.jso", false),
            ("PUT /{a}.json", "GET /{b}.json", false),
            ("/{{b}}", "/{{c}}", false),
            ("/{{{b}}}", "/{{{c}}}", true),
        ] {
            let problem = format!("it conflicts with {one:?}, as paths may match either");
            let problem = format!("route template {other:?}: {problem}");
            let error = route([one, other]).map_err(|it| it.to_string()).err();
            assert_eq!(error, is_alike.then_some(problem));
        }
    }
}
