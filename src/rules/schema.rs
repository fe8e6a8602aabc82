//! The JSON Schema of a file of rules, and that it is the one that is checked in.

use std::borrow::Cow;
use std::{env, fs};

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::file::File;
use super::value::{Constant, Given, Header, Headers, OneOrMany, Part, Span};

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
    let schema = generator.into_root_schema_for::<File>();
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
