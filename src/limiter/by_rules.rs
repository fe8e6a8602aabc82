//! The rules of a limiter as a key extractor: [`ByRules`].

use super::Limiter;
use crate::key::{Extracted, KeyExtractor, RequestHead, host};

impl Limiter {
    /// An extractor that takes the policy, the key and the cost from the rules of this limiter; the
    /// [`host`](crate::key::host()) as the key if it has no rules. This is the default of the adapters.
    ///
    /// A request falls under the rules at its time: a reload changes them for the extractor, too.
    ///
    /// ```
    /// use tower_throttle::key::{Extracted, KeyExtractor};
    /// use tower_throttle::rules::{Rule, Rules};
    /// use tower_throttle::{Limiter, Quota};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let table = Rules::new([
    ///     Rule::named("search").path("/search").quota(Quota::per_minute(30)).cost(2),
    ///     Rule::exempt(),
    /// ])?;
    /// let extractor = Limiter::builder().rules(table).build()?.by_rules();
    ///
    /// let search = http::Request::get("https://api.example.com/search").body(())?;
    /// let Extracted::Ruled(ruled) = extractor.extract(&search) else { panic!("not exempt") };
    /// assert_eq!(ruled.rule(), "search");
    /// assert_eq!(ruled.key, Ok("api.example.com".into()));
    /// assert_eq!(ruled.cost, 2);
    ///
    /// let other = http::Request::get("https://api.example.com/").body(())?;
    /// assert_eq!(extractor.extract(&other), Extracted::Exempt);
    /// # Ok(())
    /// # }
    /// ```
    pub fn by_rules(&self) -> ByRules {
        ByRules(self.clone())
    }
}

/// Takes the policy, the key and the cost from the rules of a limiter; made by
/// [`Limiter::by_rules`].
#[derive(Debug, Clone)]
#[must_use = "an extractor does nothing until a request is given to it"]
pub struct ByRules(Limiter);

impl<R: RequestHead> KeyExtractor<R> for ByRules {
    fn extract(&self, request: &R) -> Extracted {
        match self.0.live() {
            Some(live) => live.judge(request),
            None => host().extract(request),
        }
    }
}
