//! A thousand rules.

use tower_throttle::key::{Extracted, KeyExtractor as _};
use tower_throttle::rules::{KeyPart, Rule};

use crate::rules::{get, limiter, per_hour, rules};

fn thousand() -> Vec<Rule> {
    let rule = |number: u32| {
        let rule = per_hour(&format!("rule-{number}"), 1 + number);
        match number % 4 {
            0 => rule.host(format!("{number}.example")),
            1 => rule.host(format!("*.{number}.example")),
            2 => rule.path(format!("/{number}/{{*rest}}")),
            _ => rule.has_header(format!("x-{number}"), true),
        }
    };
    let mut all: Vec<_> = (0..1_000).map(rule).collect();
    all.push(Rule::exempt());
    all
}

#[tokio::test]
async fn each_of_a_thousand_rules_is_found_and_has_a_state_of_its_own() {
    let limiter = limiter(thousand());
    let extractor = limiter.by_rules();
    for number in 0..1_000 {
        let mut request = get(&match number % 4 {
            0 => format!("https://{number}.example/"),
            1 => format!("https://a.{number}.example/"),
            2 => format!("https://a.example/{number}/b"),
            _ => "https://a.example/".to_owned(),
        });
        let name: http::HeaderName = format!("x-{number}").parse().expect("a name");
        request
            .headers_mut()
            .insert(name, http::HeaderValue::from_static("1"));
        let Extracted::Ruled(ruled) = extractor.extract(&request) else {
            panic!("{request:?}");
        };
        assert_eq!(ruled.rule(), format!("rule-{number}"));
        let rule = limiter.rule(ruled.rule()).expect("a rule");
        rule.acquire("a").await.expect("a permit");
        let snapshot = rule.peek("a").await.expect("a snapshot");
        assert_eq!(snapshot.remaining(), number);
    }
    assert_eq!(
        extractor.extract(&get("https://a.example/")),
        Extracted::Exempt
    );
}

#[test]
fn none_of_a_thousand_rules_is_in_the_way_of_another() {
    assert_eq!(rules(thousand()).warnings(), []);
}

#[test]
fn a_thousand_rules_are_reloaded() {
    let limiter = limiter(thousand());
    let mut changed = thousand();
    changed[500] = per_hour("rule-500", 1_000_000);
    let reloaded = limiter.reload(rules(changed)).expect("rules");
    assert_eq!(reloaded.changed.len(), 1);
    assert_eq!(reloaded.changed[0].name(), Some("rule-500"));
    assert_eq!(reloaded.unchanged.len(), 1_000);
    let key = KeyPart::Constant("all".into());
    let reloaded = limiter
        .reload(rules([per_hour("rule-0", 1).key(key)]))
        .expect("rules");
    assert_eq!(reloaded.removed.len(), 1_000);
}
