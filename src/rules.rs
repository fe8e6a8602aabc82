//! Rules that choose the policy of each request, from code or from a file: [`Rules`].
//!
//! One limiter often faces several limits: a search that is more expensive than the rest, internal hosts that need none, a
//! customer who pays for more. A table of rules declares them in one place. A request falls under the first rule that it
//! matches in all conditions; that rule has a policy, or exempts the request. The adapters apply the rules of their limiter by
//! default.
//!
//! A request counts under its rule alone. If one rule allows 2/s for `POST` and the next one 5/s for all others, a host gets up to
//! 7/s. For a limit within a limit, count some requests in another [unit](crate::Quota::unit), by the
//! [cost](crate::ThrottleLayer::cost) of the layer.
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
//! From a file, `Rules::read` (feature `serde`) reads the same, in TOML by the crate `toml` 1, in YAML by `serde-saphyr`,
//! in JSON by `serde_json`, or by any other deserializer; its documentation shows each of them:
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
//! header = { x-plan = "free" }         # this value, or true for any
//! quota = ["30/m", "1_000/h"]          # jointly, or one
//! key = ["host", "route"]              # a quota for each of these
//! cost = 2
//! priority = "low"                     # "highest", "high", "normal", "low", "lowest"
//! share = { header = "x-tenant" }      # tenants divide the quota
//! weight = 3                           # of each share
//! reserve = { low = 0.1 }              # so that this level does not starve
//! max_wait = "30s"
//! max_waiting = 100
//! buffer = "50ms"
//! guard = "8ms"
//! outage = { local = 0.25 }            # or "deny", or "allow"
//! recovery = "strict"
//! lost = "abort"                       # or "continue": for requests in progress, such as "20 concurrent"
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
//! limiter.reload(Rules::read(toml::Deserializer::parse(changed)?)?)?;
//! # Ok(())
//! # }
//! ```
//!
//! The last rule must match every request, so that no request is unlimited or refused by mistake. To let all
//! others pass, end with `exempt = true` alone.
//!
//! # Fields of a rule
//!
//! Unknown fields are refused. So are fields without a value: `null`, `[]`, `{}`, or nothing after the colon in YAML. If a
//! `header` or `reserve` in JSON lists a name twice, the last value counts. Instead of a list, you can write a single value.
//!
//! | field | meaning | default |
//! | --- | --- | --- |
//! | `name` | [names](Rule::named) the policy, its state in the store, its errors and metrics | none; needed unless exempt |
//! | `host` | list: [hosts](Rule::host), in ASCII, or `*.example.com` for those below; with a port, that port alone | any host; also requests without one |
//! | `method` | list: methods; `HEAD` falls under `GET`, too | any |
//! | `path` | list: [templates](crate::key::route()#templates) such as `/repos/{owner}/{repo}`, which may name a method, too | any |
//! | `header` | table: headers by name, each with its exact value, or `true` if it must be present, or `false` if it must be absent | any |
//! | `exempt` | `true` if the requests are not limited; excludes the fields below | `false` |
//! | `quota` | list: [quotas as text](crate::Quota#as-text), which hold jointly | none; needed unless exempt |
//! | `key` | list: [parts of the key](KeyPart), joined: `host`, `route`, `client_ip`, `bearer_token`, `method`, `{ header = "NAME" }`, `{ hashed_header = "NAME" }`, `{ constant = "TEXT" }` | `host` |
//! | `trusted_proxies` | list: [networks](crate::key::ClientIp::trusted_proxies) whose headers are trusted for `client_ip`, in `key` or `share` | none |
//! | `cost` | the cost, in requests, of each request that names none; up to the smallest quota | that of the quotas, or 1 |
//! | `priority` | [the level](crate::Priority) of each request under this rule that has none of its own: `highest`, `high`, `normal`, `low` or `lowest` | `normal` |
//! | `share` | [the part](Rule::share) of each request that names its [share](crate::Share): one part, as in `key` | none |
//! | `weight` | [the weight](Rule::weight) of each share, from 1 to 65,535; requests without a share have the weight 1; needs a `share` | 1 |
//! | `reserve` | table: levels, each with [the part of the capacity](crate::LimiterBuilder::reserve) that it has for itself, together at most 1 | none |
//! | `max_wait` | [the longest wait](crate::LimiterBuilder::max_wait), a time | any wait |
//! | `max_waiting` | [the longest queue](crate::LimiterBuilder::max_waiting) for each key and process | any number |
//! | `buffer` | [extra spacing](crate::LimiterBuilder::buffer), a time up to `1h` | `0s` |
//! | `guard` | [how late](crate::LimiterBuilder::guard) a request may depart, a time from `100us` to `1h` | from the quotas, `5ms` to `12ms` |
//! | `outage` | [while the store is unavailable](crate::Outage): `deny`, `allow`, or `{ local = SHARE }` | `deny` |
//! | `recovery` | [after the store has lost state](crate::Recovery): `immediate` or `strict` | `immediate` |
//! | `lost` | [work whose lease has ended](crate::Lost): `continue` or `abort`; only for `LIMIT concurrent` | `continue` |
//!
//! A request or its response may name a cost in a unit that its rule does not count: the adapters ignore that part of the cost.
//!
//! A time is text with its unit, such as `30s`, `50ms` or `1m 30s`; a bare number is refused, except `"0"`.
//!
//! `rules.schema.json`, in the repository, is a JSON Schema of such files for editors. Name it in the field `$schema` of a JSON
//! file, or in a comment that begins with `#:schema ` in TOML, or `# yaml-language-server: $schema=` in YAML. It checks the text of
//! quotas and the fields that each rule needs. It does not check hosts, methods, paths, networks, names in `header` or the share of
//! `local`, nor whether values and rules fit together; the reader does.
//!
//! # Mistakes and warnings
//!
//! [`RulesError`] reports all mistakes at once, each with its place, its value and the way to fix it. Only a text that cannot
//! be read, for instance because of an unknown field, is reported alone. Rules without mistakes never make a limiter or a
//! reload fail. Rules that no request reaches are allowed; [`Rules::warnings`] lists those of which one earlier rule takes all
//! requests. [`Rules::explain`] returns the rule that a request falls under, and the reasons why the rules before it do not
//! match.
//!
//! # State
//!
//! Each rule has its own queues, pauses and state in the store, by its name, even if two rules have equal quotas. So
//! rules may change their places. If an upstream asks for a pause, it holds for the key under the rule by which the
//! request departed. All rules share the store, its clock and availability, and one subscription.
//!
//! Calls with a key but without a request, such as [`Limiter::acquire`](crate::Limiter::acquire), use
//! the last rule, or [the one that you name](crate::Limiter::rule): its quotas and bounds, not its `priority`, `share`,
//! `weight` and `cost`. [`pause`](crate::Limiter::pause), [`resume`](crate::Limiter::resume) and [`reset`](crate::Limiter::reset)
//! apply to the key under all rules.
//!
//! # Callers you do not trust
//!
//! In a server, the caller chooses host, path, method and headers, and so the rule. Make sure that no rule gives the
//! caller more than you intend, and use keys and shares that callers cannot choose. In a nested axum router, a path is without
//! the [prefix of the nest](crate::key::route()#templates), so a rule with the whole path does not match.

mod check;
mod conditions;
mod error;
#[cfg(feature = "serde")]
mod file;
mod host;
mod key;
mod report;
mod rule;
mod table;

pub use self::{
    error::RulesError,
    key::KeyPart,
    report::{Explanation, Miss, Warning},
    rule::Rule,
    table::{RuleRef, Rules},
};
