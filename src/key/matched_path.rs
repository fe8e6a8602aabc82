use axum::extract::MatchedPath as Matched;
use http::Method;
use smol_str::format_smolstr;

use super::{Extracted, Key, KeyExtractor, RequestHead, WithoutKey, route::UNMATCHED};

/// Takes the path of the axum route that a request matched as its key, such as `/users/{id}`, so that each
/// route has a quota of its own.
///
/// There are never more keys than routes and one: all requests that match no route share the key `unmatched`, unless
/// [`or_exempt`](MatchedPath::or_exempt) leaves them unlimited.
///
/// The path is read from the extension [`axum::extract::MatchedPath`].
///
/// ```
/// use axum::{Router, body::Body, extract::Request, middleware::{Next, from_fn}, routing::get};
/// use tower::ServiceExt;
/// use tower_throttle::key::{self, Extracted, KeyExtractor};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let users = Router::new().route("/{id}", get(|| async {}));
/// let app: Router = Router::new()
///     .nest("/users", users)
///     .layer(from_fn(async |request: Request, next: Next| {
///         let key = key::matched_path().extract(&request);
///         assert_eq!(key, Extracted::Key("/users/{id}".into()));
///         next.run(request).await
///     }));
///
/// app.oneshot(Request::get("/users/7").body(Body::empty()).unwrap()).await.unwrap();
/// # }
/// ```
///
/// # Where to put the layer
///
/// The route is known in a layer of a router ([`Router::layer`] and [`Router::route_layer`]) or of a single route
/// ([`MethodRouter::layer`]). For routers that are nested by [`Router::nest`], the key is the whole path, on either level.
///
/// The route is not known in a layer around the router as a whole, such as one of a `ServiceBuilder`
/// with the router as its service, or in a fallback. A router that is nested as an opaque
/// service ([`Router::nest_service`]) chooses its route after the layers of the outer router.
/// In all of these places the key is `unmatched`.
///
/// [`MethodRouter::layer`]: axum::routing::MethodRouter::layer
/// [`Router::layer`]: axum::Router::layer
/// [`Router::nest_service`]: axum::Router::nest_service
/// [`Router::nest`]: axum::Router::nest
/// [`Router::route_layer`]: axum::Router::route_layer
pub fn matched_path() -> MatchedPath {
    MatchedPath {
        without: WithoutKey::Shared(UNMATCHED.into()),
        method: false,
    }
}

/// Takes the path of the axum route that a request matched as its key; made by [`matched_path`].
#[derive(Debug, Clone)]
#[must_use = "an extractor does nothing until a request is given to it"]
pub struct MatchedPath {
    without: WithoutKey,
    method: bool,
}

impl MatchedPath {
    /// Leaves requests that match no route unlimited. Default: they share the key `unmatched`.
    pub fn or_exempt(mut self) -> Self {
        self.without = WithoutKey::Exempt;
        self
    }

    /// Puts the method before the path, as in `GET /users/{id}`. Default: all methods of a path share one
    /// quota.
    ///
    /// `HEAD` counts as `GET`, because axum lets a handler for `GET` answer both. With a method that axum cannot
    /// route, the key is the path alone. So callers get no quota of their own by making up methods.
    ///
    /// ```
    /// use axum::{Router, body::Body, extract::Request, middleware::{Next, from_fn}, routing::post};
    /// use tower::ServiceExt;
    /// use tower_throttle::key::{self, Extracted, KeyExtractor};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let app: Router = Router::new()
    ///     .route("/users/{id}", post(|| async {}))
    ///     .layer(from_fn(async |request: Request, next: Next| {
    ///         let key = key::matched_path().with_method().extract(&request);
    ///         assert_eq!(key, Extracted::Key("POST /users/{id}".into()));
    ///         next.run(request).await
    ///     }));
    ///
    /// app.oneshot(Request::post("/users/7").body(Body::empty()).unwrap()).await.unwrap();
    /// # }
    /// ```
    pub fn with_method(mut self) -> Self {
        self.method = true;
        self
    }
}

