//! The first rule that matches wins, and rules are warned of that are never reached.

use proptest::prelude::*;

use crate::prelude::*;
use crate::rules::{get, per_hour, rules, toml};

#[test]
fn an_explanation_names_of_each_rule_before_the_first_condition_that_is_not_met() {
    let rules = exempt_rules(&[
        "host = 'api.github.com'; method = 'GET'; path = '/search/{*rest}'",
        "host = ['*.internal.example', 'localhost:8080']",
        "method = ['POST', 'PUT']",
        "header = { x-plan = 'free', x-beta = true }",
        "header = { authorization = false }; path = '/private'",
        "host = 'api.github.com'; path = ['GET /gists/{id}', 'DELETE /gists/{id}']",
    ]);
    let explanation = rules.explain(&get("https://api.github.com/gists/1/star"));
    let places = explanation.misses.iter().map(|miss| miss.rule.place());
    assert!(places.eq(0..6));
    assert_eq!(
        explanation.to_string(),
        "rules[0]: the path /gists/1/star does not match /search/{*rest}
rules[1]: the host is api.github.com, not *.internal.example or localhost:8080
rules[2]: the method is GET, not POST or PUT
rules[3]: `x-beta` must be present
rules[4]: the path /gists/1/star does not match /private
rules[5]: the path /gists/1/star does not match GET /gists/{id} or DELETE /gists/{id}
rules[6]: exempt"
    );
}

#[test]
fn an_explanation_tells_what_holds_for_the_request() {
    let table = rules([
        per_hour("tenants", 9)
            .path("/a/{b}")
            .key(KeyPart::Header("x-tenant".into()))
            .cost(3),
        per_hour("routes", 9)
            .path("/b/{c}")
            .key(KeyPart::Method)
            .key(KeyPart::Route),
        Rule::exempt(),
    ]);
    let tenants = table.explain(&get("/a/1"));
    let ruled = tenants.ruled.as_ref().expect("a limit");
    assert_eq!(ruled.key, Err("the request has no x-tenant header".into()));
    assert_eq!(ruled.cost, Some(3));
    let reason = "refused, because the request has no x-tenant header";
    assert!(tenants.to_string().ends_with(reason));
    let routes = table.explain(&get("/b/1")).ruled.expect("a limit");
    assert_eq!(routes.key, Ok("GET|/b/{c}".into()));
    assert_eq!(routes.rule(), "routes");
    let others = table.explain(&get("/c"));
    assert!(others.ruled.is_none());
    assert!(others.to_string().ends_with("rules[2]: exempt"));
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let hosts = list("a.x | b.x | x | *.x | *.a.x | a.x:81 | *.x:81 | [::1]");
    let methods = [Method::GET, Method::HEAD, Method::PUT, Method::DELETE];
    let header: [fn(Rule) -> Rule; 5] = [
        |rule| rule,
        |rule| rule.has_header("k", true),
        |rule| rule.has_header("k", false),
        |rule| rule.header("k", "1"),
        |rule| rule.header("l", "2"),
    ];
    (
        prop::sample::subsequence(hosts, 0..=2),
        prop::sample::subsequence(methods.to_vec(), 0..=2),
        prop::sample::subsequence(list(TEMPLATES), 0..=4),
        prop::sample::select(header.to_vec()),
    )
        .prop_map(|(hosts, methods, paths, header)| {
            let rule = hosts.into_iter().fold(Rule::exempt(), Rule::host);
            let rule = methods.into_iter().fold(rule, Rule::method);
            header(paths.into_iter().fold(rule, Rule::path))
        })
}

fn any_request() -> impl Strategy<Value = Request<()>> {
    let hosts = ["a.x", "b.x", "x", "a.a.x", "y", "a.x:81", "b.x:81", "[::1]"];
    (
        prop::sample::select(hosts.to_vec()),
        prop::sample::select(vec!["GET", "HEAD", "PUT", "DELETE", "PATCH"]),
        prop::sample::select(list(PATHS)),
        prop::sample::subsequence(vec![("k", "1"), ("k", "3"), ("l", "2")], 0..=3),
    )
        .prop_map(|(host, method, path, headers)| {
            let uri = format!("http://{host}{path}");
            let mut request = Request::builder().method(method).uri(uri);
            for (name, value) in headers {
                request = request.header(name, value);
            }
            request.body(()).expect("a request")
        })
}

/// Templates of random rules, and paths of random requests.
const TEMPLATES: &str = "/ | /a | /a/b | /{p} | /a/{p} | /{*r} | /a/{*r} | /{p}/{*r} | PUT /a | GET /v{p} | /a{*r} | \
    /v{*r} | /{p}.j | /{p}.j/a | /{p}.j/a{*r} | /v{p}.j/{p} | /{p}/{p}";
