//! What a store was asked, and what it answered: [`Call`].

use tokio::time::Instant;

use crate::key::Key;
use crate::store::operation::Operation;
use crate::store::{Ask, Notice, Outcome, Release, Reserve, Reserved, Slot, StoreError, Word};

/// One call that a [`RecordingStore`](super::RecordingStore) has seen.
#[derive(Debug, Clone)]
pub struct Call {
    operation: Operation,
    key: Key,
    policy: Option<String>,
    asks: Vec<Ask>,
    released: Vec<Slot>,
    word: Option<Word>,
    sent: Instant,
    answered: Option<(Instant, Result<Answer, StoreError>)>,
}

/// What a store has answered.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Reserved(Reserved),
    Notice(Notice),
    Done,
}

impl Call {
    pub(super) fn new(operation: Operation, key: &Key, policy: Option<&str>) -> Self {
        Self {
            operation,
            key: key.clone(),
            policy: policy.map(str::to_owned),
            asks: Vec::new(),
            released: Vec::new(),
            word: None,
            sent: Instant::now(),
            answered: None,
        }
    }

    /// To reserve, or only to look.
    pub(super) fn asking(operation: Operation, reserve: &Reserve<'_>) -> Self {
        Self {
            asks: reserve.asks.to_vec(),
            ..Self::new(operation, reserve.key, Some(reserve.policy.id()))
        }
    }

    pub(super) fn releasing(release: &Release<'_>) -> Self {
        Self {
            released: release.slots.to_vec(),
            ..Self::new(Operation::Release, release.key, Some(release.policy.id()))
        }
    }

    pub(super) fn saying(mut self, word: Word) -> Self {
        self.word = Some(word);
        self
    }

    pub(super) fn answer(&mut self, answer: Result<Answer, StoreError>) {
        self.answered = Some((Instant::now(), answer));
    }

    /// What was asked for.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// Of which key. For a [check](Operation::Check), any that the same part of the store holds.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The [id](crate::Policy::id) of the policy; none for a [check](Operation::Check).
    #[must_use]
    pub fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// The requests that [slots](Operation::Reserve) were asked for, or a [look](Operation::Peek): those of one
    /// cost and bound together.
    #[must_use]
    pub fn asks(&self) -> &[Ask] {
        &self.asks
    }

    /// How many requests these are.
    #[must_use]
    pub fn requests(&self) -> u32 {
        self.asks.iter().map(|ask| ask.count).sum()
    }

    /// What they cost together.
    #[must_use]
    pub fn cost(&self) -> u64 {
        let cost = |ask: &Ask| u64::from(ask.count) * u64::from(ask.cost);
        self.asks.iter().map(cost).sum()
    }

    /// The slots that were [given back](Operation::Release).
    #[must_use]
    pub fn released(&self) -> &[Slot] {
        &self.released
    }

    /// What was [said](Operation::Heed) of the key; [`Word::None`] if somebody only looked.
    #[must_use]
    pub fn word(&self) -> Option<Word> {
        self.word
    }

    /// When it was made, by tokio's clock.
    #[must_use]
    pub fn sent(&self) -> Instant {
        self.sent
    }

    /// When it was answered, or failed; none while it is under way, or if its caller did not wait for that.
    #[must_use]
    pub fn answered(&self) -> Option<Instant> {
        self.answered.as_ref().map(|(at, _)| *at)
    }

    /// The answer to a [reservation](Operation::Reserve) or a [look](Operation::Peek).
    #[must_use]
    pub fn reserved(&self) -> Option<&Reserved> {
        match &self.answered {
            Some((_, Ok(Answer::Reserved(reserved)))) => Some(reserved),
            _ => None,
        }
    }

    /// The slots that were handed out.
    pub fn granted(&self) -> impl Iterator<Item = &Slot> {
        let outcomes = self.reserved().map_or(&[][..], Reserved::outcomes);
        outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Granted(slot) => Some(slot),
            Outcome::Refused { .. } => None,
        })
    }

    /// The answer to a [word](Operation::Heed).
    #[must_use]
    pub fn notice(&self) -> Option<Notice> {
        match &self.answered {
            Some((_, Ok(Answer::Notice(notice)))) => Some(*notice),
            _ => None,
        }
    }

    /// Why it has failed, if it has.
    #[must_use]
    pub fn error(&self) -> Option<&StoreError> {
        match &self.answered {
            Some((_, Err(error))) => Some(error),
            _ => None,
        }
    }
}
