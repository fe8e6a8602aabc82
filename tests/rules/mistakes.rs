//! Every mistake has its place, its value and what to do, and none hides another.

mod unreadable;

use std::time::Duration;

use tower_throttle::rules::{KeyPart, Rule, Rules, RulesError};
use tower_throttle::{Limiter, Outage, Quota};

use crate::rules::{per_hour, rules, toml};

fn mistakes(error: &RulesError) -> Vec<(&str, &str)> {
    error
        .mistakes()
        .iter()
        .map(|it| (&*it.place, &*it.problem))
        .collect()
}

/// The mistakes of one rule, before a last one that is fine.
fn of(fields: &str) -> Vec<(String, String)> {
    let text = format!("[[rules]]\nname = \"a\"\n{fields}\n[[rules]]\nexempt = true");
    let error = toml(&text).expect_err(fields);
    assert!(!error.is_malformed(), "{error}");
    let places = error.mistakes().iter().map(|it| {
        let place = it.place.strip_prefix("rules[0]").expect("the first rule");
        (place.to_owned(), it.problem.clone())
    });
    places.collect()
}

#[test]
fn each_mistake_is_named_with_its_place_and_value_and_what_to_do() {
    let empty = "it is empty: leave it out, or add a value";
    let exempt = "an exempt rule limits nothing: leave out either this or `exempt`";
    for (fields, place, problem) in [
        ("", "", "it has neither a `quota` nor `exempt = true`"),
        ("quota = []", ".quota", empty),
        ("quota = '1/s'\nkey = []", ".key", empty),
        (
            "quota = '1/s'\nkey = 'client_ip'\ntrusted_proxies = []",
            ".trusted_proxies",
            empty,
        ),
        (
            "quota = '0/s'",
            ".quota",
            "quota \"0/s\": the limit is zero",
        ),
        (
            "quota = ['1/s', '2/x']",
            ".quota[1]",
            "quota \"2/x\": unknown unit \"x\", expected one of d, h, m, s, ms, us",
        ),
        (
            "quota = ['1/s', '1/s']",
            ".quota[1]",
            "`1/s` is given twice",
        ),
        (
            "quota = ['1/s', '60/60s', '1/s']",
            ".quota[2]",
            "`1/s` is given twice",
        ),
        ("quota = '1/s'\nhost = []", ".host", empty),
        ("quota = '1/s'\nmethod = []", ".method", empty),
        ("quota = '1/s'\npath = []", ".path", empty),
        (
            "quota = '1/s'\nhost = '*'",
            ".host",
            "\"*\": leave `host` out to match any host",
        ),
        (
            "quota = '1/s'\nhost = ['a', 'http://b']",
            ".host[1]",
            "\"http://b\": a host has no scheme and no path: the path goes into `path`",
        ),
        (
            "quota = '1/s'\nhost = '.example.com'",
            ".host",
            "\".example.com\": a label is empty: write all hosts below another as `*.example.com`",
        ),
        (
            "quota = '1/s'\nhost = ['a', 'café.example']",
            ".host[1]",
            "\"café.example\": requests have hosts in ASCII, where other letters are written as in `xn--caf-dma.example`",
        ),
        (
            "quota = '1/s'\nmethod = 'get'",
            ".method",
            "\"get\" is a method in lower case: write it in upper case",
        ),
        (
            "quota = '1/s'\nmethod = ['GET', 'G T']",
            ".method[1]",
            "\"G T\" is not an HTTP method",
        ),
        (
            "quota = '1/s'\npath = '/a/:id'",
            ".path",
            "route template \"/a/:id\": a parameter is written as {name}, and a literal brace twice",
        ),
        (
            "quota = '1/s'\npath = ['/a', 'b']",
            ".path[1]",
            "route template \"b\": it needs a path, which starts with a slash",
        ),
        (
            "quota = '1/s'\npath = ['/{a}', '/{b}']",
            ".path",
            "route template \"/{b}\": it conflicts with \"/{a}\", as paths may match either",
        ),
        (
            "quota = '1/s'\nmethod = 'PUT'\npath = 'GET /a'",
            ".path",
            "\"GET /a\": `method` excludes its method",
        ),
        (
            "quota = '1/s'\nheader = { 'a b' = true }",
            ".header.a b",
            "\"a b\" is not a header name",
        ),
        (
            "quota = '1/s'\nheader = { x = ' a' }",
            ".header.x",
            "\" a\" is not a header value: use visible text without surrounding space",
        ),
        (
            "quota = '1/s'\nheader = { x = true, X = 'a' }",
            ".header.x",
            "it is listed twice",
        ),
        (
            "quota = '1/s'\nkey = ['host', { header = 'a b' }]",
            ".key[1]",
            "\"a b\" is not a header name",
        ),
        (
            "quota = '1/s'\nkey = ['host', 'host']",
            ".key[1]",
            "it is listed twice",
        ),
        (
            "quota = '1/s'\nkey = 'route'",
            ".key",
            "the rule has no `path` whose template could be the key",
        ),
        (
            "quota = '1/s'\nkey = { constant = '' }",
            ".key",
            "the text is empty",
        ),
        (
            "quota = '1/s'\ntrusted_proxies = '10.0.0.0/8'",
            ".trusted_proxies",
            "only the client's address depends on it: add `client_ip` to `key`",
        ),
        (
            "quota = '1/s'\nkey = 'client_ip'\ntrusted_proxies = ['10.0.0.0/8', 'proxy']",
            ".trusted_proxies[1]",
            "\"proxy\" is not a network, such as `10.0.0.0/8`",
        ),
        (
            "quota = '1/s'\ncost = 0",
            ".cost",
            "a cost of 0 is no request",
        ),
        (
            "quota = ['5/s', '3/m']\ncost = 4",
            ".cost",
            "a cost of 4 can never depart, as the quotas hold 3",
        ),
        (
            "quota = '1/s'\nmax_wait = 30",
            ".max_wait",
            "30 has no unit: write \"30s\" for seconds",
        ),
        (
            "quota = '1/s'\nmax_wait = 0.5",
            ".max_wait",
            "0.5 has no unit: write \"0.5s\" for seconds",
        ),
        (
            "quota = '1/s'\nmax_wait = '30'",
            ".max_wait",
            "\"30\" is not a time, such as \"30s\" or \"1m 30s\": time unit needed, for example 30sec or 30ms",
        ),
        (
            "quota = '1/s'\nmax_waiting = 0",
            ".max_waiting",
            "is zero: use `try_acquire`, or a `max_wait` of zero, not to wait at all",
        ),
        (
            "quota = '1/s'\nbuffer = '2h'",
            ".buffer",
            "7200s is longer than 3600s",
        ),
        (
            "quota = '1/s'\nguard = '0s'",
            ".guard",
            "is zero, so no permit would be valid",
        ),
        (
            "quota = '1/s'\nguard = '2h'",
            ".guard",
            "7200s is longer than 3600s",
        ),
        (
            "quota = '1/s'\noutage = { local = 1.5 }",
            ".outage",
            "a share of 1.5 is not above 0 and up to 1",
        ),
        ("exempt = true\nquota = '1/s'", ".quota", exempt),
        ("exempt = true\nmax_wait = '1s'", ".max_wait", exempt),
        ("exempt = true\nkey = 'host'", ".key", exempt),
    ] {
        assert_eq!(
            of(fields),
            [(place.to_owned(), problem.to_owned())],
            "{fields}"
        );
    }
}

