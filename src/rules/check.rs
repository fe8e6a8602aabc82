//! Checks rules and reports all mistakes.

use std::collections::HashMap;

use super::conditions::Conditions;
use super::error::{Mistakes, RulesError};
use super::key::RuleKey;
use super::rule::{Given, Parsed, Rule};
use super::table::{Entry, Limit};
use crate::cost::Cost;
use crate::error::BuildError;
use crate::policy::{PolicyParts, name_problem};

pub(super) fn check(rules: Vec<Rule>) -> Result<Vec<Entry>, RulesError> {
    let mut mistakes = Mistakes::default();
    if rules.is_empty() {
        let problem = "there are none: to let all requests pass, add one with `exempt = true`";
        mistakes.found.push(BuildError::new("rules", problem));
    }
    let mut names = HashMap::new();
    let count = rules.len();
    let mut entries = Vec::with_capacity(count);
    for (place, rule) in rules.into_iter().enumerate() {
        mistakes.rule = place;
        if let Some(name) = &rule.name.0
            && let Some(before) = names.insert(name.clone(), place)
        {
            let problem = format!("{name:?} is the name of rules[{before}]: each needs its own");
            mistakes.add("name", problem);
        }
        let conditions = Conditions::of(&rule, &mut mistakes);
        let is_for_all = rule.host.0.is_empty()
            && rule.method.0.is_empty()
            && rule.path.0.is_empty()
            && rule.header.0.is_empty();
        if place + 1 == count && !is_for_all {
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
    match mistakes.found.is_empty() {
        true => Ok(entries),
        false => Err(RulesError {
            is_malformed: false,
            mistakes: mistakes.found,
        }),
    }
}

/// The policy, the key and the cost of a rule that is not exempt.
fn limit(rule: &Rule, mistakes: &mut Mistakes) -> Option<Limit> {
    if rule.name.0.is_none() {
        let problem =
            "it has no `name`, which keeps its state in the store apart from that of other rules";
        mistakes.add("", problem);
    }
    if rule.quota.0.is_empty() {
        mistakes.add("", "it has neither a `quota` nor `exempt = true`");
    }
    let key = RuleKey::of(rule, mistakes);
    let quotas = mistakes.list("quota", &rule.quota.0, |Parsed(quota)| quota.clone());
    let has_quotas = !quotas.is_empty();
    let mut span = |field: &str, span: &Given<Parsed<_>>| {
        let spans = mistakes.list(field, span.0.as_slice(), |Parsed(span)| span.clone());
        spans.first().copied()
    };
    let mut reserves = [0.0; 5];
    for (&priority, &part) in &rule.reserve.0 {
        reserves[priority as usize] = part;
    }
    let parts = PolicyParts {
        name: rule.name.0.clone(),
        quotas: quotas.into(),
        buffer: span("buffer", &rule.buffer).unwrap_or_default(),
        guard: span("guard", &rule.guard),
        max_wait: span("max_wait", &rule.max_wait),
        max_waiting: rule.max_waiting.0,
        outage: rule.outage.0.unwrap_or_default(),
        recovery: rule.recovery.0.unwrap_or_default(),
        lost: rule.lost.0.unwrap_or_default(),
        reserves,
    };
    let build = parts.build();
    for error in build.as_ref().err().into_iter().flatten() {
        // A lack of quotas is reported already.
        if error.field() != "quota" || has_quotas {
            mistakes.add(error.field(), error.problem());
        }
    }
    let policy = build.ok()?;
    let cost = rule.cost.0;
    let (field, named) = match cost {
        Some(cost) => ("cost", cost.into()),
        None => ("quota", Cost::default()),
    };
    // The rule says nothing of other units.
    if let Err(problem) = policy.costs_of(&named, Some(1)) {
        mistakes.add(field, problem);
    }
    Some(Limit {
        policy: policy.into(),
        key,
        cost,
        priority: rule.priority.0,
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
