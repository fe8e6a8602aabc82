//! Rules as they stand in a file, and what is made of them.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::check;
use super::error::{Mistake, RulesError};
use super::key::KeyPart;
use super::rule::{Listed, Rule, Wanted};
use super::table::Rules;
use super::value::{Either, Given, Header, Headers, OneOrMany, Part, Span};
use crate::outage::Outage;
use crate::quota::Quota;
use crate::recovery::Recovery;

/// A table of rules. A request falls under the first that matches it; the last matches every request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct File {
    /// In the order in which they are tried.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub(super) rules: Vec<FileRule>,
}

/// Which requests, and what holds for them.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(
    test,
    derive(schemars::JsonSchema),
    schemars(rename = "Rule", transform = super::schema::limits_or_is_exempt)
)]
pub(super) struct FileRule {
    /// Names the policy and its state in the store; needed unless the rule is exempt.
    #[cfg_attr(
        test,
        schemars(length(min = 1, max = 128), regex(pattern = r"^[!-z|~]+$"))
    )]
    name: Given<String>,
    /// Whether the requests are not limited; then there is no quota, nor anything that goes with one.
    exempt: Given<bool>,
    /// Hosts, exact or as `*.example.com` for all below; with a port, that port alone.
    host: Given<OneOrMany<String>>,
    /// Methods, in upper case; `HEAD` falls under `GET`.
    method: Given<OneOrMany<String>>,
    /// Templates of paths, such as `/repos/{owner}/{repo}` or `/files/{*rest}`.
    path: Given<OneOrMany<String>>,
    /// Headers by their names: their exact values, or whether they have to be there.
    header: Given<Headers>,
    /// Quotas such as `10/s` or `100/m gcra burst=20`, which hold jointly; needed unless the rule is exempt.
    #[cfg_attr(test, schemars(with = "Given<OneOrMany<super::schema::QuotaText>>"))]
    quota: Given<OneOrMany<String>>,
    /// Whose quota a request spends; by default its host's.
    key: Given<OneOrMany<Part>>,
    /// Networks of the proxies that are believed as to a client's address.
    trusted_proxies: Given<OneOrMany<String>>,
    /// What each request costs; by default 1.
    #[cfg_attr(test, schemars(range(min = 1)))]
    cost: Given<u32>,
    /// The longest wait; by default any.
    max_wait: Given<Span>,
    /// The longest line for each key and process; by default any.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_waiting: Given<usize>,
    /// Extra spacing for the jitter between departure and arrival; by default none.
    buffer: Given<Span>,
    /// How late after its slot a request may still depart; by default it follows from the quotas.
    guard: Given<Span>,
    /// What becomes of requests while the store is out; by default they wait for it.
    outage: Given<FileOutage>,
    /// What becomes of a key whose state is lost; by default it starts anew at once.
    recovery: Given<FileRecovery>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Outage"))]
