//! The task of one runtime, and what it has to do: [`Task`] and [`Schedule`].

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::runtime::{self, Handle as Runtime, RuntimeFlavor};
use tokio::task::{consume_budget, yield_now};
use tokio::time::{Instant, sleep, sleep_until};

use super::Dispatcher;
use super::calls::Flight;
use super::key_queue::KeyQueue;
use super::outages::Outages;
use crate::key::Key;
use crate::queue::NEIGHBOURS;

/// The first task is late if a call is overdue by so long.
const LATE: Duration = Duration::from_millis(50);

/// How often the first task looks after the calls under way, and so shows that it runs.
const BEAT: Duration = Duration::from_millis(100);

/// How often the other tasks look after the first.
const WATCH: Duration = Duration::from_millis(75);

/// Tasks with nothing to do end after so long.
const IDLE: Duration = Duration::from_secs(1);

/// A call waits for departing requests, whose callers may ask again, for about so long.
const LONGEST_GATHER: Duration = Duration::from_micros(100);

#[derive(Default)]
pub(super) struct Schedule {
    /// Queues by the time of their next call and their serial number; see `KeyQueue::scheduled`.
    pub(super) due: BTreeMap<(Instant, u64), Arc<KeyQueue>>,
    pub(super) outages: Outages,
    /// What is under way, by number.
    pub(super) flights: HashMap<u64, Flight>,
    /// The runtimes that have a task, each once. The task of the first one calls the store; the others watch it.
    pub(super) tasks: Vec<runtime::Id>,
    /// The runtime on which a task has ended last. It serves threads without one.
    latest: Option<Runtime>,
    /// When the first task has run last.
    beat: Option<Instant>,
    /// The most requests of one key that the latest answer lets depart. Their callers may ask again at once.
    pub(super) departing: usize,
}

impl Schedule {
    fn is_idle(&self) -> bool {
        let is_probed = self.outages.probes().next().is_some();
        self.due.is_empty() && !is_probed && self.flights.is_empty()
    }

    pub(super) fn is_pinged(&self, shard: u64) -> bool {
        let is_ping = |flight: &Flight| matches!(flight, Flight::Ping(other, _) if *other == shard);
        self.flights.values().any(is_ping)
    }

    /// Returns true if the first task does not run.
    fn is_late(&self, now: Instant) -> bool {
        let due = self.next_due();
        due.is_some_and(|due| self.beat.unwrap_or(due).max(due) + LATE < now)
    }

    /// When the first task has to run.
    fn next_due(&self) -> Option<Instant> {
        let due = self.due.first_key_value().map(|((at, _), _)| *at);
        let beat = self.beat.filter(|_| !self.flights.is_empty());
        let beat = beat.map(|beat| beat + BEAT);
        let times = due.into_iter().chain(self.outages.probes());
        times.chain(beat).min()
    }

    /// Sets when a queue is due.
    pub(super) fn set(&mut self, queue: &Arc<KeyQueue>, due: Option<Instant>) {
        let serial = queue.serial;
        if let Some(at) = std::mem::replace(&mut *queue.scheduled.lock(), due) {
            self.due.remove(&(at, serial));
        }
        if let Some(at) = due {
            self.due.insert((at, serial), queue.clone());
        }
    }

    fn take_due(&mut self, now: Instant) -> (Vec<Arc<KeyQueue>>, Vec<(u64, Key)>) {
        let mut queues = Vec::new();
        while let Some(entry) = self.due.first_entry()
            && entry.key().0 <= now
        {
            let queue = entry.remove();
            *queue.scheduled.lock() = None;
            queues.push(queue);
        }
        (queues, self.outages.take_due(now))
    }
}

/// The next step of a task.
enum Next {
    End,
    /// Another one is the first.
    Watch,
    /// What is due, and when to look again.
    Call(Vec<Arc<KeyQueue>>, Vec<(u64, Key)>, Instant),
}

