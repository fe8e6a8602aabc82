//! Templates of paths, such as `GET /repos/{owner}/{repo}`: parsed, matched and compared.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::mem;

use ecow::EcoString;
use http::Method;

use super::Key;
use crate::error::BuildError;

/// An optional method and a path with parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) method: Option<Method>,
    /// The text of the template.
    pub(crate) key: Key,
    segments: Vec<Segment>,
    /// The last segment is a parameter that takes the rest of the path.
    is_catch_all: bool,
}

/// The part of a path between two slashes.
///
/// Its texts are not `String`s, because those are 20 times as slow to compare if they are empty: on some CPUs, each
/// comparison faults on the dangling pointer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Segment {
    /// The whole text of a literal, or the prefix of a parameter.
    before: EcoString,
    /// The suffix of a parameter, which has at least one character before it.
    after: Option<EcoString>,
}

/// Templates, the most specific first.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Templates(pub(crate) Vec<Template>);

const PARAMETER: &str = "a parameter is written as {name}, and a literal brace twice";
const CATCH_ALL: &str = "a catch-all parameter must be the end of the path";

impl Template {
    pub(crate) fn parse(text: &str) -> Result<Self, BuildError> {
        Self::read(text).map_err(|problem| error(text, problem))
    }

    fn read(text: &str) -> Result<Self, Cow<'static, str>> {
        let words: Vec<_> = text.split_ascii_whitespace().collect();
        let (method, path) = match words[..] {
            [] => return Err("it is empty".into()),
            [path] => (None, path),
            [method, path] => (Some(parse_method(method)?), path),
            _ => return Err("it is at most a method, a space and a path".into()),
        };
        let Some(inner) = path.strip_prefix('/') else {
            return Err("it needs a path, which starts with a slash".into());
        };
        let is_foreign = |c: &char| !c.is_ascii_graphic() || matches!(c, '?' | '#');
        if let Some(c) = path.chars().find(is_foreign) {
            let problem = format!("{c:?} in a path must be percent-encoded, as it is in a request");
            return Err(problem.into());
        }
        let mut is_catch_all = false;
        let mut segments = Vec::new();
        for segment in inner.split('/') {
            if is_catch_all {
                return Err(CATCH_ALL.into());
            }
            segments.push(Segment::parse(segment, &mut is_catch_all)?);
        }
        Ok(Self {
            method,
            key: words.join(" ").into(),
            segments,
            is_catch_all,
        })
    }

    /// True if the template matches a request with this method and this path, which is without its first slash.
    fn matches(&self, method: &Method, path: &str) -> bool {
        let most = match self.is_catch_all {
            true => self.segments.len(),
            false => usize::MAX,
        };
        let mut texts = path.splitn(most, '/');
        let mut is_next = |segment: &Segment| texts.next().is_some_and(|it| segment.matches(it));
        let is_method = |named| falls_under(method, named);
        self.method.as_ref().is_none_or(is_method)
            && self.segments.iter().all(&mut is_next)
            && texts.next().is_none()
    }

    /// Greater if the template is more specific than another one that matches the same path, or as specific and has the
    /// closer method.
    fn specificity(&self) -> impl Ord + use<> {
        let before_catch_all = match self.is_catch_all {
            true => self.segments.len() - 1,
            false => usize::MAX,
        };
        // Templates that match the same path have the same literals, so the lengths of those make no difference.
        let after = |it: &Segment| it.after.as_ref().map(|after| after.len());
        let fixed = |it: &Segment| (it.after.is_none(), it.before.len(), after(it));
        let fixed: Vec<_> = self.segments.iter().map(fixed).collect();
        let method = self.method.as_ref();
        let method = method.map(|method| method == Method::HEAD);
        (before_catch_all, fixed, method)
    }

    /// True if this template certainly matches every path that the other one matches.
    pub(crate) fn covers_path_of(&self, other: &Self) -> bool {
        let (length, others) = (self.segments.len(), other.segments.len());
        let has_length = match self.is_catch_all {
            true => length <= others,
            false => length == others && !other.is_catch_all,
        };
        let mut pairs = self.segments.iter().zip(&other.segments);
        has_length && pairs.all(|(one, other)| one.covers(other))
    }
}

