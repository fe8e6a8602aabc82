//! The tables of what was seen, in the documentation.

use std::fs;
use std::path::PathBuf;

/// A table of the page `faults`.
pub(crate) struct Page {
    /// The line before the table. [`END`] is behind it.
    begin: &'static str,
    pub(crate) head: &'static str,
}

pub(crate) const RATES: Page = Page {
    begin: "<!-- measured -->\n",
    head: "\
| | departed during it | errors | longest wait | longest silence of a key | most in any window | \
requests lost | calls lost | connections | calls per request |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
",
};

pub(crate) const PLACES: Page = Page {
    begin: "<!-- measured places -->\n",
    head: "\
| | work takes | most in progress | dropped | first departure after its end |
| --- | --- | --- | --- | --- |
",
};

const END: &str = "<!-- end -->\n";

const DESCRIBED: &str = "# What is done\n";

impl Page {
    pub(crate) fn rows(&self) -> Vec<String> {
        names(self.parts(&page())[1])
    }

    pub(crate) fn write(&self, text: &str) {
        let page = page();
        let [before, _, after] = self.parts(&page);
        fs::write(path(), format!("{before}\n{text}\n{after}")).expect("a page to write");
    }

    fn parts<'a>(&self, page: &'a str) -> [&'a str; 3] {
        let from = page.find(self.begin).expect("a table") + self.begin.len();
        let until = from + page[from..].find(END).expect("an end of the table");
        [&page[..from], &page[from..until], &page[until..]]
    }
}

pub(crate) fn described() -> Vec<String> {
    let page = page();
    let (before, _) = page.split_once(RATES.begin).expect("a table");
    names(before.split_once(DESCRIBED).expect("what is done").1)
}

/// The names of the rows of a table.
fn names(text: &str) -> Vec<String> {
    let rows = text.lines().filter(|line| line.starts_with('|')).skip(2);
    let name = |row: &str| row.split('|').nth(1).map(|name| name.trim().to_owned());
    rows.filter_map(name).collect()
}

fn page() -> String {
    fs::read_to_string(path()).expect("the page")
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../src/docs/faults.md")
}
