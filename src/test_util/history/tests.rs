use proptest::prelude::*;

use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;
const NS: fn(u64) -> Duration = Duration::from_nanos;

fn at_ms<const LEN: usize>(times: [u64; LEN]) -> History {
    times.map(MS).into_iter().collect()
}

#[test]
fn a_history_is_measured_by_its_busiest_window_wherever_that_starts() {
    let history = at_ms([1_100, 900, 0, 1_200, 950]);
    let busiest = history.busiest(MS(1_000)).unwrap();
    assert_eq!((busiest.start, busiest.last), (MS(900), MS(1_200)));
    assert_eq!((busiest.events, busiest.weight), (4, 4));
    assert_eq!(history.most_in_aligned(MS(1_000)), 3);
    let first = at_ms([0, 10, 500, 510]).busiest(MS(100)).unwrap();
    assert_eq!(first.start, MS(0));
    let weighted = [(MS(0), 5), (MS(10), 1), (MS(1_000), 5)];
    let weighted: History = weighted.into_iter().collect();
    assert_eq!((weighted.len(), weighted.weight()), (3, 11));
    let long: History = [Duration::ZERO, Duration::MAX].into_iter().collect();
    assert_eq!(long.most_in_any(Duration::MAX), 1);
}

#[test]
#[should_panic(expected = "nothing to assert")]
fn a_zero_window_is_refused_by_the_assertion() {
    at_ms([1]).assert_at_most(1, Duration::ZERO);
}

proptest! {
    /// The model asks every event how much lies in the window that starts at it, and knows no
    /// order.
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
        prop_assert_eq!(collected.most_in_any(NS(window)), most);
        prop_assert_eq!(most, most_anywhere);
        if let Some(busiest) = collected.busiest(NS(window)) {
            let start = u64::try_from(busiest.start.as_nanos()).unwrap();
            prop_assert_eq!(weight(start), busiest.weight);
            prop_assert_eq!(inside(start).count(), busiest.events);
            prop_assert_eq!(inside(start).map(|(at, _)| NS(*at)).max(), Some(busiest.last));
        }
        let aligned = (0..60).step_by(window as usize).map(weight).max().unwrap_or(0);
        prop_assert_eq!(collected.most_in_aligned(NS(window)), aligned);
    }
}
