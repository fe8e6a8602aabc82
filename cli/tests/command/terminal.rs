//! A pseudo-terminal that runs a command: [`Screen`].

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, ExitStatus};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{InputModes, LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::throttle;
use support::redis_server::wait_until;

const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Screen {
    terminal: File,
    shown: mpsc::Receiver<Vec<u8>>,
    text: String,
    /// The modes before the command started.
    pub(crate) before: Modes,
}

type Modes = (InputModes, LocalModes);

fn modes(terminal: &File) -> Modes {
    let modes = tcgetattr(terminal).expect("its modes");
    (modes.input_modes, modes.local_modes)
}

impl Screen {
    pub(crate) fn with(args: &[&str], columns: u16, lines: u16) -> (Self, Child) {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&terminal).expect("grantpt");
        unlockpt(&terminal).expect("unlockpt");
        let size = Winsize {
            ws_row: lines,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&terminal, size).expect("a size");
        let name = ptsname(&terminal, Vec::new()).expect("a name");
        let name = name.into_string().expect("text");
        let side = || {
            let side = File::options().read(true).write(true).open(&name);
            side.expect("the terminal opens")
        };
        let mut command = throttle(args);
        command.stdin(side()).stdout(side()).stderr(side());
        command.env("TERM", "xterm");
        let terminal = File::from(terminal);
        let before = modes(&terminal);
        let child = command.spawn().expect("it starts");
        let mut reading = terminal.try_clone().expect("another handle");
        let (sender, shown) = mpsc::channel();
        thread::spawn(move || {
            let mut some = [0; 4_096];
            while let Ok(count) = reading.read(&mut some) {
                if count == 0 || sender.send(some[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        let screen = Self {
            terminal,
            shown,
            text: String::new(),
            before,
        };
        (screen, child)
    }

    pub(crate) fn type_keys(&mut self, keys: &str) {
        self.terminal
            .write_all(keys.as_bytes())
            .expect("the terminal accepts input");
    }

    /// The modes of the terminal, which differ in raw mode.
    pub(crate) fn modes(&self) -> Modes {
        modes(&self.terminal)
    }

    /// Waits until the terminal shows this text, after the previously awaited text.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, wanted: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while !self.text.contains(wanted) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(some) = self.shown.recv_timeout(left) else {
                panic!("no {wanted:?} in {:?}", self.text);
            };
            self.text += &String::from_utf8_lossy(&some);
        }
        self.text.clear();
    }
}

/// Waits for the exit of a process.
#[track_caller]
pub(crate) fn ends(child: &mut Child) -> ExitStatus {
    let mut exit = || child.try_wait().expect("our own child");
    wait_until("the process exits", || exit().is_some());
    exit().expect("it has exited")
}
