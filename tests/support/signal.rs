//! Signals, through the shell: the crate forbids `unsafe`, and a bare machine has no `kill` binary.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Stops a process; returns once it no longer runs. Its connections stay open and unanswered, as those of a hung host.
pub fn stop(pid: u32) {
    send("STOP", pid);
    // The signal is sent but has no effect yet; only Linux shows when it has.
    let deadline = Instant::now() + Duration::from_secs(5);
    while state(pid).is_some_and(|state| state != 'T') {
        assert!(Instant::now() < deadline, "process {pid} did not stop");
        thread::sleep(Duration::from_millis(1));
    }
}

pub fn resume(pid: u32) {
    send("CONT", pid);
}

/// Sends a signal by its name, such as `HUP`.
pub fn send(signal: &str, pid: u32) {
    let command = format!("kill -{signal} {pid}");
    let status = Command::new("sh").args(["-c", &command]).status();
    let is_sent = status.as_ref().is_ok_and(|status| status.success());
    assert!(is_sent, "`{command}`: {status:?}");
}

/// The state letter: the first field after the name in parentheses, which may have spaces.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
