//! Which parts of the store are out: [`Circuit`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::Health;
use crate::backoff;
use crate::key::Key;
use crate::store::StoreError;
use crate::telemetry::{OfStore, Turn};

/// The longest pause after the second sign of life that was not given; it doubles with each.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(50);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// After how long a part is forgotten of which nobody wanted anything, as its keys may be in others by now.
const FORGOTTEN: Duration = Duration::from_secs(10);

/// Who fails so long after a sign of life is not told that one outage goes on, but that there is another.
const ANOTHER: Duration = Duration::from_secs(5);

/// A circuit breaker for each part of the store: once a call has failed, nobody asks until the store has
/// given a sign of life, and if it fails those who ask then, not until the next.
#[derive(Debug)]
pub(crate) struct Circuit {
    /// So that nobody takes a lock to find that all is well.
    is_open: AtomicBool,
    parts: Mutex<HashMap<u64, Out>>,
    /// How many signs of life any of them has given.
    signs_of_life: AtomicU64,
    sweep: Mutex<Sweep>,
    telemetry: OfStore,
}

/// Whether all who wait are made to look again.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Sweep {
    #[default]
    Idle,
    /// They have been, or are just now.
    Done,
    /// And are to be once more.
    Again,
}

/// A part of the store that is out, or was until a moment ago.
#[derive(Debug)]
struct Out {
    /// Any that the part holds, or did.
    key: Key,
    since: Instant,
    error: StoreError,
    /// Whether it has given a sign of life, and no call has failed since.
    is_alive: bool,
    /// When it gave the last one.
    alive_since: Instant,
    /// How often it has given none, or failed those who asked after one.
    failures: u32,
    /// When it is to be asked for the next.
    next: Instant,
    /// Whether there is a task that does so.
    is_probed: bool,
    /// Whether anybody wanted slots since it was last asked.
    is_wanted: bool,
}

impl Circuit {
    pub(crate) fn new(telemetry: OfStore) -> Self {
        Self {
            is_open: AtomicBool::new(false),
            parts: Mutex::default(),
            signs_of_life: AtomicU64::new(0),
            sweep: Mutex::default(),
            telemetry,
        }
    }

