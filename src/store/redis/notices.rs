//! Hears what other processes say of keys: [`Notices`], by a subscription on a connection of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use redis::aio::PubSub;
use redis::{RedisResult, Value};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::server::{Opener, Server};
use crate::key::Key;
use crate::policy::Policy;
use crate::store::Notice;
use crate::store::listen::Listeners;
use crate::telemetry;

/// How often it is asked whether it is still there: while somebody waits, and where that somebody may not use slots
/// if it has not been told for long; while nobody does; and how long it may take to say so. A connection that is closed is noticed at once; this is
/// for one that is dead and does not say so.
const SILENCE: Duration = Duration::from_secs(2);
const SHORT_SILENCE: Duration = Duration::from_secs(1);
const LONG_SILENCE: Duration = Duration::from_secs(6);
const PING: Duration = Duration::from_secs(1);

/// The pause after a connection was lost; it doubles with each that cannot be made.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What is told to whoever listens, while there is a connection.
#[derive(Debug, Default)]
pub(super) struct Notices {
    pub(super) listeners: Listeners,
    is_listening: AtomicBool,
    /// Until when all was heard for certain.
    told: Mutex<Option<Instant>>,
    /// Whether anybody may not use slots that has not been told for long.
    is_strict: AtomicBool,
}

/// Listens until it is dropped.
#[derive(Debug)]
pub(super) struct Ear(AbortHandle);

