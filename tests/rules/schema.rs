//! The JSON Schema takes what is read, and refuses what is not, as far as a schema goes.

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::rules::{files, json as read, yaml};

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
fn no_field_may_be_null_as_it_would_match_every_request() {
    let schema = schema();
    let properties: Value =
        serde_json::from_str(include_str!("../../rules.schema.json")).expect("json");
    let fields = properties["$defs"]["Rule"]["properties"].as_object();
    for field in fields.expect("the fields").keys() {
        let text = format!(r#"{{ "rules": [{{ "{field}": null }}, {{ "exempt": true }}] }}"#);
        let rules: Value = serde_json::from_str(&text).expect("json");
        assert!(!schema.is_valid(&rules), "{rules}");
        let expected =
            format!("rules[0].{field}: it has no value: leave it out, or add one at line 1");
        let error = read(&text).expect_err(field).to_string();
        assert!(error.starts_with(&expected), "{error}");
        let error = yaml(&format!("rules:\n- {field}:\n- exempt: true\n")).expect_err(field);
        let [mistake] = error.mistakes() else {
            panic!("{error}")
        };
        assert_eq!(mistake.place, format!("rules[0].{field}"));
        assert!(mistake.problem.contains("it has no value"), "{error}");
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
    let schema = schema();
    let all = json!({ "name": "all", "quota": "10/s" });
    let valid = [
        json!({ "rules": [all] }),
        json!([all]),
        json!([{ "exempt": true }]),
    ];
    let invalid = [
        json!({}),
        json!([]),
        json!("10/s"),
        json!({ "rules": [] }),
        json!({ "rules": [all], "more": 1 }),
        json!([all, "10/s"]),
        json!([{}]),
        json!([{ "name": "all" }]),
        json!([{ "quota": "10/s" }]),
        json!([{ "name": "all", "exempt": false }]),
        json!([{ "quota": "10/s", "exempt": false }]),
    ];
    // No schema compares two places of a file, and no simple pattern numbers or the order of units.
    let beyond = [
        json!([all, all]),
        json!([{ "exempt": true, "host": "example.com" }]),
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
}
