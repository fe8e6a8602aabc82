//! Which request falls under which policy, from code or from a file: [`Rules`].
//!
//! One limiter often faces several limits: a search that is dearer than the rest, hosts of one's own that need
//! none, a tenant who pays for more. A table of rules says so in one place. A request falls under the first rule of
//! which it meets all conditions; the rule has a policy, or exempts it. The adapters go by the rules of their limiter
//! without another word.
//!
//! In code, [`Rules::new`] makes a table of [`Rule`]s:
//!
//! ```
//! use std::time::Duration;
//! use http::Method;
//! use tower_throttle::rules::{Rule, Rules};
//! use tower_throttle::{Limiter, Quota, ThrottleMiddleware};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rules = Rules::new([
//!     Rule::named("search")
//!         .host("api.github.com")
//!         .method(Method::GET)
//!         .path("/search/{*rest}")
//!         .quota(Quota::per_minute(30))
//!         .max_wait(Duration::from_secs(30)),
//!     Rule::exempt().host("*.internal.example"),
//!     Rule::named("others").quota(Quota::per_second(10)),
//! ])?;
//! let limiter = Limiter::builder().rules(rules).build()?;
//! let middleware = ThrottleMiddleware::new(limiter);
//! # Ok(())
//! # }
//! ```
//!
//! From a file, `Rules::read` (feature `serde`) reads the same, in TOML by the crate `toml`, in YAML by `serde-saphyr`,
//! in JSON by `serde_json`, or in whatever else has a deserializer; its documentation shows each of them:
//!
//! ```
//! # use tower_throttle::rules::Rules;
//! # use tower_throttle::Limiter;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = r#"
//! [[rules]]
//! name = "search"
//! host = "api.github.com"              # or a list; exact, or "*.example.com"
//! method = "GET"                       # or a list
//! path = "/search/{*rest}"             # or a list
//! header = { x-plan = "free" }         # this value, or true: it is there
//! quota = ["30/m", "1_000/h"]          # jointly, or one
//! key = ["host", "route"]              # whose quota
//! cost = 2
//! max_wait = "30s"
//! max_waiting = 100
//! buffer = "50ms"
//! guard = "8ms"
//! outage = { local = 0.25 }            # or "deny", or "allow"
//! recovery = "strict"
//!
//! [[rules]]
//! host = "*.internal.example"
//! exempt = true
//!
//! [[rules]]                            # everything else
//! name = "others"
//! quota = "10/s"
//! "#;
//! let rules = Rules::read(toml::Deserializer::parse(text)?)?;
//! let limiter = Limiter::builder().rules(rules).build()?;
//!
//! // Whenever the file has changed:
//! # let changed = text;
//! let reloaded = limiter.reload(Rules::read(toml::Deserializer::parse(changed)?)?)?;
//! println!("{reloaded}");
//! # Ok(())
//! # }
//! ```
//!
//! The last rule matches every request, so that none is unlimited, or refused, by oversight. To let all
//! others pass, end with `exempt = true` alone.
//!
//! # Fields
//!
//! Fields that are not named here are refused, and those without a value: `null`, or in YAML nothing behind the colon.
//! What may be a list may be a single value.
//!
//! | field | what it is | default |
//! | --- | --- | --- |
//! | `name` | [names](Rule::named) the policy, its state in the store, and what errors and metrics call it | none; needed unless exempt |
//! | `host` | list: [hosts](Rule::host), in ASCII, or `*.example.com` for those below; with a port, that port alone | any, or none |
//! | `method` | list: methods; `HEAD` falls under `GET`, too | any |
//! | `path` | list: [templates](crate::key::route()#templates) such as `/repos/{owner}/{repo}`, which may name a method, too | any |
//! | `header` | table: headers by name, each with its exact value, or `true` where it has to be there, or `false` where it must not | any |
//! | `exempt` | whether the requests are not limited; then there is none of the fields below | `false` |
//! | `quota` | list: [quotas as text](crate::Quota#as-text), which hold jointly | none; needed unless exempt |
//! | `key` | list: [parts of the key](KeyPart), joined: `host`, `route`, `client_ip`, `bearer_token`, `method`, `header:NAME`, `hashed-header:NAME`, `{ constant = "TEXT" }` | `host` |
//! | `trusted_proxies` | list: [networks](crate::key::ClientIp::trusted_proxies) that are believed as to `client_ip` | none |
//! | `cost` | what each request costs, up to what the quotas hold | 1 |
//! | `max_wait` | [the longest wait](crate::LimiterBuilder::max_wait), a time | any wait |
//! | `max_waiting` | [the longest line](crate::LimiterBuilder::max_waiting) for each key and process | any number |
//! | `buffer` | [extra spacing](crate::LimiterBuilder::buffer), a time up to `1h` | `0s` |
//! | `guard` | [how late](crate::LimiterBuilder::guard) a request may depart, a time up to `1h` | from the quotas, `5ms` to `12ms` |
//! | `outage` | [while the store is out](crate::Outage): `deny`, `allow`, or `{ local = SHARE }` | `deny` |
//! | `recovery` | [when it has lost state](crate::Recovery): `immediate` or `strict` | `immediate` |
//!
//! A time is text with its unit, such as `30s`, `50ms` or `1m 30s`; a bare number is refused.
//!
//! `rules.schema.json`, beside the sources, is a JSON Schema of all that, for editors that know those. It knows the text of
//! a quota and what each rule needs; what hosts, paths and networks may look like, and what compares rules or numbers, is
//! found when the file is read.
//!
//! # What is wrong, and what is of no use
//!
//! [`RulesError`] names each mistake by its place, its value and what to do, and all of them at once; but what cannot be
//! read, such as a field that there is not, it names alone. A limiter that is built or reloaded by rules that have no
//! mistakes cannot fail. Rules that no request reaches are none, but [`Rules::warnings`] names them. [`Rules::explain`]
//! says which rule a given request falls under, and why none of those before.
//!
//! # State
//!
//! Each rule has lines, pauses and a state in the store of its own, by its name, also where two have equal quotas: so
//! rules may change their places. A pause that an upstream asks for holds for the key under the rule by which the
//! request departed. All rules share the store, what is known of its clock and of whether it is out, and one
//! subscription.
//!
//! Whoever has a key but no request, as [`Limiter::acquire`](crate::Limiter::acquire) and its like have, goes by
//! the last rule, or by [any that is named](crate::Limiter::rule).
//!
//! # Callers you do not trust
//!
//! In a server, host, path, method and headers are whatever the caller wrote: by them the caller chooses the
//! rule. Mind that no choice is better than the one that you mean, and let keys be something that callers cannot choose.

mod check;
mod conditions;
mod error;
mod explain;
mod extractor;
#[cfg(feature = "serde")]
mod file;
mod host;
mod key;
mod live;
mod reloaded;
mod rule;
mod table;
mod warning;

pub(crate) use self::live::Live;
pub use self::{
    conditions::Condition,
    error::{Mistake, RulesError},
    explain::{Explanation, Miss},
    extractor::{ByRules, by_rules},
    key::KeyPart,
    reloaded::Reloaded,
    rule::Rule,
    table::{RuleRef, Rules},
    warning::Warning,
};
