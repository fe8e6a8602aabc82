//! The scripts, each assembled from the files of the algorithms that a policy joins.
//!
//! The server runs a script's definitions anew with every call, so none is sent that is not needed.

use std::sync::OnceLock;

use redis::Cmd;

use crate::algorithm::Rule;

const START: &str = include_str!("start.lua");

/// How it ends.
const ASK_FOR_THE_TIME: &str =
    "local time = redis.call('TIME')\nlocal now = time[1] * 1000000 + time[2]\n";

const QUOTAS: &str = include_str!("quotas.lua");
const BORN: &str = include_str!("born.lua");
const DOUBT: &str = include_str!("doubt.lua");
const LIVE: &str = include_str!("live.lua");
const STATE: &str = include_str!("state.lua");
const LEDGER: &str = concat!(
    include_str!("../../algorithm/hold.lua"),
    include_str!("../../algorithm/free.lua"),
    include_str!("../../algorithm/ledger.lua"),
);
const ONE_LOG: &str = include_str!("../../algorithm/one_log.lua");
const ONE_NUMBER: &str = include_str!("../../algorithm/one_number.lua");
const NUMBER: &str = include_str!("../../algorithm/number.lua");

/// How a way to count is written in Lua.
struct Twin {
    /// As in [`Rule::parts`].
    name: &'static str,
    text: &'static str,
    /// Whether the text builds upon that of a state that is one number.
    is_number: bool,
    /// What answers without the ledger where one quota alone counts so; nothing where the ledger always does.
    alone: &'static str,
}

static ALGORITHMS: [Twin; 6] = [
    Twin {
        name: "log",
        text: include_str!("../../algorithm/sliding_log.lua"),
        is_number: false,
        alone: ONE_LOG,
    },
    Twin {
        name: "buckets",
        text: include_str!("../../algorithm/sliding_buckets.lua"),
        is_number: false,
        alone: "",
    },
    Twin {
        name: "fixed",
        text: include_str!("../../algorithm/fixed_window.lua"),
        is_number: false,
        alone: "",
    },
    Twin {
        name: "spacing",
        text: include_str!("../../algorithm/spacing.lua"),
        is_number: true,
        alone: ONE_NUMBER,
    },
    Twin {
        name: "leaky",
        text: include_str!("../../algorithm/leaky_bucket.lua"),
        is_number: true,
        alone: ONE_NUMBER,
    },
    Twin {
        name: "gcra",
        text: include_str!("../../algorithm/gcra.lua"),
        is_number: true,
        alone: ONE_NUMBER,
    },
];

/// Which of them, a bit each.
type Mixture = usize;

/// The scripts for one mixture of algorithms.
pub(super) struct Scripts {
    pub(super) reserve: Script,
    pub(super) release: Script,
    pub(super) heed: Script,
    pub(super) kind: Kind,
}

/// What the scripts are told besides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Kind {
    /// With a reservation, evidence of the state's life.
    pub(super) is_strict: bool,
    /// The time, as their last argument: they do not ask the server for it.
    pub(super) is_told_the_time: bool,
}

/// A script and what the server calls it.
pub(super) struct Script {
    text: String,
    sha: String,
}

