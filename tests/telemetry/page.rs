//! The tables of `docs/telemetry.md`.

/// The rows of the table under this headline, cell by cell.
pub(super) fn rows(headline: &str) -> Vec<Vec<&'static str>> {
    let page = include_str!("../../src/docs/telemetry.md");
    let (_, section) = page.split_once(headline).expect("such a headline");
    let section = section.split("\n# ").next().expect("a section");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = |row: &'static str| row.trim_matches('|').split('|').map(str::trim).collect();
    rows.map(cells).collect()
}

/// What stands in code, one after the other.
pub(super) fn code(cell: &'static str) -> Vec<&'static str> {
    cell.split('`').skip(1).step_by(2).collect()
}
