//! The JSON Schema takes what is read, and refuses what is not, as far as a schema goes.

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::rules::files;
use crate::rules::json as read;

fn schema() -> Validator {
    let schema: Value =
        serde_json::from_str(include_str!("../../rules.schema.json")).expect("json");
    jsonschema::validator_for(&schema).expect("a schema")
}

#[test]
fn what_is_read_is_valid() {
    let schema = schema();
    let from_json: Value = serde_json::from_str(files::JSON).expect("json");
    let from_toml: Value = toml::from_str(files::TOML).expect("toml");
    let from_yaml: Value = serde_saphyr::from_str(files::YAML).expect("yaml");
    assert_eq!((&from_toml, &from_yaml), (&from_json, &from_json));
    if let Err(error) = schema.validate(&from_json) {
        panic!("{error} at {}", error.instance_path());
    }
}

/// The reader lists its fields in the message about an unknown one.
#[test]
fn the_schema_has_the_fields_of_the_reader() {
    let schema: Value =
        serde_json::from_str(include_str!("../../rules.schema.json")).expect("json");
    let fields = schema["$defs"]["Rule"]["properties"].as_object();
    let error = read(r#"[{ "unknown": 1 }]"#).expect_err("an unknown field");
    let error = error.to_string();
    let (_, known) = error.split_once("expected one of ").expect("a list");
    let mut known: Vec<_> = known.split('`').skip(1).step_by(2).collect();
    known.sort_unstable();
    assert!(fields.expect("the fields").keys().eq(known));
}

#[test]
fn no_field_may_be_null() {
    let schema = schema();
    let properties: Value =
        serde_json::from_str(include_str!("../../rules.schema.json")).expect("json");
    let fields = properties["$defs"]["Rule"]["properties"].as_object();
    for field in fields.expect("the fields").keys() {
        let mut rule = json!({ "name": "all", "quota": "10/s" });
        rule[field] = Value::Null;
        let rules = json!({ "rules": [rule] });
        assert!(!schema.is_valid(&rules), "{rules}");
        assert!(read(&rules.to_string()).is_err(), "{rules}");
    }
}

/// The results of the schema and of the reader.
fn judged(schema: &Validator, rules: &Value) -> (bool, bool) {
    (schema.is_valid(rules), read(&rules.to_string()).is_ok())
}

/// Rules of which the first is as it should be, but for this field.
fn with(field: &str, value: Value) -> Value {
    let mut rule = json!({ "name": "first", "quota": "10/s" });
    rule[field] = value;
    json!({ "rules": [rule, { "exempt": true }] })
}

fn quota(text: &str) -> Value {
    with("quota", json!(text))
}

/// Rules of which the first has shares of this weight.
fn weighing(weight: i64) -> Value {
    let mut rules = with("share", json!("host"));
    rules["rules"][0]["weight"] = json!(weight);
    rules
}

fn exempt(field: &str, value: Value) -> Value {
    let mut rule = json!({ "exempt": true });
    rule[field] = value;
    json!({ "rules": [rule, { "exempt": true }] })
}

/// Tables whose first rule has a field: each row says whether the rule is exempt, the field, and its value.
fn first_rules(rows: &str) -> impl Iterator<Item = Value> {
    rows.lines().map(|row| {
        let [rule, field, value] = row.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let value = serde_json::from_str(value).expect("JSON");
        match rule {
            "exempt" => exempt(field, value),
            _ => with(field, value),
        }
    })
}

#[test]
fn what_can_be_read_is_valid() {
    let schema = schema();
    let valid = json!({ "name": "all", "quota": "10/s" });
    let mut good = vec![
        json!({ "rules": [valid] }),
        json!([valid]),
        json!([{ "exempt": true }]),
    ];
    good.extend(first_rules(
        r#"with exempt false
with cost 2
with priority "lowest"
with share "client_ip"
with share { "header": "x-tenant" }
with reserve { "low": 0.1, "lowest": 0.9 }
with reserve {}
with quota ["10/s", "100/m gcra burst=20"]
with quota ["20 concurrent", "600/m"]
with lost "abort"
with lost "continue"
exempt name "first"
exempt host "example.com"
exempt header { "x-plan": "free" }"#,
    ));
    good.extend([1, 65_535].map(weighing));
    let quotas = "1/d, 1/Day, 1/DAYS, 1/h, 1/HR, 1/hrs, 1/Hour, 1/hours, 1/m, 1/min, 1/Mins, 1/MINUTE, \
        1/minutes, 1/s, 1/S, 1/sec, 1/SECS, 1/second, 1/Seconds, 1/ms, 1/MS, 1/millisecond, \
        1/Milliseconds, 1/us, 1/US, 1/\u{b5}s, 1/\u{3bc}S, 1/microsecond, 1/Microseconds, 010/s, \
        0_1_0/s, 5_000/1d2h3m4s5ms6us, 1/1_0MIN, 1/0m1s,  \t1/s\n, 1/s \r\n\u{c} spacing, \
        1/s sliding-log, 1/s SPACING, 1/s Sliding-Buckets Buckets=1_0, \
        1/s leaky-bucket capacity=01, 1/s GCRA BURST=2, 1/s fixed-window, \
        1/s fixed-window start=clock, 1/s Fixed-Window Start=First-Request, \
        20 concurrent, 2_0\tConcurrent LEASE=1m30s, 20 concurrent lease=5S default_cost=2";
    good.extend(quotas.split(", ").map(quota));
    for good in good {
        assert_eq!(judged(&schema, &good), (true, true), "{good}");
    }
}

#[test]
fn what_cannot_be_read_is_not_valid() {
    let schema = schema();
    let valid = json!({ "name": "all", "quota": "10/s" });
    let mut bad = vec![
        json!({}),
        json!([]),
        json!("10/s"),
        json!({ "rules": [] }),
        json!({ "rules": [valid], "more": 1 }),
        json!([valid, "10/s"]),
        json!([{}]),
        json!([{ "name": "all" }]),
        json!([{ "quota": "10/s" }]),
        json!([{ "name": "all", "exempt": false }]),
        json!([{ "quota": "10/s", "exempt": false }]),
    ];
    bad.extend(first_rules(
        r#"with exempt true
exempt name "a b"
exempt quota "10/s"
exempt key "host"
exempt trusted_proxies "10.0.0.0/8"
exempt cost 1
exempt priority "low"
exempt share "host"
exempt weight 2
exempt reserve { "low": 0.1 }
exempt max_wait "30s"
exempt max_waiting 1
exempt buffer "50ms"
exempt guard "8ms"
exempt outage "deny"
exempt recovery "strict"
exempt lost "abort"
with quotta "10/s"
with quota 10
with quota []
with quota ["10/s", "ten"]
with name "a b"
with name "{a}"
with exempt "yes"
with cost 0
with cost -1
with priority "urgent"
with priority 1
with share ["host"]
with share "tenant"
with share { "header": "a", "constant": "b" }
with weight 2
with reserve 0.1
with reserve { "urgent": 0.1 }
with reserve { "low": 1.1 }
with reserve { "low": -0.1 }
with reserve { "low": null }
with max_wait 30
with max_wait "30"
with max_waiting 0
with key "hosts"
with key { "constants": "a" }
with header { "x-plan": 1 }
with outage "maybe"
with outage { "local": "half" }
with recovery "soon"
with lost "forget""#,
    ));
    bad.extend([0, 65_536, -1].map(weighing));
    let quotas = ", ten, 10, 10/, /s, 10 / s, 10/s/s, 0/s, 0_0/s, -1/s, 1.5/s, 1,000/s, _1/s, 1_/s, 1__0/s, \
        \u{661}/s, \u{a0}1/s, 1/s\u{b}, 1/M, 1/1M, 1/fortnight, 1/60, 1/m30s, 1/1m s, 1/1.5s, \
        1/s 1/m, 1/s burst=2, 1/s token-bucket, 1/s gcra, 1/s gcra burst, 1/s gcra burst=, \
        1/s gcra burst=0, 1/s gcra burst=few, 1/s gcra burst = 2, 1/s gcra capacity=2, \
        1/s gcra burst=2 burst=2, 1/s sliding-buckets buckets=0, 1/s leaky-bucket capacity=0, \
        1/s spacing burst=2, 1/s sliding-log now, 1/s fixed-window start=noon, 1/s unit=, 1/s unit=a/b, 1/s unit = a, \
        1/s unit=tokens spacing, 1/s default_cost=few, 20concurrent, concurrent, 0 concurrent, 20 concurrent lease, \
        20 concurrent lease=, 20 concurrent 30s, 20 concurrent burst=2, 20/s concurrent, \
        20 concurrent unit=tokens, 20 concurrent lease=5s lease=5s";
    bad.extend(quotas.split(", ").map(quota));
    for bad in bad {
        assert_eq!(judged(&schema, &bad), (false, false), "{bad}");
    }
}

/// No schema compares two places of a file, and no simple pattern numbers or the order of units.
#[test]
fn what_no_schema_can_say_is_valid_and_refused() {
    let schema = schema();
    let valid = json!({ "name": "all", "quota": "10/s" });
    let refused = [
        ("the same name twice", json!([valid, valid])),
        (
            "conditions of the last rule",
            json!([{ "exempt": true, "host": "example.com" }]),
        ),
        ("more than the quota", with("cost", json!(11))),
        (
            "more than the capacity",
            with("reserve", json!({ "low": 0.6, "lowest": 0.5 })),
        ),
        ("too large", quota("5_000_000_000/s")),
        ("too large", quota("1/s gcra burst=5_000_000_000")),
        ("too long", quota("1/3651d")),
        ("too long together", quota("1/d gcra burst=5_000")),
        ("too close together", quota("11/10us spacing")),
        ("nothing in all", quota("1/0m0s")),
        (
            "a lease that is too short",
            quota("5 concurrent lease=500ms"),
        ),
        (
            "two limits of requests in progress",
            with("quota", json!(["5 concurrent", "9 concurrent"])),
        ),
        ("units in another order", quota("1/1s1m")),
        ("a unit twice", quota("1/1s1s")),
    ];
    for (why, refused) in refused {
        assert_eq!(judged(&schema, &refused), (true, false), "{why}: {refused}");
    }
}