const PATHS: &str = "/ | /a | /b | /a/b | /a/b/c | /a/ | /b/c | /v1 | /v1/a | /.j | /a.j | /a.j/a | /a.j/b | /a.j/a/b | \
    /v1.j | /v1.j/a";

fn list(text: &'static str) -> Vec<&'static str> {
    text.split(" | ").collect()
}

/// The rules that are never reached, each with the rule before it that takes its requests.
fn unreached(rules: &Rules) -> Vec<(usize, usize)> {
    let warnings = rules.warnings().into_iter();
    let warnings = warnings.map(|it| (it.rule.place(), it.by.place()));
    warnings.collect()
}

/// Exempt rules with these conditions, and a last one without.
fn exempt_rules(conditions: &[&str]) -> Rules {
    let rule = |it: &&str| format!("[[rules]]\nexempt = true\n{}\n", it.replace("; ", "\n"));
    let rules = conditions.iter().chain([&""]).map(rule);
    toml(&rules.collect::<String>()).expect("rules")
}

/// The patterns of hosts and paths have tests of their own.
#[test]
fn a_rule_matches_if_all_of_its_conditions_are_met() {
    for (conditions, matching, others) in [
        ("method = 'GET'", "GET|HEAD", "PUT"),
        ("method = ['HEAD', 'PUT']", "HEAD|PUT", "GET|DELETE"),
        ("path = ['GET /a', '/b']", "GET|HEAD", "PUT"),
        ("header = { k = true }", "GET 1|GET 2", "GET"),
        ("header = { k = false }", "GET", "GET 1"),
        ("header = { k = '1' }", "GET 1|GET 2 1", "GET 2|GET"),
        ("method = 'PUT'; header = { k = '1' }", "PUT 1", "PUT|GET 1"),
        ("method = 'PUT'; path = '/b'", "", "PUT"),
        ("method = 'HEAD'; path = 'GET /a'", "HEAD", "GET"),
        ("method = 'GET'; path = 'HEAD /a'", "HEAD", "GET"),
    ] {
        let rules = exempt_rules(&[conditions]);
        let matches = |words: &str| {
            let mut words = words.split(' ');
            let request = Request::builder().method(words.next().expect("a method"));
            let request = words.fold(request.uri("/a"), |it, value| it.header("k", value));
            let request = request.body(()).expect("a request");
            rules.explain(&request).rule.place() == 0
        };
        let matching = matching.split('|').filter(|it| !it.is_empty());
        assert!(matching.into_iter().all(matches), "{conditions}");
        assert!(!others.split('|').any(matches), "{conditions}");
    }
}

#[test]
fn a_rule_behind_a_wider_one_is_warned_of() {
    let narrow = "host = 'api.example.com:8443'; method = 'GET'; path = '/a/{b}'; header = { x-plan = 'free' }";
    for (first, is_wider) in [
        ("", true),
        ("host = '*.example.com'", true),
        ("host = ['api.example.com', 'other']", true),
        ("host = 'api.example.com:8443'", true),
        ("method = ['PUT', 'GET']", true),
        ("path = '/{x}/{y}'", true),
        ("path = '/a/{*x}'", true),
        ("path = 'GET /a/{x}'", true),
        ("header = { x-plan = 'free' }", true),
        ("header = { x-plan = true }", true),
        ("host = '*.api.example.com'", false),
        ("host = 'api.example.com:443'", false),
        ("method = 'HEAD'", false),
        ("path = '/a/b'", false),
        ("path = 'PUT /a/{b}'", false),
        ("header = { x-plan = 'pro' }", false),
        ("header = { x-plan = false }", false),
        ("header = { x-plan = 'free', x-beta = true }", false),
    ] {
        let unreached = unreached(&exempt_rules(&[first, narrow]));
        assert_eq!(unreached.contains(&(1, 0)), is_wider, "{first}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn a_request_falls_under_the_first_rule_that_matches_alone_which_is_not_warned_of(
        all in prop::collection::vec(any_rule(), 1..6),
        requests in prop::collection::vec(any_request(), 100),
    ) {
        let table = |all: &[Rule]| Rules::new(all.iter().cloned().chain([Rule::exempt()]));
        if let Ok(rules) = table(&all) {
            let alone: Vec<_> = all.chunks(1).map(|rule| table(rule).expect("rules")).collect();
            let unreached = unreached(&rules);
            prop_assert!(unreached.iter().all(|(place, by)| by < place));
            for request in &requests {
                let found = rules.explain(request).rule.place();
                let first = alone.iter().position(|it| it.explain(request).rule.place() == 0);
                prop_assert_eq!(found, first.unwrap_or(all.len()));
                prop_assert!(unreached.iter().all(|(place, _)| *place != found), "{request:?}");
            }
        }
    }
}
