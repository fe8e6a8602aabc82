//! Callers that send requests of random users: [`visit`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use futures_util::future::try_join_all;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tower_throttle::key::Key;
use tower_throttle::test_util::history::History;
use tower_throttle_benches::peers::Rate;

use crate::contestant::Contestant;
use crate::{CALLERS, RATE};

/// One in this many users is checked.
const CHECKED: usize = 10;

/// The results of all callers, and the total time.
pub(crate) struct Visits {
    pub(crate) count: u64,
    pub(crate) granted: u64,
    pub(crate) time: Duration,
}

/// The results of one caller.
#[derive(Default)]
struct Visitor {
    granted: u64,
    departures: Vec<(usize, Instant)>,
}

/// Makes `count` requests in total. The seed gives each contestant the same users.
///
/// Fails if a user gets more permits than the quota allows.
pub(crate) async fn visit(
    contestant: &Contestant,
    users: &[Key],
    count: u64,
    seed: u64,
) -> anyhow::Result<Visits> {
    let mut random = SmallRng::seed_from_u64(seed);
    let visits = (0..count).map(|_| random.random_range(0..users.len()));
    let visits = visits.map(|place| (place, users[place].clone()));
    let visits: Arc<Vec<(usize, Key)>> = Arc::new(visits.collect());
    let next = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let callers = (0..CALLERS).map(|_| {
        let (contestant, visits, next) = (contestant.clone(), visits.clone(), next.clone());
        tokio::spawn(async move {
            let mut visitor = Visitor::default();
            while let Some((place, user)) = visits.get(next.fetch_add(1, Ordering::Relaxed)) {
                if contestant.ask(user).await? {
                    visitor.note(*place);
                }
            }
            anyhow::Ok(visitor)
        })
    });
    let callers = try_join_all(callers).await?;
    let time = start.elapsed();
    let callers = callers.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    judge(contestant, &callers, start)?;
    Ok(Visits {
        count,
        granted: callers.iter().map(|visitor| visitor.granted).sum(),
        time,
    })
}

impl Visitor {
    fn note(&mut self, place: usize) {
        self.granted += 1;
        if place.is_multiple_of(CHECKED) {
            self.departures.push((place, Instant::now()));
        }
    }
}

fn judge(contestant: &Contestant, callers: &[Visitor], start: Instant) -> anyhow::Result<()> {
    let Rate { limit, window } = RATE;
    let mut histories: HashMap<usize, History> = HashMap::new();
    for (user, at) in callers.iter().flat_map(|visitor| &visitor.departures) {
        histories.entry(*user).or_default().push(*at - start);
    }
    for (user, history) in histories {
        let most = history.most_in_any(window);
        ensure!(
            most <= u64::from(limit),
            "{}: {most} departures of user {user} within {window:?}, more than {limit}",
            contestant.name()
        );
    }
    Ok(())
}
