use axum::extract::MatchedPath as Matched;

use super::{Extracted, KeyExtractor, RequestHead, route::UNMATCHED};

/// Takes the path of the axum route that a request matched as its key, such as `/users/{id}`, so that each
/// route has a quota of its own.
///
/// There are never more keys than routes and one: all requests that match no route share the key `unmatched`, unless
/// [`or_exempt`](MatchedPath::or_exempt) leaves them unlimited.
///
/// All methods of a path share its quota. For a method with a quota of its own, put a layer on its handler, with a limiter
/// that has another name.
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
    MatchedPath(UNMATCHED.into())
}

/// Takes the path of the axum route that a request matched as its key; made by [`matched_path`].
#[derive(Debug, Clone)]
#[must_use = "an extractor does nothing until a request is given to it"]
pub struct MatchedPath(Extracted);

impl MatchedPath {
    /// Leaves requests that match no route unlimited. Default: they share the key `unmatched`.
    pub fn or_exempt(mut self) -> Self {
        self.0 = Extracted::Exempt;
        self
    }
}

impl<R: RequestHead> KeyExtractor<R> for MatchedPath {
    fn extract(&self, request: &R) -> Extracted {
        let path = request.extensions().and_then(|all| all.get::<Matched>());
        match path {
            Some(path) => path.as_str().into(),
            None => self.0.clone(),
        }
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
        routing::get,
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
        let app = routes().layer(seen!(matched_path()));
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
}
