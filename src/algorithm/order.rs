//! The order of requests among several processes: by level, then by share, then by arrival.
//!
//! Shares of a level take turns by start-time fair queueing (P. Goyal, H. M. Vin, H. Cheng, "Start-time Fair Queueing",
//! SIGCOMM 1996): a request starts at the virtual time at which the one before it in its share has ended, and takes its
//! cost divided by the weight. The request with the least start departs first. Virtual time itself goes on by what is granted,
//! divided by the weights of all shares that wait, so that new shares do not hold it up. A level with a reserve and all
//! levels above it take turns in the same way.

use std::borrow::Cow;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::demand::Announcement;
use super::{LANE_BITS, LEVEL_BITS, Take, Units, has_share, level};

/// A process may overtake requests that arrived before its own by less than this, if their process calls only after
/// the capacity is due. Else a few units are left over from each call, and each group of them takes calls of its own.
pub(super) const TOLERANCE: u64 = 50_000;

/// Keys below this are levels; see [`Tag`].
const LEVELS: u64 = 1 << (LEVEL_BITS.end - LEVEL_BITS.start);

/// The most tags of a state.
const MOST_TAGS: usize = 1_024;

/// A share of the requests of one level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    /// A number of its name, less than 2^50; 1 for requests without a share.
    pub id: u64,
    /// How much of the capacity it gets, compared with other shares. 0 if that is unknown: as much as before.
    pub weight: u32,
}

impl Default for Flow {
    fn default() -> Self {
        Self { id: 1, weight: 1 }
    }
}

/// The part of the capacity that each level has for itself, in millionths.
pub type Reserves = [u32; 5];

/// How far a share is ahead of virtual time, or how much a level with a reserve is owed; see `src/docs/protocol.md`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tag {
    /// Eight times the number of the share, plus its level; or the level alone.
    pub(crate) key: u64,
    pub(crate) weight: u32,
    pub(crate) lead: f64,
}

/// The demand of other processes that may be ahead of a request.
#[derive(Default)]
pub(crate) struct Others<'a> {
    /// Those whose demand counts; without shares and reserves, of this level and of higher ones.
    competing: SmallVec<[Cow<'a, Announcement>; 4]>,
    /// The process that calls.
    process: u64,
    now: u64,
    /// `None` if only level and arrival count.
    fair: Option<Box<Fair>>,
}

/// The shares of the level of a call, and the other levels, if shares or reserves count.
struct Fair {
    own: Tag,
    /// How much the level of this process is owed.
    owed: f64,
    /// The part of the capacity that is reserved for each level.
    parts: [f64; LEVELS as usize],
    /// The other shares of this level and the other levels that wait, by key.
    rivals: Vec<Tag>,
}

/// Which requests count as ahead.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Ahead {
    /// All that arrived earlier.
    All,
    /// The requests that cannot be overtaken until then; see [`TOLERANCE`].
    Until(u64),
    /// The requests of processes that are not overdue.
    OnTime,
}