#[test]
fn all_mistakes_are_named_at_once_and_in_order() {
    let error = toml(
        r#"
        [[rules]]
        name = "a"
        quota = ["0/s", "1/s", "2/parsec"]
        host = ["a.example", "https://b.example"]
        max_wait = 5

        [[rules]]
        quota = "1/s"
        path = "/{a"
        guard = "3h"

        [[rules]]
        name = "a"
        host = "c.example"
        quota = "1/s"
        cost = 2
        "#,
    );
    let error = error.unwrap_err();
    let places: Vec<_> = error.mistakes().iter().map(|it| &it.place).collect();
    assert_eq!(
        places,
        [
            "rules[0].host[1]",
            "rules[0].quota[0]",
            "rules[0].quota[2]",
            "rules[0].max_wait",
            "rules[1].path",
            "rules[1]",
            "rules[1].guard",
            "rules[2].name",
            "rules[2]",
            "rules[2].cost",
        ]
    );
    assert_eq!(error.to_string().lines().count(), 10);
    let (_, name) = mistakes(&error)[7];
    assert_eq!(name, "\"a\" is the name of rules[0]: each needs its own");
    let (_, last) = mistakes(&error)[8];
    assert_eq!(
        last,
        "the last rule has to match every request, so it has no `host`, `method`, `path` or `header`: add one with \
         `exempt = true` alone to let all others pass"
    );
    let (_, unnamed) = mistakes(&error)[5];
    assert_eq!(
        unnamed,
        "it has no `name`, which keeps its state in the store apart from that of other rules"
    );
}

