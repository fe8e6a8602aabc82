//! A quota in a configuration: its [text](Quota#as-text).

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Quota;

/// Writes the quota as its text; feature `serde`.
impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads the text of a quota, such as `"100/m gcra burst=20"`; feature `serde`.
///
/// ```
/// use tower_throttle::Quota;
///
/// #[derive(serde::Deserialize)]
/// struct Upstream {
///     url: String,
///     quotas: Vec<Quota>,
/// }
///
/// let text = r#"{ "url": "https://api.example.com", "quotas": ["10/s", "5_000/h"] }"#;
/// let upstream: Upstream = serde_json::from_str(text)?;
/// assert_eq!(upstream.quotas, [Quota::per_second(10), Quota::per_hour(5_000)]);
/// # Ok::<_, serde_json::Error>(())
/// ```
impl<'de> Deserialize<'de> for Quota {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_written_and_read_as_its_text() {
        let text = r#""100/1m30s gcra burst=20""#;
        let quota: Quota = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&quota).unwrap(), text);
        let error = |text| serde_json::from_str::<Quota>(text).unwrap_err().to_string();
        assert!(error(r#""10/fortnight""#).contains("unexpected \"fortnight\""));
        assert!(error("10").contains("expected a string"));
    }
}
