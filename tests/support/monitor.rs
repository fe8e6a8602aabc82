//! [`Monitor`]: every command that reached a server, by Redis's own `MONITOR`.

use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::redis_server::RedisServer;

/// The command whose appearance says that everything before it has been seen.
const END: &str = "the monitor ends here";

/// Watches a server from [`start`](Self::start) to [`finish`](Self::finish), exactly: each command
/// once, in the order in which it ran, with its sender.
///
/// Redis shows neither administrative commands (`CONFIG`) nor some that set up a connection
/// (`AUTH`, `HELLO`). While watched, the server is slower by half: count here, do not measure.
#[derive(Debug)]
pub struct Monitor {
    stream: BufReader<TcpStream>,
}

/// The commands that a [`Monitor`] saw.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub commands: Vec<Sent>,
}

/// One command and its sender.
#[derive(Debug, Clone)]
pub struct Sent {
    /// In lower case, such as `evalsha`.
    pub name: String,
    /// The sender's address, or `lua` when it was a script.
    pub sender: String,
    /// The command with its arguments, as Redis shows it.
    pub text: String,
}

impl Monitor {
    /// Watches `server` from now on.
    pub fn start(server: &RedisServer) -> Self {
        let mut stream =
            TcpStream::connect(("127.0.0.1", server.port())).expect("the server to listen");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a valid timeout");
        stream.write_all(b"MONITOR\r\n").expect("an open stream");
        let mut monitor = Self {
            stream: BufReader::new(stream),
        };
        assert_eq!(monitor.line(), "OK", "the answer to MONITOR");
        monitor
    }

    /// Everything that `server` has executed since the start.
    pub fn finish(mut self, server: &RedisServer) -> Seen {
        server.command::<String>(&["ECHO", END]);
        let mut seen = Seen::default();
        loop {
            let sent = Sent::parse(&self.line());
            if sent.name == "echo" && sent.text.contains(END) {
                return seen;
            }
            seen.commands.push(sent);
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line);
        let read = read.expect("a line of text within the timeout");
        assert!(read > 0, "the server closed the monitor's connection");
        line.trim_end().trim_start_matches('+').to_owned()
    }
}

impl Seen {
    /// Leaves out these commands of clients.
    pub fn without(mut self, names: &[&str]) -> Self {
        self.commands
            .retain(|sent| sent.by_script() || !names.contains(&sent.name.as_str()));
        self
    }

    /// How many commands clients sent, those of [`RedisServer::command`] included.
    pub fn client_commands(&self) -> usize {
        self.commands
            .iter()
            .filter(|sent| !sent.by_script())
            .count()
    }

    /// How often clients sent this command, named in lower case.
    pub fn calls(&self, name: &str) -> usize {
        let of_clients = self.commands.iter().filter(|sent| !sent.by_script());
        of_clients.filter(|sent| sent.name == name).count()
    }
}

impl Sent {
    fn by_script(&self) -> bool {
        self.sender == "lua"
    }

    /// `1700000000.123456 [0 127.0.0.1:5555] "evalsha" "6b1b…" "0"`, and `[0 lua]` for scripts.
    fn parse(line: &str) -> Self {
        let parse = || {
            let (_time, rest) = line.split_once(" [")?;
            let (origin, text) = rest.split_once("] \"")?;
            let (_database, sender) = origin.split_once(' ')?;
            let (name, _) = text.split_once('"')?;
            Some(Self {
                name: name.to_ascii_lowercase(),
                sender: sender.to_owned(),
                text: format!("\"{text}"),
            })
        };
        parse().unwrap_or_else(|| panic!("not a line of MONITOR: {line}"))
    }
}
