//! How long a request would wait, before it is known when it is made: [`Patience`].

use std::time::Duration;

use tokio::time::Instant;

use crate::line::Bound;
use crate::policy::Policy;

/// How long a request would wait.
pub(crate) struct Patience {
    waits: bool,
    longest: Option<Duration>,
    latest: Option<Instant>,
}

impl Patience {
    /// Not at all.
    pub(crate) const NONE: Self = Self {
        waits: false,
        longest: None,
        latest: None,
    };

    /// As long as the policy allows.
    pub(crate) const ALL: Self = Self {
        waits: true,
        ..Self::NONE
    };

    pub(crate) fn max_wait(&mut self, max_wait: Duration) {
        self.longest = Some(self.longest.map_or(max_wait, |it| it.min(max_wait)));
    }

    pub(crate) fn deadline(&mut self, deadline: Instant) {
        self.latest = Some(self.latest.map_or(deadline, |it| it.min(deadline)));
    }

    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// What that comes to for a request that was made then, under this policy.
    pub(crate) fn bound(&self, since: Instant, policy: &Policy) -> Bound {
        if !self.waits {
            return Bound::Now;
        }
        let longest = self.longest.into_iter().chain(policy.max_wait()).min();
        let longest = longest.and_then(|it| since.checked_add(it));
        let until = longest.into_iter().chain(self.latest).min();
        until.map_or(Bound::Unlimited, Bound::Until)
    }
}
