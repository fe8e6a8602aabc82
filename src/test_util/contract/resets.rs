//! Forgetting a key on purpose.

use super::bench::Bench;
use super::policies::{each, kinds, log, policy};
use super::remaining::check_fresh;
use super::{LONG, at_once, granted, judge, require};
use crate::key::Key;
use crate::limiter::Limiter;
use crate::policy::Policy;
use crate::quota::Quota;
use crate::store::Store;

/// It changes nothing, however often it is done.
pub(super) async fn a_reset_of_a_fresh_key_is_none<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        for _ in 0..3 {
            bench.reset(&key, &policy).await;
            let (_, answer) = bench.promise(&key, &policy, 1).await;
            check_fresh(bench, &policy, &answer, "after a reset of a fresh key");
        }
        let departs = !granted(&bench.ask(&key, &policy, &[at_once(1)]).await).is_empty();
        require!(bench, departs, "{name}: after a reset, nothing departs");
    }
}

/// Departures, slots to come and those that were given back.
pub(super) async fn a_reset_forgets_all_of_a_key<S: Store>(bench: &Bench<S>) {
    for (name, policy) in kinds(bench).await {
        let key = bench.key(name);
        let slots = bench.slots(&key, &policy, 7).await;
        bench.release(&key, &policy, &slots[3..5]).await;
        bench.reset(&key, &policy).await;
        let (_, answer) = bench.promise(&key, &policy, 1).await;
        check_fresh(bench, &policy, &answer, "after a reset");

        // Would any of it still count, or a free slot be had again, these would show it.
        let slots = bench.slots(&key, &policy, 8).await;
        judge::keeps(bench, &policy, &slots);
        judge::wastes_little(bench, &policy, &slots, bench.now().await);
    }
}

/// Neither other keys, however alike, nor other policies of the key.
pub(super) async fn a_reset_leaves_all_others_alone<S: Store>(bench: &Bench<S>) {
    let reset = bench.key("key");
    let named = Limiter::builder().quota(Quota::new(1, LONG)).name("other");
    let named = named.build().expect("a quota that can hold").policy();
    let single = log(1);
    let joint = policy(&[Quota::new(1, LONG), Quota::new(1, LONG * 2)]);
    let mut others: Vec<(Key, &Policy)> = ["", "*", "?", "[a-z]", "a", ":aside", ":0"]
        .iter()
        .map(|end| (bench.key(&format!("key{end}-other")), &*single))
        .collect();
    others.push((Key::from(format!("{}*", reset.as_str())), &single));
    others.push((Key::from(format!("{}:aside", reset.as_str())), &single));
    let counted = each(bench, 1).await.map(|(_, quota)| policy(&[quota]));
    // The first of these is the one that is reset.
    others.extend(counted[1..].iter().map(|policy| (reset.clone(), &**policy)));
    others.extend([(reset.clone(), &*named), (reset.clone(), &*joint)]);
    for (key, policy) in &others {
        bench.slots(key, policy, 1).await;
    }
    bench.slots(&reset, &single, 3).await;

    let glob = Key::from(format!("{}*", &reset.as_str()[..3]));
    bench.reset(&glob, &single).await;
    let still = granted(&bench.ask(&reset, &single, &[at_once(1)]).await).is_empty();
    require!(bench, still, "a reset of {glob} has forgotten {reset}");

    bench.reset(&reset, &single).await;
    for (key, policy) in &others {
        let still = granted(&bench.ask(key, policy, &[at_once(1)]).await).is_empty();
        require!(
            bench,
            still,
            "{key} is forgotten for {}, as {reset} was reset for {}",
            policy.id(),
            single.id()
        );
    }
}
