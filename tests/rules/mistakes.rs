//! Every mistake has its place, its value and what to do, and none hides another.

use crate::prelude::*;
use crate::rules::{json, per_hour, rules, toml, yaml};

fn mistakes(error: &RulesError) -> Vec<(&str, &str)> {
    let mistakes = error.mistakes().iter();
    mistakes.map(|it| (it.field(), it.problem())).collect()
}

/// The mistakes of one rule, before a last one that is fine.
fn of(fields: &str) -> Vec<(String, String)> {
    let text = format!("[[rules]]\nname = \"a\"\n{fields}\n[[rules]]\nexempt = true");
    let error = toml(&text).expect_err(fields);
    assert!(!error.is_malformed(), "{error}");
    let places = error.mistakes().iter().map(|it| {
        let place = it.field().strip_prefix("rules[0]").expect("the first rule");
        (place.to_owned(), it.problem().to_owned())
    });
    places.collect()
}

#[test]
fn each_mistake_is_named_with_its_place_and_value_and_what_to_do() {
    // The fields of a rule, the place in it, and the problem.
    for row in include_str!("mistakes.txt").lines() {
        let [fields, place, problem] = row.split(" => ").collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let expected = [(place.to_owned(), problem.to_owned())];
        assert_eq!(of(&fields.replace("; ", "\n")), expected, "{row}");
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
        max_wait = "5"

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
    let error = error.unwrap_err().to_string();
    let lines: Vec<_> = error.lines().collect();
    let each = lines.iter();
    let places = each.map(|line| line.split(": ").next().expect("a place"));
    let expected = "rules[0].host[1] rules[0].quota[0] rules[0].quota[2] rules[0].max_wait rules[1].path rules[1] \
                    rules[1].guard rules[2].name rules[2] rules[2].cost";
    assert!(places.eq(expected.split(' ')), "{error}");
    assert!(lines[7].ends_with("\"a\" is the name of rules[0]: each needs its own"));
    assert!(lines[8].contains("the last rule has to match every request"));
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
    let expected = r#"rules[0].host: "*": leave `host` out to match any host
rules[0].key: "a b" is not a header name
rules[0].quota: `0/s`: the limit is zero
rules[0].quota: `1/ns`: the window is not in whole microseconds
rules[0].name: "a b" is not 1 to 128 visible ASCII characters without braces
rules[0].guard: 7200s is longer than 3600s
rules[0].outage: a share of 0 is not above 0 and up to 1
rules[1]: it has no `name`, which keeps its state in the store apart from that of other rules
rules[1]: it has neither a `quota` nor `exempt = true`"#;
    assert_eq!(error.to_string(), expected);
    let none = "rules: there are none: to let all requests pass, add one with `exempt = true`";
    assert_eq!(Rules::new([]).unwrap_err().to_string(), none);
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
        ("reserve", by_rules().reserve(Priority::Low, 0.1)),
        ("recovery", by_rules().recovery(Recovery::Strict)),
        ("lost", by_rules().lost(Lost::Abort)),
    ] {
        let error = builder.build().unwrap_err();
        assert_eq!(error.field(), field);
        let problem = "the `rules` of the limiter set it: change it there";
        assert_eq!(error.to_string(), format!("{field}: {problem}"));
    }
}

#[test]
fn what_is_no_field_or_of_another_type_is_named_by_path_line_and_column() {
    // The text, the place, and a part of the problem.
    for row in include_str!("unreadable.txt").lines() {
        let [text, place, problem] = row.split(" => ").collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let text = &text.replace("; ", "\n");
        let error = toml(text).unwrap_err();
        assert!(error.is_malformed());
        let [(at, what)] = mistakes(&error)[..] else {
            panic!("{error}")
        };
        assert_eq!(at, place);
        assert!(what.contains(problem), "{what}");
        let line = text.lines().count();
        let position = format!("line {line}, column");
        assert!(what.contains(&position) || place == "rule", "{what}");
    }
    let error = json("{ \"rules\": [\n{ \"name\": 7 }\n] }").unwrap_err();
    let problem = "invalid type: integer `7`, expected a string at line 2 column 11";
    assert_eq!(mistakes(&error), [("rules[0].name", problem)]);
    let error = json("{ \"rules\": ").unwrap_err();
    assert!(error.is_malformed() && error.to_string().contains("EOF"));
}

#[test]
fn null_within_a_list_or_a_table_and_fields_that_are_listed_twice_are_refused() {
    // Fields of a rule, and the place of the mistake.
    for (fields, place) in [
        (r#""host": ["a.example", null]"#, "rules[0].host[1]"),
        (r#""header": { "x-a": null }"#, "rules[0].header.x-a"),
        (r#""header": {}"#, "rules[0].header"),
        (r#""key": ["host", null]"#, "rules[0].key[1]"),
        (r#""key": { "constant": null }"#, "rules[0].key.constant"),
        (r#""outage": { "local": null }"#, "rules[0].outage.local"),
        (r#""share": { "header": null }"#, "rules[0].share.header"),
        (r#""reserve": { "low": null }"#, "rules[0].reserve"),
        (r#""cost": 1, "cost": 2"#, "rules[0]"),
    ] {
        let text = format!(
            r#"{{ "rules": [{{ {fields}, "name": "a", "quota": "1/s" }}, {{ "exempt": true }}] }}"#
        );
        for error in [json(&text), yaml(&text)].map(|it| it.expect_err(fields)) {
            assert!(mistakes(&error)[0].0.starts_with(place), "{error}");
        }
    }
    let twice = r#"{ "rules": [{ "exempt": true }], "rules": [{ "exempt": true }] }"#;
    assert!(json(twice).is_err() && yaml(twice).is_err());
}
