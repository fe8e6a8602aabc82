//! Reads what `reserve.lua` returns.

use std::time::Duration;

use redis::{FromRedisValue, Value};

use super::failure::{code_in, refused};
use crate::clock::Reading;
use crate::store::{Ask, Life, Notice, Outcome, Outcomes, Receipt, Reserved, Slot, StoreError};

/// The answers to all that shared a call, in their order: for each its asks, and how many numbers a
/// receipt of it holds.
pub(super) fn read<'a>(
    answer: Value,
    all: impl IntoIterator<Item = (&'a [Ask], usize)>,
    is_strict: bool,
) -> Result<Vec<Answer>, StoreError> {
    let Value::Array(items) = answer else {
        return Err(strange());
    };
    let mut items = Items(items.into_iter());
    let answers = || {
        let now = items.number()?;
        let answers = all.into_iter();
        let mut read: Vec<Answer> = Vec::with_capacity(answers.size_hint().0);
        for (asks, numbers) in answers {
            let remaining = items.signed()?;
            let answer = if remaining == AS_BEFORE {
                read.last()?.clone()
            } else {
                items.answer(now, remaining, asks, numbers, is_strict)?
            };
            read.push(answer);
        }
        items.0.next().is_none().then_some(read)
    };
    answers().ok_or_else(strange)
}

/// What `heed.lua` returns.
pub(super) fn notice(answer: Value) -> Result<Notice, StoreError> {
    let numbers = <[u64; 4]>::from_redis_value(answer);
    let [now, since, until, paused] = numbers.map_err(|error| strange().caused_by(error))?;
    Ok(Notice {
        now,
        since,
        until,
        paused,
    })
}

fn strange() -> StoreError {
    let strange = StoreError::new("redis answered with something else");
    strange.no_outage().outcome_unknown()
}

/// In place of how many more may depart: all is as for the key before.
const AS_BEFORE: i64 = -2;

/// What became of one key.
pub(super) type Answer = Result<Reserved, StoreError>;

struct Items(std::vec::IntoIter<Value>);

impl Items {
    fn signed(&mut self) -> Option<i64> {
        match self.0.next()? {
            Value::Int(number) => Some(number),
            _ => None,
        }
    }

    fn number(&mut self) -> Option<u64> {
        u64::try_from(self.signed()?).ok()
    }

    fn answer(
        &mut self,
        now: u64,
        remaining: i64,
        asks: &[Ask],
        numbers: usize,
        is_strict: bool,
    ) -> Option<Answer> {
        if remaining < 0 {
            let reason = match self.0.next()? {
                Value::BulkString(reason) => String::from_utf8_lossy(&reason).into_owned(),
                _ => return None,
            };
            return Some(Err(refused(code_in(&reason)).caused_by(reason)));
        }
        let reset = self.number()?;
        let is_lost = is_strict && self.number()? > 0;
        let life = if is_strict {
            Some(Life::new(self.number()?, self.number()?))
        } else {
            None
        };
        let mut outcomes = Outcomes::new();
        for ask in asks {
            self.outcomes(ask, numbers, &mut outcomes)?;
        }
        Some(Ok(Reserved {
            now,
            clock: Reading::default(),
            life,
            is_lost,
            outcomes,
            remaining: u32::try_from(remaining).ok()?,
            reset: Duration::from_micros(reset),
        }))
    }

    fn outcomes(&mut self, ask: &Ask, numbers: usize, outcomes: &mut Outcomes) -> Option<()> {
        let mut left = i64::from(ask.count);
        while left > 0 {
            let run = self.signed()?;
            let count = run.unsigned_abs();
            if run == 0 || count > left.unsigned_abs() {
                return None;
            }
            left -= run.abs();
            let first = self.number()?;
            if run < 0 {
                let refused = Outcome::Refused { wait: first };
                outcomes.extend(std::iter::repeat_n(refused, usize::try_from(count).ok()?));
                continue;
            }
            let record = self.number()?;
            let step = if run > 1 { self.number()? } else { 0 };
            record.checked_add(step.checked_mul(count)?)?;
            let mut receipt = Receipt::default();
            for _ in 0..numbers {
                receipt.extend([self.number()?]);
            }
            let mut slot = Slot {
                at: first,
                record,
                cost: ask.cost,
                receipt,
            };
            for _ in 1..count {
                outcomes.push(Outcome::Granted(slot.clone()));
                slot.record += step;
            }
            outcomes.push(Outcome::Granted(slot));
        }
        Some(())
    }
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

    fn read_one(answer: Value, asks: &[Ask]) -> Answer {
        read(answer, [(asks, 0)], false)?.remove(0)
    }

    #[test]
    fn reads_runs_of_granted_and_refused_requests() {
        let answer = answer(&[1_000, 0, 500, 2, 1_000, 1_015, 5, -1, 700]);
        let reserved = read_one(answer, &[ask(3)]).unwrap();
        let slot = Slot {
            at: 1_000,
            record: 1_015,
            cost: 1,
            receipt: Receipt::default(),
        };
        let later = Slot {
            record: 1_020,
            ..slot.clone()
        };
        let granted = [slot, later].map(Outcome::Granted);
        let refused = Outcome::Refused { wait: 700 };
        assert_eq!(reserved.outcomes[..2], granted);
        assert_eq!(reserved.outcomes[2..], [refused]);
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
            answer(&[1, 2, 3, 2, 1, 1]),
            answer(&[1, 2, 3, 2, -1, 1, 0]),
            answer(&[1, 2, 3, 2, 1, 1, 0, 9]),
            answer(&[-1, 2, 3, 2, 1, 1, 0]),
            answer(&[1, -1, 3, 2, 1, 1, 0]),
            Value::Array(vec![Value::Nil; 8]),
        ] {
            assert!(read_one(strange.clone(), &asks).is_err(), "{strange:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_one_key_is_no_concern_of_the_next() {
        let mut items = vec![Value::Int(1_000), Value::Int(-1)];
        items.push(Value::BulkString(b"foreign".to_vec()));
        items.extend([4, 0, 1, 1_000, 1_015].map(Value::Int));
        let asks = [ask(1)];
        let all = [(&asks[..], 0), (&asks[..], 0)];
        let answers = read(Value::Array(items), all, false).unwrap();
        assert!(answers[0].is_err());
        assert_eq!(answers[1].as_ref().unwrap().remaining, 4);
    }
}
