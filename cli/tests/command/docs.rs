//! The outputs in the documentation are those of the command.

use std::fs;
use std::path::Path;

use support::redis_server::RedisServer;
use support::spend::{spend, under};
use trycmd::TestCases;

/// Runs the commands in the `console` blocks of a page, and compares their output. The working directory contains the
/// `toml` blocks that start with a file name. `TRYCMD=overwrite` writes the output into the page.
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

/// Runs the command without colors, in 100 columns.
fn cases() -> TestCases {
    let cases = TestCases::new();
    cases
        .register_bin("throttle", Path::new(env!("CARGO_BIN_EXE_throttle")))
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100");
    cases
}

/// The TOML blocks that start with a comment such as `# rules.toml`.
fn files_in(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let blocks = text.split("```toml\n# ").skip(1);
    blocks.filter_map(|block| block.split_once("\n```")?.0.split_once('\n'))
}

#[test]
fn the_guide_shows_the_real_output() {
    compare("README.md");
}

#[test]
fn output_matches_the_snapshots_and_has_no_passwords() {
    cases()
        .case("tests/command/help.trycmd")
        .case("tests/command/cases.trycmd")
        .case("tests/command/simulations.trycmd")
        .run();
    let lines = include_str!("cases.trycmd").lines();
    let mut printed = lines.filter(|line| !line.starts_with("$ "));
    assert_eq!(printed.find(|line| line.contains("hunter")), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_about_keys_matches_the_snapshot() {
    let server = RedisServer::start();
    let store = server.store().await;
    for key in ["a", "list", "b"] {
        spend(&store, under(&["10/h"]), key, 3).await;
    }
    spend(&store, under(&["5/h gcra burst=5"]).name("z"), "b", 1).await;
    server.command::<()>(&["SET", "throttle:{a}:z", "hello"]);
    server.command::<()>(&["LPUSH", "throttle:{list}:z", "x"]);
    let cases = cases();
    cases
        .env("REDIS_URL", server.url())
        .case("tests/command/keys.trycmd");
    cases.run();
    let created: Vec<String> = server.command(&["KEYS", "*nope*"]);
    assert!(created.is_empty(), "{created:?}");
}
