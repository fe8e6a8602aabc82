//! Rules in a file: [`Rules::read`].

use std::fmt;
use std::time::Duration;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::error::RulesError;
use super::rule::{Given, Headers, Parsed, Rule, Values};
use super::table::Rules;
use crate::error::BuildError;
use crate::quota::Quota;

impl Rules {
    /// Reads rules from a deserializer, such as that of TOML, YAML or JSON.
    ///
    /// The text is that of [a file](super): a table with the one field `rules`, or the list of rules alone.
    ///
    /// ```
    /// use tower_throttle::rules::Rules;
    ///
    /// let text = "
    /// [[rules]]
    /// name = 'all'
    /// quota = '10/s'
    /// max_wait = 30
    /// ";
    /// let error = Rules::read(toml::Deserializer::parse(text)?).unwrap_err();
    /// assert_eq!(error.to_string(), r#"rules[0].max_wait: 30 has no unit: write "30s" for seconds"#);
    /// # Ok::<_, toml::de::Error>(())
    /// ```
    ///
    /// A deserializer of JSON stops after the table and ignores the rest of the text. So call `end`, which fails if
    /// anything follows:
    ///
    /// ```
    /// use tower_throttle::rules::Rules;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let text = r#"{ "rules": [{ "name": "all", "quota": "10/s", "max_wait": "30s" }] }"#;
    /// let mut document = serde_json::Deserializer::from_str(text);
    /// let rules = Rules::read(&mut document)?;
    /// document.end()?;
    /// # assert_eq!(rules.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// For YAML, [serde-saphyr](https://docs.rs/serde-saphyr) lends its deserializer to a closure, and checks the end
    /// itself:
    ///
    /// ```
    /// use serde::de::Error as _;
    /// use tower_throttle::rules::Rules;
    ///
    /// let text = "
    /// rules:
    /// - name: all
    ///   quota: 10/s
    ///   max_wait: 30s
    /// ";
    /// let rules = serde_saphyr::with_deserializer_from_str(text, |document| {
    ///     Rules::read(document).map_err(serde_saphyr::Error::custom)
    /// })?;
    /// # assert_eq!(rules.len(), 1);
    /// # Ok::<_, serde_saphyr::Error>(())
    /// ```
    ///
    /// If the text of an error suffices, use `toml::from_str::<Rules>(text)`, `serde_json::from_str` or
    /// `serde_saphyr::from_str`, which all check the end.
    ///
    /// # Errors
    ///
    /// If the text violates its format, or has an unknown field or a value of another type, the error is that one
    /// mistake in the words of the format: with the path of the field, and the line and column if the format reports
    /// them. Otherwise, the error reports all mistakes.
    pub fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, RulesError> {
        match serde_path_to_error::deserialize(deserializer) {
            Ok(File(rules)) => Self::new(rules),
            Err(error) => {
                let place = match error.path().to_string() {
                    path if path == "." => String::new(),
                    path if path.starts_with('[') => format!("rules{path}"),
                    path => path,
                };
                let problem = error.into_inner().to_string();
                Err(RulesError::of(true, place, problem.trim_end()))
            }
        }
    }
}

/// Reads rules as a part of another configuration, as [`Rules::read`] does; one error has all mistakes as its message.
///
/// ```
/// use tower_throttle::rules::Rules;
///
/// #[derive(serde::Deserialize)]
/// struct Config {
///     redis: String,
///     rules: Rules,
/// }
///
/// let config: Config = toml::from_str(r#"
///     redis = "redis://127.0.0.1/"
///
///     [[rules]]
///     name = "all"
///     quota = "10/s"
/// "#)?;
/// assert_eq!(config.rules.len(), 1);
/// # Ok::<_, toml::de::Error>(())
/// ```
impl<'de> Deserialize<'de> for Rules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let File(rules) = File::deserialize(deserializer)?;
        Self::new(rules).map_err(D::Error::custom)
    }
}

/// A table with the field `rules`, or a list of rules.
struct File(Vec<Rule>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a time such as \"30s\"")]
enum Span {
    Text(String),
    Number(f64),
}

impl<'de> Deserialize<'de> for Parsed<Quota> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(Self(
            text.parse().map_err(|error: BuildError| error.to_string()),
        ))
    }
}

impl<'de> Deserialize<'de> for Parsed<Duration> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Span::deserialize(deserializer)? {
            Span::Text(text) => humantime::parse_duration(&text).map_err(|error| {
                format!("{text:?} is not a time, such as \"30s\" or \"1m 30s\": {error}")
            }),
            Span::Number(number) => Err(format!(
                "{number} has no unit: write \"{number}s\" for seconds"
            )),
        }))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Given<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Option::deserialize(deserializer)?;
        let problem = "it has no value: leave it out, or add one";
        value
            .map(|value| Self(Some(value)))
            .ok_or_else(|| D::Error::custom(problem))
    }
}

impl<'de> Deserialize<'de> for File {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a table with the field `rules`, or a list of rules";
        let of_one = |Table { rules }| rules;
        let rules = deserializer.deserialize_any(OneOrMany {
            expected,
            of_one,
            is_enum: false,
        })?;
        Ok(Self(rules))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Values<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a text, or a list of texts";
        let of_one = |value: T| vec![value];
        let values = deserializer.deserialize_any(OneOrMany {
            expected,
            of_one,
            is_enum: true,
        })?;
        Ok(Self(values))
    }
}

/// Reads a list, or one value as a list of one.
///
/// Unlike `#[serde(untagged)]`, this keeps the places of errors within a list.
struct OneOrMany<A, T> {
    expected: &'static str,
    of_one: fn(A) -> Vec<T>,
    /// An enum reads a single entry of a table, and not the end.
    is_enum: bool,
}

impl<'de, A: Deserialize<'de>, T: Deserialize<'de>> Visitor<'de> for OneOrMany<A, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
        A::deserialize(text.into_deserializer()).map(self.of_one)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Vec<T>, M::Error> {
        let one = A::deserialize(MapAccessDeserializer::new(&mut map))?;
        if self.is_enum && map.next_key::<IgnoredAny>()?.is_some() {
            return Err(M::Error::custom("expected a table with a single entry"));
        }
        Ok((self.of_one)(one))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, seq: S) -> Result<Vec<T>, S::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq))
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self::default())
    }
}

impl<'de> Visitor<'de> for Headers {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of headers")
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<Self, M::Error> {
        while let Some(header) = map.next_entry()? {
            self.0.push(header);
        }
        Ok(self)
    }
}
