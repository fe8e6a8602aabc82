//! The shared store: [`RedisStore`].

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::aio::{ConnectionManager, MultiplexedConnection};
use smallvec::SmallVec;
use tokio::time::Instant;

pub use self::{
    key_state::{Allowance, KeyState, Spent, StoredValue},
    keys::{Keys, StoredKey},
};

use self::calls::{Asking, Errand};
use self::courier::Couriers;
use self::failure::Failure;
use self::given::Given;
use self::host_clock::HostClock;
use self::notices::{Ear, Notices, Subscription};
use self::server::Server;
use self::servers::tls;
use self::transaction::Transactions;
use super::listen::Listen;
use super::{Ask, Notice, Release, Reply, Reserve, Reserved, Store, Terms, Word};
use crate::algorithm::{Rule, ledger::Ledger};
use crate::clock::UNTOLD;
use crate::error::BuildError;
use crate::key::Key;
use crate::policy::{Policy, check_name};

mod calls;
#[cfg(feature = "redis-cluster")]
mod cluster;
mod connect;
mod courier;
mod failure;
mod given;
mod glance;
mod host_clock;
mod key_state;
mod keys;
mod lease;
mod link;
mod look;
pub(crate) mod names;
mod notices;
mod parcels;
mod redact;
mod reply;
mod script;
#[cfg(feature = "redis-sentinel")]
mod sentinel;
mod server;
#[allow(dead_code, unused_imports, reason = "the next core uses it")]
pub(crate) mod servers;
mod source;
mod standalone;
#[cfg(test)]
mod tests;
mod transaction;

/// Reserves slots in a Redis or Valkey server of version 6.2 or later, or in a cluster of them, for all
/// processes that use it.
///
/// Each group of waiting requests costs one `EVALSHA`, which runs as one atomic step by the server's
/// own clock. While calls are under way, groups of other keys gather, up to 256, and share the next; in a
/// cluster, those of one slot do. The script is loaded when the server does not know it, so a restart or a
/// `SCRIPT FLUSH` goes unnoticed. Besides `EVALSHA` and `SCRIPT LOAD`, the scripts use `TIME`, `EXISTS`,
/// `GET`, `MGET`, `GETRANGE`, `STRLEN`, `SET`, `PSETEX`, `SETRANGE`, `PEXPIRE` and `DEL`; a user needs the
/// right to all of them, as the [guide](mod@crate::redis#rights) lists it for each deployment.
///
/// A store that makes its own connections has one more, on which it hears of
/// [pauses](crate::Limiter::pause) that others set, from the channel `PREFIX:pauses`. While anybody waits in
/// this process, it asks there for a sign of life every two seconds: a connection that is dead and does not
/// say so is noticed within three, and one that is closed at once. For that, users need
/// the right to `PUBLISH`, `SUBSCRIBE` and `PING`, and to the channel. Who may not subscribe, or whose
/// connection is broken, looks twice a second for each key of which somebody holds a slot far ahead. Who may
/// not publish is heard by none of the others that subscribe: they learn of the pause when they next ask.
///
/// The server's clock must not be set forward, nor may the server evict keys (`maxmemory-policy
/// noeviction`): either forgets departures that still count. Nor may it be set back while requests wait
/// and some of them leave: the slots of those who left are offered anew at their old times.
///
/// # Keys
///
/// The state of a limiter key stands under `PREFIX:{KEY}:POLICY` and names that continue this one,
/// all with an expiry. `KEY` is the key with everything but letters, digits and `.-_~:/@` percent
/// encoded; where that is longer than 64 characters, its SHA-256. So all state of a key lies in one
/// slot of a cluster, and no text of a user's can change that. `POLICY` is [`Policy::id`]. Keys
/// are readable to whoever can read the server: hash secrets, such as API tokens, before they
/// become keys.
///
/// # Failures
///
/// A call that is not answered within the [timeout](Self::timeout) fails; it is not repeated. If it
/// had been sent, its slots may have been reserved: see [`StoreError::is_outcome_unknown`]. The
/// [guide](mod@crate::redis#what-an-error-means) tells what each failure means, and what one server that takes the
/// place of another [does to the bound](mod@crate::redis#what-a-failover-does-to-the-bound).
///
/// [`StoreError::is_outcome_unknown`]: crate::store::StoreError::is_outcome_unknown
///
/// # Defaults
///
/// Prefix `throttle`, timeout 1 s.
#[derive(Clone)]
pub struct RedisStore {
    couriers: Arc<Couriers>,
    /// In place of scripts.
    transactions: Option<Arc<Transactions>>,
    notices: Arc<Notices>,
    /// Hears what others say, if there is a connection for that.
    ear: Option<Arc<Ear>>,
    prefix: Arc<str>,
    timeout: Duration,
    /// In place of the server's.
    clock: Option<Arc<HostClock>>,
}

