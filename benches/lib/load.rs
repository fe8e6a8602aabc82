//! Generates load: [`load`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio::sync::Barrier;

pub struct Load {
    pub calls: f64,
    pub time: Duration,
}

impl Load {
    pub fn per_second(&self) -> f64 {
        self.calls / self.time.as_secs_f64()
    }
}

/// Runs tasks that make one call after another for a given time, which ends when the last call returns.
pub async fn load<C, F>(callers: usize, time: Duration, call: C) -> anyhow::Result<Load>
where
    C: Fn() -> F + Clone + Send + 'static,
    F: Future<Output = anyhow::Result<()>> + Send,
{
    let ready = Arc::new(Barrier::new(callers + 1));
    let over = Arc::new(AtomicBool::new(false));
    let spawn = |_| {
        let (ready, over, call) = (ready.clone(), over.clone(), call.clone());
        tokio::spawn(async move {
            ready.wait().await;
            let mut calls = 0_u64;
            while !over.load(Ordering::Relaxed) {
                call().await?;
                calls += 1;
            }
            anyhow::Ok(calls)
        })
    };
    let tasks: Vec<_> = (0..callers).map(spawn).collect();
    ready.wait().await;
    let start = Instant::now();
    tokio::time::sleep(time).await;
    over.store(true, Ordering::Relaxed);
    let calls: anyhow::Result<u64> = try_join_all(tasks).await?.into_iter().sum();
    Ok(Load {
        calls: calls? as f64,
        time: start.elapsed(),
    })
}
