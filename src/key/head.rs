use http::{Extensions, HeaderMap, Method, Request};

/// The head of an HTTP request, as extractors read it.
///
/// It is implemented for [`http::Request`] with any body and, with the feature `reqwest`, for `reqwest::Request`. If you implement it for a request type of your own, every extractor of this module accepts it:
///
/// ```
/// use http::{HeaderMap, Method};
/// use tower_throttle::key::{self, Extracted, KeyExtractor, RequestHead};
///
/// struct Call {
///     address: String,
///     headers: HeaderMap,
/// }
///
/// impl RequestHead for Call {
///     fn method(&self) -> &Method {
///         &Method::POST
///     }
///     fn scheme(&self) -> Option<&str> {
///         Some("https")
///     }
///     fn host(&self) -> Option<&str> {
///         Some(&self.address)
///     }
///     fn port(&self) -> Option<u16> {
///         None
///     }
///     fn path(&self) -> &str {
///         "/"
///     }
///     fn headers(&self) -> &HeaderMap {
///         &self.headers
///     }
/// }
///
/// let call = Call { address: "API.example.com".to_owned(), headers: HeaderMap::new() };
/// assert_eq!(key::host().extract(&call), Extracted::Key("api.example.com".into()));
/// ```
pub trait RequestHead {
    /// The method.
    fn method(&self) -> &Method;

    /// The scheme of the URI, such as `https`, where the URI is absolute.
    fn scheme(&self) -> Option<&str>;

    /// The host of the URI, without userinfo or port, and with the brackets of an IPv6 literal.
    ///
    /// `None` where the URI has no authority, as in most requests that a server receives over HTTP/1.
    /// Do not read the `Host` header here.
    fn host(&self) -> Option<&str>;

    /// The port in the URI; `None` where only the scheme implies one.
    fn port(&self) -> Option<u16>;

    /// The path of the URI as it is sent: percent-encoded and without the query.
    fn path(&self) -> &str;

    /// The headers.
    fn headers(&self) -> &HeaderMap;

    /// The extensions, in which a server stores facts that are not part of the request, such as the address of the peer.
    ///
    /// Default: `None`; the requests of a client need none.
    fn extensions(&self) -> Option<&Extensions> {
        None
    }
}

impl<B> RequestHead for Request<B> {
    fn method(&self) -> &Method {
        self.method()
    }

    fn scheme(&self) -> Option<&str> {
        self.uri().scheme_str()
    }

    fn host(&self) -> Option<&str> {
        self.uri().host()
    }

    fn port(&self) -> Option<u16> {
        self.uri().port_u16()
    }

    fn path(&self) -> &str {
        self.uri().path()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn extensions(&self) -> Option<&Extensions> {
        Some(self.extensions())
    }
}

#[cfg(feature = "reqwest")]
impl RequestHead for reqwest::Request {
    fn method(&self) -> &Method {
        self.method()
    }

    fn scheme(&self) -> Option<&str> {
        Some(self.url().scheme())
    }

    fn host(&self) -> Option<&str> {
        self.url().host_str()
    }

    fn port(&self) -> Option<u16> {
        self.url().port()
    }

    fn path(&self) -> &str {
        self.url().path()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_request_shows_the_same_head() {
        fn check(head: &impl RequestHead) {
            let (scheme, host, path) = (head.scheme(), head.host(), head.path());
            let shown = (head.method(), scheme, host, head.port(), path);
            let (scheme, host) = (Some("https"), Some("a.example"));
            assert_eq!(shown, (&Method::PUT, scheme, host, Some(8443), "/a%20b/c"));
        }
        let url = "https://me:secret@a.example:8443/a%20b/c?q=/d";
        let request = Request::put(url).body(()).unwrap();
        check(&request);
        #[cfg(feature = "reqwest")]
        check(&reqwest::Request::new(Method::PUT, url.parse().unwrap()));
    }
}