impl<R: RequestHead> KeyExtractor<R> for MatchedPath {
    fn extract(&self, request: &R) -> Extracted {
        let path = request.extensions().and_then(|all| all.get::<Matched>());
        let Some(path) = path.map(Matched::as_str) else {
            return self.without.extracted(|| "");
        };
        match routable(request.method()).filter(|_| self.method) {
            Some(method) => Extracted::Key(Key(format_smolstr!("{method} {path}"))),
            None => path.into(),
        }
    }
}

/// The method by which axum finds a handler, if [`axum::routing::MethodFilter`] has it.
fn routable(method: &Method) -> Option<&Method> {
    match method.as_str() {
        "HEAD" => Some(&Method::GET),
        "GET" | "POST" | "PUT" | "DELETE" | "PATCH" | "OPTIONS" | "TRACE" | "CONNECT" => {
            Some(method)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use axum::{
        Router,
        body::{Body, HttpBody},
        extract::Request,
        middleware::{Next, from_fn},
        response::Response,
        routing::{any, get},
    };
    use tower::{Layer as _, Service, ServiceExt as _};

    use super::*;

    /// A layer that stores the key of each request in its response.
    macro_rules! seen {
        ($extractor:expr) => {
            from_fn(async |request: Request, next: Next| {
                let seen = $extractor.extract(&request);
                let mut response = next.run(request).await;
                response.extensions_mut().insert(seen);
                response
            })
        };
    }

    async fn key<S, B>(app: S, method: &str, path: &str) -> String
    where
        S: Service<Request, Response = Response<B>>,
        B: HttpBody,
    {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::empty()).unwrap();
        let Ok(response) = app.oneshot(request).await else {
            panic!("the app failed");
        };
        match response.extensions().get() {
            Some(Extracted::Key(key)) => key.to_string(),
            other => format!("{other:?}"),
        }
    }

    async fn handler() {}

    #[tokio::test]
    async fn every_layer_within_a_router_has_the_whole_path_of_the_route() {
        let inner = || Router::new().route("/{post}", get(handler));
        let nested = |inner: Router| Router::new().nest("/{user}/posts", inner);
        let outer = |nested: Router| Router::new().nest("/users", nested);
        let of_method = Router::new().route("/{post}", get(handler).layer(seen!(matched_path())));
        for app in [
            outer(nested(of_method)),
            outer(nested(inner().route_layer(seen!(matched_path())))),
            outer(nested(inner()).layer(seen!(matched_path()))),
            outer(nested(inner())).layer(seen!(matched_path())),
            Router::new().nest_service("/users", nested(inner().layer(seen!(matched_path())))),
        ] {
            let key = key(app, "GET", "/users/7/posts/%31?a=/b").await;
            assert_eq!(key, "/users/{user}/posts/{post}");
        }
    }

    #[tokio::test]
    async fn where_axum_has_chosen_no_route_the_request_is_unmatched() {
        let routes = || Router::new().route("/users/{id}", get(handler));
        let app = routes().layer(seen!(matched_path().with_method()));
        assert_eq!(key(app, "GET", "/other").await, "unmatched");
        let app = routes().fallback(get(handler).layer(seen!(matched_path())));
        assert_eq!(key(app, "GET", "/other").await, "unmatched");
        let app = Router::new().nest_service("/api", routes());
        let app = app.layer(seen!(matched_path()));
        assert_eq!(key(app, "GET", "/api/users/7").await, "unmatched");
        let around = seen!(matched_path()).layer(routes());
        assert_eq!(key(around, "GET", "/users/7").await, "unmatched");
        let app = routes().layer(seen!(matched_path().or_exempt()));
        assert_eq!(key(app, "GET", "/other").await, "Some(Exempt)");
    }

    #[tokio::test]
    async fn a_made_up_method_gives_no_key_of_its_own() {
        let app = Router::new().route("/a", any(handler));
        let app = app.layer(seen!(matched_path().with_method().or_exempt()));
        for method in "GET POST PUT DELETE PATCH OPTIONS TRACE CONNECT".split(' ') {
            let expected = format!("{method} /a");
            assert_eq!(key(app.clone(), method, "/a").await, expected);
        }
        assert_eq!(key(app.clone(), "HEAD", "/a").await, "GET /a");
        for method in ["PURGE", "get"] {
            assert_eq!(key(app.clone(), method, "/a").await, "/a", "{method}");
        }
    }
}
