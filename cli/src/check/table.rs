//! Prints the rules of a file as a table.

use std::io::{self, Write};

use anstyle::Style;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::printable::printable;

/// Fields that select the requests of a rule, in the order in which they are tested.
const CONDITIONS: [&str; 4] = ["host", "method", "path", "header"];

/// Fields that are shown in their own way.
const SPECIAL: [&str; 2] = ["name", "exempt"];

/// Fields with several values of which one must match.
const ALTERNATIVES: [&str; 4] = ["host", "method", "path", "trusted_proxies"];

/// Maximum width of a padded column.
const MAX_WIDTH: usize = 50;

/// The limit of a rule whose requests are exempt.
const EXEMPT: &str = "exempt";

/// One rule.
#[derive(Serialize)]
pub(super) struct Row {
    rule: usize,
    /// All fields of the rule.
    #[serde(flatten)]
    fields: Map<String, Value>,
}

pub(super) fn of(rules: &[Value]) -> Vec<Row> {
    let fields = |(rule, fields): (usize, &Value)| Row {
        rule,
        fields: fields.as_object().cloned().unwrap_or_default(),
    };
    rules.iter().enumerate().map(fields).collect()
}

impl Row {
    fn name(&self) -> String {
        let name = self.fields.get("name");
        name.map_or_else(String::new, |name| shown(name, ""))
    }

    fn requests(&self) -> String {
        let conditions = CONDITIONS.iter().filter_map(|name| {
            let value = self.fields.get(*name)?;
            Some(field(name, value))
        });
        let conditions = conditions.collect::<Vec<_>>().join(", ");
        if conditions.is_empty() {
            "all others".to_owned()
        } else {
            conditions
        }
    }

    fn limit(&self) -> String {
        if self.fields.get(EXEMPT) == Some(&Value::Bool(true)) {
            return EXEMPT.to_owned();
        }
        let is_one = |name: &str| !CONDITIONS.contains(&name) && !SPECIAL.contains(&name);
        let (quota, others): (Vec<_>, Vec<_>) = self
            .fields
            .iter()
            .filter(|(name, _)| is_one(name))
            .partition(|(name, _)| *name == "quota");
        let quota = quota.iter().map(|(_, value)| shown(value, " and "));
        let others = others.iter().map(|(name, value)| field(name, value));
        quota.chain(others).collect::<Vec<_>>().join(", ")
    }
}

fn field(name: &str, value: &Value) -> String {
    let between = if ALTERNATIVES.contains(&name) {
        " or "
    } else {
        " and "
    };
    format!("{} {}", printable(name), shown(value, between))
}

/// A value without the syntax of its format.
fn shown(value: &Value, between: &str) -> String {
    let joined = |all: Vec<String>| all.join(between);
    match value {
        Value::String(text) => printable(text).into_owned(),
        Value::Array(items) => joined(items.iter().map(|item| shown(item, between)).collect()),
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields = fields
                .map(|(name, value)| format!("{}={}", printable(name), shown(value, between)));
            joined(fields.collect())
        }
        other => other.to_string(),
    }
}

/// Writes the table. The last column is not padded.
pub(super) fn write(text: &mut dyn Write, rows: &[Row]) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    const HEAD: Style = Style::new().bold();
    let cells = |row: &Row| [row.name(), row.requests(), row.limit()];
    let all: Vec<_> = rows.iter().map(cells).collect();
    let width = |column: usize, head: &str| {
        let widths = all.iter().map(|cells| cells[column].chars().count());
        widths.max().unwrap_or(0).clamp(head.len(), MAX_WIDTH)
    };
    let (name, requests) = (width(0, "rule"), width(1, "requests"));
    writeln!(
        text,
        "{HEAD}   {:name$}  {:requests$}  limit{HEAD:#}",
        "rule", "requests"
    )?;
    for (row, [called, of, limit]) in rows.iter().zip(&all) {
        writeln!(
            text,
            "{:>2} {called:name$}  {of:requests$}  {limit}",
            row.rule
        )?;
    }
    Ok(())
}
