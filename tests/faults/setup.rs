//! [`Setup`]: the servers, proxies and processes of a trial.

use std::path::PathBuf;
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};

use crate::prelude::*;
use crate::upstream::Upstream;
use support::child::Child;
use support::cluster::Cluster;
use support::sentinel::Sentinels;

pub(crate) const PROCESSES: usize = 3;

/// The longest that a request may take after the load stops, and that a fault may take to show.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Servers, proxies and processes: each process reaches the first server through a proxy of its own.
pub(crate) struct Setup {
    pub(crate) servers: Vec<RedisServer>,
    pub(crate) proxies: Vec<Proxy>,
    pub(crate) urls: Vec<String>,
    /// Servers that name or hold the primary in place of the first one, where the setup has them.
    pub(crate) sentinels: Option<Sentinels>,
    pub(crate) cluster: Option<Cluster>,
    /// Which of their servers was killed.
    pub(crate) killed: Option<usize>,
    /// `None` where one was killed.
    pub(crate) processes: Vec<Option<Process>>,
    /// Threads of a fault, which end when it is healed.
    pub(crate) threads: Vec<JoinHandle<()>>,
    pub(crate) upstream: Upstream,
    load: &'static str,
    script: String,
    /// How many processes there have ever been.
    numbers: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Args {
    pub(crate) number: usize,
    pub(crate) load: String,
    pub(crate) upstream: PathBuf,
    pub(crate) redis: String,
    pub(crate) script: String,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) number: usize,
}

impl Setup {
    pub(crate) fn new(arguments: &[&str]) -> Self {
        Self::with(vec![RedisServer::start_with(arguments)])
    }

    pub(crate) fn sentinels() -> Self {
        let sentinels = Sentinels::start();
        Self {
            urls: vec![sentinels.urls().join(","); PROCESSES],
            sentinels: Some(sentinels),
            ..Self::new(&[])
        }
    }

    pub(crate) fn cluster() -> Self {
        let cluster = Cluster::start();
        Self {
            urls: vec![cluster.urls().join(","); PROCESSES],
            cluster: Some(cluster),
            ..Self::new(&[])
        }
    }

    /// The first of these servers is the primary.
    pub(crate) fn with(servers: Vec<RedisServer>) -> Self {
        let port = servers[0].port();
        let proxies: Vec<_> = (0..PROCESSES).map(|_| Proxy::start(port)).collect();
        Self {
            urls: proxies.iter().map(Proxy::url).collect(),
            proxies,
            servers,
            sentinels: None,
            cluster: None,
            killed: None,
            processes: Vec::new(),
            threads: Vec::new(),
            upstream: Upstream::start(),
            load: "",
            script: String::new(),
            numbers: 0,
        }
    }

    /// The primary and a replica of it that is up to date.
    pub(crate) fn replicated() -> Self {
        let start = || RedisServer::start_with(&["--repl-diskless-sync-delay", "0"]);
        let setup = Self::with(vec![start(), start()]);
        setup.replicate(1, 0);
        setup
    }

    /// Makes one server a replica of another; returns once it is up to date.
    pub(crate) fn replicate(&self, replica: usize, primary: usize) {
        let port = self.servers[primary].port().to_string();
        self.servers[replica].command::<()>(&["REPLICAOF", "127.0.0.1", &port]);
        wait_until("the replica is up to date", || {
            let info: String = self.servers[replica].command(&["INFO", "replication"]);
            info.contains("master_link_status:up")
        });
    }

    pub(crate) fn each(&self, work: impl FnMut(&Proxy)) {
        self.proxies.iter().for_each(work);
    }

    pub(crate) fn server(&mut self) -> &mut RedisServer {
        &mut self.servers[0]
    }

    /// Lets it go wrong, and puts it right. `least` counts the departures that a fault may last for. Returns when it
    /// began, and when it was put right.
    pub(crate) fn apply(
        &mut self,
        fault: &Fault,
        least: impl Fn(&[Arrival]) -> usize,
    ) -> [Duration; 2] {
        let injected = now();
        (fault.inject)(self);
        match fault.lasts {
            Lasts::For(span) => thread::sleep(span),
            Lasts::UntilDeparted(count) => {
                let since = now();
                let enough = |all: &[Arrival]| least(&after(all, since)) >= count;
                let goes_on = self.upstream.wait_for(TIME_LIMIT, enough);
                assert!(goes_on, "no request departs while it lasts");
            }
        }
        (fault.heal)(self);
        [injected, now()]
    }

    pub(crate) fn running(&self) -> Vec<usize> {
        let running = self.processes.iter().flatten();
        running.map(|it| it.number).collect()
    }

    pub(crate) fn start_load(&mut self, load: &'static str, script: &str) {
        self.load = load;
        script.clone_into(&mut self.script);
        for place in 0..PROCESSES {
            let process = self.spawn(place);
            self.processes.push(Some(process));
        }
    }

    pub(crate) fn spawn(&mut self, place: usize) -> Process {
        let number = self.numbers;
        self.numbers += 1;
        let args = Args {
            number,
            load: self.load.to_owned(),
            upstream: self.upstream.path(),
            redis: self.urls[place].clone(),
            script: self.script.clone(),
        };
        let child = child::spawn("process", &args);
        Process { child, number }
    }

    /// Stops the load; returns the tally of each process that runs.
    pub(crate) fn stop(&mut self) -> Vec<(usize, Tally)> {
        let mut processes: Vec<_> = self.processes.drain(..).flatten().collect();
        for process in &mut processes {
            process.child.send("stop");
        }
        let finish = |it: Process| (it.number, it.child.finish(TIME_LIMIT * 2));
        let tallies = processes.into_iter().map(finish).collect();
        self.join_threads();
        tallies
    }

    pub(crate) fn join_threads(&mut self) {
        for thread in self.threads.drain(..) {
            thread.join().expect("no panic in a thread of a fault");
        }
    }
}

pub(crate) fn after(arrivals: &[Arrival], time: Duration) -> Vec<Arrival> {
    let after = arrivals.iter().filter(|it| it.departed >= time);
    after.copied().collect()
}

/// The code with which the server refuses a command, if it does.
pub(crate) fn refusal(server: &RedisServer, command: &[&str]) -> Option<String> {
    let error = server.try_command::<()>(command).err()?;
    error.code().map(ToOwned::to_owned)
}
