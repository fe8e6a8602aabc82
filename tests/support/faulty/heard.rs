//! How a faulty store heeds words.

use std::sync::Arc;
use std::time::Duration;

use tower_throttle::key::Key;
use tower_throttle::store::{Notice, Outcome, Release, Reserve, Reserved, Slot, Store as _, Word};
use tower_throttle::{Limiter, Policy};

use super::{Fault, Faulty, now, slot};

/// What changes nothing.
const NOTHING: Word = Word::Pause {
    span: 0,
    departed: u64::MAX,
};

const YEAR: u64 = 365 * 24 * 60 * 60 * 1_000_000;

/// What was said of a key, and which of its slots were given back.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    was_paused: bool,
    was_allowed: bool,
    left: u32,
    pub(super) free: Vec<Slot>,
}

impl Memory {
    fn note(&mut self, word: Word) {
        match word {
            Word::Pause { .. } => self.was_paused = true,
            Word::Allow { left, .. } => (self.was_allowed, self.left) = (true, left),
            _ => {}
        }
    }
}

impl Faulty {
    /// How a key stands, which no fault hides.
    pub(super) fn stands(&self, key: &Key, policy: &Policy) -> Notice {
        self.say(key, policy, Word::None)
    }

    fn say(&self, key: &Key, policy: &Policy, word: Word) -> Notice {
        now(self.store.heed(key, policy, word))
    }

    /// Says again what was said before.
    pub(super) fn pause_again(&self, key: &Key, policy: &Policy, stood: Notice) {
        let span = stood.paused.saturating_sub(stood.now);
        let departed = u64::MAX;
        self.say(key, policy, Word::Pause { span, departed });
    }

    pub(super) fn allow_again(&self, key: &Key, policy: &Policy, stood: Notice) {
        let id = (key.clone(), policy.id().to_owned());
        let left = self.seen().get(&id).map_or(0, |seen| seen.memory.left);
        if allows(stood) {
            let span = stood.until - stood.now;
            self.say(key, policy, Word::Allow { left, span });
        }
    }

    /// The wrapped store's notice of a word, misheard and with what should not be done besides.
    pub(super) fn heeded(&self, key: &Key, policy: &Policy, word: Word) -> Notice {
        let stands = self.stands(key, policy);
        let id = (key.clone(), policy.id().to_owned());
        let is_fresh = !self.seen().contains_key(&id);
        if self.has(Fault::LookingRecords) && word == Word::None && is_fresh {
            now(self.store.reserve(&Reserve::new(key, policy)));
        }
        let (memory, last) = {
            let mut seen = self.seen();
            let seen = seen.entry(id).or_insert_with(|| policy.clone().into());
            let before = (seen.memory.clone(), seen.last);
            seen.memory.note(word);
            before
        };
        match (self.fault, word) {
            (Fault::ShortensPauses, Word::Pause { .. }) => {
                self.say(key, policy, Word::Resume);
            }
            (Fault::PauseEndsAnAllowance, Word::Pause { .. }) if stands.paused == 0 => {
                self.say(key, policy, Word::Resume);
            }
            (Fault::AllowsMoreWhenTold, Word::Allow { .. }) if stands.paused == 0 => {
                self.say(key, policy, Word::Resume);
            }
            (Fault::AllowanceEndsAPause, Word::Allow { .. }) if stands.paused > 0 => {
                self.say(key, policy, Word::Resume);
            }
            (Fault::DropsTheLogOnAPause, Word::Pause { span, .. })
                if stands.paused == 0 && stands.now.saturating_add(span) < last =>
            {
                now(self.store.reset(key, policy));
            }
            _ => {}
        }
        let notice = self.say(key, policy, self.fault.mishears(word, stands, &memory));
        self.overdo(key, policy, word, stands);
        self.fault.tells(word, notice, stands)
    }

