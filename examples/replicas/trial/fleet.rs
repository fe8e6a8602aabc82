//! The parent's handle to the replicas: [`Fleet`].

use std::env;
use std::process::Stdio;

use anyhow::{Context as _, bail, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::Setup;
use super::replica::{DONE, GO, READY, Replica};

/// All replicas. Dropping it ends them.
pub(crate) struct Fleet {
    replicas: Vec<Process>,
}

struct Process {
    process: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Fleet {
    /// Starts the replicas and returns once all their callers are ready.
    pub(crate) async fn start(setup: &Setup, redis: &str, upstream: &str) -> anyhow::Result<Self> {
        let mut replicas = Vec::new();
        for number in 0..setup.processes {
            let replica = Replica {
                limit: setup.limit.clone(),
                callers: setup.callers,
                requests: share(setup.requests, setup.processes, number),
                upstream: format!("{upstream}{number}"),
                redis: redis.to_owned(),
            };
            replicas.push(Process::start(&replica)?);
        }
        let mut fleet = Self { replicas };
        for replica in &mut fleet.replicas {
            let reply = replica.next_line().await?;
            ensure!(
                reply == READY,
                "expected a replica to be ready, got {reply:?}"
            );
        }
        Ok(fleet)
    }

    /// Lets all callers start.
    pub(crate) async fn release(&mut self) -> anyhow::Result<()> {
        for replica in &mut self.replicas {
            replica
                .stdin
                .write_all(format!("{GO}\n").as_bytes())
                .await?;
        }
        Ok(())
    }

    /// Waits for all replicas to end. Returns the number of failed requests.
    pub(crate) async fn finish(&mut self) -> anyhow::Result<u64> {
        let mut failed = 0;
        for replica in &mut self.replicas {
            let reply = replica.next_line().await?;
            let Some(count) = reply.strip_prefix(DONE) else {
                bail!("expected a replica to be done, got {reply:?}");
            };
            failed += count.trim().parse::<u64>()?;
            let status = replica.process.wait().await?;
            ensure!(status.success(), "a replica ended with {status}");
        }
        Ok(failed)
    }
}

impl Process {
    fn start(replica: &Replica) -> anyhow::Result<Self> {
        let mut process = Command::new(env::current_exe()?)
            .args(replica.to_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a replica")?;
        let stdin = process.stdin.take().context("a replica without stdin")?;
        let stdout = process.stdout.take().context("a replica without stdout")?;
        Ok(Self {
            process,
            stdin,
            stdout: BufReader::new(stdout).lines(),
        })
    }

    async fn next_line(&mut self) -> anyhow::Result<String> {
        let line = self.stdout.next_line().await?;
        line.context("a replica ended early; see its error above")
    }
}

/// The share of replica `number` when `whole` is split among `count`. The first ones get the remainder.
pub(crate) fn share(whole: u32, count: u32, number: u32) -> u32 {
    whole / count + u32::from(number < whole % count)
}