impl Dispatcher {
    /// Starts a task on this runtime, unless it has one.
    pub(crate) fn ensure_task(self: &Arc<Self>) {
        let current = Runtime::try_current().ok();
        let (runtime, id) = {
            let mut schedule = self.schedule.lock();
            let Some(runtime) = current.or_else(|| schedule.latest.clone()) else {
                return;
            };
            let id = runtime.id();
            // The first task may be about to call while the schedule is empty.
            let has_ended = schedule.is_idle() && schedule.tasks.is_empty();
            if has_ended || schedule.tasks.contains(&id) {
                return;
            }
            schedule.tasks.push(id);
            (runtime, id)
        };
        let task = Task {
            dispatcher: self.clone(),
            runtime: id,
        };
        // A runtime that shuts down drops the task here: the schedule must not be locked.
        runtime.spawn(task.run());
    }

    /// Decides what the task of this runtime does next.
    fn next(self: &Arc<Self>, runtime: runtime::Id) -> Next {
        let now = Instant::now();
        let mut schedule = self.schedule.lock();
        if schedule.is_idle() && schedule.beat.is_none_or(|beat| beat + IDLE <= now) {
            schedule.tasks.retain(|&task| task != runtime);
            schedule.latest = Some(Runtime::current());
            return Next::End;
        }
        // The end of an earlier task of this runtime may have removed it.
        if !schedule.tasks.contains(&runtime) {
            schedule.tasks.push(runtime);
        }
        let mut orphans = HashMap::new();
        if schedule.tasks[0] != runtime {
            if !schedule.is_late(now) {
                return Next::Watch;
            }
            schedule.tasks.retain(|&task| task != runtime);
            schedule.tasks.insert(0, runtime);
            orphans = std::mem::take(&mut schedule.flights);
        }
        schedule.beat = Some(now);
        let (queues, probes) = schedule.take_due(now);
        let mut until = schedule.next_due().unwrap_or(now + IDLE);
        if !queues.is_empty() || !probes.is_empty() {
            until = until.min(now + BEAT);
        }
        drop(schedule);
        for flight in orphans.into_values() {
            self.lost(flight);
        }
        Next::Call(queues, probes, until)
    }
}

/// The task of one runtime.
struct Task {
    dispatcher: Arc<Dispatcher>,
    runtime: runtime::Id,
}

impl Task {
    async fn run(self) {
        let dispatcher = &self.dispatcher;
        let mut alarm = pin!(sleep_until(Instant::now()));
        let has_threads = Runtime::current().runtime_flavor() != RuntimeFlavor::CurrentThread;
        loop {
            // A runtime that shuts down ends tasks where they yield, and drops each call, which is due again at once.
            consume_budget().await;
            // Before it looks, so that it misses no change.
            let mut changed = pin!(dispatcher.changed.notified());
            match dispatcher.next(self.runtime) {
                Next::End => return,
                Next::Watch => sleep(WATCH).await,
                Next::Call(queues, probes, until) => {
                    dispatcher.call_queues(queues);
                    for (shard, key) in probes {
                        dispatcher.ping(shard, key);
                    }
                    // An early alarm costs less than a new one for each call, which wakes the driver of the runtime.
                    if alarm.is_elapsed() || until < alarm.deadline() {
                        alarm.as_mut().reset(until);
                    }
                    poll_fn(|cx| match changed.as_mut().poll(cx) {
                        Poll::Pending => alarm.as_mut().poll(cx),
                        ready => ready,
                    })
                    .await;
                    // Requests that are about to be polled share the next call, and so do those that depart now, in groups.
                    // Only a runtime of several threads may have polled this task ahead of them.
                    let departing = std::mem::take(&mut dispatcher.schedule.lock().departing);
                    let latest = Instant::now() + LONGEST_GATHER;
                    for _ in 0..departing / NEIGHBOURS + usize::from(has_threads) {
                        if Instant::now() > latest {
                            break;
                        }
                        yield_now().await;
                    }
                }
            }
        }
    }
}

impl Drop for Task {
    /// The runtime shuts down, or the task has ended. Where requests wait on another runtime, its task is the first one soon.
    fn drop(&mut self) {
        let mut schedule = self.dispatcher.schedule.lock();
        schedule.tasks.retain(|&task| task != self.runtime);
    }
}
