//! The effect of the order of layers, as in the guide's tables.

mod middleware;
mod services;

use crate::prelude::*;

const KEY: &str = "api.example.com";

#[derive(Debug, Clone, Default)]
struct Arrivals(Arc<Mutex<Vec<Instant>>>);

impl Arrivals {
    /// How many were before.
    fn note(&self) -> usize {
        let mut arrivals = self.0.lock().expect("no panic while noting");
        arrivals.push(Instant::now());
        arrivals.len() - 1
    }

    fn history(&self) -> History {
        let arrivals = self.0.lock().expect("no panic while noting");
        arrivals.iter().copied().collect()
    }

    fn assert_each_took_a_permit(&self) {
        assert_eq!(self.history().len(), 4);
        self.history().assert_at_most(2, SECOND);
    }

    /// Four attempts shared one permit, of two per second, and were too many.
    async fn assert_shared_a_permit(&self, limiter: &Limiter) {
        assert_eq!(self.history().most_in_any(SECOND), 4);
        assert_eq!(limiter.peek(KEY).await.expect("an answer").remaining(), 1);
    }
}

fn limited(limit: u32) -> (Arrivals, Limiter) {
    (Arrivals::default(), build(per_second(limit)))
}
