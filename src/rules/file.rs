//! Rules in a file: [`Rules::read`].

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::conditions::HeaderCondition;
use super::error::RulesError;
use super::host::HostPattern;
use super::key::KeyPart;
use super::rule::{List, Parsed, Rule, parse_template};
use super::table::Rules;
use crate::key::parse_method;
use crate::policy::{Outage, Recovery};

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
            Ok(file) => rules(file),
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
        rules(File::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// A table with the field `rules`, or a list of rules.
struct File(Vec<FileRule>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    rules: Vec<FileRule>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FileRule {
    name: Given<String>,
    exempt: Given<bool>,
    host: Given<Values<String>>,
    method: Given<Values<String>>,
    path: Given<Values<String>>,
    header: Given<Headers>,
    quota: Given<Values<String>>,
    key: Given<Values<Part>>,
    trusted_proxies: Given<Values<String>>,
    cost: Given<u32>,
    max_wait: Given<Span>,
    max_waiting: Given<usize>,
    buffer: Given<Span>,
    guard: Given<Span>,
    outage: Given<FileOutage>,
    recovery: Given<FileRecovery>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum FileOutage {
    Deny,
    Allow,
    Local(f64),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum FileRecovery {
    Immediate,
    Strict,
}

/// A field that may be missing. A field without a value is an error, because a condition such as an empty `host:` in YAML
/// would match every request.
struct Given<T>(Option<T>);

/// The values of a field that is one value or a list of values.
struct Values<T>(Vec<T>);

/// The headers in the order of the text, because JSON allows a name twice.
#[derive(Default)]
struct Headers(Vec<(String, Header)>);

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected the value of a header, or a boolean")]
enum Header {
    Present(bool),
    Value(String),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a time such as \"30s\"")]
enum Span {
    Text(String),
    Number(f64),
}

#[derive(Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "expected a part of a key, such as `host` or `{ constant = \"TEXT\" }`"
)]
enum Part {
    Text(String),
    Constant { constant: String },
}

fn rules(File(rules): File) -> Result<Rules, RulesError> {
    Rules::new(rules.into_iter().map(Rule::from))
}

impl From<FileRule> for Rule {
    fn from(file: FileRule) -> Self {
        Self {
            name: file.name.0.map(Into::into),
            exempt: file.exempt.0.unwrap_or_default(),
            host: file.host.parse(|text| HostPattern::parse(&text)),
            method: file.method.parse(|text| parse_method(&text)),
            path: file.path.parse(|text| parse_template(&text)),
            header: file.header.0.unwrap_or_default().conditions(),
            quota: (file.quota).parse(|text| text.parse().map_err(|error| format!("{error}"))),
            key: file.key.parse(key_part),
            trusted_proxies: file.trusted_proxies.parse(|text| network(&text)),
            cost: file.cost.0,
            max_wait: file.max_wait.0.map(Span::parse),
            max_waiting: file.max_waiting.0,
            buffer: file.buffer.0.map(Span::parse),
            guard: file.guard.0.map(Span::parse),
            outage: file.outage.0.map(|outage| match outage {
                FileOutage::Deny => Outage::Deny,
                FileOutage::Allow => Outage::Allow,
                FileOutage::Local(share) => Outage::Local { share },
            }),
            recovery: file.recovery.0.map(|recovery| match recovery {
                FileRecovery::Immediate => Recovery::Immediate,
                FileRecovery::Strict => Recovery::Strict,
            }),
        }
    }
}

fn network(text: &str) -> Parsed<IpNet> {
    let address = || text.parse().map(|address: IpAddr| address.into());
    let problem = "is not a network, such as `10.0.0.0/8`";
    (text.parse().or_else(|_| address())).map_err(|_| format!("{text:?} {problem}"))
}

fn key_part(part: Part) -> Parsed<KeyPart> {
    let text = match part {
        Part::Constant { constant } => return Ok(KeyPart::Constant(constant)),
        Part::Text(text) => text,
    };
    Ok(match text.as_str() {
        "host" => KeyPart::Host,
        "route" => KeyPart::Route,
        "client_ip" => KeyPart::ClientIp,
        "bearer_token" => KeyPart::BearerToken,
        "method" => KeyPart::Method,
        _ => match text.split_once(':') {
            Some(("header", name)) => KeyPart::Header(name.to_owned()),
            Some(("hashed-header", name)) => KeyPart::HashedHeader(name.to_owned()),
            _ => {
                return Err(format!(
                    "{text:?} is not a part of a key: use `host`, `route`, `client_ip`, `bearer_token`, `method`, \
                     `header:NAME`, `hashed-header:NAME` or `{{ constant = \"TEXT\" }}`"
                ));
            }
        },
    })
}

impl Span {
    fn parse(self) -> Parsed<Duration> {
        let example = "such as \"30s\" or \"1m 30s\"";
        match self {
            Self::Text(text) => humantime::parse_duration(&text)
                .map_err(|error| format!("{text:?} is not a time, {example}: {error}")),
            Self::Number(number) => Err(format!(
                "{number} has no unit: write \"{number}s\" for seconds"
            )),
        }
    }
}

impl Headers {
    /// In one order, in whatever order they were written.
    fn conditions(mut self) -> Vec<(String, Parsed<HeaderCondition>)> {
        self.0.sort_by(|(one, _), (other, _)| one.cmp(other));
        let condition = |(name, header): (String, Header)| {
            let condition = match header {
                Header::Present(is_present) => HeaderCondition::present(&name, is_present),
                Header::Value(value) => HeaderCondition::with_value(&name, &value),
            };
            (name, condition)
        };
        self.0.into_iter().map(condition).collect()
    }
}

impl<T> Given<Values<T>> {
    fn parse<U>(self, parse: impl Fn(T) -> Parsed<U>) -> List<U> {
        let Values(values) = self.0?;
        Some(values.into_iter().map(parse).collect())
    }
}

impl<T> Default for Given<T> {
    fn default() -> Self {
        Self(None)
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
        let rules = deserializer.deserialize_any(OneOrMany { expected, of_one })?;
        Ok(Self(rules))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Values<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a text, or a list of texts";
        let of_one = |value: T| vec![value];
        let values = deserializer.deserialize_any(OneOrMany { expected, of_one })?;
        Ok(Self(values))
    }
}

/// Reads a list, or one value as a list of one.
///
/// Unlike `#[serde(untagged)]`, this keeps the places of errors within a list.
struct OneOrMany<A, T> {
    expected: &'static str,
    of_one: fn(A) -> Vec<T>,
}

impl<'de, A: Deserialize<'de>, T: Deserialize<'de>> Visitor<'de> for OneOrMany<A, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
        A::deserialize(text.into_deserializer()).map(self.of_one)
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Vec<T>, M::Error> {
        A::deserialize(MapAccessDeserializer::new(map)).map(self.of_one)
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