enum FileOutage {
    /// Nothing departs.
    Deny,
    /// Everything departs, uncounted.
    Allow,
    /// This process counts by itself, with this share of the quotas.
    Local(f64),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Recovery"))]
enum FileRecovery {
    /// The key starts anew at once.
    Immediate,
    /// The key rests until what departed before counts no longer.
    Strict,
}

impl Rules {
    /// Reads rules in the format of a deserializer, such as that of TOML, YAML or JSON.
    ///
    /// As they stand [in a file](super): a table with the one field `rules`, or the list of them alone. All mistakes
    /// are told, each by its place; but what cannot be read is told alone.
    ///
    /// ```
    /// use tower_throttle::rules::Rules;
    ///
    /// let text = "
    /// [[rules]]
    /// name = 'all'
    /// quota = '10/s'
    /// max_wait = 30
    /// ";
    /// let error = Rules::read(toml::Deserializer::parse(text)?).unwrap_err();
    /// assert_eq!(error.to_string(), r#"rules[0].max_wait: 30 says no unit: write "30s" for seconds"#);
    /// # Ok::<_, toml::de::Error>(())
    /// ```
    ///
    /// A deserializer of JSON stops behind the table, so ask it whether the text ends there; else whatever follows, such
    /// as half of another table, is passed over:
    ///
    /// ```
    /// use tower_throttle::rules::Rules;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let text = r#"{ "rules": [{ "name": "all", "quota": "10/s", "max_wait": "30s" }] }"#;
    /// let mut document = serde_json::Deserializer::from_str(text);
    /// let rules = Rules::read(&mut document)?;
    /// document.end()?;
    /// # assert_eq!(rules.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// One of YAML, here by [serde-saphyr](https://docs.rs/serde-saphyr), is lent to a closure, and looks at the end by
    /// itself:
    ///
    /// ```
    /// use serde::de::Error as _;
    /// use tower_throttle::rules::Rules;
    ///
    /// let text = "
    /// rules:
    /// - name: all
    ///   quota: 10/s
    ///   max_wait: 30s
    /// ";
    /// let rules = serde_saphyr::with_deserializer_from_str(text, |document| {
    ///     Rules::read(document).map_err(serde_saphyr::Error::custom)
    /// })?;
    /// # assert_eq!(rules.len(), 1);
    /// # Ok::<_, serde_saphyr::Error>(())
    /// ```
    ///
    /// Where the text of an error is enough, `toml::from_str::<Rules>(text)`, `serde_json::from_str` and
    /// `serde_saphyr::from_str` do the same, and look at the end, all three.
    ///
    /// # Errors
    ///
    /// If the text breaks the rules of its format, or holds an unknown field or one of another type, the error names
    /// that alone, in the words of the format: with the path of the field, and the line and column if it knows
    /// them. Of what can be read, it names all that cannot hold.
    pub fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, RulesError> {
        let read: Result<Table, _> = serde_path_to_error::deserialize(deserializer);
        match read {
            Ok(table) => table.rules(),
            Err(error) => {
                let path = error.path().to_string();
                let place = match path.as_str() {
                    "." => "",
                    path => path,
                };
                let rules = if place.starts_with('[') { "rules" } else { "" };
                let problem = error.inner().to_string();
                let mistake = Mistake::new(format!("{rules}{place}"), problem.trim_end());
                Err(RulesError::malformed(mistake))
            }
        }
    }
}

/// As [`Rules::read`] does, so that rules can be a part of another configuration; all mistakes are in the message of one error.
///
/// ```
/// use tower_throttle::rules::Rules;
///
/// #[derive(serde::Deserialize)]
/// struct Config {
///     redis: String,
///     rules: Rules,
/// }
///
/// let config: Config = toml::from_str(r#"
///     redis = "redis://127.0.0.1/"
///
///     [[rules]]
///     name = "all"
///     quota = "10/s"
/// "#)?;
/// assert_eq!(config.rules.len(), 1);
/// # Ok::<_, toml::de::Error>(())
/// ```
impl<'de> Deserialize<'de> for Rules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let table = Table::deserialize(deserializer)?;
        table.rules().map_err(D::Error::custom)
    }
}

/// The rules of a file, or the list of them alone.
pub(super) struct Table(Vec<FileRule>);

impl<'de> Deserialize<'de> for Table {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a table with the field `rules`, or a list of rules";
        let either = Either::new(expected, |file: File| Self(file.rules), Self);
        deserializer.deserialize_any(either)
    }
}

impl Table {
    fn rules(self) -> Result<Rules, RulesError> {
        let mut mistakes = Vec::new();
        let rules = self.0.into_iter().enumerate();
        let rules = rules.map(|(index, rule)| rule.read(&mut Wrong(index, &mut mistakes)));
        let rules = rules.collect();
        check::check(rules, mistakes)
    }
}

/// What is wrong with the rule of this place.
struct Wrong<'a>(usize, &'a mut Vec<Mistake>);

