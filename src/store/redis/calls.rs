//! The calls of the scripts; what they take stands in the Lua files.

use std::sync::Arc;

use hashbrown::HashSet;
use redis::Cmd;
use smallvec::SmallVec;

use super::host_clock::HostClock;
use super::script::{Kind, Scripts};
use crate::algorithm::Rule;
use crate::algorithm::state::FEW;
use crate::key::Key;
use crate::policy::Policy;
use crate::store::{Ask, Evidence, Life, Release, Reserve, Slot, Terms, Word};

use super::names::{self, Names};
use super::notices;

/// Longer than any wait, and a number that Lua holds exactly.
const FAR: u64 = 1 << 53;

/// What one key asks for; it can share a call with others.
pub(super) struct Asking {
    scripts: &'static Scripts,
    names: Names,
    /// In place of the server's.
    clock: Option<Arc<HostClock>>,
    /// Of what tells when the store was born, if there is evidence.
    born: Option<String>,
    /// What the keys of one limiter have in common.
    terms: Packed,
    packed_asks: Packed,
    asks: SmallVec<[Ask; 2]>,
    /// How many numbers a receipt holds.
    numbers: usize,
    /// Whether the state is one log that is short unless many wait.
    is_short: bool,
}

/// Numbers in little endian, and text that ends with a zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packed(SmallVec<[u8; 80]>);

impl Asking {
    pub(super) fn new(
        prefix: &str,
        reserve: &Reserve<'_>,
        peek: bool,
        clock: Option<Arc<HostClock>>,
        tag: impl FnOnce(&str) -> Option<String>,
    ) -> Self {
        let rules = reserve.policy.rules();
        // Who only looks does not put the store to the test.
        let evidence = reserve.evidence.filter(|_| !peek);
        let kind = Kind {
            is_strict: evidence.is_some(),
            is_told_the_time: clock.is_some(),
        };
        let names = names::of(prefix, reserve.policy, reserve.key);
        Self {
            scripts: Scripts::of(rules, kind),
            clock,
            born: evidence.map(|_| names::born(prefix, tag(names.aside()))),
            names,
            terms: Packed::terms(rules, &reserve.terms()),
            packed_asks: Packed::asks(reserve.not_before, evidence, reserve.asks, peek),
            asks: SmallVec::from_slice(reserve.asks),
            numbers: rules.iter().map(Rule::receipts).sum(),
            is_short: matches!(rules, [Rule::SlidingLog { limit, .. }] if *limit as usize <= FEW),
        }
    }

    /// Whether it has terms and asks in common with the other.
    fn is_like(&self, other: &Self) -> bool {
        self.packed_asks == other.packed_asks && self.terms == other.terms
    }

    pub(super) fn scripts(&self) -> &'static Scripts {
        self.scripts
    }

    /// One of its names, which all have the same tag.
    pub(super) fn name(&self) -> &str {
        self.names.aside()
    }

    pub(super) fn asks(&self) -> &[Ask] {
        &self.asks
    }

    pub(super) fn numbers(&self) -> usize {
        self.numbers
    }

    /// How many requests ask.
    pub(super) fn requests(&self) -> usize {
        self.asks.iter().map(|ask| ask.count as usize).sum()
    }
}

/// One call for all of these, which have their scripts in common.
pub(super) fn reserve(all: &[Box<Asking>], scripts: &Scripts) -> Cmd {
    let mut call = redis::cmd("EVALSHA");
    let names = all.iter().map(|asking| asking.names.len()).sum::<usize>();
    let born = all.first().and_then(|asking| asking.born.as_ref());
    call.arg(scripts.reserve.sha());
    call.arg(names + usize::from(born.is_some()));
    for asking in all {
        call.arg(asking.names.aside());
    }
    for asking in all {
        call.arg(asking.names.states());
    }
    if let Some(born) = born {
        call.arg(born);
    }
    call.arg(all.len());
    call.arg(u8::from(can_be_read_at_once(all)));
    for group in all.chunk_by(|a, b| a.is_like(b)) {
        call.arg(&group[0].terms.of_keys(group.len())[..]);
        call.arg(group[0].packed_asks.bytes());
    }
    // Now, and not when they asked.
    let clock = all.first().and_then(|asking| asking.clock.as_ref());
    with_time(&mut call, clock.map(|it| &**it));
    call
}

/// Scripts that are told the time have it as their last argument.
fn with_time(call: &mut Cmd, clock: Option<&HostClock>) {
    if let Some(clock) = clock {
        call.arg(clock.now());
    }
}

fn told_the_time(clock: Option<&HostClock>) -> Kind {
    Kind {
        is_told_the_time: clock.is_some(),
        ..Kind::default()
    }
}

/// Whether all states are short logs, each of another key: what is read at once is not read anew after a
/// change.
fn can_be_read_at_once(all: &[Box<Asking>]) -> bool {
    let mut names = HashSet::with_capacity(all.len());
    let mut all_names = all.iter().map(|asking| asking.names.aside());
    all.len() > 1 && all.iter().all(|it| it.is_short) && all_names.all(|name| names.insert(name))
}

/// A call that one key alone has an interest in.
pub(super) struct Errand {
    /// One of the names that it is about, which all have the same tag.
    pub(super) name: String,
    pub(super) scripts: Option<&'static Scripts>,
    pub(super) command: Cmd,
}

