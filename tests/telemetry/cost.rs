//! The cost of spans and metrics without a subscriber or recorder.

use allocation_counter::measure;
use futures_util::FutureExt as _;
use tokio::runtime::Builder;
use tower_throttle::key::Key;
use tower_throttle::{Algorithm, Limiter, Quota};
use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::prelude::*;

#[test]
fn a_permit_that_departs_at_once_allocates_nothing() {
    let quota = Quota::per_second(1_000_000).algorithm(Algorithm::Gcra { burst: 1_000_000 });
    let limiter = Limiter::builder().quota(quota).build().unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let key = Key::new("api.example.com");
    let allocations = || {
        let _entered = runtime.enter();
        let one = |_| {
            let counted = measure(|| {
                let permit = limiter.acquire(key.clone()).now_or_never();
                permit.expect("at once").expect("a permit");
            });
            counted.count_total
        };
        // A request that is interrupted for longer than the guard has to wait.
        (0..100).map(one).min()
    };
    assert_eq!(allocations(), Some(0));
    let subscriber = tracing_subscriber::registry().with(LevelFilter::from_level(Level::INFO));
    let _here = subscriber.set_default();
    assert_eq!(allocations(), Some(0));
}