impl Wrong<'_> {
    fn note(&mut self, place: &str, problem: impl fmt::Display) {
        let within = format!(".{place}");
        let mistake = Mistake::of_rule(self.0, &within, problem.to_string());
        self.1.push(mistake);
    }

    /// What a list says, without the items that are wrong.
    fn list<S, T, E: fmt::Display>(
        &mut self,
        field: &str,
        given: Given<OneOrMany<S>>,
        read: impl Fn(S) -> Result<T, E>,
    ) -> Listed<T> {
        let Given(Some(given)) = given else {
            return Listed::default();
        };
        let given = given.listed();
        let mut listed = Listed {
            items: Vec::new(),
            count: given.count,
            is_list: given.is_list,
        };
        for (index, item) in given.items {
            match read(item) {
                Ok(item) => listed.items.push((index, item)),
                Err(problem) => self.note(&listed.place(field, index), problem),
            }
        }
        listed
    }

    fn span(&mut self, field: &str, given: Given<Span>) -> Option<Duration> {
        match given.0?.read() {
            Ok(span) => Some(span),
            Err(problem) => {
                self.note(field, problem);
                None
            }
        }
    }
}

impl FileRule {
    fn read(self, wrong: &mut Wrong<'_>) -> Rule {
        let same = |text| Ok::<_, String>(text);
        Rule {
            name: self.name.0,
            exempt: self.exempt.0.unwrap_or_default(),
            host: wrong.list("host", self.host, same),
            method: wrong.list("method", self.method, same),
            path: wrong.list("path", self.path, same),
            header: self.header.0.unwrap_or_default().by_name(),
            quota: wrong.list("quota", self.quota, |text| text.parse::<Quota>()),
            key: wrong.list("key", self.key, KeyPart::try_from),
            trusted_proxies: wrong.list("trusted_proxies", self.trusted_proxies, network),
            cost: self.cost.0,
            max_wait: wrong.span("max_wait", self.max_wait),
            max_waiting: self.max_waiting.0,
            buffer: wrong.span("buffer", self.buffer),
            guard: wrong.span("guard", self.guard),
            outage: self.outage.0.map(Outage::from),
            recovery: self.recovery.0.map(Recovery::from),
        }
    }
}

fn network(text: String) -> Result<IpNet, String> {
    let address = || text.parse::<IpAddr>().map(IpNet::from);
    let network = text.parse().ok().or_else(|| address().ok());
    network.ok_or_else(|| format!("{text:?} is no network, such as `10.0.0.0/8`"))
}

impl TryFrom<Part> for KeyPart {
    type Error = String;

    fn try_from(part: Part) -> Result<Self, String> {
        let text = match part {
            Part::Constant(text) => return Ok(Self::Constant(text)),
            Part::Text(text) => text,
        };
        match text.split_once(':') {
            Some(("header", name)) => return Ok(Self::Header(name.to_owned())),
            Some(("hashed-header", name)) => return Ok(Self::HashedHeader(name.to_owned())),
            _ => {}
        }
        match text.as_str() {
            "host" => Ok(Self::Host),
            "route" => Ok(Self::Route),
            "client_ip" => Ok(Self::ClientIp),
            "bearer_token" => Ok(Self::BearerToken),
            "method" => Ok(Self::Method),
            _ => Err(format!(
                "{text:?} is no part of a key, which are `host`, `route`, `client_ip`, `bearer_token`, `method`, \
                 `header:NAME`, `hashed-header:NAME` and `{{ constant = \"TEXT\" }}`"
            )),
        }
    }
}

impl From<Header> for Wanted {
    fn from(header: Header) -> Self {
        match header {
            Header::IsThere(true) => Self::There,
            Header::IsThere(false) => Self::NotThere,
            Header::Value(value) => Self::Value(value),
        }
    }
}

impl From<FileOutage> for Outage {
    fn from(outage: FileOutage) -> Self {
        match outage {
            FileOutage::Deny => Self::Deny,
            FileOutage::Allow => Self::Allow,
            FileOutage::Local(share) => Self::Local { share },
        }
    }
}

impl From<FileRecovery> for Recovery {
    fn from(recovery: FileRecovery) -> Self {
        match recovery {
            FileRecovery::Immediate => Self::Immediate,
            FileRecovery::Strict => Self::Strict,
        }
    }
}
