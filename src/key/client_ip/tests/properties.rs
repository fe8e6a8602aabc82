use proptest::prelude::*;

use super::*;

/// Whether an address of the pool below is trusted, by another rule than that of the extractor.
fn is_trusted(address: &str) -> bool {
    address.starts_with("10.") || address.starts_with("2001:db8:ffff:")
}

/// An entry as a proxy may write it, and its address.
#[derive(Debug, Clone)]
struct Entry {
    text: String,
    address: Option<&'static str>,
}

const ADDRESSES: [&str; 8] = [
    "10.0.0.2",
    "10.255.255.255",
    "2001:db8:ffff::2",
    "2001:db8:ffff:1::3",
    "203.0.113.7",
    "9.255.255.255",
    "2001:db8::1",
    "2001:db8:fffe::2",
];

const NO_ADDRESSES: [&str; 6] = ["", "unknown", "_hidden", "10.0.0", "::g", "[10.0.0.3"];

fn entry() -> impl Strategy<Value = Entry> {
    let spelled =
        (prop::sample::select(&ADDRESSES[..]), 0..4_usize).prop_map(|(address, style)| {
            let text = match (style, address.contains(':')) {
                (0, _) => address.to_owned(),
                (1, true) => format!("[{address}]"),
                (1, false) => format!("::ffff:{address}"),
                (2, true) => format!("[{}]:4711", address.to_uppercase()),
                (2, false) => format!("[::FFFF:{address}]:4711"),
                (_, true) => format!("{address}%eth0"),
                (_, false) => format!("{address}:_port"),
            };
            Entry {
                text,
                address: Some(address),
            }
        });
    let hidden = prop::sample::select(&NO_ADDRESSES[..]).prop_map(|text| Entry {
        text: text.to_owned(),
        address: None,
    });
    prop_oneof![6 => spelled, 1 => hidden]
}

/// The entry on the farthest left with nothing but trusted addresses on its right, if there is any.
fn model(peer: &'static str, entries: &[Entry]) -> &'static str {
    let believed = |index: &usize| {
        let on_the_right = &entries[index + 1..];
        entries[*index].address.is_some()
            && is_trusted(peer)
            && on_the_right
                .iter()
                .all(|entry| entry.address.is_some_and(is_trusted))
    };
    let farthest = (0..entries.len()).find(believed);
    farthest
        .and_then(|index| entries[index].address)
        .unwrap_or(peer)
}

/// The header's lines: the list is cut at the places in `cuts`, and joined by commas at all others.
fn lines(texts: impl Iterator<Item = String>, cuts: &[bool]) -> Vec<String> {
    let mut lines = Vec::<String>::new();
    for (text, cut) in texts.zip(cuts) {
        match lines.last_mut() {
            Some(line) if !cut => *line += &format!(", {text}"),
            _ => lines.push(text),
        }
    }
    lines
}

/// The lines that were sent and what proxies add: to the last line, or lines of their own.
fn add(sent: &[Vec<u8>], joined: bool, entries: impl Iterator<Item = String>) -> Vec<Vec<u8>> {
    let mut lines = sent.to_vec();
    for entry in entries {
        match lines.last_mut() {
            Some(line) if joined => line.extend(format!(", {entry}").bytes()),
            _ => lines.push(entry.into_bytes()),
        }
    }
    lines
}

fn in_forwarded(entry: &Entry) -> String {
    format!("proto=https;for=\"{}\";by=_self", entry.text)
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => prop::sample::select(&b"\"\\,;= \tfor:[]0123456789.%_"[..]),
        1 => 0x20..=0x7e_u8,
        1 => 0x80..=0xff_u8,
    ];
    prop::collection::vec(byte, 0..40)
}

fn header_and_extractor() -> impl Strategy<Value = (&'static str, ClientIp)> {
    prop::sample::select(vec![
        (CHAIN, client_ip()),
        ("forwarded", client_ip().forwarded()),
        ("x-real-ip", client_ip().header("x-real-ip")),
    ])
}

proptest! {
    #[test]
    fn the_walk_ends_where_trust_does(
        peer in prop::sample::select(&ADDRESSES[..]),
        entries in prop::collection::vec(entry(), 0..6),
        cuts: [bool; 6],
    ) {
        let expected = model(peer, &entries);
        let chain = lines(entries.iter().map(|entry| entry.text.clone()), &cuts);
        prop_assert_eq!(client(client_ip(), peer, CHAIN, &chain), expected);
        let chain = lines(entries.iter().map(in_forwarded), &cuts);
        let extractor = client_ip().forwarded();
        prop_assert_eq!(client(extractor, peer, "forwarded", &chain), expected);
    }

    #[test]
    fn nothing_that_a_client_sends_changes_who_it_is(
        sent in prop::collection::vec(any_bytes(), 0..3),
        address in prop::sample::select(&ADDRESSES[4..]),
        proxies in prop::collection::vec(prop::sample::select(&ADDRESSES[..4]), 0..3),
        joined: bool,
    ) {
        // The proxies, of which the first sees the client, add what they see.
        let quoted = |seen: &str| match seen.contains(':') {
            true => format!("for=\"[{seen}]:80\""),
            false => format!("for={seen}"),
        };
        let chain = add(&sent, joined, [address].iter().chain(&proxies).map(|&seen| seen.to_owned()));
        prop_assert_eq!(client(client_ip(), "10.0.0.1", CHAIN, &chain), address);
        let chain = add(&sent, joined, [address].iter().chain(&proxies).map(|&seen| quoted(seen)));
        let extractor = client_ip().forwarded();
        prop_assert_eq!(client(extractor, "10.0.0.1", "forwarded", &chain), address);
    }

    #[test]
    fn a_client_that_comes_by_no_proxy_is_not_asked(
        (name, extractor) in header_and_extractor(),
        sent in prop::collection::vec(any_bytes(), 0..3),
        peer in prop::sample::select(&ADDRESSES[4..]),
    ) {
        prop_assert_eq!(client(extractor, peer, name, &sent), peer);
    }

    #[test]
    fn no_bytes_of_a_proxy_make_it_panic(
        (name, extractor) in header_and_extractor(),
        sent in prop::collection::vec(any_bytes(), 0..3),
    ) {
        let found = client(extractor, "10.0.0.1", name, &sent);
        prop_assert!(found.parse::<IpAddr>().is_ok(), "{}", found);
    }
}
