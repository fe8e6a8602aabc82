//! What the documentation shows is what the command prints.

use std::fs;
use std::path::Path;

use trycmd::TestCases;

/// Runs every command of the `console` blocks of a page, in a directory that holds the `toml` blocks which begin
/// with the name of a file. `TRYCMD=overwrite` writes what they print into the page.
#[track_caller]
fn compare(page: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let copy = directory.path().join("page.md");
    let files = directory.path().join("page.in");
    let text = fs::read_to_string(&page).expect("the page");
    fs::write(&copy, &text).expect("a copy of the page");
    fs::create_dir(&files).expect("a directory");
    for (name, content) in files_in(&text) {
        fs::write(files.join(name), content).expect("a file");
    }
    cases().case(&copy).run();
    let run = fs::read_to_string(&copy).expect("a copy of the page");
    if run != text {
        fs::write(&page, run).expect("the page can be written");
    }
}

/// The command on what is no terminal, whatever the environment says.
fn cases() -> TestCases {
    let cases = TestCases::new();
    cases
        .register_bin("throttle", Path::new(env!("CARGO_BIN_EXE_throttle")))
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100");
    cases
}

/// Blocks of TOML that begin with a comment such as `# rules.toml`.
fn files_in(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let blocks = text.split("```toml\n# ").skip(1);
    blocks.filter_map(|block| block.split_once("\n```")?.0.split_once('\n'))
}

#[test]
fn the_guide_shows_what_is_printed() {
    compare("README.md");
}

#[test]
fn the_readme_of_the_library_shows_what_is_printed() {
    compare("../README.md");
}

#[test]
fn help_is_as_it_was_read_last() {
    cases().case("tests/command/help.trycmd").run();
}
