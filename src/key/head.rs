use http::{Extensions, HeaderMap, Method, Request, request::Parts};

/// Shows an extractor what it reads of an HTTP request: the head, without the body.
///
/// It is what lets one extractor serve every client and server: [`http::Request`] of any body,
/// [`http::request::Parts`] and, with the feature `reqwest`, `reqwest::Request`. Nothing it returns is
/// allocated. Implement it for a request type of your own, and every extractor of this module reads it:
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
    /// `None` where the URI has no authority, as in most requests that a server receives over HTTP/1;
    /// the `Host` header is not read here.
    fn host(&self) -> Option<&str>;

    /// The port that the URI states, and none that is merely implied by its scheme.
    fn port(&self) -> Option<u16>;

    /// The path of the URI as it is sent, still percent-encoded and without the query.
    fn path(&self) -> &str;

    /// The headers.
    fn headers(&self) -> &HeaderMap;

    /// The extensions, where a server leaves what is not part of the request itself, such as the address
    /// of the peer.
    ///
    /// `None` unless implemented: the requests of a client need none.
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

impl RequestHead for Parts {
    fn method(&self) -> &Method {
        &self.method
    }

    fn scheme(&self) -> Option<&str> {
        self.uri.scheme_str()
    }

    fn host(&self) -> Option<&str> {
        self.uri.host()
    }

    fn port(&self) -> Option<u16> {
        self.uri.port_u16()
    }

    fn path(&self) -> &str {
        self.uri.path()
    }

    fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    fn extensions(&self) -> Option<&Extensions> {
        Some(&self.extensions)
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

    type Head<'a> = (
        &'a str,
        Option<&'a str>,
        Option<&'a str>,
        Option<u16>,
        &'a str,
        usize,
    );

    fn head(request: &impl RequestHead) -> Head<'_> {
        (
            request.method().as_str(),
            request.scheme(),
            request.host(),
            request.port(),
            request.path(),
            request.headers().len(),
        )
    }

    const URL: &str = "https://me:secret@api.example.com:8443/a%20b/c?q=/d";
    const SEEN: Head<'_> = (
        "PUT",
        Some("https"),
        Some("api.example.com"),
        Some(8443),
        "/a%20b/c",
        1,
    );

    #[test]
    fn a_request_and_its_parts_show_the_same_head() {
        let request = Request::put(URL).header("x-a", "1").body("body").unwrap();
        assert_eq!(head(&request), SEEN);
        assert_eq!(head(&request.into_parts().0), SEEN);
    }

    #[test]
    fn a_relative_uri_has_no_scheme_host_or_port() {
        let request = Request::get("/x")
            .header("host", "a.example")
            .body(())
            .unwrap();
        assert_eq!(head(&request), ("GET", None, None, None, "/x", 1));
    }

    #[test]
    fn a_request_and_its_parts_show_their_extensions() {
        let request = Request::get("/").extension(7_u8).body(()).unwrap();
        let seven = |head: &dyn RequestHead| head.extensions().unwrap().get() == Some(&7_u8);
        assert!(seven(&request));
        assert!(seven(&request.into_parts().0));
    }

    #[cfg(feature = "reqwest")]
    #[test]
    fn a_reqwest_request_shows_the_same_head() {
        let mut request = reqwest::Request::new(Method::PUT, URL.parse().unwrap());
        request
            .headers_mut()
            .insert("x-a", http::HeaderValue::from_static("1"));
        assert_eq!(head(&request), SEEN);
    }
}
