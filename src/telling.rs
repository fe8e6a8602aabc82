//! Lets a limiter know what the response to a request says: [`Departed`] and [`Telling`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep};

use crate::algorithm::micros;
use crate::epoch::Epoch;
use crate::feedback::Advice;
use crate::key::Key;
use crate::policy::Policy;
use crate::said::Said;

/// How long a response is kept back until the store knows what it says: long enough for a round trip.
const PATIENCE: Duration = Duration::from_millis(100);

/// The pause after a call that failed; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A request that has departed, and is to be answered.
#[derive(Debug)]
pub(crate) struct Departed {
    epoch: Arc<Epoch>,
    key: Key,
    /// Its slot, on the store's clock.
    at: u64,
    /// How many more could have departed then.
    remaining: u32,
}

impl Departed {
    pub(crate) fn new(epoch: Arc<Epoch>, key: Key, at: u64, remaining: u32) -> Self {
        Self {
            epoch,
            key,
            at,
            remaining,
        }
    }

    /// Tells the limiter what its response advises, if that is news.
    pub(crate) fn tell(self, advice: Advice) -> Option<Telling> {
        if advice == Advice::none() {
            return None;
        }
        let now = Instant::now();
        let after = |time: Duration| now.checked_add(time);
        let mut all = SmallVec::<[Said; 2]>::new();
        if let Some(until) = advice.wait().and_then(after)
            && !self.epoch.pauses.are_newer(&self.key, self.at)
        {
            let departed = self.at;
            all.push(Said::Pause { until, departed });
        }
        if let Some((left, time)) = advice.allowance()
            && let Some(until) = after(time)
            && is_less(left, time, &self.epoch.policy, self.remaining)
            && (left <= self.epoch.policy.largest_cost() / 16
                || self.epoch.pauses.may_tell(&self.key))
        {
            all.push(Said::Allow { left, until });
        }
        if all.is_empty() {
            return None;
        }
        let Self { epoch, key, .. } = self;
        Some(Telling {
            telling: Some(Box::pin(async move {
                for said in all {
                    insist(&epoch, &key, said).await;
                }
            })),
            patience: None,
        })
    }
}

/// Tells the store; of a pause, again and again until it knows, or until the pause is over.
async fn insist(epoch: &Arc<Epoch>, key: &Key, said: Said) {
    let mut pause = FIRST_PAUSE;
    while epoch.heed(key, said).await.is_err() {
        match said {
            Said::Pause { until, .. } if Instant::now() + pause < until => sleep(pause).await,
            _ => return,
        }
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Whether an upstream says that fewer remain than the quotas would let depart in that time. What is said
/// with much to spare is no matter: it is said anew with every response, and a window's worth of those
/// may be under way.
fn is_less(left: u32, time: Duration, policy: &Policy, remaining: u32) -> bool {
    if left / 2 >= policy.largest_cost() {
        return false;
    }
    let expected = policy.quotas().iter().map(|quota| {
        // The window that has begun is what remains; times are rounded up to seconds.
        let more = micros(time).saturating_sub(1) / micros(quota.window()).max(1);
        more.saturating_mul(quota.limit().into())
    });
    let expected = expected.min().unwrap_or(0);
    u64::from(left) < expected.saturating_add(remaining.into())
}

/// Telling the limiter. If it takes long, or if this is dropped before it is done, it goes on by itself.
#[must_use = "futures do nothing unless they are awaited"]
pub(crate) struct Telling {
    telling: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    patience: Option<Pin<Box<Sleep>>>,
}

impl Future for Telling {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(telling) = &mut self.telling else {
            return Poll::Ready(());
        };
        if telling.as_mut().poll(cx).is_ready() {
            self.telling = None;
            return Poll::Ready(());
        }
        let patience = self
            .patience
            .get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        let is_over = patience.as_mut().poll(cx).is_ready();
        if is_over {
            self.go_on();
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Telling {
    fn go_on(&mut self) {
        if let Some(telling) = self.telling.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(telling);
        }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.go_on();
    }
}

impl std::fmt::Debug for Telling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Telling")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::Limiter;
    use crate::policy::PolicyParts;
    use crate::quota::Quota;

    const SECOND: Duration = Duration::from_secs(1);

    async fn delay(limiter: &Limiter) -> Duration {
        limiter.peek("a").await.unwrap().delay()
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_answer_does_not_extend_a_newer_pause() {
        let limiter = Limiter::builder().quota(Quota::per_second(9)).build();
        let limiter = limiter.unwrap();
        let depart = async || limiter.acquire("a").await.unwrap().depart();
        let [slow, quick, other] = [depart().await, depart().await, depart().await];
        tokio::time::advance(SECOND).await;
        quick.tell(Advice::pause(SECOND * 3)).unwrap().await;
        tokio::time::advance(SECOND).await;
        assert!(slow.tell(Advice::pause(SECOND * 3)).is_none());
        assert_eq!(delay(&limiter).await, SECOND * 2);
        // Nor where nobody knows of the pause but the store.
        let word = Said::Pause {
            until: Instant::now() + SECOND * 9,
            departed: other.at,
        };
        limiter.heed("a".into(), word).await.unwrap();
        assert_eq!(delay(&limiter).await, SECOND * 2);
        // One that departed since says something new.
        let later = depart().await;
        later.tell(Advice::pause(SECOND * 3)).unwrap().await;
        assert_eq!(delay(&limiter).await, SECOND * 3);
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_waits_for_is_told_all_the_same() {
        let limiter = Limiter::builder().quota(Quota::per_second(9)).build();
        let limiter = limiter.unwrap();
        let departed = limiter.acquire("a").await.unwrap().depart();
        drop(departed.tell(Advice::pause(SECOND)));
        tokio::task::yield_now().await;
        assert_eq!(delay(&limiter).await, SECOND);
    }

    fn policy<const N: usize>(quotas: [Quota; N]) -> Policy {
        let parts = PolicyParts {
            quotas: quotas.into_iter().collect(),
            ..PolicyParts::default()
        };
        parts.build().unwrap()
    }

    #[test]
    fn what_the_quotas_say_as_well_is_no_news() {
        let policy = policy([Quota::per_second(10)]);
        assert!(!is_less(9, SECOND, &policy, 9));
        assert!(!is_less(0, SECOND, &policy, 0));
        assert!(is_less(8, SECOND, &policy, 9));
    }

    #[test]
    fn fewer_than_the_quotas_let_depart_by_then_are_news() {
        let policy = policy([Quota::per_second(10), Quota::per_minute(30)]);
        assert!(!is_less(9, SECOND * 60, &policy, 9));
        assert!(is_less(9, SECOND * 61, &policy, 0), "of the minute");
        assert!(is_less(19, SECOND * 3600, &policy, 9));
        assert!(
            !is_less(20, SECOND * 3600, &policy, 9),
            "with much to spare"
        );
    }
}
