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

/// What finds templates, by their places.
#[derive(Debug)]
struct Routers {
    /// One for each rank, as `matchit` takes `/{a}` for ambiguous beside `/{*a}`; tried in turn.
    shared: Vec<Router<usize>>,
    /// One for each template with a parameter that is a part of a segment, the most specific first. Beside others,
    /// `matchit` never looks for a way past text that it has found behind a parameter, so that `/{a}.git/b` would hide
    /// `/{a}/{b}` from `/c.git/d`, and takes some for ambiguous that are not.
    alone: Vec<Router<usize>>,
}

impl Table {
    pub(crate) fn new(templates: Vec<Template>) -> Result<Self, RouteError> {
        check_shapes(&templates)?;
        let mut methods: HashSet<_> = templates.iter().flat_map(|t| &t.method).cloned().collect();
        if methods.contains(&Method::GET) {
            methods.insert(Method::HEAD);
        }
        let by_method = methods
            .into_iter()
            .map(|method| Ok((method.clone(), Routers::new(&templates, Some(&method))?)))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            by_method,
            other: Routers::new(&templates, None)?,
            templates,
        })
    }

    pub(crate) fn templates(&self) -> &[Template] {
        &self.templates
    }

    pub(crate) fn find(&self, method: &Method, path: &str) -> Option<&Template> {
        let named = self.by_method.iter().find(|(name, _)| name == method);
        let routers = named.map_or(&self.other, |(_, routers)| routers);
        let shared = self.first(&routers.shared, path);
        let alone = self.first(&routers.alone, path);
        match (shared, alone) {
            (Some(one), Some(other)) if one.shape.specificity(&other.shape).is_lt() => alone,
            (shared, alone) => shared.or(alone),
        }
    }

    fn first(&self, routers: &[Router<usize>], path: &str) -> Option<&Template> {
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

impl Routers {
    /// For requests of a method, or of any that no template names.
    fn new(templates: &[Template], method: Option<&Method>) -> Result<Self, RouteError> {
        let get = (method == Some(&Method::HEAD)).then_some(&Method::GET);
        let mut shared = BTreeMap::<_, Router<_>>::new();
        let mut alone = Vec::new();
        let mut shapes = HashSet::new();
        for method in [method, get, None] {
            for (index, template) in templates.iter().enumerate() {
                let Template { path, shape, .. } = template;
                if template.method.as_ref() != method || !shapes.insert(shape) {
                    continue;
                }
                let mut own = Router::new();
                let router = match shape.has_partial() {
                    true => &mut own,
                    false => shared.entry(Reverse(shape.rank())).or_default(),
                };
                let inserted = router.insert(path, index);
                inserted.map_err(|err| RouteError::insert(template, err))?;
                if shape.has_partial() {
                    alone.push((shape, own));
                }
            }
        }
        alone.sort_by(|(one, _), (other, _)| other.specificity(one));
        Ok(Self {
            shared: shared.into_values().collect(),
            alone: alone.into_iter().map(|(_, router)| router).collect(),
        })
    }
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

    const TEMPLATE: &str = "(GET |PUT |HEAD )?(/(a|ab|\\{p\\}|a\\{p\\}|ab\\{p\\}|\\{p\\}b|\\{p\\}ab|a\\{p\\}b)){0,3}\
        /(a|\\{p\\}|a\\{p\\}|\\{p\\}b|\\{\\*r\\}|a\\{\\*r\\})?";

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn finds_what_the_documented_rule_says(
            texts in prop::collection::hash_set(TEMPLATE, 0..20),
            method in "GET|PUT|HEAD|POST",
            path in "(/(a|b|ab|aab|bab|abb)?){0,3}/[ab]{0,3}",
        ) {
            let templates = texts.iter().map(|text| Template::parse(text).unwrap());
            let table = Table::new(templates.collect()).unwrap();
            let found = table.find(&Method::from_bytes(method.as_bytes()).unwrap(), &path);
            let expected = expected(&table.templates, &method, &path);
            prop_assert_eq!(found.map(|template| template.key.as_str()), expected);
        }
    }
}
