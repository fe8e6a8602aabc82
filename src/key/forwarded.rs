//! Chains of addresses that proxies write, read from the right: the entry of the nearest proxy comes first.
//!
//! The caller may have written the entries on the left. So nothing on the left
//! changes how an entry is read, not even a quotation mark that is never closed.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, header::FORWARDED};

use super::address;

/// The addresses in a header such as `X-Forwarded-For`, or after the `for` of each element of `Forwarded`
/// ([RFC 7239, section 4]); `None` for what is hidden, missing or malformed.
///
/// This is laxer than the grammar in two ways: spaces may surround a semicolon, and an address with a port or
/// in brackets needs no quotation marks.
///
/// [RFC 7239, section 4]: https://www.rfc-editor.org/rfc/rfc7239#section-4
pub(super) fn hops(name: &HeaderName, headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    let node = match *name == FORWARDED {
        true => node,
        false => |entry: &[u8]| parse_value(entry.trim_ascii()),
    };
    let lines = headers.get_all(name).iter().rev();
    lines
        .flat_map(|line| split(line.as_bytes(), b','))
        .map(move |entry| address::parse(&node(entry)?))
}

/// The parts of a text, from the right. Separators in quoted strings do not separate them.
fn split(text: &[u8], separator: u8) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let (mut end, mut is_quoted) = (text.len(), false);
    for (place, byte) in text.iter().enumerate().rev() {
        if *byte == separator && !is_quoted {
            parts.push(&text[place + 1..end]);
            end = place;
        } else if *byte == b'"' {
            // From the right, the first mark closes a string, and the next one without a backslash opens it.
            is_quoted = !is_quoted || is_escaped(&text[..place]);
        }
    }
    parts.push(&text[..end]);
    parts
}

/// True if a backslash comes next on the left that is not itself escaped.
fn is_escaped(before: &[u8]) -> bool {
    let backslashes = before.iter().rev().take_while(|&&b| b == b'\\');
    backslashes.count() % 2 == 1
}

/// The value of the one parameter `for` of a well-formed element.
fn node(element: &[u8]) -> Option<Vec<u8>> {
    let mut node = None;
    for pair in split(element, b';') {
        let pair = pair.trim_ascii();
        if pair.is_empty() {
            continue;
        }
        let (name, value) = pair.split_at(pair.iter().position(|&b| b == b'=')?);
        let value = parse_value(&value[1..])?;
        let is_token = !name.is_empty() && name.iter().all(|&b| in_token(b));
        let is_for = name.eq_ignore_ascii_case(b"for");
        if !is_token || (is_for && node.replace(value).is_some()) {
            return None;
        }
    }
    node
}

/// A token, or the content of a quoted string.
fn parse_value(text: &[u8]) -> Option<Vec<u8>> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let in_value = |&b: &u8| in_token(b) || b"[]:".contains(&b);
        return (!text.is_empty() && text.iter().all(in_value)).then(|| text.to_vec());
    };
    let mut content = Vec::new();
    let mut bytes = quoted.strip_suffix(b"\"")?.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return None,
            b'\\' => content.push(*bytes.next()?),
            byte => content.push(*byte),
        }
    }
    Some(content)
}