impl Ear {
    /// Listens on this runtime, from now on if there is a connection already.
    pub(super) fn new(
        home: &Handle,
        server: Arc<dyn Server>,
        channel: String,
        connection: Option<Subscription>,
        notices: Arc<Notices>,
    ) -> Self {
        if let Some(connection) = &connection {
            notices.told(connection.since);
            notices.is_listening.store(true, Ordering::Release);
        }
        // Should the runtime shut down, nobody hears any more.
        let deaf = Deaf(notices.clone());
        let task = home.spawn(async move {
            let _deaf = deaf;
            if let Some(opener) = server.opener() {
                listen(opener, &channel, connection, &notices).await;
            }
        });
        Self(task.abort_handle())
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Notices {
    pub(super) fn are_heard(&self) -> bool {
        self.is_listening.load(Ordering::Acquire)
    }

    /// Until when, if anything is.
    pub(super) fn told_until(&self) -> Option<Instant> {
        let told = *self.told.lock();
        told.filter(|_| self.are_heard())
    }

    /// From now on, it matters until when all was heard.
    pub(super) fn be_strict(&self) {
        if !self.is_strict.load(Ordering::Relaxed) {
            self.is_strict.store(true, Ordering::Relaxed);
        }
    }

    /// How often to ask for a sign of life while somebody waits.
    fn silence(&self) -> Duration {
        if self.is_strict.load(Ordering::Relaxed) {
            SHORT_SILENCE
        } else {
            SILENCE
        }
    }

    fn told(&self, until: Instant) {
        *self.told.lock() = Some(until);
    }

    fn hear(&self, message: &[u8]) {
        if let Some((notice, policy, key)) = parse(message) {
            self.listeners.hear(policy, &Key::new(key), notice);
        }
    }
}

/// The channel of all stores with this prefix.
pub(super) fn channel(prefix: &str) -> String {
    format!("{prefix}:pauses")
}

/// What stands behind the times of a notice.
pub(super) fn whom(policy: &Policy, key: &Key) -> Vec<u8> {
    [policy.id().as_bytes(), b"\0", key.as_str().as_bytes()].concat()
}

/// A message for all who listen, as the script sends it.
pub(super) fn message(policy: &Policy, key: &Key, notice: Notice) -> Vec<u8> {
    let Notice {
        now,
        since,
        until,
        paused,
    } = notice;
    let numbers = [now, since, until, paused].map(u64::to_le_bytes);
    [numbers.as_flattened(), &whom(policy, key)].concat()
}

/// Anybody may publish anything.
fn parse(message: &[u8]) -> Option<(Notice, &str, &str)> {
    let (times, whom) = message.split_at_checked(4 * size_of::<u64>())?;
    let mut times = times
        .as_chunks()
        .0
        .iter()
        .map(|raw| u64::from_le_bytes(*raw));
    let mut time = || times.next();
    let notice = Notice {
        now: time()?,
        since: time()?,
        until: time()?,
        paused: time()?,
    };
    let (policy, key) = str::from_utf8(whom).ok()?.split_once('\0')?;
    notice.makes_sense().then_some((notice, policy, key))
}

/// A connection on which something is heard.
pub(super) struct Subscription {
    connection: PubSub,
    /// As it was before.
    generation: u64,
    /// When it was asked for.
    since: Instant,
}

pub(super) async fn subscribe(opener: &dyn Opener, channel: &str) -> Option<Subscription> {
    let (generation, since) = (opener.generation(), Instant::now());
    let subscribing = async {
        let mut connection = opener.subscribe().await?;
        connection.subscribe(channel).await?;
        RedisResult::Ok(connection)
    };
    let connection = timeout(opener.patience(), subscribing).await.ok()?.ok()?;
    // Nothing that was said before it was there is heard.
    Some(Subscription {
        connection,
        generation,
        since,
    })
}

async fn listen(
    opener: &dyn Opener,
    channel: &str,
    mut subscription: Option<Subscription>,
    notices: &Notices,
) {
    let mut pause = FIRST_PAUSE;
    loop {
        if let Some(subscription) = subscription.take() {
            pause = FIRST_PAUSE;
            let is_lost = hear(subscription, opener, notices).await;
            notices.is_listening.store(false, Ordering::Release);
            telemetry::listens(channel, false);
            // From now on, everybody looks.
            notices.listeners.gap();
            if is_lost {
                opener.doubt();
            }
        }
        sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
        subscription = subscribe(opener, channel).await;
        if let Some(subscription) = &subscription {
            notices.told(subscription.since);
            // In this order, lest anybody relies on it before what was missed is looked for.
            notices.listeners.gap();
            notices.is_listening.store(true, Ordering::Release);
            telemetry::listens(channel, true);
        }
    }
}

/// Until the connection is lost, or may be to the wrong server; whether it is lost.
async fn hear(subscription: Subscription, opener: &dyn Opener, notices: &Notices) -> bool {
    let (mut sink, mut messages) = subscription.connection.split();
    let mut asked = Instant::now();
    let mut next = asked + notices.silence();
    loop {
        match timeout_at(next, messages.next()).await {
            Ok(Some(message)) => notices.hear(message.get_payload_bytes()),
            Ok(None) => return true,
            Err(_) if opener.generation() != subscription.generation => return false,
            Err(_) if asked.elapsed() < LONG_SILENCE && !notices.listeners.wait() => {
                next = Instant::now() + notices.silence();
            }
            Err(_) => {
                asked = Instant::now();
                match timeout(PING, sink.ping::<Value>()).await {
                    // Whatever was said before comes before this.
                    Ok(Ok(_)) => notices.told(asked),
                    Ok(Err(_)) | Err(_) => return true,
                }
                next = Instant::now() + notices.silence();
            }
        }
    }
}

/// Says so when it is dropped.
struct Deaf(Arc<Notices>);

impl Drop for Deaf {
    fn drop(&mut self) {
        self.0.is_listening.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::PolicyParts;
    use crate::quota::Quota;

    #[test]
    fn a_message_says_what_the_notice_did() {
        let parts = PolicyParts {
            quotas: [Quota::per_second(10)].into_iter().collect(),
            name: Some("github".into()),
            ..PolicyParts::default()
        };
        let policy = parts.build().unwrap();
        let notice = Notice {
            now: 1,
            since: 2,
            until: 3,
            paused: 3,
        };
        let message = message(&policy, &"a\0{\u{e9}".into(), notice);
        assert_eq!(parse(&message), Some((notice, "github:10/s", "a\0{\u{e9}")));
    }

    /// Else there would be no slot behind the pause.
    #[test]
    fn a_message_of_times_that_no_store_says_is_none() {
        let now = 1_763_000_000_000_000;
        let fine = Notice {
            now,
            since: now,
            until: now + 10,
            paused: now + 10,
        };
        let is_heard = |notice: Notice| {
            let raw = [notice.now, notice.since, notice.until, notice.paused].map(u64::to_le_bytes);
            parse(&[raw.as_flattened(), b"10/s\0a"].concat()).is_some()
        };
        assert!(is_heard(fine) && is_heard(Notice::resumption(now)));
        for time in [1 << 53, u64::MAX / 2, u64::MAX] {
            assert!(!is_heard(Notice { now: time, ..fine }));
            assert!(!is_heard(Notice {
                since: time,
                ..fine
            }));
            assert!(!is_heard(Notice {
                until: time,
                ..fine
            }));
            assert!(!is_heard(Notice {
                paused: time,
                ..fine
            }));
        }
    }

    proptest! {
        #[test]
        fn anything_else_is_no_message(message in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse(&message);
        }
    }
}
