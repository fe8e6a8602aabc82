//! The scripts, each assembled from the algorithms' files.

use std::sync::LazyLock;

use redis::Cmd;

/// A script with all that it builds on, and what a test puts in between.
macro_rules! assemble {
    ($name:literal $(, $between:literal)?) => {
        concat!(
            include_str!("time.lua"),
            $($between,)?
            include_str!("state.lua"),
            include_str!("../../algorithm/sliding_log.lua"),
            include_str!("../../algorithm/sliding_buckets.lua"),
            include_str!("../../algorithm/number.lua"),
            include_str!("../../algorithm/spacing.lua"),
            include_str!("../../algorithm/leaky_bucket.lua"),
            include_str!("../../algorithm/gcra.lua"),
            include_str!("../../algorithm/fixed_window.lua"),
            include_str!("../../algorithm/ledger.lua"),
            include_str!($name),
        )
    };
}

pub(super) static RESERVE: LazyLock<Script> =
    LazyLock::new(|| Script::new(assemble!("reserve.lua")));
pub(super) static RELEASE: LazyLock<Script> =
    LazyLock::new(|| Script::new(assemble!("release.lua")));

/// A script and what the server calls it.
pub(super) struct Script {
    text: &'static str,
    sha: String,
}

impl Script {
    fn new(text: &'static str) -> Self {
        let sha = redis::Script::new(text).get_hash().to_owned();
        Self { text, sha }
    }

    pub(super) fn sha(&self) -> &str {
        &self.sha
    }

    /// `SCRIPT LOAD`, and not `EVAL`: since Redis 7.4 the server may forget what it knows from there.
    pub(super) fn load(&self) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(self.text);
        load
    }
}

/// The scripts, with the time as their last argument and keys that do not expire by the real one.
#[cfg(test)]
pub(super) fn twins() -> [String; 2] {
    macro_rules! told_the_time {
        ($name:literal) => {
            assemble!(
                $name,
                "local function server_time() return tonumber(table.remove(ARGV)) end\n\
                 local function lifetime() return '600000' end\n"
            )
        };
    }
    [
        told_the_time!("reserve.lua").to_owned(),
        told_the_time!("release.lua").to_owned(),
    ]
}
