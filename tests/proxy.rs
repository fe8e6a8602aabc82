//! The proxy that other tests break connections with: it fails as it says, and otherwise does nothing.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use support::proxy::Proxy;
use support::redis_server::RedisServer;

const PATIENCE: Duration = Duration::from_secs(20);

/// How long it is waited for what must not come.
const MOMENT: Duration = Duration::from_millis(200);

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", proxy.port())).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

fn ask(stream: &mut TcpStream, question: &str) -> io::Result<String> {
    stream.write_all(question.as_bytes())?;
    answer(stream)
}

/// A line.
fn answer(stream: &mut TcpStream) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\r\n") {
        stream.read_exact(&mut byte)?;
        line.push(byte[0]);
    }
    line.truncate(line.len() - 2);
    Ok(String::from_utf8(line).expect("text"))
}

fn assert_alive(stream: &mut TcpStream) {
    assert_eq!(ask(stream, "PING\r\n").expect("an answer"), "+PONG");
}

/// Nothing comes, and the connection is open.
fn assert_silent(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(MOMENT)).expect("a timeout");
    let error = stream.read(&mut [0]).expect_err("silence");
    let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
    assert!(kinds.contains(&error.kind()), "{error:?}");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
}

fn assert_reset(stream: &mut TcpStream) {
    let error = stream.read(&mut [0]).expect_err("no end in order");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

fn clients(server: &RedisServer) -> usize {
    let clients: String = server.command(&["CLIENT", "LIST"]);
    // Without the one that asks.
    clients.lines().count() - 1
}

#[track_caller]
fn wait_until(what: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !what() {
        assert!(Instant::now() < deadline, "it does not come to that");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn passes_everything_on_and_counts_connections() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let mut stream = connect(&proxy);
    let long = "x".repeat(3_000_000);
    let question = format!("*3\r\n$3\r\nSET\r\n$4\r\nlong\r\n$3000000\r\n{long}\r\n");
    assert_eq!(ask(&mut stream, &question).expect("an answer"), "+OK");
    assert_eq!(ask(&mut stream, "GET long\r\n").expect("one"), "$3000000");
    let mut rest = vec![0; long.len() + 2];
    stream.read_exact(&mut rest).expect("the rest");
    assert!(rest == format!("{long}\r\n").as_bytes());

    let mut other = connect(&proxy);
    assert_alive(&mut other);
    assert_eq!((proxy.made(), proxy.open()), (2, 2));
    drop(stream);
    wait_until(|| proxy.open() == 1);
    assert_eq!(clients(&server), 1);
    drop(server);
    assert_eq!(other.read(&mut [0]).expect("an end in order"), 0);
    wait_until(|| proxy.open() == 0);
    assert_eq!(proxy.made(), 2);
}

#[test]
fn delays_each_way_and_keeps_the_order() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let mut stream = connect(&proxy);
    proxy.delay(MOMENT);
    let start = Instant::now();
    for number in 0..50 {
        let question = format!("ECHO {number:02}\r\n");
        stream.write_all(question.as_bytes()).expect("room");
    }
    for number in 0..50 {
        assert_eq!(answer(&mut stream).expect("a length"), "$2");
        assert_eq!(answer(&mut stream).expect("one"), format!("{number:02}"));
    }
    assert!(start.elapsed() >= MOMENT * 2, "{:?}", start.elapsed());
    // One after the other they would take 20 s.
    assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
}

#[test]
fn what_is_held_comes_when_it_resumes() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let mut stream = connect(&proxy);
    assert_alive(&mut stream);
    proxy.hold();
    stream.write_all(b"INCR count\r\n").expect("room");
    assert_silent(&mut stream);
    assert_eq!(server.command::<Option<u64>>(&["GET", "count"]), None);
    proxy.resume();
    assert_eq!(answer(&mut stream).expect("an answer"), ":1");
}

#[test]
fn what_is_swallowed_never_comes_and_the_connection_stays_dead() {
    let mut server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let mut early = connect(&proxy);
    assert_alive(&mut early);
    proxy.swallow();
    let mut late = connect(&proxy);
    for stream in [&mut early, &mut late] {
        stream.write_all(b"INCR count\r\n").expect("room");
        assert_silent(stream);
    }
    wait_until(|| proxy.made() == 2);
    proxy.heal();
    assert_alive(&mut connect(&proxy));
    // Not even the end of the server is heard of.
    assert_eq!(server.command::<Option<u64>>(&["GET", "count"]), None);
    server.restart();
    for stream in [&mut early, &mut late] {
        stream.write_all(b"INCR count\r\n").expect("room");
        assert_silent(stream);
    }
    assert_eq!(server.command::<Option<u64>>(&["GET", "count"]), None);
    drop((early, late));
    wait_until(|| proxy.open() == 0);
}

#[test]
fn cuts_all_connections_and_no_later_ones() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let mut streams = [(); 3].map(|()| connect(&proxy));
    streams.iter_mut().for_each(assert_alive);
    // Held, dead or delayed: all the same.
    proxy.delay(PATIENCE * 3);
    proxy.hold();
    streams[0].write_all(b"PING\r\n").expect("room");
    proxy.cut();
    assert_eq!(proxy.open(), 0);
    streams.iter_mut().for_each(assert_reset);
    proxy.delay(Duration::ZERO);
    proxy.resume();
    assert_alive(&mut connect(&proxy));
    wait_until(|| clients(&server) == 0);
}

#[test]
fn refuses_new_connections_and_leaves_the_others() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let mut stream = connect(&proxy);
    assert_alive(&mut stream);
    for _ in 0..3 {
        proxy.refuse();
        let error = TcpStream::connect(("127.0.0.1", proxy.port()));
        let error = error.expect_err("nobody listens");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_alive(&mut stream);
        proxy.accept();
        assert_alive(&mut connect(&proxy));
    }
    assert_eq!(proxy.made(), 4);
}

#[test]
fn cuts_a_reply_to_what_was_carried_out() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    for after in 0..4 {
        let (mut stream, mut other) = (connect(&proxy), connect(&proxy));
        proxy.cut_reply(b"INCR", after);
        assert_alive(&mut stream);
        assert_alive(&mut other);
        stream.write_all(b"INCR count\r\n").expect("room");
        let mut read = Vec::new();
        let error = stream.read_to_end(&mut read).expect_err("no end in order");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        // What has arrived before a reset may be lost with it.
        assert!(format!(":{}\r\n", after + 1).as_bytes().starts_with(&read));
        assert!(read.len() <= after, "{read:?}");
        assert_eq!(server.command::<usize>(&["GET", "count"]), after + 1);
        assert_alive(&mut other);
        assert_eq!(proxy.cut_replies(), after + 1);
    }
}

#[test]
fn leads_new_connections_elsewhere_and_leaves_the_others() {
    let (server, other) = (RedisServer::start(), RedisServer::start());
    let proxy = Proxy::start(server.port());
    let mut stream = connect(&proxy);
    assert_alive(&mut stream);
    proxy.lead_to(other.port());
    let mut led = connect(&proxy);
    for count in 1..4 {
        for stream in [&mut stream, &mut led] {
            let answer = ask(stream, "INCR count\r\n").expect("an answer");
            assert_eq!(answer, format!(":{count}"));
        }
    }
}

#[test]
fn resets_who_connects_where_there_is_no_server() {
    let mut server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    server.kill9();
    assert_reset(&mut connect(&proxy));
    server.restart();
    assert_alive(&mut connect(&proxy));
    assert_eq!(proxy.made(), 2);
}