    /// What a word should not lead to.
    fn overdo(&self, key: &Key, policy: &Policy, word: Word, stood: Notice) {
        let of_joint = policy.quotas().len() > 1;
        let ignores = match self.fault {
            Fault::IgnoresPauses => true,
            Fault::IgnoresPausesOfJointQuotas => of_joint,
            Fault::IgnoresPausesOf(place) => !of_joint && place == Fault::place(policy.quotas()[0]),
            _ => false,
        };
        match (self.fault, word) {
            (_, Word::Pause { .. }) if ignores => {
                self.say(key, policy, Word::Resume);
            }
            (Fault::ResumeForgetsTheLog, Word::Resume) => now(self.store.reset(key, policy)),
            (Fault::ResumesAllowancesOnly, Word::Resume) => self.pause_again(key, policy, stood),
            (Fault::ResumesPausesOnly, Word::Resume) => self.allow_again(key, policy, stood),
            _ => {}
        }
        for ((other, id), seen) in &*self.seen() {
            let same = (other == key, id == policy.id());
            let too = match (self.fault, word) {
                (Fault::PausesAllKeys, Word::Pause { .. }) => same == (false, true),
                (Fault::PausesAllPolicies, Word::Pause { .. }) => same == (true, false),
                (Fault::ResumesAllKeys, Word::Resume) => same == (false, true),
                (Fault::ResumesAllPolicies, Word::Resume) => same == (true, false),
                _ => false,
            };
            if too {
                self.say(other, &seen.policy, word);
            }
        }
    }

    /// What the wrapped store answers, and what it should not hand out where a key stands so.
    pub(super) fn held_up(&self, reserve: &Reserve<'_>, stands: Notice) -> Reserved {
        let Reserve { key, policy, .. } = *reserve;
        if self.has(Fault::PassesAPauseByNotBefore) && reserve.not_before > 0 {
            self.say(key, policy, Word::Resume);
            let answer = self.answer(reserve);
            self.pause_again(key, policy, stands);
            return answer;
        }
        let answer = self.answer(reserve);
        let mut outcomes = answer.outcomes().to_vec();
        let refuses = outcomes.iter().any(|outcome| slot(outcome).is_none());
        if self.has(Fault::RecordsWhoIsHeldUp) && stands.paused > 0 && refuses {
            now(self.store.reserve(&Reserve::new(key, policy)));
        }
        let id = (key.clone(), policy.id().to_owned());
        let free = self.seen()[&id].memory.free.clone();
        if self.has(Fault::FreeSlotsPassAPause)
            && let Some(free) = free
                .iter()
                .find(|it| (stands.now..stands.paused).contains(&it.at))
            && let Some(outcome) = outcomes.iter_mut().find(|it| slot(it).is_some())
        {
            *outcome = Outcome::Granted(free.clone());
        }
        let takes_free = outcomes
            .iter()
            .filter_map(slot)
            .any(|it| free.contains(&it));
        if self.has(Fault::ForgetsFreeSlotsUnderAnAllowance) && takes_free {
            self.say(key, policy, Word::Resume);
            self.allow_again(key, policy, stands);
        }
        Reserved::new(answer.now(), outcomes, answer.remaining(), answer.reset())
    }

    pub(super) fn note_free(&self, release: &Release<'_>) {
        let id = (release.key.clone(), release.policy.id().to_owned());
        if let Some(seen) = self.seen().get_mut(&id) {
            seen.memory.free.extend(release.slots.iter().cloned());
        }
    }

    /// A reset, and what it should not have left or taken.
    pub(super) fn reset_words(&self, key: &Key, policy: &Policy) {
        let stood = self.stands(key, policy);
        now(self.store.reset(key, policy));
        match self.fault {
            Fault::KeepsPausesAfterReset => self.pause_again(key, policy, stood),
            Fault::KeepsAllowancesAfterReset => self.allow_again(key, policy, stood),
            Fault::ResetsTheWordsOfAllKeys => {
                for ((other, id), seen) in &*self.seen() {
                    if id == policy.id() {
                        self.say(other, &seen.policy, Word::Resume);
                    }
                }
            }
            _ => {}
        }
    }