impl RedisStore {
    /// Sets what the names of all keys start with. Default: `throttle`.
    ///
    /// # Errors
    ///
    /// Fails unless the prefix is 1 to 128 visible ASCII characters without braces.
    pub fn prefix(mut self, prefix: &str) -> Result<Self, BuildError> {
        check_name("prefix", prefix)?;
        self.prefix = prefix.into();
        self.hear(None);
        Ok(self)
    }

    /// Does without scripts, for servers that do not allow them: a user without `@scripting`, or a
    /// proxy. Default: `true`, with scripts.
    ///
    /// Without, each reservation reads the state of its key, changes it here, and writes it back in
    /// a transaction (`UNWATCH`, `WATCH`, `TIME`, `GET`; then `MULTI`, `SET`, `DEL` or `PEXPIRE`, `EXEC`). If another process
    /// was faster it tries again after a random pause. The limits hold as exactly, and replicas with
    /// scripts and without may share their quotas. A proxy has to keep a client's `WATCH` and `EXEC` on
    /// one connection to the server; one that does not breaks the limit. What is given up:
    ///
    /// - The order between processes: who is faster goes first. Within a process it stays first come,
    ///   first served.
    /// - The certainty to get through: after 50 attempts, or when the [timeout](Self::timeout) is over,
    ///   the requests of the call fail with an error, and nothing is consumed. With a few processes that
    ///   share a key it does not come to that; a process far from the server, or beside others that
    ///   are busy with scripts, may see it.
    /// - The one round trip: it takes two, and two more for each further attempt.
    /// - The cost that does not depend on the limit: all of the state goes to and fro, 8 bytes for each
    ///   request of a long log.
    /// - The one connection: each reservation that is under way at the same time has its own, up to 64.
    ///
    /// # Errors
    ///
    /// Fails if the store was made from a connection, as it then has no way to open further ones.
    pub fn scripting(mut self, scripting: bool) -> Result<Self, BuildError> {
        let server = self.couriers.server();
        if !scripting && server.opener().is_none() {
            let problem = "is false, which takes a store that makes its own connections";
            return Err(BuildError::new("scripting", problem));
        }
        let transactions = || Arc::new(Transactions::new(server.clone(), self.clock.clone()));
        self.transactions = (!scripting).then(transactions);
        Ok(self)
    }

    /// Takes the time from the hosts, for servers that do not tell it: a user without `TIME`, or a proxy.
    /// Default: `true`, from the server.
    ///
    /// The quotas are then as exact as the hosts' clocks: if those of any two processes that share a quota
    /// differ by D at most, no more than N depart in any window that is shorter by D. With a
    /// [`buffer`](crate::LimiterBuilder::buffer) of D, that is any window, at the price of the buffer. Keep the
    /// clocks together by NTP, which makes D some milliseconds. All who share a quota have to do the same.
    ///
    /// Within a process, the clock never goes back: if somebody sets it back by more than the requests
    /// wait, nothing departs until it has caught up. If it is set forward, departures that still count are
    /// forgotten.
    #[must_use]
    pub fn server_time(mut self, server_time: bool) -> Self {
        self.clock = (!server_time).then(Arc::default);
        if self.transactions.is_some() {
            let server = self.couriers.server().clone();
            let transactions = Transactions::new(server, self.clock.clone());
            self.transactions = Some(Arc::new(transactions));
        }
        self
    }

