//! `throttle top`, with `--json` and in a terminal.

use std::io::Read as _;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use super::terminal::{Screen, ends};
use super::{GUIDE, assert_includes, on, run, throttle, words};
use support::cluster::Cluster;
use support::command_stats::CommandStats;
use support::redis_server::RedisServer;
use support::signal;
use support::spend::{build, spend_by, under};

/// Spends one unit more for each key than for the previous one, up to ten.
async fn spend(server: &RedisServer, name: &str, keys: u32) {
    let limiter = build(under(&["10/h"]).store(server.store().await));
    for number in 0..keys {
        spend_by(&limiter, &format!("{name}{number}"), 1 + number % 10).await;
    }
}

/// The refreshes, until the command ends by itself.
fn pages(options: &str) -> Vec<Value> {
    let printed = run(&format!("top --json --interval 1ms {options}")).printed();
    let page = |line| serde_json::from_str(line).expect("JSON");
    printed.lines().map(page).collect()
}

fn page(server: &RedisServer, options: &str) -> Value {
    pages(&format!("--count 1 --redis {} {options}", server.url())).remove(0)
}

fn names(page: &Value) -> Vec<&str> {
    let rows = page["rows"].as_array().expect("a list").iter();
    rows.map(|row| row["key"].as_str().expect("text")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_busiest_keys_come_first_by_default() {
    let server = RedisServer::start();
    spend(&server, "key-", 30).await;
    // One refresh covers as many keys as the budget.
    let all = page(&server, "--budget 30");
    assert_includes(&all, &json!({ "complete": true, "keys": 30 }));
    let ends_with_9: Vec<_> = names(&all).iter().map(|it| it.ends_with('9')).collect();
    assert_eq!(ends_with_9, [&[true; 3][..], &[false; 27]].concat());
    for (options, expected) in [
        ("--sort key --rows 3", &["key-0", "key-1", "key-10"][..]),
        ("--filter key-29", &["key-29"]),
        ("--filter none", &[]),
    ] {
        assert_eq!(names(&page(&server, options)), expected, "{options}");
    }
    on(&server, "pause key-5 1h").printed();
    assert_eq!(names(&page(&server, "--sort paused --rows 1")), ["key-5"]);
    let row = page(&server, "--filter key-9")["rows"][0].clone();
    let expected = json!({ "quotas": [{ "used": 10 }], "remaining": { "requests": 0 },
        "paused_seconds": null, "exact": true });
    assert_includes(&row, &expected);
    let next = row["next_seconds"].as_f64();
    assert!(next.is_some_and(|next| next > 3_000.0), "{row}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_budget_limits_the_cost_of_ten_thousand_keys() {
    const BUDGET: u64 = 1_000;
    const ROWS: u64 = 50;
    const REFRESHES: u64 = 25;
    let server = RedisServer::start();
    spend(&server, "key-", 10_000).await;
    let before = CommandStats::of(&server);
    let options = format!(
        "--count {REFRESHES} --budget {BUDGET} --redis {}",
        server.url()
    );
    let pages = pages(&options);
    let cost = CommandStats::of(&server).since(&before);
    let forbidden = cost.calls("keys") + cost.script_calls();
    assert_eq!(forbidden, 0, "{cost:?}");
    // One for the budget, and one to detect the end of the scan.
    assert!(cost.calls("scan") <= 2 * REFRESHES, "{cost:?}");
    // `SCAN` may return more names than its `COUNT`.
    let most = REFRESHES * (2 * BUDGET + ROWS);
    assert!(cost.calls("getrange") <= most, "{cost:?}");
    assert_eq!(pages.len(), 25);
    assert_eq!(pages[0]["complete"], false);
    let rows = vec![json!({ "remaining": { "requests": 0 } }); 50];
    let last = json!({ "complete": true, "keys": 10_000, "rows": rows });
    assert_includes(&pages[24], &last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_shown_also_without_one_of_its_servers() {
    const KEYS: u32 = 90;
    let mut cluster = Cluster::start();
    let limiter = build(under(&["10/h"]).store(cluster.store().await));
    let all: Vec<_> = (0..KEYS).map(|number| format!("key-{number}")).collect();
    for name in &all {
        spend_by(&limiter, name, 1).await;
    }
    let refreshes = |cluster: &Cluster, count| {
        let urls = cluster.running().map(|it| format!(" --redis {}", it.url()));
        let urls: String = urls.collect();
        pages(&format!(
            "--cluster --timeout 5s --rows 100 --count {count}{urls}"
        ))
    };
    let complete = json!({ "keys": KEYS, "complete": true, "error": null });
    assert_includes(&refreshes(&cluster, 1)[0], &complete);

    let primary = cluster.primary_of("key-0");
    let is_left = |name: &&String| cluster.primary_of(name) != primary;
    let left: Vec<_> = all.iter().filter(is_left).cloned().collect();
    let port = format!("master_port:{}\r\n", cluster.servers[primary].port());
    let info = |it: &RedisServer| it.command::<String>(&["INFO", "replication"]);
    let mut servers = cluster.servers.iter();
    let replica = servers.position(|it| info(it).contains(&port));
    // No replica takes over.
    cluster.servers[replica.expect("a replica")].kill9();
    cluster.servers[primary].kill9();
    for page in refreshes(&cluster, 3) {
        assert_includes(&page, &json!({ "keys": left.len(), "complete": false }));
        assert!(page["error"].is_string(), "{page}");
        let mut shown = names(&page);
        shown.sort_by_key(|name| name[4..].parse::<u32>().expect("a number"));
        assert_eq!(shown, left);
    }
}

#[test]
fn a_closed_pipe_ends_the_command() {
    let server = RedisServer::start();
    let line = format!("top --json --interval 1ms --redis {}", server.url());
    let mut command = throttle(&words(&line));
    let mut top = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut stdout = top.stdout.take().expect("a pipe");
    stdout.read_exact(&mut [0; 10]).expect("a line");
    drop(stdout);
    assert!(ends(&mut top).success());
}

/// Three keys, and the table of them on a terminal of this size.
async fn shown(server: &RedisServer, options: &str, size: (u16, u16)) -> (Screen, Child) {
    spend(server, "key-", 3).await;
    let line = format!("top --interval 50ms --redis {} {options}", server.url());
    Screen::with(&words(&line), size.0, size.1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_shows_the_table_until_the_user_quits() {
    let server = RedisServer::start();
    on(&server, "top").failed(2, &["standard output is not a terminal", "`--json`"]);
    spend(&server, "other-", 30).await;
    for quit in ["q", "\u{3}"] {
        let (mut screen, mut top) = shown(&server, "", (100, 40)).await;
        screen.wait_for("other-29");
        screen.type_keys("s");
        screen.wait_for("rate");
        screen.type_keys("/other-17");
        // The terminal receives only changed cells.
        screen.wait_for("7_");
        screen.type_keys("\r");
        screen.type_keys(quit);
        assert!(ends(&mut top).success());
        // Leaves the alternate screen.
        screen.wait_for("\u{1b}[?1049l");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_restores_the_terminal() {
    for (name, number) in [("HUP", 1), ("INT", 2), ("QUIT", 3), ("TERM", 15)] {
        let server = RedisServer::start();
        let (mut screen, mut top) = shown(&server, "", (100, 20)).await;
        let before = screen.before;
        screen.wait_for("key-2");
        assert_ne!(screen.modes(), before, "raw mode");
        signal::send(name, top.id());
        assert_eq!(ends(&mut top).code(), Some(128 + number), "{name}");
        screen.wait_for("\u{1b}[?25h\u{1b}[?1049l");
        assert_eq!(screen.modes(), before, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quitting_does_not_wait_for_a_hanging_server() {
    let server = RedisServer::start();
    let (mut screen, mut top) = shown(&server, "--timeout 1h", (100, 10)).await;
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
    let (mut screen, mut top) = shown(&server, "--timeout 1s", (100, 10)).await;
    screen.wait_for("key-2");
    server.kill9();
    screen.wait_for("3 rows are outdated");
    server.restart();
    // The terminal receives only changed cells, so every letter must differ.
    spend(&server, "ANOTHER-", 3).await;
    screen.wait_for("ANOTHER-");
    screen.type_keys("q");
    assert!(ends(&mut top).success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_permissions_in_the_guide_are_sufficient() {
    let named = GUIDE.split("for `top`, ").nth(1).expect("a sentence");
    let named = named.split(".\n").next().expect("its end");
    let rights = named.split(['`', ' ']).filter(|word| word.starts_with('+'));
    let server = RedisServer::start();
    spend(&server, "key-", 3).await;
    let user = words("ACL SETUSER user on >PASSWORD ~throttle:* resetchannels -@all");
    let command: Vec<_> = user.iter().copied().chain(rights).collect();
    assert_eq!(command.len(), user.len() + 4, "{command:?}");
    server.command::<()>(&command);
    let url = format!("redis://user:PASSWORD@127.0.0.1:{}/", server.port());
    let page = &pages(&format!("--count 1 --redis {url}"))[0];
    assert_eq!(names(page).len(), 3, "{page}");
}
