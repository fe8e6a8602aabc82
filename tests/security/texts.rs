//! Any text as a name or a prefix: both are a part of the names of Redis keys as they are.

use proptest::prelude::*;
use tokio::runtime::Runtime;
use tower_throttle::store::inspect::StoredKey;

use crate::security::quotas;
use support::keyspace::names;
use support::redis_server::RedisServer;
use support::spend::spend;

/// Texts that try to be something else, and any others.
fn text() -> impl Strategy<Value = String> {
    let nasty = [
        "\r\nFLUSHALL\r\n",
        "$-1\r\n",
        "a\0b",
        "{}",
        "a}b{c",
        "'); redis.call('FLUSHALL') --",
        "*?[a-z]",
        "\u{202e}\u{feff}\u{10ffff}",
    ];
    let nasty = (prop::sample::select(nasty.to_vec()), 1..40_usize);
    let nasty = nasty.prop_map(|(it, times)| it.repeat(times));
    prop_oneof![nasty, "\\PC{1,200}", "[!-~]{1,20}", "[ -~]{1,20}"]
}

#[test]
fn a_name_or_prefix_is_refused_unless_it_leaves_the_tag_alone() {
    let runtime = Runtime::new().expect("a runtime");
    let server = RedisServer::start();
    let store = runtime.block_on(server.store());
    proptest!(ProptestConfig::with_cases(100), |(text in text(), is_prefix: bool)| {
        let visible = |byte: u8| byte.is_ascii_graphic() && !b"{}".contains(&byte);
        let is_fine = text.len() <= 128 && text.bytes().all(visible);
        let _context = runtime.enter();
        let (store, builder, name) = match is_prefix {
            true => match store.clone().prefix(&text) {
                Ok(store) => (store, quotas(), None),
                Err(_) => {
                    prop_assert!(!is_fine, "{:?}", text);
                    return Ok(());
                }
            },
            false => (store.clone(), quotas().name(&text), Some(&*text)),
        };
        prop_assert_eq!(builder.clone().build().is_ok(), is_fine, "{:?}", text);
        if is_fine {
            runtime.block_on(async {
                spend(&store, builder, "a", 3).await;
                let names = names(&server);
                let has_tag =
                    |it: &String| it.contains(":{a}") && it.matches(['{', '}']).count() == 2;
                prop_assert!(names.len() == 1 && names.iter().all(has_tag), "{:?}", names);
                let stored = StoredKey::new(&"a".into(), name);
                let page = store.keys().next_page().await.expect("a page");
                prop_assert_eq!(page.expect("one"), [stored.clone()]);
                store.delete(&stored).await.expect("an answer");
                Ok(())
            })?;
        }
    });
}
