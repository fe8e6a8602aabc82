//! Reads what `reserve.lua` returns.

use std::time::Duration;

use redis::Value;

use crate::store::{Ask, Outcome, Outcomes, Receipt, Reserved, Slot, StoreError};

/// The answer to these asks, where each slot's receipt holds so many numbers.
pub(super) fn read(answer: Value, asks: &[Ask], numbers: usize) -> Result<Reserved, StoreError> {
    let strange = || StoreError::new("redis answered with something else").outcome_unknown();
    parse(answer, asks, numbers).ok_or_else(strange)
}

fn parse(answer: Value, asks: &[Ask], numbers: usize) -> Option<Reserved> {
    let Value::Array(items) = answer else {
        return None;
    };
    let mut items = items.into_iter();
    let mut next = || match items.next() {
        Some(Value::Int(number)) => Some(number),
        _ => None,
    };
    let now = u64::try_from(next()?).ok()?;
    let remaining = u32::try_from(next()?).ok()?;
    let reset = u64::try_from(next()?).ok()?;
    let mut outcomes = Outcomes::new();
    for &Ask { count, cost, .. } in asks {
        let mut left = i64::from(count);
        while left > 0 {
            let run = next()?;
            if run == 0 || run.unsigned_abs() > left.unsigned_abs() {
                return None;
            }
            let first = u64::try_from(next()?).ok()?;
            let outcome = if run > 0 {
                let record = u64::try_from(next()?).ok()?;
                let receipt: Option<Receipt> =
                    (0..numbers).map(|_| u64::try_from(next()?).ok()).collect();
                Outcome::Granted(Slot {
                    at: first,
                    record,
                    cost,
                    receipt: receipt?,
                })
            } else {
                Outcome::Refused { wait: first }
            };
            left -= run.abs();
            let run = usize::try_from(run.unsigned_abs()).ok()?;
            outcomes.extend(std::iter::repeat_n(outcome, run));
        }
    }
    next().is_none().then_some(Reserved {
        now,
        outcomes,
        remaining,
        reset: Duration::from_micros(reset),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(count: u32) -> Ask {
        Ask {
            count,
            cost: 1,
            max_wait: u64::MAX,
        }
    }

    fn answer(numbers: &[i64]) -> Value {
        Value::Array(numbers.iter().copied().map(Value::Int).collect())
    }

    #[test]
    fn reads_runs_of_granted_and_refused_requests() {
        let answer = answer(&[1_000, 0, 500, 2, 1_000, 1_015, -1, 700]);
        let reserved = read(answer, &[ask(3)], 0).unwrap();
        let slot = Slot {
            at: 1_000,
            record: 1_015,
            cost: 1,
            receipt: Receipt::default(),
        };
        let granted = Outcome::Granted(slot);
        let refused = Outcome::Refused { wait: 700 };
        assert_eq!(reserved.outcomes[..], [granted.clone(), granted, refused]);
        assert_eq!((reserved.now, reserved.remaining), (1_000, 0));
        assert_eq!(reserved.reset, Duration::from_micros(500));
    }

    #[test]
    fn anything_else_is_an_error_and_no_panic() {
        let asks = [ask(2)];
        for strange in [
            Value::Nil,
            Value::Okay,
            answer(&[]),
            answer(&[1, 2, 3]),
            answer(&[1, 2, 3, 0, 1]),
            answer(&[1, 2, 3, 3, 1, 1]),
            answer(&[1, 2, 3, i64::MIN, 1]),
            answer(&[1, 2, 3, 2, -1, 1]),
            answer(&[1, 2, 3, 2, 1, 1, 9]),
            answer(&[-1, 2, 3, 2, 1, 1]),
            Value::Array(vec![Value::Nil; 8]),
        ] {
            assert!(read(strange.clone(), &asks, 0).is_err(), "{strange:?}");
        }
    }
}