/// RFC 9110 (section 5.6.2).
fn in_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn read(name: &'static str, lines: &[impl AsRef<[u8]>]) -> Vec<String> {
        let name = HeaderName::from_static(name);
        let mut headers = HeaderMap::new();
        for line in lines {
            let value = HeaderValue::from_bytes(line.as_ref()).unwrap();
            headers.append(&name, value);
        }
        let shown = |hop: Option<IpAddr>| hop.map_or("-".to_owned(), |it| it.to_string());
        hops(&name, &headers).map(shown).collect()
    }

    fn of_forwarded<L: AsRef<[u8]>>(lines: &[L]) -> Vec<String> {
        read("forwarded", lines)
    }

    fn of_x_forwarded_for<L: AsRef<[u8]>>(lines: &[L]) -> Vec<String> {
        read("x-forwarded-for", lines)
    }

    /// Sections 4, 6, 7.1, 7.4 and 7.5 of RFC 7239.
    #[test]
    fn the_examples_of_rfc_7239_are_read() {
        let examples = r#"
            for="_gazonk" => -
            For="[2001:db8:cafe::17]:4711" => 2001:db8:cafe::17
            for=192.0.2.60;proto=http;by=203.0.113.43 => 192.0.2.60
            for="192.0.2.43:47011" => 192.0.2.43
            for=_hidden, for=_SEVKISEK => - -
            for=192.0.2.43,for="[2001:db8:cafe::17]",for=unknown => - 2001:db8:cafe::17 192.0.2.43
            for=192.0.2.43, for=198.51.100.17;by=203.0.113.60;proto=http => 198.51.100.17 192.0.2.43
        "#;
        for (line, expected) in examples.lines().filter_map(|line| line.split_once(" => ")) {
            assert_eq!(of_forwarded(&[line.trim()]).join(" "), expected, "{line}");
        }
    }

    #[test]
    fn quotes_spaces_and_ports_may_be_as_proxies_write_them() {
        for element in [
            r#"for=192.0.2.1;secret="a, for=192.0.2.2""#,
            r#"secret="a;for=192.0.2.2";for=192.0.2.1"#,
            r#"secret="\"; for=192.0.2.2, \\\"";FOR="192.0.2.1""#,
            r#"secret="\\";for=192.0.2.1"#,
            r#"secret="";for=192.0.2.1"#,
            " \tfor=192.0.2.1\t ",
            "for=192.0.2.1 ; proto=https",
            ";;proto=https ;\tfor=192.0.2.1;;",
            "for=192.0.2.1:80",
            "for=[::ffff:192.0.2.1]:80",
            r#"for="192.0.2\.1""#,
        ] {
            assert_eq!(of_forwarded(&[element]), ["192.0.2.1"], "{element}");
            let among = format!("for=192.0.2.3,{element} ,for=192.0.2.4");
            let expected = ["192.0.2.4", "192.0.2.1", "192.0.2.3"];
            assert_eq!(of_forwarded(&[&among]), expected, "{element}");
        }
        let lines = [
            r#"192.0.2.1 , "192.0.2.2:80""#,
            "",
            r#""[::1]:80",::2,"192.0.2.3"#,
        ];
        let hops = of_x_forwarded_for(&lines);
        assert_eq!(hops, ["-", "-", "192.0.2.2", "192.0.2.1"]);
    }

    #[test]
    fn a_malformed_element_has_no_address() {
        let elements = r#";|192.0.2.1|for|for=|for=""|=192.0.2.1|for =192.0.2.1|for= 192.0.2.1|
            for=" 192.0.2.1"|för=192.0.2.1|by=192.0.2.1|for=192.0.2.1 proto=https|
            for=192.0.2.1;proto|for=192.0.2.1;proto=|for=192.0.2.1;proto="|for=192.0.2.1;proto="\"|
            for=192.0.2.1;=a|for=192.0.2.1;for=192.0.2.1|for=192.0.2.1;For=192.0.2.2|
            for="192.0.2.1|for=192.0.2.1"|for="192.0.2.1"80|for='192.0.2.1'|for="192.0.2.1\"|"#;
        for element in elements.split('|').map(str::trim) {
            assert_eq!(of_forwarded(&[element]), ["-"], "{element}");
        }
    }

    const ELEMENT: &str = r#"[ a]{0,2}(for=)?([a;]|"(\\["\\,;a]|[,;a ]){0,4}"){0,3}"#;

    proptest! {
        #[test]
        fn text_on_the_left_changes_no_entry(
            left in prop::collection::vec(prop::sample::select(&b"\"\\,;= a[:1\xff"[..]), 0..20),
            right in prop::collection::vec(ELEMENT, 1..4),
        ) {
            let right = right.join(",");
            let line = [&left[..], b",", right.as_bytes()].concat();
            for read in [of_forwarded::<&[u8]>, of_x_forwarded_for] {
                let alone = read(&[right.as_bytes()]);
                for hops in [read(&[&line]), read(&[&left, right.as_bytes()])] {
                    prop_assert_eq!(&hops[..alone.len()], &alone[..]);
                }
            }
        }
    }
}
