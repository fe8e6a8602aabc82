//! Whether rules make sense, and all that is wrong with those that do not.

use std::collections::HashMap;
use std::sync::Arc;

use super::conditions::Conditions;
use super::error::{Mistake, RulesError};
use super::key::RuleKey;
use super::rule::Rule;
use super::table::{Entry, Limit, Rules};
use crate::acquire;
use crate::key::Key;
use crate::policy::{Flaw, Part, PolicyParts, check_name};

/// The rules, if nothing is wrong with them, nor was when they were read.
pub(super) fn check(rules: Vec<Rule>, mut mistakes: Vec<Mistake>) -> Result<Rules, RulesError> {
    let mut entries = Vec::with_capacity(rules.len());
    if rules.is_empty() {
        let problem = "there are none: for all requests to pass, one with `exempt = true` does";
        mistakes.push(Mistake::new("rules", problem));
    }
    let mut names = HashMap::new();
    let last = rules.len().saturating_sub(1);
    for (index, rule) in rules.into_iter().enumerate() {
        let mut wrong = |place: String, problem: String| {
            let dot = if place.is_empty() { "" } else { "." };
            mistakes.push(Mistake::of_rule(index, &format!("{dot}{place}"), problem));
        };
        if let Some(name) = &rule.name
            && let Some(before) = names.insert(name.clone(), index)
        {
            let problem = format!("{name:?} is the name of rules[{before}]: each needs its own");
            wrong("name".into(), problem);
        }
        let conditions = Conditions::of(&rule, &mut wrong);
        if index == last && rule.has_conditions() {
            let problem = "the last rule has to match every request, so it has no `host`, `method`, `path` or \
                `header`: add one with `exempt = true` alone to let all others pass";
            wrong(String::new(), problem.into());
        }
        let limit = match rule.exempt {
            true => {
                exempt(&rule, &mut wrong);
                None
            }
            false => limit(&rule, &mut wrong),
        };
        entries.push(Entry {
            name: rule.name.as_deref().map(Arc::from),
            conditions,
            limit,
            rule,
        });
    }
    match mistakes.is_empty() {
        true => Ok(Rules::of(entries)),
        false => Err(RulesError::invalid(mistakes)),
    }
}

/// What holds for the requests of a rule that is not exempt.
fn limit(rule: &Rule, wrong: &mut impl FnMut(String, String)) -> Option<Limit> {
    if rule.name.is_none() {
        let problem =
            "it has no `name`, by which the store keeps its state apart from that of others";
        wrong(String::new(), problem.into());
    }
    if !rule.quota.is_given() {
        let problem = "it has neither a `quota` nor `exempt = true`";
        wrong(String::new(), problem.into());
    }
    let key = RuleKey::of(rule, &mut *wrong);
    let parts = PolicyParts {
        name: rule.name.clone(),
        quotas: rule.quota.values().copied().collect(),
        buffer: rule.buffer.unwrap_or_default(),
        guard: rule.guard,
        max_wait: rule.max_wait,
        max_waiting: rule.max_waiting,
        outage: rule.outage.unwrap_or_default(),
        recovery: rule.recovery.unwrap_or_default(),
    };
    let flaws = parts.flaws();
    for Flaw { part, error } in &flaws {
        let place = match *part {
            // None was given, or all were malformed; both are known already.
            Part::Quotas if parts.quotas.is_empty() && !rule.quota.is_empty_list() => continue,
            Part::Quotas => "quota".to_owned(),
            Part::Quota(place) => rule.quota.place("quota", rule.quota.items[place].0),
            Part::Name => "name".to_owned(),
            Part::Buffer => "buffer".to_owned(),
            Part::Guard => "guard".to_owned(),
            Part::MaxWaiting => "max_waiting".to_owned(),
            Part::Outage => "outage".to_owned(),
        };
        wrong(place, error.detail());
    }
    if !flaws.is_empty() {
        return None;
    }
    let plan = parts.plan().ok()?;
    let cost = rule.cost.unwrap_or(1);
    if let Err(error) = acquire::check(&plan.policy, &Key::new("any"), cost) {
        wrong("cost".into(), error.to_string());
    }
    Some(Limit { plan, key, cost })
}

/// An exempt rule says nothing of what would hold if it were none.
fn exempt(rule: &Rule, wrong: &mut impl FnMut(String, String)) {
    if let Some(error) = rule
        .name
        .as_deref()
        .and_then(|name| check_name("name", name).err())
    {
        wrong("name".into(), error.detail());
    }
    let given = [
        ("quota", rule.quota.is_given()),
        ("key", rule.key.is_given()),
        ("trusted_proxies", rule.trusted_proxies.is_given()),
        ("cost", rule.cost.is_some()),
        ("max_wait", rule.max_wait.is_some()),
        ("max_waiting", rule.max_waiting.is_some()),
        ("buffer", rule.buffer.is_some()),
        ("guard", rule.guard.is_some()),
        ("outage", rule.outage.is_some()),
        ("recovery", rule.recovery.is_some()),
    ];
    for (field, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
        let problem = "an exempt rule limits nothing: leave out either this or `exempt`";
        wrong(field.into(), problem.into());
    }
}