impl Segment {
    fn parse(text: &str, is_catch_all: &mut bool) -> Result<Self, &'static str> {
        // Other routers write parameters like this.
        if text.starts_with([':', '*', '<']) {
            return Err(PARAMETER);
        }
        let mut literal = EcoString::new();
        let mut parameter = None;
        let mut rest = text;
        while let Some(place) = rest.find(['{', '}']) {
            literal.push_str(&rest[..place]);
            let (brace, after) = rest[place..].split_at(1);
            if let Some(after) = after.strip_prefix(brace) {
                literal.push_str(brace);
                rest = after;
                continue;
            }
            let inside = after.split_once('}').filter(|_| brace == "{");
            let (name, after) = inside.ok_or(PARAMETER)?;
            let name = match name.strip_prefix('*') {
                Some(name) => {
                    *is_catch_all = true;
                    name
                }
                None => name,
            };
            if name.is_empty() || name.contains(['{', '*']) {
                return Err(PARAMETER);
            }
            let before = mem::take(&mut literal);
            if parameter.replace(before).is_some() {
                return Err("there can be only one parameter between two slashes");
            }
            rest = after;
        }
        literal.push_str(rest);
        let (before, after) = match parameter {
            None => (literal, None),
            Some(_) if *is_catch_all && !literal.is_empty() => return Err(CATCH_ALL),
            Some(before) => (before, Some(literal)),
        };
        Ok(Self { before, after })
    }

    fn matches(&self, text: &str) -> bool {
        let Self { before, after } = self;
        match after {
            None => before == text,
            Some(after) => {
                text.len() > before.len() + after.len()
                    && text.starts_with(&**before)
                    && text.ends_with(&**after)
            }
        }
    }

    fn covers(&self, other: &Self) -> bool {
        // With a suffix, the ends of all texts that the other matches would have to be compared.
        let is_open = self.after.as_deref() == Some("");
        let is_long = other.after.is_some() || other.before.len() > self.before.len();
        let is_part = is_open && is_long && other.before.starts_with(&*self.before);
        is_part || self == other
    }
}

impl Templates {
    /// Fails if two templates of one method match the same paths.
    pub(crate) fn new(mut templates: Vec<Template>) -> Result<Self, BuildError> {
        let mut seen = HashMap::new();
        for template in &templates {
            let matched = (&template.method, &template.segments, template.is_catch_all);
            if let Some(before) = seen.insert(matched, &template.key) {
                let problem = match *before == template.key {
                    true => "it is listed twice".into(),
                    false => format!("it conflicts with {before:?}, as paths may match either"),
                };
                return Err(error(template.key.as_str(), problem));
            }
        }
        templates.sort_by_cached_key(|template| Reverse(template.specificity()));
        Ok(Self(templates))
    }

    pub(crate) fn find(&self, method: &Method, path: &str) -> Option<&Template> {
        let path = path.strip_prefix('/')?;
        let mut templates = self.0.iter();
        templates.find(|template| template.matches(method, path))
    }
}

/// True if a template or a rule for `named` holds for requests with `method`.
pub(crate) fn falls_under(method: &Method, named: &Method) -> bool {
    method == named || (method == Method::HEAD && named == Method::GET)
}

pub(crate) fn parse_method(text: &str) -> Result<Method, String> {
    match Method::from_bytes(text.as_bytes()) {
        Ok(method) if !text.contains(|c: char| c.is_ascii_lowercase()) => Ok(method),
        Ok(_) => Err(format!(
            "{text:?} is a method in lower case: write it in upper case"
        )),
        Err(_) => Err(format!("{text:?} is not an HTTP method")),
    }
}

