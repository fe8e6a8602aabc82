//! The names of priorities.

use tower_throttle::Priority;

/// All priorities by name, the highest first.
pub(crate) const LEVELS: [(&str, Priority); 5] = [
    ("highest", Priority::Highest),
    ("high", Priority::High),
    ("normal", Priority::Normal),
    ("low", Priority::Low),
    ("lowest", Priority::Lowest),
];

pub(crate) fn name(priority: Priority) -> &'static str {
    LEVELS[priority as usize].0
}

pub(crate) fn parse(name: &str) -> Result<Priority, String> {
    let named = LEVELS.iter().find(|(it, _)| *it == name);
    named.map(|(_, priority)| *priority).ok_or_else(|| {
        format!("unknown level `{name}`, expected highest, high, normal, low or lowest")
    })
}