    /// Under which policy it heeds words.
    pub(super) fn policy_of_words(&self, policy: &Policy) -> Arc<Policy> {
        const LONG: Duration = Duration::from_millis(150);
        let ours = self.policy(policy);
        if !self.has(Fault::TellsGuardsApart) || policy.guard() < LONG {
            return ours;
        }
        let builder = Limiter::builder().name("apart").guard(policy.guard());
        let quotas = policy.quotas().iter();
        let builder = quotas.fold(builder, |builder, quota| builder.quota(*quota));
        builder.build().expect("what could be built").policy()
    }
}

/// Whether there is an allowance; only if it outlasts the pause.
pub(super) fn allows(stands: Notice) -> bool {
    stands.until > stands.paused
}

impl Fault {
    /// What it takes a word for, where a key stands so.
    fn mishears(self, word: Word, stands: Notice, memory: &Memory) -> Word {
        let is_paused = stands.paused > 0;
        match word {
            Word::Pause { span, departed } => {
                let is_old = departed < stands.now;
                let ignores = match self {
                    Self::NeverExtends => is_paused,
                    Self::TakesAllAnswersForOld => is_paused && departed < u64::MAX,
                    Self::TakesTheFirstAnswerForOld => !is_paused && is_old && !memory.was_paused,
                    Self::RemembersPausesThatAreOver => !is_paused && is_old && memory.was_paused,
                    Self::GivesUpOnLongPauses => span > YEAR,
                    _ => false,
                };
                if ignores || span == 0 {
                    return NOTHING;
                }
                let rest = stands.paused.saturating_sub(stands.now);
                let span = match self {
                    Self::PausesTooBriefly => span - 1,
                    Self::PausesTooLong => span.saturating_add(1),
                    Self::AddsPausesUp => span.saturating_add(rest),
                    Self::ForgetsWordsTooLate if span < 1_000_000 => span * 3,
                    _ => span,
                };
                let departed = match self {
                    Self::TakesOldAnswers => u64::MAX,
                    _ => departed,
                };
                Word::Pause { span, departed }
            }
            Word::Allow { left, span } => {
                let ignores = match self {
                    Self::IgnoresAllowances => true,
                    Self::NeverAllowsLess => allows(stands),
                    Self::RemembersAllowancesThatAreOver => {
                        !allows(stands) && memory.was_allowed && left > memory.left
                    }
                    _ => false,
                };
                match self {
                    _ if ignores => NOTHING,
                    Self::AllowsOneMore => Word::Allow {
                        left: left + 1,
                        span,
                    },
                    Self::AllowsForTooLong => Word::Allow {
                        left,
                        span: span * 2,
                    },
                    _ => word,
                }
            }
            Word::Resume if self == Self::ForgetsToResume => NOTHING,
            _ => word,
        }
    }

    /// What it tells those who hold slots, where a key stood so before.
    fn tells(self, word: Word, notice: Notice, stood: Notice) -> Notice {
        let mut told = notice;
        match (self, word) {
            (Self::ConcernsSomebodyInVain, Word::Pause { .. } | Word::Allow { .. })
                if notice.until == 0 =>
            {
                (told.since, told.until) = (stood.since, stood.until);
            }
            (Self::VoidsNothingOnResume, Word::Resume) => told.until = 0,
            (Self::VoidsThePauseOnlyOnResume, Word::Resume) => told.until = stood.paused,
            (Self::ForgetsHowItStands, Word::None) => {
                (told.since, told.until, told.paused) = (0, 0, 0);
            }
            (Self::ForgetsThePauseWhereItStands, Word::None) => told.paused = 0,
            (Self::ForgetsTheAllowanceWhereItStands, Word::None) => told.until = told.paused,
            (Self::VoidsOnceOnly, Word::Pause { .. }) if stood.paused > 0 => {
                told.since = stood.since;
            }
            _ if notice.until == 0 => {}
            (Self::VoidsNothing, _) => told.until = 0,
            (Self::VoidsTooLittle, _) => told.until -= 1,
            (Self::VoidsTooMuch, _) => told.until = u64::MAX,
            (Self::VoidsWhatWasReservedSince, _) => told.since = u64::MAX,
            (Self::OverlooksTheLastReserved, _) => told.since -= 1,
            _ => {}
        }
        told
    }
}