fn error(template: &str, problem: impl Into<Cow<'static, str>>) -> BuildError {
    BuildError::new(format!("route template {template:?}"), problem)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Template {
        Template::parse(text).unwrap()
    }

    #[test]
    fn a_malformed_template_is_an_error_that_names_it() {
        const PATH: &str = "it needs a path, which starts with a slash";
        const ONE: &str = "there can be only one parameter between two slashes";
        let encoded =
            |c: char| format!("{c:?} in a path must be percent-encoded, as it is in a request");
        let lower = "\"Get\" is a method in lower case: write it in upper case";
        for (problem, templates) in [
            ("it is empty", "| \n"),
            (PATH, "GET|GET repos|https://a/b"),
            ("it is at most a method, a space and a path", "GET /a b"),
            ("\"G{T\" is not an HTTP method", "G{T /a"),
            ("\"/a\" is not an HTTP method", "/a /b"),
            (lower, "Get /a"),
            (&encoded('#'), "/a#b"),
            (&encoded('\0'), "/a\0"),
            (&encoded('\u{e9}'), "/caf\u{e9}"),
            (PARAMETER, "/{a|/a}|/{a}}|/{}|/{*}|/{a/b}"),
            (PARAMETER, "/{a*}|/:a|/*a|/<a>"),
            (ONE, "/{a}{b}|/{a}-{b}"),
            (CATCH_ALL, "/{*a}/b|/{*a}b"),
        ] {
            for template in templates.split('|') {
                let err = Template::parse(template).unwrap_err().to_string();
                assert_eq!(err, format!("route template {template:?}: {problem}"));
            }
        }
    }

    #[test]
    fn the_key_is_the_template() {
        let long = format!("/{}/{{{}}}", "a".repeat(50 * 1024), "b".repeat(50 * 1024));
        assert_eq!(parse("\tGET\r\n /a ").key.as_str(), "GET /a");
        for text in [
            "/{{a}}/{*rest}",
            "PURGE /a%20b|c\\d",
            "/v1/things:batchGet",
            &long,
        ] {
            assert_eq!(parse(text).key.as_str(), text);
        }
    }

    /// The words of the most specific template by the rule as it is documented, tried one by one.
    fn expected<'a>(templates: &'a [Template], method: &str, path: &str) -> Option<&'a str> {
        let rank = |template: &Template| {
            let by_method = match template.method.as_ref().map(Method::as_str) {
                Some(name) if name == method => 2,
                Some("GET") if method == "HEAD" => 1,
                Some(_) => return None,
                None => 0,
            };
            let text = template.key.as_str();
            let text = text.split_once(' ').map_or(text, |(_, path)| path);
            let (prefix, rest) = match text.split_once("{*r}") {
                Some((prefix, _)) => (prefix, true),
                None => (text, false),
            };
            let segments: Vec<_> = prefix.split('/').collect();
            let mut given = path.splitn(if rest { segments.len() } else { usize::MAX }, '/');
            let mut fixed = Vec::new();
            for (index, segment) in segments.iter().enumerate() {
                let given = given.next()?;
                let is_rest = rest && index + 1 == segments.len();
                let (before, after) = match segment.split_once("{p}") {
                    Some(around) => around,
                    None if is_rest => (*segment, ""),
                    None if *segment == given => {
                        fixed.push((true, 0, 0));
                        continue;
                    }
                    None => return None,
                };
                let value = given.strip_prefix(before)?.strip_suffix(after)?;
                if value.is_empty() {
                    return None;
                }
                fixed.push((false, before.len(), after.len()));
            }
            let exhausted = given.next().is_none();
            let before_rest = if rest { segments.len() } else { 0 };
            exhausted.then_some((!rest, before_rest, fixed, by_method))
        };
        let ranked = templates.iter().filter_map(|it| Some((rank(it)?, it)));
        let best = ranked.max_by_key(|(rank, _)| rank.clone());
        best.map(|(_, template)| template.key.as_str())
    }

    const TEMPLATE: &str = "(GET |PUT |HEAD )?(/(a|ab|\\{p\\}|a\\{p\\}|ab\\{p\\}|\\{p\\}b|\\{p\\}ab|a\\{p\\}b)){0,3}\
        /(a|\\{p\\}|a\\{p\\}|\\{p\\}b|\\{\\*r\\}|a\\{\\*r\\})?";

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]
        #[test]
        fn finds_what_the_documented_rule_says(
            texts in prop::collection::hash_set(TEMPLATE, 0..20),
            method in "GET|PUT|HEAD|POST",
            path in "(/(a|b|ab|aab|bab|abb)?){0,3}/[ab]{0,3}",
        ) {
            let templates = texts.iter().map(|text| parse(text));
            let templates = Templates::new(templates.collect()).unwrap();
            let found = templates.find(&Method::from_bytes(method.as_bytes()).unwrap(), &path);
            let expected = expected(&templates.0, &method, &path);
            prop_assert_eq!(found.map(|template| template.key.as_str()), expected);
        }
    }
}
