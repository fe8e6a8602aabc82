//! Which paths a template matches, compared with those of another: [`Shape`].

/// A template of paths without the names of its parameters, segment by segment.
#[derive(Debug)]
pub(super) struct Shape {
    segments: Vec<Segment>,
    /// How the rest begins of which it takes all, if it does; something has to follow.
    rest: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    /// What is not empty, between these.
    Parameter(String, String),
    /// All that follows this.
    Rest(String),
}

impl Shape {
    /// Of a path that was found to be well-formed.
    pub(super) fn of(path: &str) -> Self {
        let mut segments = Vec::new();
        let mut rest = None;
        for text in path.split('/') {
            match Segment::of(text) {
                Segment::Rest(before) => rest = Some(before),
                segment => segments.push(segment),
            }
        }
        Self { segments, rest }
    }

    /// Whether it matches, for certain, every path that the other does.
    pub(super) fn covers(&self, other: &Self) -> bool {
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
    fn of(text: &str) -> Self {
        let (mut before, mut after) = (String::new(), String::new());
        let (mut is_parameter, mut is_rest) = (false, false);
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            let is_brace = matches!(c, '{' | '}');
            let is_escaped = is_brace && chars.next_if_eq(&c).is_some();
            if is_brace && !is_escaped {
                is_parameter = true;
                is_rest = chars.peek() == Some(&'*');
                chars.by_ref().find(|&c| c == '}');
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
            // With something behind the parameter, where that ends is for the router to say.
            (Self::Parameter(before, after), other) => {
                after.is_empty() && other.goes_beyond(before)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
