//! Callers that ask for permits for a while: [`load`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio::sync::Barrier;

/// What callers got, and how long it took.
pub struct Load {
    pub permits: u64,
    pub time: Duration,
}

impl Load {
    pub fn per_second(&self) -> f64 {
        self.permits as f64 / self.time.as_secs_f64()
    }
}

/// Lets so many tasks call, each again and again, for such a time.
///
/// Nobody is cancelled: the time is until the last has its answer. A call returns how many permits
/// it was.
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
