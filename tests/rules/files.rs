//! Every field, from TOML, YAML and JSON alike, and in code.

use std::time::Duration;

use http::Method;
use tower_throttle::rules::{KeyPart, Rule, Rules};
use tower_throttle::{Algorithm, Lost, Outage, Priority, Quota, Recovery};

use crate::rules::{json, rules, toml, yaml};

pub(crate) const TOML: &str = include_str!("files/every.toml");
pub(crate) const YAML: &str = include_str!("files/every.yaml");
pub(crate) const JSON: &str = include_str!("files/every.json");

fn in_code() -> Rules {
    let search = Rule::named("search")
        .host("api.github.com")
        .host("*.github.example:8443")
        .method(Method::GET)
        .path("/search/{*rest}")
        .has_header("x-beta", true)
        .has_header("x-old", false)
        .header("x-plan", "free")
        .quota(Quota::per_minute(30))
        .quota(Quota::per_hour(1_000).algorithm(Algorithm::Gcra { burst: 50 }))
        .key(KeyPart::Host)
        .key(KeyPart::Route)
        .key(KeyPart::ClientIp)
        .key(KeyPart::BearerToken)
        .key(KeyPart::Method)
        .key(KeyPart::Header("x-tenant".into()))
        .key(KeyPart::HashedHeader("x-key".into()))
        .key(KeyPart::Constant("a".into()))
        .trusted_proxies(["10.0.0.0/8", "192.0.2.1/32"])
        .cost(2)
        .priority(Priority::Low)
        .share(KeyPart::Header("x-tenant".into()))
        .weight(3)
        .reserve(Priority::Low, 0.1)
        .reserve(Priority::Lowest, 0.05)
        .max_wait(Duration::from_secs(90))
        .max_waiting(100)
        .buffer(Duration::from_millis(50))
        .guard(Duration::from_millis(8))
        .outage(Outage::Local { share: 0.25 })
        .recovery(Recovery::Strict)
        .lost(Lost::Abort);
    let uploads = Rule::named("uploads")
        .method(Method::POST)
        .method(Method::PUT)
        .path("/files/{name}")
        .path("POST /upload")
        .quota(Quota::per_second(5).algorithm(Algorithm::Spacing))
        .key(KeyPart::Constant("uploads".into()))
        .outage(Outage::Allow)
        .recovery(Recovery::Immediate)
        .lost(Lost::Continue);
    rules([
        search,
        Rule::exempt().name("internal").host("*.internal.example"),
        uploads,
        Rule::named("others")
            .quota(Quota::per_second(10))
            .outage(Outage::Deny),
    ])
}

#[test]
fn all_formats_and_code_say_the_same() {
    let expected = in_code();
    assert_eq!(toml(TOML).expect("rules"), expected);
    assert_eq!(json(JSON).expect("rules"), expected);
    assert_eq!(yaml(YAML).expect("rules"), expected);
}

#[test]
fn what_a_file_says_reaches_the_policy() {
    let rules = toml(TOML).expect("rules");
    let policy = rules.policy("search").expect("a policy");
    assert_eq!(policy.name(), Some("search"));
    assert_eq!(policy.label(), "search");
    assert_eq!(policy.max_wait(), Some(Duration::from_secs(90)));
    assert_eq!(policy.max_waiting(), Some(100));
    assert_eq!(policy.buffer(), Duration::from_millis(50));
    assert_eq!(policy.guard(), Duration::from_millis(8));
    assert_eq!(policy.outage(), Outage::Local { share: 0.25 });
    assert_eq!(policy.recovery(), Recovery::Strict);
    let others = rules.policy("others").expect("a policy");
    assert_eq!((others.max_wait(), others.outage()), (None, Outage::Deny));
    assert!(rules.policy("internal").is_none());
    let names = [
        Some("search"),
        Some("internal"),
        Some("uploads"),
        Some("others"),
    ];
    assert!(rules.names().eq(names));
}

#[test]
fn a_list_alone_is_rules_too() {
    let list = json(r#"[{ "name": "all", "quota": ["10/s"] }]"#).expect("rules");
    let table = json(r#"{ "rules": [{ "name": "all", "quota": "10/s" }] }"#).expect("rules");
    assert_eq!(list, table, "and a list of one is as good as one");
}

#[test]
fn rules_may_be_a_part_of_another_configuration() {
    #[derive(Debug, serde::Deserialize)]
    struct Config {
        port: u16,
        throttle: Rules,
    }
    let read = ::toml::from_str::<Config>;
    let config = read("port = 80\n[[throttle]]\nname = 'all'\nquota = '10/s'").expect("a config");
    assert_eq!((config.port, config.throttle.len()), (80, 1));
    let error = read("port = 80\n[[throttle]]\nname = 'all'\nquota = '0/s'\ncost = 0").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("rules[0].quota: quota \"0/s\": the limit is zero"),
        "{error}"
    );
}
