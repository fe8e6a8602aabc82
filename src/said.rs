//! What was said of a key, in local time: [`Said`].

use tokio::time::Instant;

use crate::acquire::check;
use crate::algorithm::micros;
use crate::epoch::Epoch;
use crate::error::Error;
use crate::key::Key;
use crate::store::{Notice, Word};

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
    /// Tells the store, and those who wait here.
    pub(crate) async fn heed(&self, key: &Key, said: Said) -> Result<(), Error> {
        check(&self.policy, key, 1)?;
        let word = said.word(Instant::now());
        match self.store.heed(key, &self.policy, word).await {
            Ok(notice) => {
                self.hear(key, notice);
                Ok(())
            }
            Err(error) => {
                if let Some(notice) = self.notice(said) {
                    self.hear(key, notice);
                }
                Err(Error::store(error))
            }
        }
    }

    /// What holds here while the store does not know: a pause, as far as the store's clock is known.
    fn notice(&self, said: Said) -> Option<Notice> {
        let Said::Pause { until, .. } = said else {
            return None;
        };
        let (now, until) = (self.clock.shows(Instant::now())?, self.clock.shows(until)?);
        Some(Notice {
            now,
            since: now,
            until,
            paused: until,
        })
    }
}
