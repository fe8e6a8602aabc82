use proptest::prelude::*;

use super::*;

const NS: fn(u64) -> Duration = Duration::from_nanos;

#[test]
#[should_panic(expected = "nothing to assert")]
fn a_zero_window_is_refused_by_the_assertion() {
    let history: History = [NS(1)].into_iter().collect();
    history.assert_at_most(1, Duration::ZERO);
}

#[test]
fn instants_count_from_the_first_in_whatever_order_they_come() {
    let (first, ms) = (std::time::Instant::now(), Duration::from_millis);
    let times = [first + ms(30), first, first + ms(10)];
    let history: History = times.into_iter().collect();
    let expected = [0, 10, 30].map(ms);
    assert_eq!(history.times().collect::<Vec<_>>(), expected);
    let times = times.map(Instant::from_std);
    assert_eq!(times.into_iter().collect::<History>(), history);
    assert!(History::from_iter([first; 0]).is_empty());
}

proptest! {
    /// The model asks every event how much lies in the window that starts at it, and knows no order.
    #[test]
    fn agrees_with_counting_every_window_by_hand(
        events in prop::collection::vec((0_u64..60, 1_u64..4), 0..40),
        window in 1_u64..80,
    ) {
        let inside = |start: u64| {
            events.iter().filter(move |(at, _)| (start..start + window).contains(at))
        };
        let weight = |start: u64| inside(start).map(|(_, weight)| weight).sum::<u64>();
        let most = events.iter().map(|(start, _)| weight(*start)).max().unwrap_or(0);
        // Starts that are no event, too: the shortcut above is itself part of what is checked.
        let most_anywhere = (0..60).map(weight).max().unwrap_or(0);

        let collected: History = events.iter().map(|(at, weight)| (NS(*at), *weight)).collect();
        let mut pushed = History::new();
        events.iter().for_each(|(at, weight)| pushed.push_weighted(NS(*at), *weight));

        prop_assert_eq!(&collected, &pushed);
        let total = events.iter().map(|(_, weight)| weight).sum();
        prop_assert_eq!((collected.len(), collected.weight()), (events.len(), total));
        prop_assert_eq!(collected.most_in_any(Duration::MAX), total);
        prop_assert_eq!(collected.most_in_any(NS(window)), most);
        prop_assert_eq!(most, most_anywhere);
        let (fullest, fullest_weight) = collected.fullest(NS(window));
        prop_assert_eq!(fullest_weight, most);
        if let Some(first) = collected.times().nth(fullest.start) {
            let start = u64::try_from(first.as_nanos()).unwrap();
            prop_assert_eq!(weight(start), most);
            let is_less = |(at, _): &(u64, u64)| *at >= start || weight(*at) < most;
            prop_assert!(events.iter().all(is_less), "it is the first");
            prop_assert_eq!(inside(start).count(), fullest.len());
        }
        let aligned = (0..60).step_by(window as usize).map(weight).max().unwrap_or(0);
        prop_assert_eq!(collected.most_in_aligned(NS(window)), aligned);
    }
}
