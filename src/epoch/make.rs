//! How an epoch is made: with what its family and the one before it have learnt.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::{Epoch, Family, Later};
use crate::denial::Denials;
use crate::guard::Guard;
use crate::line::Lines;
use crate::outage::Outage;
use crate::policy::{Plan, Policy, PolicyParts};
use crate::recovery::Recovery;
use crate::telemetry::Telemetry;

impl Epoch {
    /// One of this family: it has the lines of its twin, of which the policy has the same id, and begins with what
    /// the last one has learnt about the store.
    pub(super) fn new(
        plan: Plan,
        family: &Arc<Family>,
        twin: Option<&Self>,
        last: Option<&Self>,
    ) -> Self {
        let settings = family.shared().settings();
        let telemetry = match (twin, last) {
            (Some(twin), _) => twin.telemetry.clone(),
            (None, Some(last)) => last.telemetry.successor(settings, &plan.policy),
            (None, None) => Telemetry::new(settings, &plan.policy),
        };
        Self::with(plan, family, twin, last, telemetry)
    }

    fn with(
        plan: Plan,
        family: &Arc<Family>,
        twin: Option<&Self>,
        last: Option<&Self>,
        telemetry: Telemetry,
    ) -> Self {
        let Plan {
            parts,
            policy,
            stand_in: standing_in,
        } = plan;
        let shared = family.shared();
        let lines = twin.map_or_else(Arc::default, |twin| twin.lines.clone());
        let denials = || Denials::new(shared.denials()).map(Arc::new);
        let guard = match (twin, last) {
            (Some(twin), _) => twin.guard.clone(),
            (None, Some(last)) => Arc::new(last.guard.with_floor(policy.guard())),
            (None, None) => Arc::new(Guard::new(policy.guard())),
        };
        let before = twin.or(last).and_then(|it| it.stand_in.as_deref());
        let is_counted = parts.outage != Outage::Allow;
        let stand_in =
            |policy| Self::stand_in(policy, is_counted, (family, &lines), before, &telemetry);
        let is_strict = parts.recovery == Recovery::Strict;
        Self {
            store: telemetry.watch(shared.store()),
            embedded: shared.embedded().cloned(),
            denials: twin.map_or_else(denials, |twin| twin.denials.clone()),
            circuit: shared.circuit().clone(),
            traces: shared.traces().filter(|_| is_strict).cloned(),
            is_counted: true,
            stand_in: standing_in.map(stand_in),
            telemetry,
            guard,
            clock: shared.clock().clone(),
            pauses: family.pauses().clone(),
            family: family.clone(),
            turn: AtomicU64::new(0),
            lines,
            policy,
            parts,
            later: Later::default(),
        }
    }

    /// What stands in beside these lines, in the store of whatever has stood in for the family. It has the lines of
    /// what did before, if that is its twin.
    fn stand_in(
        policy: Arc<Policy>,
        is_counted: bool,
        (family, lines): (&Family, &Lines),
        before: Option<&Self>,
        telemetry: &Telemetry,
    ) -> Arc<Self> {
        let family = family.stand_in();
        let epoch = Self::apart(policy, family, is_counted, telemetry.stand_in());
        let is_twin =
            |it: &&Self| it.policy.id() == epoch.policy.id() && it.lines.are_beside(lines);
        family.add(match before.filter(is_twin) {
            Some(twin) => Self {
                lines: twin.lines.clone(),
                guard: twin.guard.clone(),
                ..epoch
            },
            None => Self {
                lines: Arc::new(lines.beside()),
                ..epoch
            },
        })
    }

    /// One in an embedded store of its own.
    pub(super) fn apart(
        policy: Arc<Policy>,
        family: &Arc<Family>,
        is_counted: bool,
        telemetry: Telemetry,
    ) -> Self {
        let plan = Plan {
            parts: PolicyParts::default(),
            policy,
            stand_in: None,
        };
        Self {
            is_counted,
            // Whose calls are of no interest.
            store: family.shared().store().clone(),
            ..Self::with(plan, family, None, None, telemetry)
        }
    }
}