impl<'a> Others<'a> {
    /// `announced` holds those of the others alone.
    pub(crate) fn new(
        announced: impl Iterator<Item = Cow<'a, Announcement>>,
        tags: &[Tag],
        take: &Take,
        now: u64,
    ) -> Self {
        let process = take.process;
        let is_fair = take.has_share() || take.has_reserves() || take.corrections.moved != 0;
        let mut has_shares = is_fair || !tags.is_empty();
        let competing = announced.filter(|it| {
            has_shares |= has_share(it.process);
            it.counts(now)
        });
        let mut competing: SmallVec<[Cow<'_, Announcement>; 4]> = competing.collect();
        let fair = has_shares.then(|| Box::new(Fair::new(&competing, tags, take)));
        if !has_shares {
            competing.retain(|it| level(it.process) <= level(process));
        }
        Self {
            competing,
            process,
            now,
            fair,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.competing.is_empty()
    }

    /// Returns true if other shares or levels wait, and shares or reserves count: then not arrival alone decides the order.
    pub(super) fn have_rivals(&self) -> bool {
        self.fair.as_ref().is_some_and(|it| !it.rivals.is_empty())
    }

    /// How many processes have requests that are ahead of one that arrived then.
    pub(super) fn count_ahead(&self, arrival: u64) -> usize {
        let ahead = self.competing.iter();
        ahead
            .filter_map(|it| self.oldest_before(it, arrival))
            .count()
    }

    /// The units ahead of a request that arrived then, behind so many of its own process.
    pub(crate) fn ahead(&self, arrival: u64, own: Units, which: Ahead) -> Units {
        let mut ahead = Units::default();
        let is_overdue = |it: &Announcement| it.deadline < self.now;
        let others = self.competing.iter().map(AsRef::as_ref);
        let others = others.filter(|it: &&Announcement| which != Ahead::OnTime || !is_overdue(it));
        for other in others.clone() {
            let arrival = match which {
                Ahead::Until(until) if other.deadline > until => arrival.saturating_sub(TOLERANCE),
                _ => arrival,
            };
            if self.fair.is_none() || self.is_alike(other) {
                ahead += self.units_of(other, arrival);
            }
        }
        match &self.fair {
            Some(fair) => fair.ahead(ahead, own, others),
            None => ahead,
        }
    }

    /// Returns true if arrival alone decides between requests of the other process and this one.
    fn is_alike(&self, other: &Announcement) -> bool {
        let is_alike = |fair: &Fair| fair.own.key == key_of(other);
        level(other.process) == level(self.process) && self.fair.as_deref().is_none_or(is_alike)
    }

    /// The units of another process that are ahead of a request, if arrival decides, or else all of them.
    fn units_of(&self, other: &Announcement, arrival: u64) -> Units {
        if !self.is_alike(other) {
            return other.demand.units();
        }
        other
            .demand
            .arrived_by(arrival.saturating_sub(self.needed_lead(other)))
    }

    /// How much earlier a request of the other process has to arrive to be ahead: of those that arrive at the same time, the
    /// lowest number of a process is first.
    fn needed_lead(&self, other: &Announcement) -> u64 {
        u64::from(other.process >= self.process)
    }

    /// The arrival of the first request of another process, as this one sees it: all demand of a higher level and of
    /// another share counts as older. `None` if it is not ahead of a request that arrived then.
    fn oldest_before(&self, other: &Announcement, arrival: u64) -> Option<u64> {
        let fair = self.fair.as_deref();
        let may_be_ahead = fair.is_none_or(|fair| fair.may_be_ahead(level(other.process)));
        let oldest = if self.is_alike(other) {
            other.demand.oldest()
        } else {
            0
        };
        (may_be_ahead && oldest + self.needed_lead(other) <= arrival).then_some(oldest)
    }

    /// The units of each process, in all its lanes, that may be ahead of a request that arrived then.
    pub(crate) fn by_process(&self, arrival: u64) -> HashMap<u64, Units> {
        let mut ahead = HashMap::new();
        let others = self.competing.iter();
        for other in others.filter(|it| self.oldest_before(it, arrival).is_some()) {
            *ahead.entry(other.process >> LANE_BITS).or_default() += self.units_of(other, arrival);
        }
        ahead
    }

    /// The times to look whether processes ahead have crashed, and their numbers without the lane: of the one right ahead, in
    /// all its lanes, and of those that are overdue.
    pub(crate) fn watched(&self, arrival: u64) -> impl Iterator<Item = (u64, u64)> {
        let ahead = self.competing.iter().filter_map(move |other| {
            let oldest = self.oldest_before(other, arrival)?;
            Some((oldest, other.process >> LANE_BITS, other))
        });
        let nearest = ahead.clone().map(|(oldest, process, _)| (oldest, process));
        let (nearest, right_ahead) = nearest.max().unwrap_or_default();
        let watched = ahead.filter(move |(oldest, process, other)| {
            *oldest == nearest || *process == right_ahead || other.deadline < self.now
        });
        watched.map(move |(_, process, other)| (other.watch_at(self.now), process))
    }

    /// Returns true if requests that join later overtake some of other processes that wait.
    pub(crate) fn can_be_overtaken(announced: &[Announcement], take: &Take, now: u64) -> bool {
        let mine = level(take.process);
        announced.iter().any(|other| {
            let theirs = level(other.process);
            let is_behind = theirs > mine
                || theirs == mine && other.flow != take.flow.id
                || theirs < mine && part(&take.reserves, mine) > 0.0;
            is_behind && other.counts(now)
        })
    }

    /// The tags after so much was granted and so much more is charged. Requests of this process may still wait.
    pub(crate) fn tags_after(
        &self,
        before: &[Tag],
        granted: f64,
        more: f64,
        still_waits: bool,
    ) -> Vec<Tag> {
        let Some(fair) = &self.fair else {
            return before.to_vec();
        };
        let still_waits = still_waits || self.competing.iter().any(|it| self.is_alike(it));
        fair.tags_after(before, granted, more, still_waits)
    }
}

/// How far the share of a request is ahead of virtual time.
pub(super) fn lead(tags: &[Tag], process: u64, flow: u64) -> f64 {
    find(tags, key(process, flow)).lead
}

/// The tag with this key, as it is before anything was granted if there is none.
fn find(tags: &[Tag], key: u64) -> Tag {
    let tag = tags.iter().find(|tag| tag.key == key);
    tag.copied().unwrap_or_else(|| Tag::new(key))
}

/// The key of a share; see [`Tag`].
fn key(process: u64, flow: u64) -> u64 {
    flow * LEVELS + level(process)
}

fn key_of(announced: &Announcement) -> u64 {
    key(announced.process, announced.flow)
}

/// The key by which it competes with requests of a level: that of its share, or of its level if that is another one.
fn rival_of(mine: u64, announced: &Announcement) -> u64 {
    match level(announced.process) {
        theirs if theirs == mine => key_of(announced),
        theirs => theirs,
    }
}

/// The part of the capacity that is reserved for a level.
fn part(reserves: &Reserves, level: u64) -> f64 {
    let millionths = reserves.get(level as usize).copied().unwrap_or(0);
    f64::from(millionths) / 1e6
}

/// As much of each unit as `part` is of `all`.
fn portion(units: Units, part: f64, all: f64) -> Units {
    let part = part.max(0.0);
    if part >= all {
        return units;
    }
    Units(units.0.map(|units| (units as f64 * part / all) as u64))
}

impl Fair {
    fn new(competing: &[Cow<'_, Announcement>], tags: &[Tag], take: &Take) -> Self {
        let tag = |key| find(tags, key);
        let mine = level(take.process);
        let mut own = tag(key(take.process, take.flow.id));
        if take.flow.weight > 0 {
            own.weight = take.flow.weight;
        }
        let mut rivals: Vec<_> = competing.iter().map(|it| rival_of(mine, it)).collect();
        // Sums of fractions depend on the order.
        rivals.sort_unstable();
        rivals.dedup();
        rivals.retain(|key| *key != own.key);
        let parts = std::array::from_fn(|level| part(&take.reserves, level as u64));
        Self {
            own,
            owed: tag(mine).lead,
            parts,
            rivals: rivals.into_iter().map(tag).collect(),
        }
    }

    fn level(&self) -> u64 {
        self.own.key % LEVELS
    }

    /// Returns true if requests of this level may depart before those of this process.
    fn may_be_ahead(&self, level: u64) -> bool {
        level <= self.level() || self.parts[level as usize] > 0.0
    }

    /// The units ahead of a request. Those ahead by arrival are known: `of_share` of its share in other processes, `own` of its own
    /// process.
    fn ahead<'a>(
        &self,
        of_share: Units,
        own: Units,
        competing: impl Iterator<Item = &'a Announcement> + Clone,
    ) -> Units {
        let waiting = |rival: &Tag| -> Units {
            let competing = competing.clone();
            let its = competing.filter(|it| rival_of(self.level(), it) == rival.key);
            its.map(|it| it.demand.units()).sum()
        };
        let mut ahead = of_share;
        let before = (own + ahead).total() as f64;
        let start = self.own.lead + before / f64::from(self.own.weight);
        for rival in self.rivals.iter().filter(|it| it.key >= LEVELS) {
            let waiting = waiting(rival);
            let started = (start - rival.lead) * f64::from(rival.weight);
            ahead += portion(waiting, started.ceil(), waiting.total() as f64);
        }
        let level = self.level();
        let levels = || self.rivals.iter().filter(|it| it.key < LEVELS);
        let higher = levels().filter(|it| it.key < level);
        let mut others: Units = higher.map(waiting).sum();
        let before = (own + ahead).total() as f64;
        let reserved = || levels().filter(|it| it.key > level && self.part(it) > 0.0);
        let (mut parts, mut owed) = (0.0, 0.0);
        for rival in reserved() {
            parts += self.part(rival);
            owed += rival.lead;
        }
        let granted = (before + others.total() as f64 + owed) / (1.0 - parts).max(1e-9);
        for rival in reserved() {
            let waiting = waiting(rival);
            let started = rival.lead + self.part(rival) * granted;
            others += portion(waiting, started.ceil(), waiting.total() as f64);
        }
        let part = self.parts[level as usize];
        if part > 0.0 {
            let most = (before - self.owed) / part - before;
            others = portion(others, most.floor(), others.total() as f64);
        }
        ahead + others
    }

    fn part(&self, rival: &Tag) -> f64 {
        self.parts[rival.key as usize]
    }

    /// The tags after so much was granted and so much more is charged. Requests of this share may still wait.
    fn tags_after(&self, before: &[Tag], granted: f64, more: f64, still_waits: bool) -> Vec<Tag> {
        let mine = self.level();
        let mut tags = before.to_vec();
        let own = tag_of(&mut tags, self.own.key);
        own.weight = self.own.weight;
        own.lead += (granted + more) / f64::from(self.own.weight);
        let waiting = self.rivals.iter().map(|rival| rival.key);
        let waits = |key: u64| waiting.clone().any(|it| it == key);
        let shares_wait = still_waits || waiting.clone().any(|key| key >= LEVELS);
        let level_waits = |level| waits(level) || level == mine && shares_wait;
        let has_demand = |key| waits(key) || key == self.own.key && still_waits;
        for (level, part) in (0..).zip(self.parts).filter(|(_, part)| *part > 0.0) {
            let tag = tag_of(&mut tags, level);
            let charged = granted + more;
            tag.lead += part * charged - if level == mine { charged } else { 0.0 };
            // A level that does not wait saves nothing, and one that waits alone owes nothing.
            if !level_waits(level) {
                tag.lead = tag.lead.min(0.0);
            }
            if !(0..level).any(level_waits) {
                tag.lead = tag.lead.max(0.0);
            }
        }
        // Virtual time goes on as fast as the shares that wait get capacity. If one waits alone, it is at virtual time.
        let shares = self.rivals.iter().copied();
        let shares = shares.filter(|tag| tag.key >= LEVELS);
        for tag in shares.clone() {
            tag_of(&mut tags, tag.key);
        }
        let own = still_waits.then_some(self.own);
        let passed = match shares.clone().chain(own).collect::<SmallVec<[Tag; 4]>>()[..] {
            [] => f64::INFINITY,
            [alone] => tag_of(&mut tags, alone.key).lead,
            _ => {
                let own = f64::from(self.own.weight);
                granted / shares.fold(own, |sum, tag| sum + f64::from(tag.weight))
            }
        };
        let is_here = |tag: &Tag| tag.key >= LEVELS && tag.key % LEVELS == mine;
        for tag in tags.iter_mut().filter(|tag| is_here(tag)) {
            tag.lead -= passed;
            if !has_demand(tag.key) {
                tag.lead = tag.lead.max(0.0);
            }
        }
        tags.retain(|tag| {
            let is_weighted = tag.key >= LEVELS && tag.weight != 1;
            tag.lead != 0.0 || is_weighted && (!is_here(tag) || has_demand(tag.key))
        });
        // Announcements have no order, and so neither have the shares that they name.
        tags.sort_by_key(|tag| tag.key);
        tags.truncate(MOST_TAGS);
        tags
    }
}

/// Leads are never NaN.
impl Eq for Tag {}

impl Tag {
    fn new(key: u64) -> Self {
        Self {
            key,
            weight: 1,
            lead: 0.0,
        }
    }
}

fn tag_of(tags: &mut Vec<Tag>, key: u64) -> &mut Tag {
    let index = tags.iter().position(|tag| tag.key == key);
    let index = index.unwrap_or_else(|| {
        tags.push(Tag::new(key));
        tags.len() - 1
    });
    &mut tags[index]
}
