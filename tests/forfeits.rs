//! A permit that is given back shows in the next look, and serves the requests that wait.

use std::time::Duration;

use futures_util::future::join_all;
use support::spend::build;
use tokio::time::{Instant, sleep};
use tower_throttle::{Limiter, Quota};

const WINDOW: Duration = Duration::from_secs(5);

/// Requests of these costs depart. After a while, so many of the permits are forfeited, and a request of this cost
/// departs at once that has waited since then.
const CASES: [(&[u32], usize, u32); 5] = [
    (&[1, 1, 1], 1, 1),
    (&[1, 1, 1], 2, 2),
    (&[2, 1], 1, 1),
    (&[2, 1], 1, 2),
    (&[3], 1, 3),
];

#[tokio::test(start_paused = true)]
async fn a_forfeited_permit_serves_others() {
    let limiter = &build(Limiter::builder().quota(Quota::new(3, WINDOW)));
    let cases = CASES
        .into_iter()
        .flat_map(|case| [None, Some(100), Some(800)].map(|millis| (case, millis)));
    let all = cases.map(async |((costs, forfeited, cost), waits)| {
        let key = format!("{costs:?} {forfeited} {cost} {waits:?}");
        let mut permits = Vec::new();
        for &cost in costs {
            let permit = limiter.acquire(&*key).cost(cost).await;
            permits.push(permit.expect("a permit"));
        }
        let remaining = async || limiter.peek(&*key).await.expect("a look").remaining();
        assert_eq!(remaining().await, 0, "{key}");
        let waiting = waits.map(|millis| (millis, tokio::spawn(limiter.acquire(&*key).cost(cost))));
        if let Some((millis, waiting)) = &waiting {
            sleep(Duration::from_millis(*millis)).await;
            assert!(!waiting.is_finished(), "{key}");
        }
        let start = Instant::now();
        for permit in permits.drain(..forfeited) {
            permit.forfeit();
        }
        let Some((_, waiting)) = waiting else {
            let returned: u32 = costs[..forfeited].iter().sum();
            assert_eq!(remaining().await, returned, "{key}");
            return;
        };
        let permit = waiting.await.expect("no panic").expect("a permit");
        assert_eq!(permit.cost(), cost);
        let waited = start.elapsed();
        assert!(waited <= Duration::from_millis(2), "{key}: {waited:?}");
    });
    join_all(all).await;
}