impl Scripts {
    /// The scripts for these rules.
    pub(super) fn of(rules: &[Rule], kind: Kind) -> &'static Self {
        static KNOWN: [OnceLock<Scripts>; 4 << ALGORITHMS.len()] =
            [const { OnceLock::new() }; 4 << ALGORITHMS.len()];
        let mixture = mixture(rules);
        let place = 4 * mixture + 2 * usize::from(kind.is_strict);
        KNOWN[place + usize::from(kind.is_told_the_time)].get_or_init(|| Self::new(mixture, kind))
    }

    /// What loads them.
    pub(super) fn loads(&self) -> [Cmd; 3] {
        [&self.reserve, &self.release, &self.heed].map(Script::load)
    }

    /// The scripts, with the time as their last argument and keys that do not expire by the real one.
    #[cfg(test)]
    pub(super) fn told_the_time(rules: &[Rule]) -> Self {
        Self::told(rules, false)
    }

    /// The same, which take evidence.
    #[cfg(test)]
    pub(super) fn strict_and_told_the_time(rules: &[Rule]) -> Self {
        Self::told(rules, true)
    }

    #[cfg(test)]
    fn told(rules: &[Rule], is_strict: bool) -> Self {
        let kind = Kind {
            is_strict,
            is_told_the_time: true,
        };
        let mut scripts = Self::new(mixture(rules), kind);
        let lifetime = "math.max(math.ceil((expires - now) / 1000), 0) + 1";
        scripts.replace(lifetime, "600000");
        scripts.replace("math.ceil(life / 1000) + 1", "600000");
        scripts.replace("NUMBER, PAGE = 8, 64", "NUMBER, PAGE = 8, 3");
        scripts
    }

    /// With pages and short logs so small that there are many of the ones and few of the others.
    #[cfg(test)]
    pub(super) fn with_long_logs(mut self) -> Self {
        self.replace("ENTRY, PAGE = 8, 32", "ENTRY, PAGE = 8, 4");
        self.replace("SHORT, RING_HEADER = 16", "SHORT, RING_HEADER = 4");
        self
    }

    /// With nothing that answers before the ledger does.
    #[cfg(test)]
    pub(super) fn by_the_ledger(mut self) -> Self {
        let before = self.reserve.sha.clone();
        self.replace("if not only or", "if true or");
        assert_ne!(self.reserve.sha, before, "there is such a case");
        self
    }

    #[cfg(test)]
    fn replace(&mut self, from: &str, to: &str) {
        for script in [&mut self.reserve, &mut self.release, &mut self.heed] {
            *script = Script::new(script.text.replace(from, to));
        }
    }

    fn new(mixture: Mixture, kind: Kind) -> Self {
        let ledger = ledger(mixture);
        // The ledger alone knows what to do with evidence.
        let (common_case, born, doubt, live, head) = if kind.is_strict {
            ("", BORN, DOUBT, LIVE, "5")
        } else {
            (common_case(mixture), "", "", "", "2")
        };
        let start = if kind.is_told_the_time {
            START.replace(
                ASK_FOR_THE_TIME,
                "local now = tonumber(table.remove(ARGV))\n",
            )
        } else {
            START.to_owned()
        };
        let script = |text: &str| {
            let text = text.replace("--@common_case\n", common_case);
            let text = text.replace("--@born\n", born);
            let text = text.replace("--@doubt\n", doubt);
            let text = text.replace("--@live\n", live).replace("@head", head);
            let text = text.replace("--@quotas\n", QUOTAS);
            Script::new([&start, &*text.replace("--@ledger\n", &ledger)].concat())
        };
        Self {
            reserve: script(include_str!("reserve.lua")),
            release: script(include_str!("release.lua")),
            heed: script(include_str!("heed.lua")),
            kind,
        }
    }
}

fn mixture(rules: &[Rule]) -> Mixture {
    let bit = |rule: &Rule| {
        let (name, _) = rule.parts();
        let place = ALGORITHMS.iter().position(|twin| twin.name == name);
        1 << place.expect("every rule is listed")
    };
    rules.iter().map(bit).fold(0, |all, bit| all | bit)
}

/// The algorithms of a mixture.
fn mixed(mixture: Mixture) -> impl Iterator<Item = &'static Twin> {
    let all = ALGORITHMS.iter().enumerate();
    all.filter_map(move |(place, twin)| (mixture & 1 << place != 0).then_some(twin))
}

/// What answers without the ledger, if anything does.
fn common_case(mixture: Mixture) -> &'static str {
    let mut mixed = mixed(mixture);
    match (mixed.next(), mixed.next()) {
        (Some(twin), None) => twin.alone,
        _ => "",
    }
}

/// Defines the ledger for a mixture.
fn ledger(mixture: Mixture) -> String {
    let mut text = STATE.to_owned();
    if mixed(mixture).any(|twin| twin.is_number) {
        text.push_str(NUMBER);
    }
    text.extend(mixed(mixture).map(|twin| twin.text));
    text + LEDGER
}

impl Script {
    fn new(text: String) -> Self {
        let sha = redis::Script::new(&text).get_hash().to_owned();
        Self { text, sha }
    }

    #[cfg(test)]
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn sha(&self) -> &str {
        &self.sha
    }

    /// `SCRIPT LOAD`, and not `EVAL`: since Redis 7.4 the server may forget what it knows from there.
    fn load(&self) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&self.text);
        load
    }
}
