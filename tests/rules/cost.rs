//! What it costs to find a rule, and the key of a request.

use allocation_counter::measure;
use http::{HeaderValue, Method, Request};
use tower_throttle::key::{self, Extracted, KeyExtractor as _};
use tower_throttle::rules::{KeyPart, Rule};

use crate::rules::{get, limiter, per_hour, request};

/// How much is allocated for that, once it has been asked before.
fn allocations(extract: impl Fn() -> Extracted) -> u64 {
    drop(extract());
    measure(|| drop(extract())).count_total
}

fn table() -> Vec<Rule> {
    let mut all: Vec<_> = (0..100)
        .map(|number| per_hour(&format!("path-{number}"), 1).path(format!("/{number}/{{id}}")))
        .collect();
    all.extend([
        per_hour("host", 1)
            .host("api.example.com")
            .key(KeyPart::Host)
            .key(KeyPart::Method),
        per_hour("suffix", 1).host("*.example.org"),
        per_hour("method", 1).method(Method::DELETE),
        per_hour("header", 1)
            .header("x-plan", "free")
            .key(KeyPart::Header("x-tenant".into())),
        per_hour("route", 1)
            .path("/items/{id}/parts/{*rest}")
            .key(KeyPart::Route),
        Rule::exempt().path("/health"),
        per_hour("others", 1).key(KeyPart::Constant("all".into())),
    ]);
    all
}

fn free() -> Request<()> {
    let mut request = get("https://example.net/");
    for (name, value) in [("x-plan", "free"), ("x-tenant", "acme")] {
        let value = HeaderValue::from_static(value);
        request.headers_mut().insert(name, value);
    }
    request
}

#[test]
fn a_rule_and_a_key_that_is_short_are_found_without_an_allocation() {
    let limiter = limiter(table());
    let extractor = limiter.by_rules();
    for (request, name, key) in [
        (get("https://example.net/99/a"), "path-99", "example.net"),
        (
            get("https://api.example.com/"),
            "host",
            "api.example.com|GET",
        ),
        (get("https://a.example.org/b"), "suffix", "a.example.org"),
        (
            request(Method::DELETE, "https://example.net/"),
            "method",
            "example.net",
        ),
        (free(), "header", "acme"),
        (
            get("https://example.net/items/1/parts/2/3"),
            "route",
            "/items/{id}/parts/{*rest}",
        ),
        (get("https://example.net/"), "others", "all"),
    ] {
        let Extracted::Ruled(ruled) = extractor.extract(&request) else {
            panic!("{name}");
        };
        assert_eq!(ruled.rule(), name);
        assert_eq!(ruled.key, Ok(key.into()));
        assert_eq!(allocations(|| extractor.extract(&request)), 0, "{name}");
    }
    let health = get("https://example.net/health");
    assert_eq!(extractor.extract(&health), Extracted::Exempt);
    assert_eq!(allocations(|| extractor.extract(&health)), 0);
}

/// One that is too long to be kept in place.
#[test]
fn the_key_of_a_long_host_is_all_that_is_allocated() {
    let limiter = limiter(table());
    let extractor = limiter.by_rules();
    let request = get("https://a-host-of-a-name-that-is-long.example.net/99/a");
    assert_eq!(allocations(|| key::host().extract(&request)), 1);
    assert_eq!(allocations(|| extractor.extract(&request)), 1);
}
