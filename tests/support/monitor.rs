//! [`Monitor`]: every command that reached a server, by Redis's own `MONITOR`.

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;

use crate::errors::bounded;
use crate::redis_server::RedisServer;

/// The command whose appearance says that everything before it has been seen.
const END: &str = "the monitor ends here";

/// Watches a server from [`start`](Self::start) to [`finish`](Self::finish), exactly: each command
/// once, in the order in which it ran, with its sender.
///
/// Redis shows neither administrative commands (`CONFIG`) nor some that set up a connection
/// (`AUTH`, `HELLO`). While watched, the server is slower by half: count here, do not measure.
pub struct Monitor(BoxStream<'static, String>);

/// One command.
#[derive(Debug, Clone)]
pub struct Sent {
    /// In lower case, such as `evalsha`.
    pub name: String,
    /// Whether a script ran it, and no client sent it.
    pub is_scripted: bool,
    /// The command with its arguments, as Redis shows it.
    pub text: String,
}

impl Monitor {
    /// Watches `server` from now on.
    pub async fn start(server: &RedisServer) -> Self {
        let monitor = server.client().get_async_monitor().await;
        Self(monitor.expect("a connection").into_on_message().boxed())
    }

    /// Everything that `server` has executed since the start.
    pub async fn finish(self, server: &RedisServer) -> Vec<Sent> {
        server.command::<String>(&["ECHO", END]);
        let commands = self.0.map(|line| Sent::parse(&line));
        let before = commands.take_while(|it| std::future::ready(!it.text.contains(END)));
        bounded(before.collect()).await
    }
}

impl Sent {
    /// `1700000000.123456 [0 127.0.0.1:5555] "evalsha" "6b1b…" "0"`, and `[0 lua]` for scripts.
    fn parse(line: &str) -> Self {
        let (sender, text) = line.split_once("] \"").expect("a command");
        let (name, _) = text.split_once('"').expect("a name");
        Self {
            name: name.to_ascii_lowercase(),
            is_scripted: sender.ends_with(" lua"),
            text: format!("\"{text}"),
        }
    }
}
