//! The JSON Schema of a file of rules, and that it is the one that is checked in.

use std::borrow::Cow;
use std::{env, fs};

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;

use super::file::{File, FileRule, Table};
use super::value::{Constant, Given, Header, Headers, OneOrMany, Part, Span};

impl JsonSchema for Table {
    fn schema_name() -> Cow<'static, str> {
        "Rules of tower-throttle".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let list = json!({
            "description": "The list of rules alone.",
            "type": "array",
            "items": generator.subschema_for::<FileRule>(),
            "minItems": 1
        });
        json_schema!({ "anyOf": [File::json_schema(generator), list] })
    }
}

/// A rule that is exempt says nothing of what holds for others, and any other has a name and a quota.
pub(super) fn limits_or_is_exempt(rule: &mut Schema) {
    let exempt = json!({ "properties": { "exempt": { "const": true } }, "required": ["exempt"] });
    let nothing = json!({
        "quota": false,
        "key": false,
        "trusted_proxies": false,
        "cost": false,
        "max_wait": false,
        "max_waiting": false,
        "buffer": false,
        "guard": false,
        "outage": false,
        "recovery": false
    });
    rule.insert("if".into(), exempt);
    rule.insert("then".into(), json!({ "properties": nothing }));
    rule.insert("else".into(), json!({ "required": ["name", "quota"] }));
}

impl<T: JsonSchema> JsonSchema for Given<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMany{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let item = generator.subschema_for::<T>();
        json_schema!({
            "anyOf": [item, { "type": "array", "items": item, "minItems": 1 }]
        })
    }
}

/// A [`Quota`](crate::Quota#as-text) as text.
pub(super) enum QuotaText {}

impl QuotaText {
    /// What the parser takes, but for how large numbers are, and for the order of units.
    fn pattern() -> String {
        const SPACE: &str = r"[ \t\n\f\r]";
        const NUMBER: &str = "[0-9](_?[0-9])*";
        const NOT_ZERO: &str = "(0_?)*[1-9](_?[0-9])*";
        // One `M` alone could be months.
        let unit = [
            &any_case("d(ays?)?|h(rs?|ours?)?"),
            "m",
            &any_case("min(ute)?s?|s(ec(ond)?s?)?|ms|milliseconds?|(u|µ|μ)s|microseconds?"),
        ]
        .join("|");
        let option = |option: &str| format!("{SPACE}+{}={NOT_ZERO}", any_case(option));
        let algorithm = [
            any_case("sliding-log|spacing"),
            any_case("sliding-buckets") + &option("buckets"),
            any_case("leaky-bucket") + &option("capacity"),
            any_case("gcra") + &option("burst"),
            any_case("fixed-window")
                + &format!("({SPACE}+{})?", any_case("start=(clock|first-request)")),
        ]
        .join("|");
        format!(
            "^{SPACE}*{NOT_ZERO}/(({unit})|({NUMBER}({unit}))+)({SPACE}+({algorithm}))?{SPACE}*$"
        )
    }
}

/// A pattern for upper case, too: not all that read patterns know a flag for that.
fn any_case(pattern: &str) -> String {
    let mut cases = String::new();
    for letter in pattern.chars() {
        match letter {
            'a'..='z' => cases.extend(['[', letter.to_ascii_uppercase(), letter, ']']),
            other => cases.push(other),
        }
    }
    cases
}

impl JsonSchema for QuotaText {
    fn schema_name() -> Cow<'static, str> {
        "Quota".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A quota: `LIMIT/WINDOW [ALGORITHM [OPTION=VALUE]]`.",
            "type": "string",
            "pattern": Self::pattern(),
            "examples": [
                "10/s",
                "5_000/h",
                "600/1m30s",
                "1_000/h sliding-buckets buckets=60",
                "5/s spacing",
                "10/s leaky-bucket capacity=100",
                "100/m gcra burst=20",
                "100/m fixed-window",
                "100/m fixed-window start=first-request"
            ]
        })
    }
}

impl JsonSchema for Part {
    fn schema_name() -> Cow<'static, str> {
        "KeyPart".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A part of a key.",
            "anyOf": [
                { "enum": ["host", "route", "client_ip", "bearer_token", "method"] },
                { "type": "string", "pattern": "^(hashed-)?header:[!#-'*+.^`|~0-9A-Za-z_-]+$" },
                generator.subschema_for::<Constant>()
            ]
        })
    }
}

impl JsonSchema for Headers {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Headers".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let header = generator.subschema_for::<Header>();
        json_schema!({ "type": "object", "additionalProperties": header })
    }
}

impl JsonSchema for Header {
    fn schema_name() -> Cow<'static, str> {
        "Header".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The exact value of a header, or whether it has to be there.",
            "type": ["boolean", "string"]
        })
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A time such as `30s`, `50ms` or `1m 30s`.",
            "type": "string",
            "pattern": "^[0-9]+(\\.[0-9]+)? *[a-zA-Zµμ]+( *[0-9]+(\\.[0-9]+)? *[a-zA-Zµμ]+)*$"
        })
    }
}

#[test]
fn the_schema_that_is_checked_in_is_that_of_the_types_that_are_read() {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let schema = generator.into_root_schema_for::<Table>();
    let schema = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/rules.schema.json");
    if env::var("RULES_SCHEMA").is_ok_and(|how| how == "write") {
        fs::write(path, &schema).unwrap();
    }
    let written = fs::read_to_string(path).unwrap_or_default();
    assert!(
        schema == written,
        "rules.schema.json is not that of the types that are read; `RULES_SCHEMA=write cargo test --all-features \
         --lib rules::schema` writes it anew"
    );
}
