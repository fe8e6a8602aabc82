//! The values of the fields of a rule in a file.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::rule::{Listed, Wanted};

/// What may be left out. What is there has a value: a condition that is `null`, or of which YAML has the name alone, would
/// match every request, which nobody means who writes it.
#[derive(Debug)]
pub(super) struct Given<T>(pub(super) Option<T>);

impl<T> Default for Given<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Given<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_option(GivenVisitor(PhantomData))
    }
}

struct GivenVisitor<T>(PhantomData<fn() -> T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for GivenVisitor<T> {
    type Value = Given<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_none<E: Error>(self) -> Result<Given<T>, E> {
        Err(E::custom(
            "leave it out, or say what it is: it has no value",
        ))
    }

    fn visit_unit<E: Error>(self) -> Result<Given<T>, E> {
        self.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Given<T>, D::Error> {
        T::deserialize(deserializer).map(|value| Given(Some(value)))
    }
}

/// One value, or a list of them.
#[derive(Debug)]
pub(super) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    pub(super) fn listed(self) -> Listed<T> {
        match self {
            Self::One(item) => Listed::of([item], false),
            Self::Many(items) => Listed::of(items, true),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let either = Either::new("a text, or a list of texts", Self::One, Self::Many);
        deserializer.deserialize_any(either)
    }
}

/// A list, or anything else that is text or a table.
pub(super) struct Either<A, T, O, L> {
    expected: &'static str,
    other: O,
    list: L,
    types: PhantomData<fn() -> (A, T)>,
}

impl<A, T, V, O: FnOnce(A) -> V, L: FnOnce(Vec<T>) -> V> Either<A, T, O, L> {
    pub(super) fn new(expected: &'static str, other: O, list: L) -> Self {
        Self {
            expected,
            other,
            list,
            types: PhantomData,
        }
    }
}

impl<'de, A, T, V, O, L> Visitor<'de> for Either<A, T, O, L>
where
    A: Deserialize<'de>,
    T: Deserialize<'de>,
    O: FnOnce(A) -> V,
    L: FnOnce(Vec<T>) -> V,
{
    type Value = V;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<V, E> {
        A::deserialize(text.into_deserializer()).map(self.other)
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<V, M::Error> {
        A::deserialize(MapAccessDeserializer::new(map)).map(self.other)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<V, S::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok((self.list)(items))
    }
}

/// A part of a key.
#[derive(Debug)]
pub(super) enum Part {
    Text(String),
    Constant(String),
}

/// The same key for all requests.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Constant {
    /// The key of all requests.
    #[cfg_attr(test, schemars(length(min = 1)))]
    constant: String,
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PartVisitor)
    }
}

struct PartVisitor;

impl<'de> Visitor<'de> for PartVisitor {
    type Value = Part;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part of a key, such as \"host\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Part, E> {
        Ok(Part::Text(text.to_owned()))
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Part, M::Error> {
        let Constant { constant } = Constant::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Part::Constant(constant))
    }
}

/// What a header has to be.
#[derive(Debug)]
pub(super) enum Header {
    IsThere(bool),
    Value(String),
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl Visitor<'_> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value of a header, or whether it is there")
    }

    fn visit_bool<E: Error>(self, is_there: bool) -> Result<Header, E> {
        Ok(Header::IsThere(is_there))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Header, E> {
        Ok(Header::Value(value.to_owned()))
    }
}

/// Headers by their names, as they stand there: JSON lets one stand twice.
#[derive(Debug, Default)]
pub(super) struct Headers(Vec<(String, Header)>);

impl Headers {
    /// In one order, however they are written.
    pub(super) fn by_name(mut self) -> Vec<(String, Wanted)> {
        self.0.sort_by(|(one, _), (other, _)| one.cmp(other));
        let headers = self.0.into_iter();
        headers.map(|(name, is)| (name, is.into())).collect()
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HeadersVisitor)
    }
}

struct HeadersVisitor;

impl<'de> Visitor<'de> for HeadersVisitor {
    type Value = Headers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of headers")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Headers, M::Error> {
        let mut headers = Vec::new();
        while let Some(header) = map.next_entry()? {
            headers.push(header);
        }
        Ok(Headers(headers))
    }
}

/// A span of time as text, or what says no unit.
#[derive(Debug)]
pub(super) enum Span {
    Text(String),
    Number(String),
}

impl Span {
    /// Says what to do where it is none.
    pub(super) fn read(&self) -> Result<Duration, String> {
        match self {
            Self::Number(number) => Err(format!(
                "{number} says no unit: write \"{number}s\" for seconds"
            )),
            Self::Text(text) => humantime::parse_duration(text).map_err(|error| {
                format!("{text:?} is no time, such as \"30s\" or \"1m 30s\": {error}")
            }),
        }
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpanVisitor)
    }
}

struct SpanVisitor;

impl Visitor<'_> for SpanVisitor {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time such as \"30s\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
        Ok(Span::Text(text.to_owned()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Span, E> {
        Ok(Span::Number(number.to_string()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Span, E> {
        Ok(Span::Number(number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Span, E> {
        Ok(Span::Number(number.to_string()))
    }
}
