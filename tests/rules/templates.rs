//! The templates of one rule match the paths that each of them matches.

use proptest::prelude::*;
use tower_throttle::rules::{Rule, Rules};

use crate::rules::{get, per_hour};

/// Templates of random rules.
pub(crate) const ALL: [&str; 17] = [
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
pub(crate) const PATHS: [&str; 16] = [
    "/", "/a", "/b", "/a/b", "/a/b/c", "/a/", "/b/c", "/v1", "/v1/a", "/.j", "/a.j", "/a.j/a",
    "/a.j/b", "/a.j/a/b", "/v1.j", "/v1.j/a",
];

/// Whether a template matches a path, segment by segment.
pub(crate) fn matches(template: &str, path: &str) -> bool {
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
    fn a_rule_takes_the_paths_that_one_of_its_templates_takes(
        templates in prop::sample::subsequence(ALL.to_vec(), 1..8),
    ) {
        let rule = templates.iter().fold(per_hour("a", 1), |rule, it| rule.path(*it));
        let rules = Rules::new([rule, Rule::exempt()]).expect("templates that differ");
        for path in PATHS {
            // A template with a method matches only requests with it.
            let any = templates.iter().any(|it| match it.split_once(' ') {
                Some(("GET", template)) => matches(template, path),
                Some(_) => false,
                None => matches(it, path),
            });
            prop_assert_eq!(rules.explain(&get(path)).rule.place() == 0, any, "{}", path);
        }
    }
}