    /// Whether all is well, as far as can be told without a lock.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        !self.is_open.load(Ordering::Acquire)
    }

    /// Why nobody is to ask this part of the store, if so.
    pub(crate) fn error(&self, part: u64) -> Option<StoreError> {
        let mut parts = self.parts.lock();
        let out = parts.get_mut(&part).filter(|out| !out.is_alive)?;
        out.is_wanted = true;
        Some(out.error.clone())
    }

    /// A call about this key has failed: this part of the store is out.
    pub(crate) fn fail(&self, part: u64, key: &Key, error: &StoreError) {
        let now = Instant::now();
        let mut parts = self.parts.lock();
        let is_new = !parts.contains_key(&part);
        let out = parts.entry(part).or_insert_with(|| Out {
            key: key.clone(),
            since: now,
            error: error.clone(),
            is_alive: true,
            alive_since: now,
            failures: 0,
            next: now,
            is_probed: false,
            is_wanted: true,
        });
        out.error = error.clone();
        self.is_open.store(true, Ordering::Release);
        if !out.is_alive {
            // Others that were under way have failed with it.
            return;
        }
        out.is_alive = false;
        out.key = key.clone();
        out.put_off(now);
        let is_another = is_new || now - out.alive_since > ANOTHER;
        if is_another {
            out.since = now;
        }
        let is_only_one = parts.len() == 1;
        drop(parts);
        self.telemetry.turned(match is_another {
            true if is_only_one => Turn::Out { error, part },
            true => Turn::AnotherOut { error, part },
            false => Turn::OutAgain { error, part },
        });
    }

    /// A call was answered, in a part of the store that was out until a moment ago.
    #[cold]
    pub(crate) fn answer(&self, part: u64) {
        let now = Instant::now();
        self.end(|it, out| {
            let is_answered = it == part && out.is_alive;
            is_answered || !out.is_probed && now >= out.next + FORGOTTEN
        });
    }

    /// These parts are out no longer, or nobody knows.
    fn end(&self, is_over: impl Fn(u64, &Out) -> bool) {
        let mut parts = self.parts.lock();
        let ended = parts.extract_if(|&part, out| is_over(part, out));
        let mut ended: SmallVec<[_; 1]> = ended.collect();
        let are_others = !parts.is_empty();
        self.is_open.store(are_others, Ordering::Release);
        drop(parts);
        let last = if are_others { None } else { ended.pop() };
        let lasted = |out: &Out| out.alive_since.saturating_duration_since(out.since);
        for (part, out) in ended {
            let lasted = lasted(&out);
            self.telemetry.turned(Turn::AnotherBack { part, lasted });
        }
        if let Some((part, out)) = last {
            let lasted = lasted(&out);
            self.telemetry.turned(Turn::Back { part, lasted });
        }
    }

    /// How many there have been after which others were to ask.
    pub(crate) fn signs_of_life(&self) -> u64 {
        self.signs_of_life.load(Ordering::Acquire)
    }

    pub(crate) fn health(&self) -> Health {
        let parts = self.parts.lock();
        let out = parts.values().filter(|out| !out.is_alive);
        let first = out.clone().min_by_key(|out| out.since);
        Health::new(out.count(), first.map(|out| (out.since, out.error.clone())))
    }

    /// Whether a task is to be spawned that asks for signs of life, as there is none.
    pub(super) fn wants_probe(&self, part: u64) -> bool {
        let mut parts = self.parts.lock();
        let out = parts.get_mut(&part).filter(|out| !out.is_alive);
        out.is_some_and(|out| !std::mem::replace(&mut out.is_probed, true))
    }

    /// The parts that are out, each with a key, as somebody wants to know whether they still are.
    pub(super) fn parts_out(&self) -> Vec<(u64, Key)> {
        let mut parts = self.parts.lock();
        let out = parts.iter_mut().filter(|(_, out)| !out.is_alive);
        let wanted = out.map(|(&part, out)| {
            out.is_wanted = true;
            (part, out.key.clone())
        });
        wanted.collect()
    }

    /// There is no such task any more.
    pub(super) fn stop_probe(&self, part: u64) {
        if let Some(out) = self.parts.lock().get_mut(&part) {
            out.is_probed = false;
        }
    }

    /// When the next sign of life is due, while the part is out.
    pub(super) fn next_probe(&self, part: u64) -> Option<Instant> {
        let parts = self.parts.lock();
        let out = parts.get(&part).filter(|out| !out.is_alive);
        out.map(|out| out.next)
    }

    /// Whether anybody wanted slots since this was asked last.
    pub(super) fn was_wanted(&self, part: u64) -> bool {
        let mut parts = self.parts.lock();
        let out = parts.get_mut(&part);
        out.is_some_and(|out| std::mem::take(&mut out.is_wanted))
    }

    /// The part has given a sign of life: others may ask, until one of them fails.
    pub(super) fn revive(&self, part: u64) {
        let mut parts = self.parts.lock();
        if let Some(out) = parts.get_mut(&part) {
            out.is_alive = true;
            out.alive_since = Instant::now();
            out.is_probed = false;
            self.signs_of_life.fetch_add(1, Ordering::Release);
            drop(parts);
            self.telemetry.turned(Turn::Alive { part });
        }
    }

    /// The key by which the part was asked is in another: who asks is to find out.
    pub(super) fn forget(&self, part: u64) {
        self.end(|it, _| it == part);
        self.signs_of_life.fetch_add(1, Ordering::Release);
    }

    /// Who waits has to look again: whether to see to that. Who does so already does it once more, then.
    pub(super) fn begin_sweep(&self) -> bool {
        let mut sweep = self.sweep.lock();
        let was_idle = *sweep == Sweep::Idle;
        *sweep = if was_idle { Sweep::Done } else { Sweep::Again };
        was_idle
    }

    /// Whether whoever sees to that is to do so once more.
    pub(super) fn repeat_sweep(&self) -> bool {
        let mut sweep = self.sweep.lock();
        let is_again = *sweep == Sweep::Again;
        *sweep = if is_again { Sweep::Done } else { Sweep::Idle };
        is_again
    }

    /// Nobody sees to it any more.
    pub(super) fn end_sweep(&self) {
        *self.sweep.lock() = Sweep::Idle;
    }

    /// It has given none.
    pub(super) fn keep_out(&self, part: u64, error: &StoreError) {
        if let Some(out) = self.parts.lock().get_mut(&part) {
            out.error = error.clone();
            out.put_off(Instant::now());
        }
    }
}

