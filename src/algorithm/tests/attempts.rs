//! One request that departs at once or not at all.

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::{Command, Mode, State, Take};
use super::histories::quota;
use super::{MILLI, START};

proptest! {
    #![proptest_config(super::config(256))]

    #[test]
    fn one_attempt_does_what_a_call_for_one_request_does(
        quotas in vec(quota(), 1..3),
        steps in vec((0..400 * MILLI, 1_u32..3, prop::option::weighted(0.1, 0_u32..4)), 1..60),
    ) {
        let (guard, buffer) = (5 * MILLI, MILLI);
        let (mut one, mut other) = (State::new(&quotas), State::new(&quotas));
        let mut now = START;
        for (after, cost, command) in steps {
            now += after;
            if let Some(units) = command {
                let span = 300 * MILLI;
                let command = match units {
                    0 => Command::Pause { span, evidence: u64::MAX },
                    _ => Command::Allow { unit: 0, units, span, evidence: u64::MAX },
                };
                one.control(command, now);
                other.control(command, now);
            }
            let attempt = one.try_one(guard + buffer, cost.into(), now).unwrap();
            let take = Take { guard, ..Take::one(Mode::Try, cost) };
            let taken = other.take(buffer, &take, now);
            prop_assert_eq!(attempt.recorded, taken.grants.first().map(|grant| grant.recorded));
            prop_assert_eq!(attempt.earliest, taken.expected.first().copied().unwrap_or(now));
            prop_assert_eq!((attempt.remaining, attempt.reset), (taken.remaining, taken.reset));
            prop_assert_eq!(&one, &other);
        }
    }
}
