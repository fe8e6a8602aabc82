//! Which paths a template matches, compared with those of another: [`Shape`].

/// A template of paths without the names of its parameters, segment by segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shape {
    segments: Vec<Segment>,
    /// Whether it goes on, with whatever is not empty.
    goes_on: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    /// What is not empty, between these.
    Parameter(String, String),
}

impl Shape {
    /// Of a path that was found to be well-formed.
    pub(super) fn of(path: &str) -> Self {
        let mut segments: Vec<Segment> = path.split('/').map(Segment::of).collect();
        let goes_on = path
            .rsplit('/')
            .next()
            .is_some_and(|it| it.starts_with("{*"));
        if goes_on {
            segments.pop();
        }
        Self { segments, goes_on }
    }

    /// Whether it matches, for certain, every path that the other does.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let pairs = self.segments.iter().zip(&other.segments);
        let (length, others) = (self.segments.len(), other.segments.len());
        let rest = || match other.segments.get(length) {
            Some(segment) => segment.is_something(),
            None => other.goes_on,
        };
        let are_as_long = match self.goes_on {
            true => length <= others && rest(),
            false => length == others && !other.goes_on,
        };
        are_as_long && pairs.into_iter().all(|(one, other)| one.covers(other))
    }
}

impl Segment {
    fn of(text: &str) -> Self {
        let (mut before, mut after) = (String::new(), String::new());
        let mut is_parameter = false;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            let is_brace = matches!(c, '{' | '}');
            let is_escaped = is_brace && chars.next_if_eq(&c).is_some();
            if is_brace && !is_escaped {
                is_parameter = true;
                chars.by_ref().find(|&c| c == '}');
            } else if is_parameter {
                after.push(c);
            } else {
                before.push(c);
            }
        }
        match is_parameter {
            true => Self::Parameter(before, after),
            false => Self::Literal(before),
        }
    }

    fn is_something(&self) -> bool {
        *self != Self::Literal(String::new())
    }

    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (one, other) if one == other => true,
            // With something behind the parameter, where that ends is for the router to say.
            (Self::Parameter(before, after), other) if after.is_empty() => match other {
                Self::Literal(text) => text.len() > before.len() && text.starts_with(before),
                Self::Parameter(text, _) => text.starts_with(before),
            },
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_begins_with_a_slash() {
        // Otherwise its last segment were one, and more than one.
        assert!(crate::key::Template::parse("/a{*rest}").is_err());
    }

    #[test]
    fn a_template_covers_those_that_match_a_part_of_its_paths() {
        for (one, other, expected) in [
            ("/a", "/a", true),
            ("/a", "/b", false),
            ("/{a}", "/b", true),
            ("/{a}", "/", false),
            ("/{a}", "/{b}", true),
            ("/{a}", "/v{b}.json", true),
            ("/v{a}", "/v1", true),
            ("/v{a}", "/v", false),
            ("/v{a}", "/v1{b}", true),
            ("/v{a}", "/{b}", false),
            ("/{a}.json", "/{b}.json", true),
            ("/{a}.json", "/b.json", false),
            ("/a", "/{a}", false),
            ("/{a}/b", "/c/b", true),
            ("/{a}", "/a/b", false),
            ("/{*a}", "/a/b", true),
            ("/{*a}", "/", false),
            ("/{*a}", "/{b}/{*c}", true),
            ("/a/{*b}", "/a/{*c}", true),
            ("/a/{*b}", "/a/", false),
            ("/a/{*b}", "/a", false),
            ("/a/{*b}", "/{c}/{*d}", false),
            ("/{a}/{*b}", "/{*c}", false),
            ("/{a}", "/{*b}", false),
            ("/{{a}}", "/{{a}}", true),
            ("/{{{a}", "/{{b", true),
        ] {
            let covers = Shape::of(one).covers(&Shape::of(other));
            assert_eq!(covers, expected, "{one} {other}");
        }
    }
}