impl Out {
    fn put_off(&mut self, now: Instant) {
        self.next = now + pause(self.failures);
        self.failures += 1;
    }
}

/// None before the first sign of life; then at random, so that replicas do not ask at the same time.
fn pause(failures: u32) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    backoff::half_before(failures, FIRST_PAUSE, LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error() -> StoreError {
        StoreError::new("it is out")
    }

    #[test]
    fn pauses_double_up_to_a_second_and_are_shortened_by_half_at_most() {
        assert_eq!(pause(0), Duration::ZERO);
        for (failures, longest) in [(1, 50), (2, 100), (5, 800), (6, 1_000), (u32::MAX, 1_000)] {
            let longest = Duration::from_millis(longest);
            for _ in 0..100 {
                let pause = pause(failures);
                assert!(pause >= longest / 2 && pause <= longest, "{pause:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_fail_together_are_one_failure() {
        let circuit = Circuit::new(OfStore::none());
        for _ in 0..100 {
            circuit.fail(0, &"a".into(), &error());
        }
        assert_eq!(circuit.next_probe(0), Some(Instant::now()));
        circuit.keep_out(0, &error());
        assert!(circuit.next_probe(0) <= Some(Instant::now() + FIRST_PAUSE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_sign_of_life_is_not_enough_to_forget_what_was() {
        let circuit = Circuit::new(OfStore::none());
        circuit.fail(0, &"a".into(), &error());
        circuit.revive(0);
        assert!(circuit.error(0).is_none());
        // As of a server that gives signs of life, and refuses everything else.
        for _ in 0..10 {
            circuit.fail(0, &"a".into(), &error());
            circuit.revive(0);
        }
        circuit.fail(0, &"a".into(), &error());
        assert!(circuit.next_probe(0) >= Some(Instant::now() + LONGEST_PAUSE / 2));
        circuit.revive(0);
        circuit.answer(0);
        assert!(circuit.is_closed());
    }

    #[test]
    fn one_part_is_no_concern_of_another() {
        let circuit = Circuit::new(OfStore::none());
        circuit.fail(1, &"a".into(), &error());
        assert!(circuit.error(1).is_some() && circuit.error(2).is_none());
        assert_eq!(circuit.health().parts_out(), 1);
        // A late answer to a call from before does not end it.
        circuit.answer(1);
        assert!(circuit.error(1).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_no_key_is_in_any_more_is_forgotten() {
        let circuit = Circuit::new(OfStore::none());
        circuit.fail(1, &"a".into(), &error());
        tokio::time::advance(FORGOTTEN).await;
        circuit.answer(2);
        assert!(circuit.is_closed());
    }

    #[test]
    fn whoever_comes_back_during_a_sweep_is_served_by_the_next() {
        let circuit = Circuit::new(OfStore::none());
        assert!(circuit.begin_sweep());
        assert!(!circuit.begin_sweep() && !circuit.begin_sweep());
        assert!(circuit.repeat_sweep());
        assert!(!circuit.repeat_sweep() && circuit.begin_sweep());
    }
}
