//! Every field, from TOML, YAML and JSON alike, in code, and in the JSON Schema.

use jsonschema::Validator;

use crate::prelude::*;
use crate::rules::{json, json as read, rules, toml, yaml};

const TOML: &str = include_str!("files/every.toml");
const YAML: &str = include_str!("files/every.yaml");

fn in_code() -> Rules {
    let search = Rule::named("search")
        .host("api.github.com")
        .host("*.github.example:8443")
        .method(Method::GET)
        .path("/search/{*rest}")
        .has_header("x-beta", true)
        .has_header("x-old", false)
        .header("x-plan", "free")
        .header("x-country", "no")
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
    let others = Rule::named("others").quota(Quota::per_second(10));
    rules([
        search,
        Rule::exempt().name("internal").host("*.internal.example"),
        uploads,
        others.outage(Outage::Deny),
    ])
}

#[test]
fn all_formats_and_code_say_the_same_and_it_is_valid() {
    let expected = in_code();
    assert_eq!(toml(TOML).expect("rules"), expected);
    assert_eq!(yaml(YAML).expect("rules"), expected);
    let file: Value = ::toml::from_str(TOML).expect("toml");
    assert_eq!(json(&file.to_string()).expect("rules"), expected);
    let names = ["search", "internal", "uploads", "others"];
    assert!(expected.names().eq(names.map(Some)));
    if let Err(error) = schema().0.validate(&file) {
        panic!("{error} at {}", error.instance_path());
    }
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
    let problem = "rules[0].quota: quota \"0/s\": the limit is zero";
    assert!(error.to_string().contains(problem), "{error}");
}

/// The schema, and the fields of a rule in it.
fn schema() -> (Validator, Vec<String>) {
    let text = include_str!("../../rules.schema.json");
    let schema: Value = serde_json::from_str(text).expect("json");
    let fields = schema["$defs"]["Rule"]["properties"].as_object();
    let fields = fields.expect("the fields").keys().cloned().collect();
    let validator = jsonschema::validator_for(&schema);
    (validator.expect("a schema"), fields)
}

/// The reader lists its fields in the message about an unknown one.
#[test]
fn the_schema_has_the_fields_of_the_reader() {
    let error = read(r#"{ "rules": [{ "unknown": 1 }] }"#).expect_err("an unknown field");
    let error = error.to_string();
    let (_, known) = error.split_once("expected one of ").expect("a list");
    let mut known: Vec<_> = known.split('`').skip(1).step_by(2).collect();
    known.sort_unstable();
    assert_eq!(schema().1, known);
}

#[test]
fn no_field_may_be_null_as_it_would_match_every_request() {
    let (schema, fields) = schema();
    for field in fields {
        let text = format!(r#"{{ "rules": [{{ "{field}": null }}, {{ "exempt": true }}] }}"#);
        let rules: Value = serde_json::from_str(&text).expect("json");
        assert!(!schema.is_valid(&rules), "{rules}");
        let expected =
            format!("rules[0].{field}: it has no value: leave it out, or add one at line 1");
        let error = read(&text).expect_err(&field).to_string();
        assert!(error.starts_with(&expected), "{error}");
        let error = yaml(&format!("rules:\n- {field}:\n- exempt: true\n")).expect_err(&field);
        let [mistake] = error.mistakes() else {
            panic!("{error}")
        };
        assert_eq!(mistake.field(), format!("rules[0].{field}"));
        assert!(mistake.problem().contains("it has no value"), "{error}");
    }
}

/// Tables whose first rule has a field: each row has the kind of the rule, the field, and its value.
fn first_rules(rows: &str) -> impl Iterator<Item = Value> {
    rows.lines().map(|row| {
        let [kind, field, value] = row.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let mut rule = match kind {
            "exempt" => json!({ "exempt": true }),
            "share" => json!({ "name": "first", "quota": "10/s", "share": "host" }),
            _ => json!({ "name": "first", "quota": "10/s" }),
        };
        rule[field] = serde_json::from_str(value).expect("JSON");
        json!({ "rules": [rule, { "exempt": true }] })
    })
}

#[test]
fn the_schema_and_the_reader_agree_as_far_as_a_schema_goes() {
    let (schema, _) = schema();
    let all = json!({ "name": "all", "quota": "10/s" });
    let valid = [
        json!({ "rules": [all] }),
        json!({ "rules": [{ "exempt": true }] }),
    ];
    let invalid = [
        json!({}),
        json!([]),
        json!("10/s"),
        json!({ "rules": [] }),
        json!({ "rules": [all], "more": 1 }),
        json!([all]),
        json!({ "rules": [all, "10/s"] }),
        json!({ "rules": [{}] }),
        json!({ "rules": [{ "name": "all" }] }),
        json!({ "rules": [{ "quota": "10/s" }] }),
        json!({ "rules": [{ "name": "all", "exempt": false }] }),
        json!({ "rules": [{ "quota": "10/s", "exempt": false }] }),
    ];
    // No schema compares two places of a file, and no simple pattern numbers or the order of units.
    let beyond = [
        json!({ "rules": [all, all] }),
        json!({ "rules": [{ "exempt": true, "host": "example.com" }] }),
    ];
    let check = |tables: &[Value], rows: &str, is_valid: bool, is_read: bool| {
        for rules in tables.iter().cloned().chain(first_rules(rows)) {
            let judged = (schema.is_valid(&rules), read(&rules.to_string()).is_ok());
            assert_eq!(judged, (is_valid, is_read), "{rules}");
        }
    };
    check(&valid, include_str!("schema_valid.txt"), true, true);
    check(&invalid, include_str!("schema_invalid.txt"), false, false);
    check(&beyond, include_str!("schema_beyond.txt"), true, false);
    // An exempt rule has a name and conditions, and no other field.
    let every: Value = ::toml::from_str(TOML).expect("toml");
    let all = every["rules"][0].as_object().expect("a rule").iter();
    let others = ["name", "host", "method", "path", "header"];
    let limits = all.filter(|(field, _)| !others.contains(&field.as_str()));
    let exempt = limits.map(|(field, value)| {
        let rule = json!({ "exempt": true, field: value });
        json!({ "rules": [rule, { "exempt": true }] })
    });
    check(&exempt.collect::<Vec<_>>(), "", false, false);
}
