//! Files that cannot be read.

use serde::de::Error as _;
use tower_throttle::rules::Rules;

use super::mistakes;
use crate::rules::{json, toml, yaml};

#[test]
fn what_is_no_field_or_of_another_type_is_named_by_path_line_and_column() {
    // The text, the place, and a part of the problem.
    for row in include_str!("../unreadable.txt").lines() {
        let [text, place, problem] = row.split(" => ").collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let text = &text.replace("; ", "\n");
        let error = toml(text).unwrap_err();
        assert!(error.is_malformed());
        let [(at, what)] = mistakes(&error)[..] else {
            panic!("{error}")
        };
        assert_eq!(at, place);
        assert!(what.contains(problem), "{what}");
        let line = text.lines().count();
        assert!(
            what.contains(&format!("line {line}, column")) || place == "rule",
            "{what}"
        );
    }
    let error = json("{ \"rules\": [\n{ \"name\": 7 }\n] }").unwrap_err();
    let problem = "invalid type: integer `7`, expected a string at line 2 column 11";
    assert_eq!(mistakes(&error), [("rules[0].name", problem)]);
    let error = json("[{ \"name\": \"a\",\n \"quota\": 7 }]").unwrap_err();
    assert_eq!(mistakes(&error)[0].0, "rules[0].quota");
    let error = json("{ \"rules\": ").unwrap_err();
    assert!(
        error.is_malformed() && error.to_string().contains("EOF"),
        "{error}"
    );
}

#[test]
fn a_field_without_a_value_is_refused_as_it_would_match_every_request() {
    let fields = "name exempt host method path header quota key trusted_proxies cost priority share weight \
                  reserve max_wait max_waiting buffer guard outage recovery";
    for field in fields.split(' ') {
        let place = format!("rules[0].{field}");
        let text = format!(r#"{{ "rules": [{{ "{field}": null }}, {{ "exempt": true }}] }}"#);
        let error = json(&text).expect_err(field);
        assert!(error.is_malformed(), "{error}");
        let problem = "it has no value: leave it out, or add one";
        let said = format!("{place}: {problem} at line 1 column ");
        assert!(error.to_string().starts_with(&said), "{error}");

        let text = format!("rules:\n- {field}:\n- exempt: true\n");
        let error = yaml(&text).expect_err(field);
        let [(at, said)] = mistakes(&error)[..] else {
            panic!("{error}")
        };
        assert!(at == place && said.contains(problem), "{error}");
    }
}

#[test]
fn a_value_that_is_null_is_refused_within_a_list_and_a_table() {
    for (fields, place) in [
        (r#""host": ["a.example", null]"#, "rules[0].host[1]"),
        (r#""header": { "x-a": null }"#, "rules[0].header.x-a"),
        (r#""key": ["host", null]"#, "rules[0].key[1]"),
        (r#""key": { "constant": null }"#, "rules[0].key.constant"),
        (r#""outage": { "local": null }"#, "rules[0].outage.local"),
        (r#""share": { "header": null }"#, "rules[0].share.header"),
        (r#""reserve": { "low": null }"#, "rules[0].reserve.low"),
    ] {
        let text =
            format!(r#"[{{ {fields}, "name": "a", "quota": "1/s" }}, {{ "exempt": true }}]"#);
        for error in [
            json(&text).expect_err(fields),
            yaml(&text).expect_err(fields),
        ] {
            assert_eq!(mistakes(&error)[0].0, place, "{error}");
        }
    }
}

#[test]
fn what_stands_there_twice_is_refused_in_every_format() {
    let header = r#"[{ "exempt": true, "header": { "x-b": "1", "x-a": "1", "x-b": "2" } }, { "exempt": true }]"#;
    let error = json(header).unwrap_err();
    assert_eq!(
        mistakes(&error),
        [("rules[0].header.x-b", "it is listed twice")]
    );
    assert!(yaml(header).is_err());
    let field = r#"[{ "exempt": true, "exempt": false }]"#;
    assert!(
        json(field)
            .unwrap_err()
            .to_string()
            .contains("duplicate field `exempt`")
    );
    assert!(yaml(field).is_err());
    let level = r#"[{ "name": "a", "quota": "1/s", "reserve": { "low": 0.1, "low": 0.2 } }]"#;
    let error = json(level).unwrap_err().to_string();
    assert!(error.contains("duplicate field `low`"), "{error}");
    assert!(yaml(level).is_err());
    let table = r#"{ "rules": [{ "exempt": true }], "rules": [{ "exempt": true }] }"#;
    assert!(
        json(table)
            .unwrap_err()
            .to_string()
            .contains("duplicate field `rules`")
    );
    assert!(yaml(table).is_err());
}

#[test]
fn what_follows_the_table_is_refused() {
    let text = r#"[{ "exempt": true }] ] this is no JSON"#;
    assert!(serde_json::from_str::<Rules>(text).is_err());
    let mut document = serde_json::Deserializer::from_str(text);
    let rules = Rules::read(&mut document).expect("rules");
    assert_eq!(rules.len(), 1);
    assert!(document.end().is_err());

    let text = "- exempt: true\n---\n- exempt: true";
    assert!(serde_saphyr::from_str::<Rules>(text).is_err());
    assert!(by_closure(text).is_err());
}

#[test]
fn what_follows_a_mistake_in_yaml_does_not_hide_it() {
    let error = by_closure("- exempt: true\n  hosts: a.example\n- exempt: true").unwrap_err();
    let message = error.to_string();
    assert!(message.contains("rules[0].hosts: "), "{message}");
    assert!(message.contains("unknown field `hosts`"), "{message}");
}

fn by_closure(text: &str) -> Result<Rules, serde_saphyr::Error> {
    serde_saphyr::with_deserializer_from_str(text, |document| {
        Rules::read(document).map_err(serde_saphyr::Error::custom)
    })
}
