//! Which rules are warned of as they are never reached.

use http::Method;
use proptest::prelude::*;
use tower_throttle::rules::{Rule, RuleRef, Rules};

use crate::rules::matching::{any_request, naive};
use crate::rules::{per_hour, rules};

/// The rules that are never reached, and by which.
fn unreached(rules: &Rules) -> Vec<(usize, Vec<usize>)> {
    let warnings = rules.warnings();
    warnings
        .iter()
        .map(|it| (it.rule.place(), it.by.iter().map(RuleRef::place).collect()))
        .collect()
}

#[test]
fn a_rule_behind_a_wider_one_is_warned_of() {
    let narrow = || {
        let rule = per_hour("narrow", 1)
            .host("api.example.com")
            .method(Method::GET);
        rule.path("/a/{b}").header("x-plan", "free")
    };
    let wider = [
        per_hour("wide", 1),
        per_hour("wide", 1).host("*.example.com"),
        per_hour("wide", 1).host("api.example.com").host("other"),
        per_hour("wide", 1).method(Method::PUT).method(Method::GET),
        per_hour("wide", 1).path("/{x}/{y}"),
        per_hour("wide", 1).path("/a/{*x}"),
        per_hour("wide", 1).path("GET /a/{x}"),
        per_hour("wide", 1).header("x-plan", "free"),
        per_hour("wide", 1).has_header("x-plan", true),
    ];
    for wide in wider {
        let shown = format!("{wide:?}");
        let table = rules([wide, narrow(), Rule::exempt().name("end")]);
        assert!(unreached(&table).contains(&(1, vec![0])), "{shown}");
    }
    let not_wider = [
        per_hour("other", 1).host("*.api.example.com"),
        per_hour("other", 1).host("api.example.com:443"),
        per_hour("other", 1).method(Method::HEAD),
        per_hour("other", 1).path("/a/b"),
        per_hour("other", 1).path("PUT /a/{b}"),
        per_hour("other", 1).header("x-plan", "pro"),
        per_hour("other", 1).has_header("x-plan", false),
        per_hour("other", 1)
            .header("x-plan", "free")
            .has_header("x-beta", true),
    ];
    for other in not_wider {
        let shown = format!("{other:?}");
        let table = rules([other, narrow(), Rule::exempt()]);
        assert_eq!(unreached(&table), [], "{shown}");
    }
}

#[test]
fn several_rules_may_be_in_the_way_of_one() {
    let table = rules([
        per_hour("a", 1).host("a.example"),
        per_hour("get", 1).method(Method::GET),
        per_hour("put", 1).method(Method::PUT),
        per_hour("both", 1)
            .host("a.example")
            .host("b.example")
            .method(Method::PUT)
            .method(Method::HEAD),
        Rule::exempt(),
    ]);
    assert_eq!(unreached(&table), [(3, vec![0, 1, 2])]);
    assert_eq!(
        table.warnings()[0].to_string(),
        "rules[3] `both` is never reached: rules[0] `a` and rules[1] `get` and rules[2] `put` take all of its \
         requests"
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
