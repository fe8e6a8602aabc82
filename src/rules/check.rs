//! Checks rules and reports all mistakes.

use std::collections::HashMap;

use super::conditions::Conditions;
use super::error::{Mistakes, RulesError, place_in};
use super::key::{RuleKey, RuleShare};
use super::rule::{Given, Parsed, Rule};
use super::table::{Entry, Limit};
use crate::policy::{PolicyParts, name_problem};

pub(super) fn check(rules: Vec<Rule>) -> Result<Vec<Entry>, RulesError> {
    if rules.is_empty() {
        let problem = "there are none: to let all requests pass, add one with `exempt = true`";
        return Err(RulesError::of(false, "rules".to_owned(), problem));
    }
    let mut mistakes = Mistakes::default();
    let mut names = HashMap::new();
    let last = rules.len() - 1;
    let mut entries = Vec::with_capacity(rules.len());
    for (place, rule) in rules.into_iter().enumerate() {
        mistakes.rule = place;
        if let Some(name) = &rule.name.0
            && let Some(before) = names.insert(name.clone(), place)
        {
            let problem = format!("{name:?} is the name of rules[{before}]: each needs its own");
            mistakes.add("name", problem);
        }
        let conditions = Conditions::of(&rule, &mut mistakes);
        let is_for_all = rule.host.0.is_none() && rule.method.0.is_none() && rule.path.0.is_none();
        if place == last && (!is_for_all || rule.header.iter().next().is_some()) {
            let problem = "the last rule has to match every request, so it has no `host`, `method`, `path` or \
                `header`: add one with `exempt = true` alone to let all others pass";
            mistakes.add("", problem);
        }
        let limit = match rule.exempt.0 == Some(true) {
            true => {
                check_exempt(&rule, &mut mistakes);
                None
            }
            false => limit(&rule, &mut mistakes),
        };
        entries.push(Entry {
            name: rule.name.0.as_deref().map(Into::into),
            conditions,
            limit,
        });
    }
    mistakes.finish()?;
    Ok(entries)
}

/// The policy, the key and the cost of a rule that is not exempt.
fn limit(rule: &Rule, mistakes: &mut Mistakes) -> Option<Limit> {
    if rule.name.0.is_none() {
        let problem =
            "it has no `name`, which keeps its state in the store apart from that of other rules";
        mistakes.add("", problem);
    }
    if rule.quota.0.is_none() {
        mistakes.add("", "it has neither a `quota` nor `exempt = true`");
    }
    let key = RuleKey::of(rule, mistakes);
    let share = RuleShare::of(rule, mistakes);
    let quotas = mistakes.list("quota", &rule.quota, |place, Parsed(quota)| {
        Ok((place, quota.clone()?))
    });
    let mut span = |field: &str, Given(span): &Given<Parsed<_>>| match &span.as_ref()?.0 {
        Ok(span) => Some(*span),
        Err(problem) => {
            mistakes.add(field, problem);
            None
        }
    };
    let mut reserves = [0.0; 5];
    for (&priority, &part) in rule.reserve.iter() {
        reserves[priority as usize] = part;
    }
    let parts = PolicyParts {
        name: rule.name.0.clone(),
        quotas: quotas.iter().map(|(_, quota)| *quota).collect(),
        buffer: span("buffer", &rule.buffer).unwrap_or_default(),
        guard: span("guard", &rule.guard),
        max_wait: span("max_wait", &rule.max_wait),
        max_waiting: rule.max_waiting.0,
        outage: rule.outage.0.unwrap_or_default(),
        recovery: rule.recovery.0.unwrap_or_default(),
        lost: rule.lost.0.unwrap_or_default(),
        reserves,
        is_exempt: false,
    };
    let flaws = parts.flaws();
    for (quota_at, error) in &flaws {
        let place = match quota_at {
            Some(place) => place_in("quota", &rule.quota, quotas[*place].0),
            // The missing or malformed quotas are reported already.
            None if error.field() == "quota" && quotas.is_empty() => continue,
            None => error.field().to_owned(),
        };
        mistakes.add(place, error.detail());
    }
    if !flaws.is_empty() {
        return None;
    }
    let plan = parts.plan().ok()?;
    let cost = rule.cost.0.unwrap_or(1);
    // The rule says nothing of other units.
    if let Err(problem) = plan.policy.costs_of(&cost.into(), Some(1)) {
        mistakes.add("cost", problem);
    }
    let priority = rule.priority.0;
    Some(Limit {
        plan,
        key,
        cost,
        priority,
        share,
    })
}

fn check_exempt(rule: &Rule, mistakes: &mut Mistakes) {
    if let Some(problem) = rule.name.0.as_deref().and_then(name_problem) {
        mistakes.add("name", problem);
    }
    let allowed = Rule {
        name: rule.name.clone(),
        exempt: rule.exempt.clone(),
        host: rule.host.clone(),
        method: rule.method.clone(),
        path: rule.path.clone(),
        header: rule.header.clone(),
        ..Rule::default()
    };
    if *rule != allowed {
        let problem = "an exempt rule limits nothing: leave out `exempt`, or all fields but its name and conditions";
        mistakes.add("", problem);
    }
}
