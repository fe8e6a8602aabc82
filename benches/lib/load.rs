//! Generates load: [`load`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio::sync::Barrier;

/// The number of permits, and the total time.
pub struct Load {
    pub permits: u64,
    pub time: Duration,
}

impl Load {
    pub fn per_second(&self) -> f64 {
        self.permits as f64 / self.time.as_secs_f64()
    }
}

/// Runs tasks that make one call after another for a given time.
///
/// Calls are not cancelled, so the time ends when the last call returns. A call returns its number of permits.
pub async fn load<C, F>(callers: usize, time: Duration, call: C) -> anyhow::Result<Load>
where
    C: Fn() -> F + Clone + Send + 'static,
    F: Future<Output = anyhow::Result<u64>> + Send,
{
    let ready = Arc::new(Barrier::new(callers + 1));
    let over = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (ready, over, call) = (ready.clone(), over.clone(), call.clone());
            tokio::spawn(async move {
                ready.wait().await;
                let mut permits = 0;
                while !over.load(Ordering::Relaxed) {
                    permits += call().await?;
                }
                anyhow::Ok(permits)
            })
        })
        .collect();
    ready.wait().await;
    let start = Instant::now();
    tokio::time::sleep(time).await;
    over.store(true, Ordering::Relaxed);
    let mut permits = 0;
    for of_one in try_join_all(tasks).await? {
        permits += of_one?;
    }
    Ok(Load {
        permits,
        time: start.elapsed(),
    })
}
