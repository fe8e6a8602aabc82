//! All that a store ever does, for users whose rights are limited.

use std::time::Duration;

use futures_util::future::join_all;
use tower_throttle::key::Key;
use tower_throttle::store::{RedisStore, Release, Store as _, Word};
use tower_throttle::{Algorithm, Limiter, LimiterBuilder, Quota, WindowStart};

use super::slots::slots;

/// So long that what is done falls into one window.
const LONG: Duration = Duration::from_secs(3_600);

fn quota(limit: u32) -> LimiterBuilder {
    Limiter::builder().quota(Quota::new(limit, LONG))
}

fn of_all_kinds() -> LimiterBuilder {
    let counted_by = |algorithm| Quota::new(10, LONG).algorithm(algorithm);
    let first = WindowStart::FirstRequest;
    [
        Algorithm::SlidingBuckets { buckets: 10 },
        Algorithm::Spacing,
        Algorithm::LeakyBucket { capacity: 1_000 },
        Algorithm::Gcra { burst: 5 },
        Algorithm::FixedWindow { start: first },
    ]
    .into_iter()
    .fold(quota(5), |builder, it| builder.quota(counted_by(it)))
}

/// Panics if the store may not do something.
pub(crate) async fn do_everything(store: &RedisStore) {
    // Short logs and long ones, of which the latter become rings that are written anew and in part.
    let number = Quota::new(1_000, LONG).algorithm(Algorithm::Gcra { burst: 500 });
    let alone = Limiter::builder().quota(number);
    for builder in [quota(3), quota(16), quota(100), of_all_kinds(), alone] {
        let policy = builder.build().expect("a valid policy").policy();
        for count in [1, 12, 90, 3] {
            let keys: Vec<_> = (0..20).map(|key| Key::from(format!("key {key}"))).collect();
            let reserves = keys.iter().map(|key| slots(store, key, &policy, count));
            for (key, mut taken) in keys.iter().zip(join_all(reserves).await) {
                taken.truncate(taken.len() / 2);
                let release = Release::new(key, &policy, &taken);
                store.release(&release).await.expect("the right to it");
            }
        }
        let key = Key::from("key 1");
        let word = Word::Pause {
            span: 1_000_000,
            departed: u64::MAX,
        };
        let notice = store.heed(&key, &policy, word).await;
        assert!(notice.expect("the right to it").until > 0);
        let notice = store.heed(&key, &policy, Word::None).await;
        notice.expect("the right to it");
        store.reset(&key, &policy).await.expect("the right to it");
        store.check(&key).await.expect("the right to it");
    }
}
