//! Rules in a file: [`Rules::read`].

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::error::RulesError;
use super::rule::{Field, Given, List, Map, Parsed, Rule};
use super::table::Rules;
use crate::error::BuildError;
use crate::quota::{Quota, parse_duration};

impl Rules {
    /// Reads rules from a deserializer, such as that of TOML, YAML or JSON.
    ///
    /// The text is that of [a file](super): a table with the one field `rules`.
    ///
    /// ```
    /// use tower_throttle::rules::Rules;
    ///
    /// let text = "
    /// [[rules]]
    /// name = 'all'
    /// quota = '10/s'
    /// cost = 0
    /// ";
    /// let error = Rules::read(toml::Deserializer::parse(text)?).unwrap_err();
    /// assert_eq!(error.to_string(), "rules[0].cost: a cost of 0 is no request");
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
    /// // `no` and `on` are texts.
    /// let options = serde_saphyr::options! { strict_booleans: true };
    /// let rules = serde_saphyr::with_deserializer_from_str_with_options(text, options, |document| {
    ///     Rules::read(document).map_err(serde_saphyr::Error::custom)
    /// })?;
    /// # assert_eq!(rules.len(), 1);
    /// # Ok::<_, serde_saphyr::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the text violates its format, or has an unknown field or a value of another type, the error is that one
    /// mistake in the words of the format: with the path of the field, and the line and column if the format reports
    /// them. Otherwise, the error reports all mistakes.
    pub fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, RulesError> {
        match serde_path_to_error::deserialize(deserializer) {
            Ok(File { rules, .. }) => Self::new(rules),
            Err(error) => {
                // The format has no text for the level of a reserve, nor for the whole text.
                let path = error.path().to_string();
                let place = path.trim_end_matches(['.', '?']).to_owned();
                let problem = error.into_inner().to_string();
                let mistake = BuildError::new(place, problem.trim_end().to_owned());
                Err(RulesError {
                    is_malformed: true,
                    mistakes: vec![mistake],
                })
            }
        }
    }
}

/// Reads the list of rules as a part of another configuration; one error has all mistakes as its message.
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
        let rules = Vec::<Rule>::deserialize(deserializer)?;
        Self::new(rules).map_err(D::Error::custom)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rules: Vec<Rule>,
    /// Editors look it up.
    #[serde(rename = "$schema", default)]
    _schema: Option<String>,
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
        let text = String::deserialize(deserializer)?;
        Ok(Self(parse_duration(&text).map_err(|error| {
            format!("{text:?} is not a time, such as \"30s\" or \"1m 30s\": {error}")
        })))
    }
}

fn without_value<T, E: Error>() -> Result<T, E> {
    Err(E::custom("it has no value: leave it out, or add one"))
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Given<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Option::deserialize(deserializer)? {
            Some(value) => Ok(Self(Some(value))),
            None => without_value(),
        }
    }
}

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Deserialize<'de> for Map<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Given::<BTreeMap<K, V>>::deserialize(deserializer)?.0 {
            Some(map) if !map.is_empty() => Ok(Self(map)),
            _ => without_value(),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrMany(PhantomData))
    }
}

/// Reads a list, or one value as a list of one.
///
/// Unlike `#[serde(untagged)]`, this keeps the places of errors within a list.
struct OneOrMany<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMany<T> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, or a list of texts")
    }

    fn visit_unit<E: Error>(self) -> Result<List<T>, E> {
        without_value()
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<List<T>, E> {
        Ok(Field(vec![T::deserialize(text.into_deserializer())?]))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<List<T>, M::Error> {
        let one = T::deserialize(MapAccessDeserializer::new(&mut map))?;
        // A part of a key reads a single entry, and not the end.
        if map.next_key::<IgnoredAny>()?.is_some() {
            return Err(M::Error::custom("expected a table with a single entry"));
        }
        Ok(Field(vec![one]))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, seq: S) -> Result<List<T>, S::Error> {
        let values: Vec<_> = Vec::deserialize(SeqAccessDeserializer::new(seq))?;
        match values.is_empty() {
            true => without_value(),
            false => Ok(Field(values)),
        }
    }
}