    /// Sets how long to wait for an answer. Default: 1 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    fn on(server: Arc<dyn Server>) -> Self {
        Self {
            couriers: Arc::new(Couriers::new(server)),
            transactions: None,
            notices: Arc::default(),
            ear: None,
            prefix: "throttle".into(),
            timeout: Duration::from_secs(1),
            clock: None,
        }
    }

    fn deadline(&self) -> Instant {
        // A timeout of years is none.
        const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
        Instant::now() + self.timeout.min(YEAR)
    }

    /// Hears what others say under this prefix, on this connection while it lasts.
    fn hear(&mut self, subscription: Option<Subscription>) {
        let server = self.couriers.server();
        if let (Some(_), Some(home)) = (server.opener(), self.couriers.home()) {
            let channel = notices::channel(&self.prefix);
            let notices = Arc::new(Notices::default());
            let server = server.clone();
            let ear = Ear::new(home, server, channel, subscription, notices.clone());
            self.ear = Some(Arc::new(ear));
            self.notices = notices;
        }
    }

    fn run(&self, errand: Errand) -> Reply<()> {
        let (couriers, deadline) = (self.couriers.clone(), self.deadline());
        Reply::pending(async move {
            let answer = couriers.run(errand, Failure::explain, deadline).await;
            answer.map(drop)
        })
    }

    /// Asks for slots, or with `peek` only for when they would be.
    fn ask(&self, reserve: &Reserve<'_>, peek: bool) -> Reply<Reserved> {
        if let Err(error) = reserve.check() {
            return Reply::ready(Err(error));
        }
        let deadline = self.deadline();
        if reserve.evidence.is_some() {
            self.notices.be_strict();
        }
        // The clocks of several hosts tell nothing of one that was set back.
        let evidence = reserve.evidence.map(|evidence| match self.clock {
            Some(_) => evidence.whatever_the_clock(),
            None => *evidence,
        });
        let reserve = &Reserve {
            evidence: evidence.as_ref(),
            ..*reserve
        };
        let Some(transactions) = self.transactions.clone() else {
            let server = self.couriers.server();
            let tag = |name: &str| server.tag(server.place(name));
            let asking = Asking::new(&self.prefix, reserve, peek, self.clock.clone(), tag);
            let asking = Box::new(asking);
            return Reply::pending(self.couriers.clone().ask(asking, deadline));
        };
        let Reserve { key, policy, .. } = *reserve;
        let names = names::of(&self.prefix, policy, key);
        let server = self.couriers.server().clone();
        let terms = Terms {
            peek,
            ..reserve.terms()
        };
        let (asks, rules) = (Asks::from(reserve.asks), Rules::from(policy.rules()));
        let evidence = evidence.filter(|_| !peek);
        let place = server.place(names.aside());
        let tag = || server.tag(place);
        let born = evidence.as_ref().map(|_| names::born(&self.prefix, tag()));
        let (lane, clock) = (server.lane(place), self.clock.clone());
        Reply::pending(async move {
            let names = names.all();
            let reserved = if peek {
                let answer = |ledger: &mut Ledger, now| ledger.answer(now, &terms, &asks, false);
                let clock = clock.as_deref();
                let looking = transaction::look(&*server, names, &rules, clock, deadline, answer);
                looking.await?
            } else {
                let answer = |ledger: &mut Ledger, now, born| {
                    let lacks = |evidence| ledger.doubt(now, evidence, born);
                    let is_lost = evidence.as_ref().is_some_and(lacks);
                    ledger.answer(now, &terms, &asks, is_lost)
                };
                let born = born.as_deref();
                let reserving =
                    transactions.change_of_a_known_age(names, born, &rules, deadline, answer);
                reserving.await?
            };
            Ok(match clock {
                Some(_) => Reserved {
                    clock: HostClock::READING,
                    ..reserved
                },
                // Each has a connection of its own, made who knows when.
                None => reserved.by_clock(lane, UNTOLD),
            })
        })
    }
}

type Asks = SmallVec<[Ask; 2]>;
type Rules = SmallVec<[Rule; 2]>;

