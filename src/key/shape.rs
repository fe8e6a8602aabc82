//! Which paths a template matches, compared with those of another: [`Shape`].

use std::cmp::Ordering;
use std::iter::Peekable;
use std::str::Chars;

/// A template of paths without the names of its parameters, segment by segment: templates of one shape match the same
/// paths.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    segments: Vec<Segment>,
    /// How the rest begins of which it takes all, if it does; something has to follow.
    rest: Option<String>,
    parameters: usize,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Segment {
    Literal(String),
    /// What is not empty, between these.
    Parameter(String, String),
    /// All that follows this.
    Rest(String),
}

impl Shape {
    /// Of a path; if that is not well-formed, the number of parameters alone means something.
    pub(crate) fn of(path: &str) -> Self {
        let mut shape = Self {
            segments: Vec::new(),
            rest: None,
            parameters: 0,
        };
        for text in path.split('/') {
            match Segment::of(text, &mut shape.parameters) {
                Segment::Rest(before) => shape.rest = Some(before),
                segment => shape.segments.push(segment),
            }
        }
        shape
    }

    /// How many parameters there are, but for the one that takes the rest.
    pub(crate) fn parameters(&self) -> usize {
        self.parameters
    }

    /// Whether there is a parameter that is a part of a segment.
    pub(crate) fn has_partial(&self) -> bool {
        let is_partial = |it: &Segment| match it {
            Segment::Parameter(before, after) => !(before.is_empty() && after.is_empty()),
            _ => false,
        };
        self.segments.iter().any(is_partial)
    }

    /// The higher, the more specific, whatever stands in the segments: how many stand before the rest, or the most
    /// without one.
    pub(crate) fn rank(&self) -> usize {
        match self.rest {
            Some(_) => self.segments.len(),
            None => usize::MAX,
        }
    }

    /// Which of two is more specific, of those that match the same path.
    pub(crate) fn specificity(&self, other: &Self) -> Ordering {
        let ranks = self.rank().cmp(&other.rank());
        ranks.then_with(|| self.fixed().cmp(other.fixed()))
    }

    /// What is fixed, from left to right.
    fn fixed(&self) -> impl Iterator<Item = (bool, usize, usize)> {
        let rest = self.rest.iter().map(|before| (false, before.len(), 0));
        self.segments.iter().map(Segment::fixed).chain(rest)
    }

    /// Whether it matches, for certain, every path that the other does.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let (length, others) = (self.segments.len(), other.segments.len());
        let is_long_enough = match (&self.rest, &other.rest) {
            (None, None) => length == others,
            (None, Some(_)) => false,
            (Some(rest), other_rest) => match (other.segments.get(length), other_rest) {
                (Some(segment), _) => segment.goes_beyond(rest),
                (None, Some(other)) => length == others && other.starts_with(rest),
                (None, None) => false,
            },
        };
        let mut pairs = self.segments.iter().zip(&other.segments);
        is_long_enough && pairs.all(|(one, other)| one.covers(other))
    }
}

impl Segment {
    fn of(text: &str, parameters: &mut usize) -> Self {
        let (mut before, mut after) = (String::new(), String::new());
        let (mut is_parameter, mut is_rest) = (false, false);
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            let is_brace = matches!(c, '{' | '}');
            let is_escaped = is_brace && chars.next_if_eq(&c).is_some();
            if is_brace && !is_escaped {
                is_parameter = true;
                is_rest = chars.peek() == Some(&'*');
                *parameters += usize::from(!is_rest);
                skip_name(&mut chars);
            } else if is_parameter {
                after.push(c);
            } else {
                before.push(c);
            }
        }
        match (is_parameter, is_rest) {
            (_, true) => Self::Rest(before),
            (true, false) => Self::Parameter(before, after),
            (false, false) => Self::Literal(before),
        }
    }

    /// Whether all of it is fixed, and how much of it before and behind a parameter.
    fn fixed(&self) -> (bool, usize, usize) {
        match self {
            Self::Literal(_) => (true, 0, 0),
            Self::Parameter(before, after) => (false, before.len(), after.len()),
            Self::Rest(before) => (false, before.len(), 0),
        }
    }

    /// Whether it begins so, and goes on.
    fn goes_beyond(&self, beginning: &str) -> bool {
        match self {
            Self::Literal(text) => text.len() > beginning.len() && text.starts_with(beginning),
            Self::Parameter(before, _) => before.starts_with(beginning),
            Self::Rest(_) => false,
        }
    }

    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (one, other) if one == other => true,
            // With something behind the parameter, it would be for the ends of all that the other matches to say.
            (Self::Parameter(before, after), other) => {
                after.is_empty() && other.goes_beyond(before)
            }
            _ => false,
        }
    }
}

/// Goes on behind the brace that ends a name, in which one that stands twice is a part of it, as everywhere.
fn skip_name(chars: &mut Peekable<Chars<'_>>) {
    while let Some(c) = chars.next() {
        if c == '}' && chars.next_if_eq(&'}').is_none() {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_change_the_shape() {
        for (one, other, expected) in [
            ("/a/{b}/{*c}", "/a/{d}/{*e}", true),
            ("/a/{b}/{*c}", "/a/{d}/{e}", false),
            ("/v{b}.json", "/v{c}.json", true),
            ("/v{b}.json", "/v{b}.jso", false),
            ("/{{b}}", "/{{c}}", false),
            ("/{b}}}", "/{c}", true),
            ("/{{{b}}}", "/{{{c}", true),
        ] {
            assert_eq!(
                Shape::of(one) == Shape::of(other),
                expected,
                "{one} {other}"
            );
        }
    }

    #[test]
    fn of_templates_that_match_one_path_the_most_specific_is_the_greatest() {
        let templates = [
            "/a.git/b",
            "/a.gi{b}/b",
            "/a{b}.git/b",
            "/a{b}t/b",
            "/a{b}/b",
            "/{a}.git/b",
            "/{a}.git/{b}",
            "/{a}t/b",
            "/{a}/b",
            "/{a}/{b}",
            "/{a}.git/b{*c}",
            "/{a}.git/{*c}",
            "/{a}/{*b}",
            "/a{*b}",
            "/{*a}",
        ];
        for (place, one) in templates.iter().enumerate() {
            for (other_place, other) in templates.iter().enumerate() {
                let found = Shape::of(one).specificity(&Shape::of(other));
                assert_eq!(found, other_place.cmp(&place), "{one} {other}");
            }
        }
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
            ("/a{*b}", "/ab", true),
            ("/a{*b}", "/ab/c", true),
            ("/a{*b}", "/a", false),
            ("/a{*b}", "/a{c}/d", true),
            ("/a{*b}", "/{c}", false),
            ("/a{*b}", "/ab{*c}", true),
            ("/ab{*c}", "/a{*b}", false),
            ("/{*b}", "/a{*b}", true),
            ("/a{*b}", "/{*b}", false),
            ("/{a}", "/a{*b}", false),
            ("/{{a}}", "/{{a}}", true),
            ("/{{{a}", "/{{b", true),
        ] {
            let covers = Shape::of(one).covers(&Shape::of(other));
            assert_eq!(covers, expected, "{one} {other}");
        }
    }
}
