//! [`Caller`]: asks for permits, and uses them or not.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::{Decision, Error, Permit};

use super::load::{ALL, KEYS};
use crate::load::Load;
use support::tally::Count;

const MS: Duration = Duration::from_millis(1);

/// One of many in a process, each with chances of its own.
pub(crate) struct Caller {
    load: Arc<Load>,
    random: StdRng,
}

impl Caller {
    pub(crate) fn new(load: Arc<Load>, seed: u64) -> Self {
        Self {
            load,
            random: StdRng::seed_from_u64(seed),
        }
    }

    /// Asks for keys at random, in all ways that there are.
    pub(crate) async fn ask_restlessly(mut self) {
        while self.load.goes_on() {
            let key = self.key();
            self.count(Count::Asked);
            if self.random.random_bool(0.3) {
                self.try_once(key).await;
            } else {
                self.wait_for(key).await;
            }
            let rests = MS * self.random.random_range(0..60);
            sleep(rests).await;
        }
    }

    /// Lets nothing depart for a key at times.
    pub(crate) async fn pause_and_resume(mut self) {
        while self.load.goes_on() {
            let key = match self.random.random_bool(0.5) {
                true => name(self.random.random_range(0..KEYS)),
                false => name(self.key()),
            };
            let span = MS * self.random.random_range(50..1_200);
            let until = Instant::now() + span;
            // It fails while the store is out.
            let _ = self.load.limiter.pause(&*key, until).await;
            if self.random.random_bool(0.5) {
                sleep(span.mul_f64(self.random.random())).await;
                let _ = self.load.limiter.resume(&*key).await;
            }
            let rests = MS * self.random.random_range(200..1_500);
            sleep(rests).await;
        }
    }

    async fn try_once(&mut self, key: usize) {
        let asked = self.load.limiter.acquire(name(key)).cost(self.cost()).now();
        match asked.await {
            Ok(Decision::Granted(permit)) => self.use_or_not(permit, key),
            Ok(Decision::Limited(_)) => self.count(Count::Refused),
            Err(error) => self.count(Count::of_error(&error)),
        }
    }

    async fn wait_for(&mut self, key: usize) {
        let mut asked = self.load.limiter.acquire(name(key)).cost(self.cost());
        let patience = MS * self.random.random_range(0..3_000);
        asked = match self.random.random_range(0..4) {
            0 => asked,
            1 => asked.deadline(Instant::now() + patience),
            _ => asked.max_wait(patience),
        };
        if self.random.random_bool(0.3) {
            // From before it is polled to long after.
            let until_dropped = match self.random.random_range(0..4) {
                0 => Duration::ZERO,
                1 => MS * self.random.random_range(0..5),
                _ => MS * self.random.random_range(0..800),
            };
            if until_dropped.is_zero() && self.random.random_bool(0.3) {
                return self.count(Count::Dropped);
            }
            match timeout(until_dropped, asked).await {
                Ok(answer) => self.answered(answer, key),
                Err(_) => self.count(Count::Dropped),
            }
        } else {
            self.answered(asked.await, key);
        }
    }

    fn answered(&mut self, answer: Result<Permit, Error>, key: usize) {
        match answer {
            Ok(permit) => self.use_or_not(permit, key),
            Err(error) => self.count(Count::of_error(&error)),
        }
    }

    fn use_or_not(&mut self, permit: Permit, key: usize) {
        if self.random.random_bool(0.1) {
            permit.forfeit();
            self.count(Count::Forfeited);
        } else {
            self.load.depart(key, permit);
        }
    }

    /// A hot one at times, and of the others those more often that come first.
    fn key(&mut self) -> usize {
        if self.random.random_bool(0.03) {
            return self.random.random_range(0..KEYS);
        }
        let place: f64 = self.random.random();
        KEYS + (place * place * (ALL - KEYS) as f64) as usize
    }

    fn cost(&mut self) -> u32 {
        match self.random.random_bool(0.8) {
            true => 1,
            false => self.random.random_range(2..=4),
        }
    }

    fn count(&self, count: Count) {
        self.load.tally.one(count);
    }
}

fn name(key: usize) -> String {
    format!("key-{key}")
}