impl Errand {
    fn of(names: &Names, scripts: Option<&'static Scripts>, command: Cmd) -> Self {
        let name = names.aside().to_owned();
        Self {
            name,
            scripts,
            command,
        }
    }

    pub(super) fn release(prefix: &str, release: &Release<'_>, clock: Option<&HostClock>) -> Self {
        let rules = release.policy.rules();
        let scripts = Scripts::of(rules, told_the_time(clock));
        let names = names::of(prefix, release.policy, release.key);
        let mut call = redis::cmd("EVALSHA");
        call.arg(scripts.release.sha()).arg(names.len());
        call.arg(names.all());
        call.arg(Packed::rules(rules).bytes());
        call.arg(Packed::slots(release.life, release.slots).bytes());
        with_time(&mut call, clock);
        Self::of(&names, Some(scripts), call)
    }

    pub(super) fn heed(
        prefix: &str,
        policy: &Policy,
        key: &Key,
        word: Word,
        channel: &str,
        clock: Option<&HostClock>,
    ) -> Self {
        let rules = policy.rules();
        let scripts = Scripts::of(rules, told_the_time(clock));
        let names = names::of(prefix, policy, key);
        let mut call = redis::cmd("EVALSHA");
        call.arg(scripts.heed.sha()).arg(names.len());
        call.arg(names.all());
        call.arg(Packed::rules(rules).bytes());
        call.arg(Packed::word(word).bytes());
        call.arg(channel).arg(notices::whom(policy, key));
        with_time(&mut call, clock);
        Self::of(&names, Some(scripts), call)
    }

    pub(super) fn reset(prefix: &str, policy: &Policy, key: &Key) -> Self {
        let names = names::of(prefix, policy, key);
        let mut call = redis::cmd("DEL");
        call.arg(names.all());
        Self::of(&names, None, call)
    }

    /// Says something, if anybody listens, by the server that holds this name.
    pub(super) fn publish(name: String, channel: &str, message: Vec<u8>) -> Self {
        let mut command = redis::cmd("PUBLISH");
        command.arg(channel).arg(message);
        Self {
            name,
            scripts: None,
            command,
        }
    }

    /// Asks the server that holds this key whether it is there.
    pub(super) fn ping(prefix: &str, key: &Key) -> Self {
        Self {
            name: names::tagged(prefix, key),
            scripts: None,
            command: redis::cmd("PING"),
        }
    }
}

impl Packed {
    fn new() -> Self {
        Self(SmallVec::new())
    }

    pub(super) fn rules(rules: &[Rule]) -> Self {
        let mut packed = Self::new();
        packed.push_rules(rules);
        packed
    }

    pub(super) fn terms(rules: &[Rule], terms: &Terms) -> Self {
        let mut packed = Self::new();
        packed.push(terms.margin);
        packed.push(terms.least_margin);
        packed.push(terms.floor);
        packed.push(terms.round_trip);
        packed.push(terms.stagger);
        packed.push_rules(rules);
        packed
    }

    /// The terms of so many keys.
    pub(super) fn of_keys(&self, keys: usize) -> SmallVec<[u8; 88]> {
        let keys = u32::try_from(keys).unwrap_or(u32::MAX);
        let mut all = SmallVec::from_slice(&keys.to_le_bytes());
        all.extend_from_slice(&self.0);
        all
    }

    pub(super) fn asks(
        not_before: u64,
        evidence: Option<&Evidence>,
        asks: &[Ask],
        peek: bool,
    ) -> Self {
        let mut packed = Self::new();
        packed.push(not_before);
        if let Some(evidence) = evidence {
            let Life { start, version } = evidence.life.unwrap_or_default();
            let Evidence {
                span,
                tolerance,
                granted,
                ..
            } = *evidence;
            let process = evidence.process.into();
            let numbers = [start, version, span, tolerance, process, granted];
            numbers.into_iter().for_each(|it| packed.push(it.min(FAR)));
        }
        // The scripts count on at least one request in each run.
        for ask in asks.iter().filter(|ask| ask.count > 0) {
            packed.0.extend_from_slice(&ask.count.to_le_bytes());
            packed.0.extend_from_slice(&ask.cost.to_le_bytes());
            packed.push(if peek {
                u64::MAX // -1
            } else {
                ask.max_wait.min(FAR)
            });
        }
        packed
    }

    /// Slots that were handed out under the life that began then.
    pub(super) fn slots(life: u64, slots: &[Slot]) -> Self {
        let mut packed = Self::new();
        packed.push(life);
        for slot in slots {
            packed.push(slot.at);
            packed.push(slot.record);
            packed.push(slot.cost.into());
            for &number in slot.receipt.as_slice() {
                packed.push(number);
            }
        }
        packed
    }

    pub(super) fn word(word: Word) -> Self {
        let (kind, numbers) = match word {
            Word::None => (0, [0, 0]),
            Word::Pause { span, departed } => (1, [span, departed]),
            Word::Allow { left, span } => (2, [span, left.into()]),
            Word::Resume => (3, [0, 0]),
            Word::Quarantine { span, known } => (4, [span, known]),
        };
        let mut packed = Self::new();
        packed.0.push(kind);
        numbers.into_iter().for_each(|number| packed.push(number));
        packed
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn push_rules(&mut self, rules: &[Rule]) {
        for (name, parameters) in rules.iter().map(Rule::parts) {
            self.0.extend_from_slice(name.as_bytes());
            self.0.push(0);
            parameters.iter().for_each(|&number| self.push(number));
        }
    }

    fn push(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }
}
