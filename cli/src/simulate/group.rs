//! Divides the callers by priority and share: [`Group`].

use tower_throttle::{Priority, Share};

use super::{Args, MAX_CALLERS};
use crate::failure::Failure;
use crate::level;

/// Number of callers without options.
const DEFAULT_CALLERS: u32 = 50;

/// Callers whose requests have the same priority and share.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) callers: u32,
    pub(super) priority: Priority,
    pub(super) share: Option<Share>,
}

impl Group {
    /// Divides the callers into the groups of the arguments. The other callers have no priority and no share.
    pub(super) fn all(args: &Args) -> Result<Vec<Self>, Failure> {
        check_distinct("--priority", args.priorities.iter().map(Self::name))?;
        check_distinct("--share", args.shares.iter().map(Self::name))?;
        let mut groups = [&args.priorities[..], &args.shares].concat();
        let sum: u32 = groups.iter().map(|group| group.callers).sum();
        let callers = match args.callers {
            Some(callers) => callers,
            None if groups.is_empty() => DEFAULT_CALLERS,
            None => sum.min(MAX_CALLERS),
        };
        let Some(others) = callers.checked_sub(sum) else {
            return Err(Failure::usage(format!(
                "`--priority` and `--share` add up to {sum} callers, more than {callers}"
            )));
        };
        let is_normal =
            |group: &&mut Self| group.priority == Priority::Normal && group.share.is_none();
        match groups.iter_mut().find(is_normal) {
            Some(normal) => normal.callers += others,
            None if others == 0 => {}
            None => groups.push(Self {
                callers: others,
                priority: Priority::Normal,
                share: None,
            }),
        }
        Ok(groups)
    }

    /// Parses `LEVEL=N`.
    pub(super) fn parse_priority(text: &str) -> Result<Self, String> {
        let (name, callers) = text.rsplit_once('=').ok_or("expected LEVEL=N")?;
        Ok(Self {
            callers: parse_callers(callers)?,
            priority: level::parse(name)?,
            share: None,
        })
    }

    /// Parses `NAME:WEIGHT=N`.
    pub(super) fn parse_share(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once('=');
        let parts = parts.and_then(|(share, callers)| Some((share.rsplit_once(':')?, callers)));
        let ((name, weight), callers) = parts.ok_or("expected NAME:WEIGHT=N")?;
        let weight = weight.parse().ok().filter(|weight| *weight > 0);
        let weight: u16 = weight.ok_or("the weight must be from 1 to 65535")?;
        Ok(Self {
            callers: parse_callers(callers)?,
            priority: Priority::Normal,
            share: Some(Share::new(name, weight.into())),
        })
    }

    /// The name of the share, or else of the priority.
    pub(super) fn name(&self) -> &str {
        let share = self.share.as_ref().map(Share::name);
        share.unwrap_or_else(|| level::name(self.priority))
    }
}

/// Parses `LEVEL=PART`.
pub(super) fn parse_reserve(text: &str) -> Result<(Priority, f64), String> {
    let (name, part) = text.rsplit_once('=').ok_or("expected LEVEL=PART")?;
    let part = part.parse().ok().filter(|part| (0.0..=1.0).contains(part));
    let part = part.ok_or("the part must be from 0 to 1")?;
    Ok((level::parse(name)?, part))
}

/// Fails if an option names the same level or share twice.
pub(super) fn check_distinct<'a>(
    option: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), Failure> {
    let mut places = names.clone().enumerate();
    match places.find(|(place, name)| names.clone().take(*place).any(|it| it == *name)) {
        Some((_, name)) => Err(Failure::usage(format!(
            "`{option}` is given twice for `{name}`"
        ))),
        None => Ok(()),
    }
}

fn parse_callers(text: &str) -> Result<u32, String> {
    let callers = text.parse().ok();
    let callers = callers.filter(|callers| (1..=MAX_CALLERS).contains(callers));
    callers.ok_or_else(|| format!("the number of callers must be from 1 to {MAX_CALLERS}"))
}
