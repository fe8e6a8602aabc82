//! Which rules are warned of as they are never reached.

use proptest::prelude::*;
use tower_throttle::rules::{Rule, RuleRef, Rules};

use crate::rules::matching::{any_request, naive};
use crate::rules::{per_hour, toml};

/// The rules that are never reached, and by which.
fn unreached(rules: &Rules) -> Vec<(usize, Vec<usize>)> {
    let warnings = rules.warnings();
    warnings
        .iter()
        .map(|it| (it.rule.place(), it.by.iter().map(RuleRef::place).collect()))
        .collect()
}

/// Exempt rules with these conditions, and a last one without.
fn table(conditions: &[&str]) -> Rules {
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
        let unreached = unreached(&table(&[first, narrow]));
        assert_eq!(unreached.contains(&(1, vec![0])), is_wider, "{first}");
    }
}

#[test]
fn several_rules_may_be_in_the_way_of_one() {
    let both = "host = ['a.example', 'b.example']; method = ['PUT', 'HEAD']; name = 'both'";
    let table = table(&[
        "host = 'a.example'",
        "method = 'GET'",
        "method = 'PUT'",
        both,
    ]);
    assert_eq!(unreached(&table), [(3, vec![0, 1, 2])]);
    assert_eq!(
        table.warnings()[0].to_string(),
        "rules[3] `both` is never reached: rules[0] and rules[1] and rules[2] take all of its requests"
    );
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
            // Whatever is named in its way takes some of it, or has to do with it at least.
            for (place, by) in unreached {
                prop_assert!(!by.is_empty() && by.iter().all(|it| *it < place));
            }
        }
    }
}