#[test]
fn no_rules_are_a_mistake() {
    let error = toml("rules = []").unwrap_err();
    let problem = "there are none: to let all requests pass, add one with `exempt = true`";
    assert_eq!(mistakes(&error), [("rules", problem)]);
    assert_eq!(Rules::new([]).unwrap_err(), error);
}

#[test]
fn code_has_the_same_mistakes() {
    let second = Duration::from_secs(1);
    let bad = Rule::named("a b")
        .host("*")
        .quota(Quota::per_second(0))
        .quota(Quota::new(1, Duration::from_nanos(1)))
        .key(KeyPart::Header("a b".into()))
        .guard(second * 7200)
        .outage(Outage::Local { share: 0.0 });
    let error = Rules::new([bad, Rule::default()]).unwrap_err();
    let expected = [
        ("rules[0].host", "\"*\": leave `host` out to match any host"),
        ("rules[0].key", "\"a b\" is not a header name"),
        ("rules[0].quota[0]", "quota `0/s`: the limit is zero"),
        (
            "rules[0].quota[1]",
            "quota `1/ns`: the window is not in whole microseconds",
        ),
        (
            "rules[0].name",
            "\"a b\" is not 1 to 128 visible ASCII characters without braces",
        ),
        ("rules[0].guard", "7200s is longer than 3600s"),
        ("rules[0].outage", "a share of 0 is not above 0 and up to 1"),
        (
            "rules[1]",
            "it has no `name`, which keeps its state in the store apart from that of other rules",
        ),
        ("rules[1]", "it has neither a `quota` nor `exempt = true`"),
    ];
    assert_eq!(mistakes(&error), expected);
}

#[test]
fn fields_of_rules_are_not_set_by_the_builder() {
    let by_rules = || Limiter::builder().rules(rules([per_hour("all", 1)]));
    let second = Duration::from_secs(1);
    for (field, builder) in [
        ("quota", by_rules().quota(Quota::per_second(1))),
        ("name", by_rules().name("a")),
        ("buffer", by_rules().buffer(second)),
        ("guard", by_rules().guard(second)),
        ("max_wait", by_rules().max_wait(second)),
        ("max_waiting", by_rules().max_waiting(1)),
        ("outage", by_rules().outage(Outage::Allow)),
        (
            "recovery",
            by_rules().recovery(tower_throttle::Recovery::Strict),
        ),
    ] {
        let error = builder.build().unwrap_err().to_string();
        assert_eq!(
            error,
            format!("{field}: the limiter has rules, which set it: see `reload`")
        );
    }
}
