//! The first rule that matches wins, and rules are warned of that are never reached.

use http::{Method, Request};
use proptest::prelude::*;
use tower_throttle::key::RequestHead as _;
use tower_throttle::rules::{KeyPart, Rule, Rules};

use crate::rules::{get, per_hour, rules, toml};

fn table() -> Rules {
    rules([
        per_hour("search", 1)
            .host("api.github.com")
            .method(Method::GET)
            .path("/search/{*rest}"),
        Rule::exempt()
            .host("*.internal.example")
            .host("localhost:8080"),
        per_hour("writes", 1)
            .method(Method::POST)
            .method(Method::PUT),
        per_hour("free", 1)
            .header("x-plan", "free")
            .has_header("x-beta", true),
        per_hour("anonymous", 1)
            .has_header("authorization", false)
            .path("/private"),
        per_hour("gists", 1)
            .host("api.github.com")
            .path("GET /gists/{id}")
            .path("DELETE /gists/{id}"),
        per_hour("others", 1),
    ])
}

#[test]
fn an_explanation_names_of_each_rule_before_the_first_condition_that_is_not_met() {
    let explanation = table().explain(&get("https://api.github.com/gists/1/star"));
    let places: Vec<_> = explanation
        .misses
        .iter()
        .map(|miss| miss.rule.place())
        .collect();
    assert_eq!(places, [0, 1, 2, 3, 4, 5]);
    assert_eq!(
        explanation.to_string(),
        r#"rules[0] `search`: the path /gists/1/star does not match /search/{*rest}
rules[1]: the host is api.github.com, not *.internal.example or localhost:8080
rules[2] `writes`: the method is GET, not POST or PUT
rules[3] `free`: `x-beta` must be present
rules[4] `anonymous`: the path /gists/1/star does not match /private
rules[5] `gists`: the path /gists/1/star does not match GET /gists/{id} or DELETE /gists/{id}
rules[6] `others`: 1/h for the key "api.github.com""#
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
    assert_eq!(ruled.cost, 3);
    assert!(
        tenants
            .to_string()
            .ends_with("refused, because the request has no x-tenant header")
    );
    let routes = table.explain(&get("/b/1")).ruled.expect("a limit");
    assert_eq!(routes.key, Ok("GET|/b/{c}".into()));
    assert_eq!(routes.rule(), "routes");
    let others = table.explain(&get("/c"));
    assert!(others.ruled.is_none());
    assert!(others.to_string().ends_with("rules[2]: exempt"));
}

/// A rule of the random tables, whose conditions are checked one by one.
#[derive(Debug, Clone)]
pub(crate) struct Naive {
    hosts: Vec<&'static str>,
    methods: Vec<&'static str>,
    paths: Vec<&'static str>,
    headers: Vec<(&'static str, Header)>,
}

#[derive(Debug, Clone, Copy)]
enum Header {
    Present,
    Absent,
    Is(&'static str),
}

pub(crate) fn naive() -> impl Strategy<Value = Naive> {
    let hosts = [
        "a.x", "b.x", "x", "*.x", "*.a.x", "a.x:81", "*.x:81", "[::1]",
    ];
    let methods = ["GET", "HEAD", "PUT", "DELETE"];
    let conditions = [Header::Present, Header::Absent, Header::Is("1")];
    let headers = conditions
        .map(|it| ("k", it))
        .into_iter()
        .chain([("l", Header::Is("2"))]);
    let some = |most| 0..=most;
    (
        prop::sample::subsequence(hosts.to_vec(), some(2)),
        prop::sample::subsequence(methods.to_vec(), some(2)),
        prop::sample::subsequence(TEMPLATES.to_vec(), some(4)),
        prop::sample::subsequence(headers.collect::<Vec<_>>(), some(1)),
    )
        .prop_map(|(hosts, methods, paths, headers)| Naive {
            hosts,
            methods,
            paths,
            headers,
        })
}

pub(crate) fn any_request() -> impl Strategy<Value = Request<()>> {
    let hosts = ["a.x", "b.x", "x", "a.a.x", "y", "a.x:81", "b.x:81", "[::1]"];
    (
        prop::sample::select(hosts.to_vec()),
        prop::sample::select(vec!["GET", "HEAD", "PUT", "DELETE", "PATCH"]),
        prop::sample::select(PATHS.to_vec()),
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

impl Naive {
    pub(crate) fn rule(&self, rule: Rule) -> Rule {
        let rule = self.hosts.iter().fold(rule, |rule, host| rule.host(*host));
        let method = |rule: Rule, it: &&str| rule.method(it.parse().expect("a method"));
        let rule = self.methods.iter().fold(rule, method);
        let rule = self.paths.iter().fold(rule, |rule, path| rule.path(*path));
        self.headers
            .iter()
            .fold(rule, |rule, (name, value)| match value {
                Header::Is(value) => rule.header(*name, *value),
                Header::Present => rule.has_header(*name, true),
                Header::Absent => rule.has_header(*name, false),
            })
    }

    pub(crate) fn matches(&self, request: &Request<()>) -> bool {
        let uri = request.uri();
        let (host, port) = (request.host().expect("a host"), uri.port_u16());
        let is_host = |pattern: &&str| {
            let (name, wanted) = match pattern.split_once(":8") {
                Some((name, rest)) => (name, Some(format!("8{rest}"))),
                None => (*pattern, None),
            };
            let is_port = wanted.is_none_or(|wanted| port.map(|it| it.to_string()) == Some(wanted));
            let is_name = match name.strip_prefix('*') {
                Some(below) => host.ends_with(below) && host != below,
                None => host == name,
            };
            is_port && is_name
        };
        let method = request.method().as_str();
        let is_method = |it: &str| it == method || (it == "GET" && method == "HEAD");
        let is_path = |template: &&str| {
            let (of, template) = template.split_once(' ').unwrap_or(("", template));
            (of.is_empty() || is_method(of)) && matches_path(template, uri.path())
        };
        let has = |(name, condition): &(&str, Header)| {
            let mut values = request.headers().get_all(*name).iter();
            match condition {
                Header::Present => values.next().is_some(),
                Header::Absent => values.next().is_none(),
                Header::Is(value) => values.any(|it| it == value),
            }
        };
        (self.hosts.is_empty() || self.hosts.iter().any(is_host))
            && (self.methods.is_empty() || self.methods.iter().any(|it| is_method(it)))
            && (self.paths.is_empty() || self.paths.iter().any(is_path))
            && self.headers.iter().all(has)
    }
}

/// Templates of random rules.
const TEMPLATES: [&str; 17] = [
    "/",
    "/a",
    "/a/b",
    "/{p}",
    "/a/{p}",
    "/{*r}",
    "/a/{*r}",
    "/{p}/{*r}",
    "PUT /a",
    "GET /v{p}",
    "/a{*r}",
    "/v{*r}",
    "/{p}.j",
    "/{p}.j/a",
    "/{p}.j/a{*r}",
    "/v{p}.j/{p}",
    "/{p}/{p}",
];

/// Paths of random requests.
const PATHS: [&str; 16] = [
    "/", "/a", "/b", "/a/b", "/a/b/c", "/a/", "/b/c", "/v1", "/v1/a", "/.j", "/a.j", "/a.j/a",
    "/a.j/b", "/a.j/a/b", "/v1.j", "/v1.j/a",
];

/// Whether a template matches a path, segment by segment.
fn matches_path(template: &str, path: &str) -> bool {
    let (mut templates, mut given) = (template.split('/'), path.split('/'));
    loop {
        let (segment, value) = match (templates.next(), given.next()) {
            (None, None) => return true,
            (Some(segment), Some(value)) => (segment, value),
            _ => return false,
        };
        if let Some(before) = segment.strip_suffix("{*r}") {
            let rest = value.strip_prefix(before);
            return rest.is_some_and(|rest| !rest.is_empty() || given.next().is_some());
        }
        let is_match = match segment.split_once("{p}") {
            Some((before, after)) => {
                let value = value.strip_prefix(before);
                let value = value.and_then(|value| value.strip_suffix(after));
                value.is_some_and(|value| !value.is_empty())
            }
            None => segment == value,
        };
        if !is_match {
            return false;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn finds_what_trying_one_after_the_other_finds(
        naive in prop::collection::vec(naive(), 0..6),
        request in any_request(),
    ) {
        let named = naive.iter().enumerate();
        let named = named.map(|(place, it)| it.rule(per_hour(&place.to_string(), 1)));
        // Some contradict themselves, which is a mistake.
        if let Ok(rules) = Rules::new(named.chain([Rule::exempt()])) {
            let expected = naive.iter().position(|it| it.matches(&request));
            let explanation = rules.explain(&request);
            prop_assert_eq!(explanation.rule.place(), expected.unwrap_or(naive.len()));
        }
    }
}

/// The rules that are never reached, each with the rule before it that takes its requests.
fn unreached(rules: &Rules) -> Vec<(usize, usize)> {
    let warnings = rules.warnings();
    warnings
        .iter()
        .map(|it| (it.rule.place(), it.by.place()))
        .collect()
}

/// Exempt rules with these conditions, and a last one without.
fn exempt_rules(conditions: &[&str]) -> Rules {
    let rules = conditions.iter().chain([&""]);
    let rules: String = rules
        .map(|it| format!("[[rules]]\nexempt = true\n{}\n", it.replace("; ", "\n")))
        .collect();
    toml(&rules).expect("rules")
}

#[test]
fn a_rule_behind_a_wider_one_is_warned_of() {
    let narrow =
        "host = 'api.example.com'; method = 'GET'; path = '/a/{b}'; header = { x-plan = 'free' }";
    for (first, is_wider) in [
        ("", true),
        ("host = '*.example.com'", true),
        ("host = ['api.example.com', 'other']", true),
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
    fn no_rule_is_warned_of_that_a_request_reaches(
        naive in prop::collection::vec(naive(), 1..6),
        requests in prop::collection::vec(any_request(), 100),
    ) {
        let named = naive.iter().enumerate();
        let named = named.map(|(place, it)| it.rule(per_hour(&place.to_string(), 1)));
        if let Ok(rules) = Rules::new(named.chain([Rule::exempt()])) {
            let unreached = unreached(&rules);
            for request in &requests {
                let reached = rules.explain(request).rule.place();
                prop_assert!(unreached.iter().all(|(place, _)| *place != reached), "{request:?}");
            }
            prop_assert!(unreached.iter().all(|(place, by)| by < place));
        }
    }
}
