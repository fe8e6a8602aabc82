//! The JSON Schema takes what is read, and refuses what is not, as far as a schema goes.

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::files;
use crate::json as read;

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

#[test]
fn what_cannot_be_read_is_not_valid() {
    let schema = schema();
    let valid = json!({ "name": "all", "quota": "10/s" });
    let with = |field: &str, value: Value| {
        let mut rule = valid.clone();
        rule[field] = value;
        json!({ "rules": [rule] })
    };
    assert!(schema.is_valid(&with("cost", json!(2))));
    let bad = [
        json!({}),
        json!({ "rules": [] }),
        json!({ "rules": [valid], "more": 1 }),
        with("quotta", json!("10/s")),
        with("quota", json!(10)),
        with("quota", json!([])),
        with("name", json!("a b")),
        with("name", json!("{a}")),
        with("exempt", json!("yes")),
        with("cost", json!(0)),
        with("cost", json!(-1)),
        with("max_wait", json!(30)),
        with("max_wait", json!("30")),
        with("max_waiting", json!(0)),
        with("key", json!("hosts")),
        with("key", json!({ "constants": "a" })),
        with("header", json!({ "x-plan": 1 })),
        with("outage", json!("maybe")),
        with("outage", json!({ "local": "half" })),
        with("recovery", json!("soon")),
    ];
    for bad in bad {
        assert!(!schema.is_valid(&bad), "{bad}");
        assert!(read(&bad.to_string()).is_err(), "{bad}");
    }
}
