//! A test in several operating system processes: its binary starts itself again, for one test.
//!
//! The test that runs in another process is ignored, so that it runs only by name. It gets its role from [`role`].

use std::env;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Write as _};
use std::process::{self, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde::de::DeserializeOwned;

const ROLE: &str = "TEST_CHILD_ROLE";

/// Precedes what the child sends, as the test harness may write text of its own before it.
const MARK: &str = "@child ";

/// A process that [`spawn`] started. Dropping it kills and reaps it.
#[derive(Debug)]
pub struct Child {
    name: String,
    process: process::Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

/// Runs the ignored test of this binary with this full name in a process of its own, which gets its [`role`]. Its other
/// output is dropped, except stderr.
pub fn spawn(test: &str, role: &impl Serialize) -> Child {
    let role = text(role);
    let binary = env::current_exe().expect("the path of the running binary");
    let mut process = Command::new(binary)
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env(ROLE, &role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this binary to start once more");
    let stdin = process.stdin.take().expect("piped");
    let stdout = BufReader::new(process.stdout.take().expect("piped"));
    let (send, lines) = mpsc::channel();
    // In a thread, so that a child never blocks on a full pipe.
    thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            if let Some((_harness, sent)) = line.split_once(MARK) {
                let _ = send.send(sent.to_owned());
            }
        }
    });
    let name = format!("{test} as {role}");
    Child {
        name,
        process,
        stdin,
        lines,
    }
}

impl Child {
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends a line that the child [receives](receive).
    pub fn send(&mut self, line: impl Display) {
        writeln!(self.stdin, "{line}").expect("a child that still runs");
    }

    /// The next value that the child sends; panics if it takes longer or ends without one.
    pub fn next<T: DeserializeOwned>(&self, within: Duration) -> T {
        match self.lines.recv_timeout(within) {
            Ok(line) => parse(&line),
            Err(error) => panic!("no line from {}: {error}", self.name),
        }
    }

    /// The last value that the child sends, once it has ended. Panics if it takes longer, fails, or sends more.
    pub fn finish<T: DeserializeOwned>(mut self, within: Duration) -> T {
        let last = self.next(within);
        let end = self.lines.recv_timeout(within);
        assert_eq!(end, Err(RecvTimeoutError::Disconnected), "{}", self.name);
        // Its stdout is closed, so it is about to be gone.
        let status = self.process.wait().expect("our own child");
        assert!(status.success(), "{}: {status}", self.name);
        last
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In a process that [`spawn`] started: the role it was given. Elsewhere `None`.
///
/// Call it first. From then on the process ends when the one that started it does.
pub fn role<T: DeserializeOwned>() -> Option<T> {
    let role = env::var(ROLE).ok()?;
    received();
    Some(parse(&role))
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("a value that JSON has")
}

fn parse<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// In a child: sends a value to the process that started it.
pub fn send(value: &impl Serialize) {
    let line = text(value);
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{MARK}{line}").expect("a parent that still runs");
    stdout.flush().expect("a parent that still runs");
}

/// In a child: the next line from the process that started it. Blocks the thread.
pub fn receive() -> String {
    let lines = received().lock().expect("no panic while reading");
    lines.recv().expect("a parent that still runs")
}

fn received() -> &'static Mutex<Receiver<String>> {
    static RECEIVED: OnceLock<Mutex<Receiver<String>>> = OnceLock::new();
    RECEIVED.get_or_init(|| {
        let (send, receive) = mpsc::channel();
        thread::spawn(move || {
            for line in io::stdin().lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
            // The parent has ended.
            process::exit(1);
        });
        Mutex::new(receive)
    })
}

/// Time since 1970, by the clock that all processes of this machine share.
pub fn now() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("later than 1970")
}
