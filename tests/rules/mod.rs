//! Rules from code and from files: which request falls under which, what is wrong with those that cannot hold, and
//! what the adapters and a reload make of them.

mod clients;
mod files;
mod matching;
mod mistakes;
mod reload;

use crate::prelude::*;

fn rules(rules: impl IntoIterator<Item = Rule>) -> Rules {
    Rules::new(rules).expect("rules that hold")
}

fn limiter(all: impl IntoIterator<Item = Rule>) -> Limiter {
    build(Limiter::builder().rules(rules(all)))
}

fn per_hour(name: &str, limit: u32) -> Rule {
    Rule::named(name).quota(Quota::per_hour(limit))
}

fn get(uri: &str) -> Request<()> {
    Request::get(uri).body(()).expect("a request")
}

fn toml(text: &str) -> Result<Rules, RulesError> {
    Rules::read(toml::Deserializer::parse(text).expect("toml"))
}

fn json(text: &str) -> Result<Rules, RulesError> {
    Rules::read(&mut serde_json::Deserializer::from_str(text))
}

fn yaml(text: &str) -> Result<Rules, RulesError> {
    let mut read = None;
    let options = serde_saphyr::options! { strict_booleans: true };
    let end = serde_saphyr::with_deserializer_from_str_with_options(text, options, |document| {
        read = Some(Rules::read(document));
        Ok(())
    });
    let read = read.expect("a document");
    // The rest of a value that was not read to its end looks like another document.
    assert!(read.is_err() || end.is_ok(), "{end:?}");
    read
}
