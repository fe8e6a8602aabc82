//! `throttle top`, with `--json` and in a terminal.

use std::io::Read as _;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tower_throttle::store::RedisStore;

use super::terminal::{Screen, ends};
use super::{Ended, throttle};
use support::cluster::Cluster;
use support::command_stats::CommandStats;
use support::redis_server::RedisServer;
use support::signal;
use support::spend::{spend_by, under};

/// Far longer than any operation takes.
const LONG: Duration = Duration::from_secs(60);

/// Spends one unit more for each key than for the previous one, up to ten.
async fn spend(server: &RedisServer, keys: u32) {
    spend_of(server, "key-", keys).await;
}

/// Like [`spend`], for keys with this prefix.
async fn spend_of(server: &RedisServer, name: &str, keys: u32) {
    let store = RedisStore::connect(&server.url()).await;
    let store = store.expect("a connection").timeout(LONG);
    let limiter = under(&["10/h"]).store(store).build().expect("a limiter");
    for number in 0..keys {
        spend_by(&limiter, &format!("{name}{number}"), 1 + number % 10).await;
    }
}

fn lines(server: &RedisServer, args: &[&str]) -> Vec<Value> {
    let url = server.url();
    let all = [
        &["top", "--json", "--redis", &url, "--interval", "1ms"],
        args,
    ]
    .concat();
    let ended = Ended::of(&mut throttle(&all));
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    let lines = ended.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_busiest_keys_come_first_by_default() {
    let server = RedisServer::start();
    spend(&server, 30).await;
    let names = |args: &[&str]| {
        let pages = lines(&server, &[&["--count", "1"], args].concat());
        let rows = pages[0]["rows"].as_array().expect("a list").clone();
        assert_eq!(
            (&pages[0]["complete"], &pages[0]["keys"]),
            (&true.into(), &30.into())
        );
        let names = rows
            .iter()
            .map(|row| row["key"].as_str().expect("text").to_owned());
        names.collect::<Vec<_>>()
    };
    let all = names(&[]);
    assert_eq!(all.len(), 30);
    assert_eq!(all.iter().filter(|it| it.ends_with('9')).count(), 3);
    assert!(all[..3].iter().all(|it| it.ends_with('9')), "{all:?}");
    assert_eq!(names(&["--rows", "2"]).len(), 2);
    assert_eq!(names(&["--sort", "key"])[..3], ["key-0", "key-1", "key-10"]);
    assert_eq!(names(&["--filter", "key-29"]), ["key-29"]);
    assert!(names(&["--filter", "none"]).is_empty());
    let Ended { code, stdout, .. } = Ended::of(&mut throttle(&[
        "pause",
        "key-5",
        "1h",
        "--json",
        "--redis",
        &server.url(),
    ]));
    assert_eq!(code, Some(0), "{stdout}");
    assert_eq!(names(&["--sort", "paused"])[0], "key-5");
    let row = &lines(&server, &["--count", "1", "--filter", "key-9"])[0]["rows"][0];
    assert_eq!(
        (&row["quotas"][0]["used"], &row["remaining"]),
        (&10.into(), &0.into())
    );
    assert!(
        row["next_seconds"].as_f64().expect("a number") > 3_000.0,
        "{row}"
    );
    assert!(
        row["paused_seconds"].is_null() && row["exact"] == true,
        "{row}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_budget_limits_the_cost_of_ten_thousand_keys() {
    const BUDGET: u64 = 1_000;
    const ROWS: u64 = 50;
    let server = RedisServer::start();
    spend(&server, 10_000).await;
    let refreshes = 25;
    let before = CommandStats::of(&server);
    let pages = lines(&server, &["--count", "25", "--budget", "1000"]);
    let cost = CommandStats::of(&server).since(&before);
    assert_eq!(pages.len(), 25);
    assert_eq!(
        (cost.calls("keys"), cost.script_calls()),
        (0, 0),
        "{cost:?}"
    );
    // One for the budget, and one to detect the end of the scan.
    assert!(cost.calls("scan") <= 2 * refreshes, "{cost:?}");
    // `SCAN` may return more names than its `COUNT`.
    let most = refreshes * (2 * BUDGET + ROWS);
    assert!(cost.calls("getrange") <= most, "{cost:?}");
    let (first, last) = (&pages[0], &pages[24]);
    assert_eq!(
        (&first["complete"], &last["complete"]),
        (&false.into(), &true.into())
    );
    assert_eq!(last["keys"], 10_000);
    let rows = last["rows"].as_array().expect("a list");
    assert!(
        rows.len() == 50 && rows.iter().all(|row| row["remaining"] == 0),
        "{last}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_refresh_covers_as_many_keys_as_the_budget() {
    let server = RedisServer::start();
    spend(&server, 500).await;
    let page = &lines(&server, &["--count", "1", "--budget", "500"])[0];
    assert_eq!(
        (&page["keys"], &page["complete"]),
        (&500.into(), &true.into())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_shown_also_without_one_of_its_servers() {
    const KEYS: u32 = 90;
    let mut cluster = Cluster::start();
    let store = RedisStore::connect_cluster(cluster.urls()).await;
    let store = store.expect("a connection").timeout(LONG);
    let limiter = under(&["10/h"]).store(store).build().expect("a limiter");
    let names: Vec<_> = (0..KEYS).map(|number| format!("key-{number}")).collect();
    for name in &names {
        spend_by(&limiter, name, 1).await;
    }
    let pages = |cluster: &Cluster, count: &str| {
        let urls: Vec<_> = cluster.running().map(RedisServer::url).collect();
        let mut args = vec!["top", "--json", "--cluster", "--interval", "1ms"];
        args.extend(["--timeout", "5s", "--rows", "100", "--count", count]);
        urls.iter().for_each(|url| args.extend(["--redis", url]));
        let ended = Ended::of(&mut throttle(&args));
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
        let pages = ended.stdout.lines();
        let pages = pages.map(|line| serde_json::from_str(line).expect("JSON"));
        pages.collect::<Vec<Value>>()
    };
    let page = &pages(&cluster, "1")[0];
    assert_eq!(
        (&page["keys"], &page["complete"]),
        (&KEYS.into(), &true.into())
    );
    assert!(page["error"].is_null(), "{page}");

    let primary = cluster.primary_of("key-0");
    let is_out = |name: &&String| cluster.primary_of(name) == primary;
    let left: Vec<_> = names.iter().filter(|it| !is_out(it)).cloned().collect();
    let port = format!("master_port:{}\r\n", cluster.servers[primary].port());
    let follows = |it: &RedisServer| {
        it.command::<String>(&["INFO", "replication"])
            .contains(&port)
    };
    let replica = cluster.servers.iter().position(follows);
    // No replica takes over.
    cluster.servers[replica.expect("a replica")].kill9();
    cluster.servers[primary].kill9();
    for page in pages(&cluster, "3") {
        assert!(
            page["error"].is_string() && page["complete"] == false,
            "{page}"
        );
        assert_eq!(page["keys"], left.len(), "{page}");
        let rows = page["rows"].as_array().expect("a list").iter();
        let mut shown: Vec<_> = rows.map(|row| row["key"].as_str().expect("text")).collect();
        shown.sort_by_key(|name| name[4..].parse::<u32>().expect("a number"));
        assert_eq!(shown, left);
    }
}

#[test]
fn without_a_terminal_the_error_suggests_json() {
    let server = RedisServer::start();
    let ended = Ended::of(&mut throttle(&["top", "--redis", &server.url()]));
    ended.assert_failed(2, "standard output is not a terminal");
    assert!(ended.stderr.contains("`--json`"), "{}", ended.stderr);
    let refused = Ended::of(&mut throttle(&["top", "--json", "--interval", "0s"]));
    refused.assert_failed(2, "the interval must be greater than zero");
}

#[test]
fn a_closed_pipe_ends_the_command() {
    let server = RedisServer::start();
    let mut command = throttle(&[
        "top",
        "--json",
        "--interval",
        "1ms",
        "--redis",
        &server.url(),
    ]);
    let mut top = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut some = [0; 10];
    let mut stdout = top.stdout.take().expect("a pipe");
    stdout.read_exact(&mut some).expect("a line");
    drop(stdout);
    assert!(ends(&mut top).success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_shows_the_table_until_the_user_quits() {
    let server = RedisServer::start();
    spend(&server, 30).await;
    let url = server.url();
    let args = ["top", "--interval", "50ms", "--redis", &url];
    let (mut screen, mut top) = Screen::with(&args, 100, 20);
    screen.wait_for("key-29");
    screen.type_keys("s");
    screen.wait_for("rate");
    screen.type_keys("/key-17");
    // The terminal receives only changed cells.
    screen.wait_for("7_");
    screen.type_keys("\r");
    screen.type_keys("q");
    assert!(ends(&mut top).success());
    // Leaves the alternate screen.
    screen.wait_for("\u{1b}[?1049l");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_terminals_work_and_an_interrupt_quits() {
    let server = RedisServer::start();
    spend(&server, 3).await;
    let url = server.url();
    for (columns, lines) in [(20, 5), (20, 3), (1, 1)] {
        let args = ["top", "--interval", "50ms", "--redis", &url];
        let (mut screen, mut top) = Screen::with(&args, columns, lines);
        screen.wait_for("\u{1b}[?1049h");
        screen.type_keys("\u{3}");
        assert!(ends(&mut top).success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_restores_the_terminal() {
    let server = RedisServer::start();
    spend(&server, 3).await;
    let url = server.url();
    for (name, number) in [("HUP", 1), ("INT", 2), ("QUIT", 3), ("TERM", 15)] {
        let args = ["top", "--interval", "50ms", "--redis", &url];
        let (mut screen, mut top) = Screen::with(&args, 100, 20);
        let before = screen.modes();
        screen.wait_for("key-2");
        assert_ne!(screen.modes(), before, "raw mode");
        signal::send(name, top.id());
        assert_eq!(ends(&mut top).code(), Some(128 + number), "{name}");
        screen.wait_for("\u{1b}[?1049l");
        assert_eq!(screen.modes(), before, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quitting_does_not_wait_for_a_hanging_server() {
    let server = RedisServer::start();
    spend(&server, 3).await;
    let url = server.url();
    let args = [
        "top",
        "--interval",
        "1ms",
        "--timeout",
        "1h",
        "--redis",
        &url,
    ];
    let (mut screen, mut top) = Screen::with(&args, 100, 10);
    screen.wait_for("key-2");
    server.sigstop();
    // The screen shows input during a refresh that cannot finish.
    screen.type_keys("/ab");
    screen.wait_for("b_");
    screen.type_keys("\r");
    screen.wait_for("quit");
    screen.type_keys("q");
    assert!(ends(&mut top).success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_shown_until_the_server_is_back() {
    let mut server = RedisServer::start();
    spend(&server, 3).await;
    let url = server.url();
    let args = [
        "top",
        "--interval",
        "50ms",
        "--timeout",
        "1s",
        "--redis",
        &url,
    ];
    let (mut screen, mut top) = Screen::with(&args, 100, 10);
    screen.wait_for("key-2");
    server.kill9();
    screen.wait_for("3 rows are outdated");
    server.restart();
    // The terminal receives only changed cells, so every letter must differ.
    spend_of(&server, "ANOTHER-", 3).await;
    screen.wait_for("ANOTHER-");
    screen.type_keys("q");
    assert!(ends(&mut top).success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_permissions_in_the_guide_are_sufficient() {
    const GUIDE: &str = include_str!("../../README.md");
    let named = GUIDE.split("for `top`, ").nth(1).expect("a sentence");
    let named = named.split(".\n").next().expect("its end");
    let rights = named.split(['`', ' ']).filter(|word| word.starts_with('+'));
    let server = RedisServer::start();
    spend(&server, 3).await;
    let user = [
        "ACL",
        "SETUSER",
        "user",
        "on",
        ">PASSWORD",
        "~throttle:*",
        "resetchannels",
        "-@all",
    ];
    let words: Vec<_> = user.into_iter().chain(rights).collect();
    assert_eq!(words.len(), user.len() + 4, "{words:?}");
    server.command::<()>(&words);
    let url = format!("redis://user:PASSWORD@127.0.0.1:{}/", server.port());
    let args = ["top", "--json", "--count", "1", "--redis", &url];
    let page = Ended::of(&mut throttle(&args)).json();
    assert_eq!(page["rows"].as_array().map(Vec::len), Some(3), "{page}");
}
