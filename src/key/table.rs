use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use http::Method;
use matchit::Router;

use super::{RouteError, template::Template};

/// Finds the most specific of several templates.
///
/// There are routers for each method that a template names, and for all other methods. They hold the
/// templates for any method too: the most specific path has to win among all that apply.
#[derive(Debug)]
pub(crate) struct Table {
    templates: Vec<Template>,
    by_method: Vec<(Method, Routers)>,
    other: Routers,
}

/// One router for each rank, as `matchit` takes `/{a}` for ambiguous beside `/{*a}`; tried in turn.
type Routers = Vec<Router<usize>>;

impl Table {
    pub(crate) fn new(templates: Vec<Template>) -> Result<Self, RouteError> {
        check_shapes(&templates)?;
        let mut methods: HashSet<_> = templates.iter().flat_map(|t| &t.method).cloned().collect();
        if methods.contains(&Method::GET) {
            methods.insert(Method::HEAD);
        }
        let by_method = methods
            .into_iter()
            .map(|method| Ok((method.clone(), routers(&templates, Some(&method))?)))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            by_method,
            other: routers(&templates, None)?,
            templates,
        })
    }

    pub(crate) fn templates(&self) -> &[Template] {
        &self.templates
    }

    pub(crate) fn find(&self, method: &Method, path: &str) -> Option<&Template> {
        let named = self.by_method.iter().find(|(name, _)| name == method);
        let routers = named.map_or(&self.other, |(_, routers)| routers);
        let found = routers.iter().find_map(|router| router.at(path).ok())?;
        self.templates.get(*found.value)
    }
}

/// Errs if two templates of one method match the same paths.
fn check_shapes(templates: &[Template]) -> Result<(), RouteError> {
    let mut seen = HashMap::new();
    for template in templates {
        match seen.insert((&template.method, &template.shape), template) {
            Some(before) if before.path == template.path => {
                return Err(RouteError::twice(template));
            }
            Some(before) => return Err(RouteError::same_shape(template, before)),
            None => {}
        }
    }
    Ok(())
}

/// The routers for requests of a method, or of any that no template names.
fn routers(templates: &[Template], method: Option<&Method>) -> Result<Routers, RouteError> {
    let get = (method == Some(&Method::HEAD)).then_some(&Method::GET);
    let mut routers = BTreeMap::<_, Router<_>>::new();
    let mut shapes = HashSet::new();
    for method in [method, get, None] {
        for (index, template) in templates.iter().enumerate() {
            if template.method.as_ref() == method && shapes.insert(&template.shape) {
                let router = routers.entry(Reverse(template.rank)).or_default();
                let inserted = router.insert(&template.path, index);
                inserted.map_err(|err| RouteError::insert(template, err))?;
            }
        }
    }
    Ok(routers.into_values().collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The words of the most specific template by the rule as it is documented, tried one by one.
    fn expected<'a>(templates: &'a [Template], method: &str, path: &str) -> Option<&'a str> {
        let rank = |template: &Template| {
            let by_method = match template.method.as_ref().map(Method::as_str) {
                Some(name) if name == method => 2,
                Some("GET") if method == "HEAD" => 1,
                Some(_) => return None,
                None => 0,
            };
            let (prefix, rest) = match template.path.split_once("{*r}") {
                Some((prefix, _)) => (prefix, true),
                None => (template.path.as_str(), false),
            };
            let segments: Vec<_> = prefix.split('/').collect();
            let mut given = path.splitn(if rest { segments.len() } else { usize::MAX }, '/');
            let mut fixed = Vec::new();
            for (index, segment) in segments.iter().enumerate() {
                let given = given.next()?;
                let last = index + 1 == segments.len();
                match *segment {
                    "{p}" if !given.is_empty() => fixed.push(false),
                    "" if rest && last && !given.is_empty() => {}
                    text if text == given && !(rest && last) => fixed.push(true),
                    _ => return None,
                }
            }
            let exhausted = given.next().is_none();
            exhausted.then_some((
                !rest,
                if rest { segments.len() } else { 0 },
                fixed,
                by_method,
            ))
        };
        let ranked = templates
            .iter()
            .filter_map(|template| Some((rank(template)?, template)));
        ranked
            .max_by_key(|(rank, _)| rank.clone())
            .map(|(_, template)| template.key.as_str())
    }

    const TEMPLATE: &str = "(GET |PUT |HEAD )?(/(a|\\{p\\})){0,2}/(a|\\{p\\}|\\{\\*r\\})?";

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn finds_what_the_documented_rule_says(
            texts in prop::collection::hash_set(TEMPLATE, 0..20),
            method in "GET|PUT|HEAD|POST",
            path in "(/[ab]){0,3}/[ab]?",
        ) {
            let templates = texts.iter().map(|text| Template::parse(text).unwrap());
            let table = Table::new(templates.collect()).unwrap();
            let found = table.find(&Method::from_bytes(method.as_bytes()).unwrap(), &path);
            let expected = expected(&table.templates, &method, &path);
            prop_assert_eq!(found.map(|template| template.key.as_str()), expected);
        }
    }
}
