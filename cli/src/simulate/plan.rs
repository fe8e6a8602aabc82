//! The limiters of a simulation, and the cost of requests: [`Plan`].

use std::path::Path;

use tower_throttle::rules::Rules;
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::FailingStore;
use tower_throttle::{Limiter, LimiterBuilder};

use super::Args;
use super::group::{Group, check_distinct};
use crate::failure::Failure;
use crate::file::RulesFile;
use crate::level;

/// The validated arguments.
pub(super) struct Plan {
    rule: Option<(Rules, String)>,
    /// `None` for the default cost of the quotas.
    pub(super) cost: Option<u32>,
    pub(super) groups: Vec<Group>,
}

impl Plan {
    pub(super) fn of(args: &Args) -> Result<Self, Failure> {
        let levels = args.reserves.iter();
        check_distinct("--reserve", levels.map(|(level, _)| level::name(*level)))?;
        let groups = Group::all(args)?;
        let given = args.cost.map(u32::from);
        let Some(path) = &args.rules else {
            return Ok(Self {
                rule: None,
                cost: given,
                groups,
            });
        };
        let (rules, place, name) = rule(path, args.rule.as_deref())?;
        let of_rule = || place.get("cost")?.as_u64()?.try_into().ok();
        let cost = given.or_else(of_rule);
        let rule = Some((rules, name));
        Ok(Self { rule, cost, groups })
    }

    /// Builds the limiter of each process.
    pub(super) fn limiters(
        &self,
        args: &Args,
        store: &MemoryStore,
    ) -> Result<Vec<Limiter>, Failure> {
        let distant = FailingStore::new(store.clone()).latency(args.latency);
        let limiters = (0..args.replicas).map(|_| {
            let builder = if args.latency.is_zero() {
                Limiter::builder().store(store.clone())
            } else {
                Limiter::builder().store(distant.clone())
            };
            self.limiter(args, builder)
        });
        limiters.collect()
    }

    fn limiter(&self, args: &Args, builder: LimiterBuilder) -> Result<Limiter, Failure> {
        if let Some((rules, name)) = &self.rule {
            let exempt = || Failure::usage(format!("the rule `{name}` has no quota"));
            let limiter = builder.rules(rules.clone()).build()?;
            return limiter.rule(name).ok_or_else(exempt);
        }
        let quotas = args.quotas.iter().copied();
        let builder = quotas.fold(builder, LimiterBuilder::quota);
        let builder = set(builder, args.buffer, LimiterBuilder::buffer);
        let builder = set(builder, args.guard, LimiterBuilder::guard);
        let builder = set(builder, args.max_wait, LimiterBuilder::max_wait);
        let builder = set(builder, args.max_waiting, LimiterBuilder::max_waiting);
        let reserves = args.reserves.iter();
        let builder = reserves.fold(builder, |builder, &(level, part)| {
            builder.reserve(level, part)
        });
        Ok(builder.build()?)
    }
}

fn set<B, T>(builder: B, value: Option<T>, setter: impl FnOnce(B, T) -> B) -> B {
    match value {
        Some(value) => setter(builder, value),
        None => builder,
    }
}

/// The rules of a file, and the fields and the name of the chosen rule.
fn rule(path: &Path, name: Option<&str>) -> Result<(Rules, serde_json::Value, String), Failure> {
    let file = RulesFile::open(path, None)?;
    let rules = file.rules().map_err(|mistakes| {
        let problem = match mistakes.found.len() {
            count if count > 1 => format!("{count} mistakes"),
            _ => mistakes.found[0].problem.clone(),
        };
        let failure = Failure::new(format!("{}: {problem}", file.name));
        failure.hint(format!("run `throttle check {}` for details", file.name))
    })?;
    let names: Vec<_> = rules.names().collect();
    let place = match name {
        Some(name) => names.iter().position(|it| *it == Some(name)),
        None => names.len().checked_sub(1),
    };
    let called = place.and_then(|place| Some((place, names[place]?.to_owned())));
    let Some((place, name)) = called else {
        let named = names
            .iter()
            .flatten()
            .copied()
            .collect::<Vec<_>>()
            .join(", ");
        let problem = match name {
            Some(name) => format!("there is no rule `{name}`"),
            None => "the last rule is exempt or has no name".to_owned(),
        };
        let hint = format!("pass `--rule` with one of these names: {named}");
        return Err(Failure::usage(problem).hint(hint));
    };
    let fields = file.fields().into_iter().nth(place).unwrap_or_default();
    Ok((rules, fields, name))
}
