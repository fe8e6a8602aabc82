//! What was said of a key, in local time: [`Said`].

use std::sync::Arc;

use tokio::time::Instant;

use crate::acquire::check;
use crate::algorithm::micros;
use crate::epoch::Epoch;
use crate::error::Error;
use crate::key::Key;
use crate::store::{Notice, StoreError, Word};

/// What was said of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// Nothing departs until then. Old news for those who have paused since this slot.
    Pause { until: Instant, departed: u64 },
    /// No more than so many depart until then.
    #[cfg_attr(
        not(any(feature = "tower", feature = "reqwest")),
        expect(dead_code, reason = "only the adapters read responses")
    )]
    Allow { left: u32, until: Instant },
    /// All is well again.
    Resume,
}

impl Said {
    /// By somebody who answers no request.
    pub(crate) fn pause(until: Instant) -> Self {
        Self::Pause {
            until,
            departed: u64::MAX,
        }
    }

    fn word(self, now: Instant) -> Word {
        let span = |until: Instant| micros(until.saturating_duration_since(now));
        match self {
            Self::Pause { until, departed } => Word::Pause {
                span: span(until),
                departed,
            },
            Self::Allow { left, until } => Word::Allow {
                left,
                span: span(until),
            },
            Self::Resume => Word::Resume,
        }
    }
}

impl Epoch {
    /// Tells those who wait here, and the store; once more if the first call is lost, as one is when a
    /// connection breaks.
    pub(crate) async fn heed(self: &Arc<Self>, key: &Key, said: Said) -> Result<(), Error> {
        check(&self.policy, key, 1)?;
        let _saying = self.telemetry.saying(key);
        if let Some(stand_in) = &self.stand_in {
            let notice = stand_in.tell(key, said).await;
            stand_in.hear(key, notice.map_err(Error::store)?);
            if said == Said::Resume {
                stand_in.pauses.resume(key);
            }
        }
        if let Said::Resume = said {
            return self.resume(key).await;
        }
        self.stop_here(key, said);
        let answer = match self.outage(key) {
            Some(error) => Err(error),
            None => match self.tell(key, said).await {
                Err(_) => self.tell(key, said).await,
                told => told,
            },
        };
        self.hear(key, answer.map_err(Error::store)?.with_pause());
        Ok(())
    }

    async fn tell(&self, key: &Key, said: Said) -> Result<Notice, StoreError> {
        let word = said.word(Instant::now());
        let answer = self.store.heed(key, &self.policy, word).await;
        self.heard_of(key, answer.as_ref().err());
        answer
    }

    /// Whatever quotas were set when a pause began, if anybody still uses them.
    async fn resume(self: &Arc<Self>, key: &Key) -> Result<(), Error> {
        if let Some(error) = self.outage(key) {
            return Err(Error::store(error));
        }
        for epoch in self.others() {
            let notice = epoch.tell(key, Said::Resume).await;
            epoch.hear(key, notice.map_err(Error::store)?);
        }
        let notice = self.tell(key, Said::Resume).await;
        self.hear(key, notice.map_err(Error::store)?);
        self.pauses.resume(key);
        Ok(())
    }

    /// A pause holds here before the store knows of it, as far as the store's clock is known.
    fn stop_here(&self, key: &Key, said: Said) {
        let Said::Pause { until, departed } = said else {
            return;
        };
        if self.store.is_local() || self.pauses.are_newer(key, departed) {
            return;
        }
        let shows = |at| self.clock.shows(at);
        if let (Some(now), Some(paused)) = (shows(Instant::now()), shows(until))
            && now < paused
        {
            let notice = Notice {
                now,
                since: now,
                until: paused,
                paused,
            };
            let news = self.pauses.note_unconfirmed(key, &self.policy, notice);
            self.telemetry.paused(key, news, &notice);
            self.each(|epoch| epoch.lines.hear(key, notice));
        }
    }
}