impl Store for RedisStore {
    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        self.ask(reserve, false)
    }

    fn release(&self, release: &Release<'_>) -> Reply<()> {
        let Release {
            key,
            policy,
            slots,
            life,
        } = *release;
        let Some(transactions) = self.transactions.clone() else {
            let clock = self.clock.as_deref();
            return self.run(Errand::release(&self.prefix, release, clock));
        };
        let names = names::of(&self.prefix, policy, key);
        let (slots, rules, deadline) =
            (slots.to_vec(), Rules::from(policy.rules()), self.deadline());
        Reply::pending(async move {
            let give_back = |ledger: &mut Ledger, now| ledger.release_under(now, life, &slots);
            let releasing = transactions.change(names.all(), &rules, deadline, give_back);
            releasing.await
        })
    }

    fn peek(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        self.ask(reserve, true)
    }

    fn heed(&self, key: &Key, policy: &Policy, word: Word) -> Reply<Notice> {
        let (couriers, deadline) = (self.couriers.clone(), self.deadline());
        let channel = notices::channel(&self.prefix);
        let Some(transactions) = self.transactions.clone() else {
            let clock = self.clock.as_deref();
            let errand = Errand::heed(&self.prefix, policy, key, word, &channel, clock);
            return Reply::pending(async move {
                reply::notice(couriers.run(errand, Failure::explain, deadline).await?)
            });
        };
        let names = names::of(&self.prefix, policy, key);
        let (policy, key, clock) = (policy.clone(), key.clone(), self.clock.clone());
        Reply::pending(async move {
            let heed = |ledger: &mut Ledger, now| ledger.heed(now, word);
            let names = names.all();
            if word == Word::None {
                let server = &**couriers.server();
                let (rules, clock) = (policy.rules(), clock.as_deref());
                let looking = transaction::look(server, names, rules, clock, deadline, heed);
                return looking.await;
            }
            let heeding = transactions.change(names, policy.rules(), deadline, heed);
            let notice = heeding.await?;
            if notice.until > 0 {
                let message = notices::message(&policy, &key, notice);
                let publish = Errand::publish(names[0].clone(), &channel, message);
                let told = couriers.run(publish, Failure::explain, deadline).await;
                // Who may not publish is heeded all the same, but where all have to be told.
                if notice.is_quarantine() {
                    told?;
                    let tell = |ledger: &mut Ledger, _| ledger.tell();
                    transactions
                        .change(names, policy.rules(), deadline, tell)
                        .await?;
                }
            }
            Ok(notice)
        })
    }

    fn listen(&self, listener: Weak<dyn Listen>) {
        self.notices.listeners.add(listener);
    }

    fn is_listening(&self) -> bool {
        self.notices.are_heard()
    }

    fn told_until(&self) -> Option<Instant> {
        self.notices.told_until()
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Reply<()> {
        self.run(Errand::reset(&self.prefix, policy, key))
    }

    /// Asks the server that holds the key for a sign of life, on the connection that calls use, or on one that
    /// takes its place.
    fn check(&self, key: &Key) -> Reply<()> {
        let (couriers, deadline) = (self.couriers.clone(), self.deadline());
        let ping = Errand::ping(&self.prefix, key);
        Reply::pending(async move {
            let pong = couriers.run(ping, Failure::explain_look, deadline).await;
            pong.map(drop)
        })
    }

    /// A number of the server that holds the key, as far as is known, if the store is a cluster; it changes as keys
    /// move. A slot that is on its way between two servers is a part of its own.
    fn part(&self, key: &Key) -> u64 {
        self.couriers.part(&names::tagged(&self.prefix, key))
    }
}

impl From<ConnectionManager> for RedisStore {
    /// The manager's own response timeout applies besides the store's.
    fn from(manager: ConnectionManager) -> Self {
        Self::on(Arc::new(Given::manager(manager)))
    }
}

impl From<MultiplexedConnection> for RedisStore {
    /// Such a connection is not restored when it breaks.
    fn from(mut connection: MultiplexedConnection) -> Self {
        // The store's own timeout bounds every call.
        connection.set_response_timeout(Duration::MAX);
        Self::on(Arc::new(Given::multiplexed(connection)))
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
