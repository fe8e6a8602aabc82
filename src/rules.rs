//! Which request falls under which policy, from code or from a file: [`Rules`].

mod check;
mod conditions;
mod error;
mod explain;
mod host;
mod key;
mod live;
mod path;
mod reach;
mod rule;
mod table;

pub(crate) use self::live::Live;
pub use self::{
    conditions::Condition,
    error::{Mistake, RulesError},
    explain::{Explanation, Miss},
    key::KeyPart,
    live::Reloaded,
    reach::Warning,
    rule::Rule,
    table::Rules,
};
