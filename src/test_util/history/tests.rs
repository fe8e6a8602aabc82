use proptest::prelude::*;

use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;
const NS: fn(u64) -> Duration = Duration::from_nanos;

fn at_ms<const LEN: usize>(times: [u64; LEN]) -> History {
    times.map(MS).into_iter().collect()
}

#[test]
fn two_events_exactly_a_window_apart_are_not_in_one_window() {
    assert_eq!(at_ms([5, 1_005]).most_in_any(MS(1_000)), 1);
    assert_eq!(at_ms([5, 1_005]).most_in_any(MS(1_000) + NS(1)), 2);
}

#[test]
fn a_window_is_seen_wherever_it_starts() {
    let history = at_ms([1_100, 900, 0, 1_200, 950]);
    let busiest = history.busiest(MS(1_000)).unwrap();
    assert_eq!((busiest.start, busiest.last), (MS(900), MS(1_200)));
    assert_eq!((busiest.events, busiest.weight), (4, 4));
    assert_eq!(history.most_in_aligned(MS(1_000)), 3);
    assert_eq!(
        at_ms([900, 950, 1_000, 1_050]).most_in_aligned(MS(1_000)),
        2
    );
}

#[test]
fn events_at_one_time_all_count() {
    assert_eq!(at_ms([7, 7, 7]).most_in_any(NS(1)), 3);
    assert_eq!(at_ms([7, 7, 7]).smallest_gap(), Some(Duration::ZERO));
    assert_eq!(at_ms([7, 7, 7]).rate(), None);
}

#[test]
fn of_equally_full_windows_the_first_is_named() {
    assert_eq!(
        at_ms([0, 10, 500, 510]).busiest(MS(100)).unwrap().start,
        MS(0)
    );
}

#[test]
fn a_weight_counts_as_so_many() {
    let history: History = [(MS(0), 5), (MS(10), 1), (MS(1_000), 5)]
        .into_iter()
        .collect();
    assert_eq!(history.most_in_any(MS(1_000)), 6);
    assert_eq!((history.len(), history.weight()), (3, 11));
    assert_eq!(history.rate(), Some(6.0));
}

#[test]
fn without_events_there_is_nothing_to_report() {
    let none = History::new();
    none.assert_at_most(0, MS(1));
    assert_eq!(
        (none.most_in_any(MS(1)), none.most_in_aligned(MS(1))),
        (0, 0)
    );
    assert_eq!(
        (
            none.busiest(MS(1)),
            none.span(),
            none.smallest_gap(),
            none.rate()
        ),
        (None, None, None, None)
    );
    assert!(none.is_empty());
}

#[test]
fn a_window_up_to_the_end_of_time_does_not_overflow() {
    let history: History = [Duration::ZERO, Duration::MAX].into_iter().collect();
    assert_eq!(history.most_in_any(Duration::MAX), 1);
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
        let gaps = (0..events.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
        let smallest = gaps.map(|(i, j)| events[i].0.abs_diff(events[j].0)).min();

        let collected: History = events.iter().map(|(at, weight)| (NS(*at), *weight)).collect();
        let mut pushed = History::new();
        events.iter().for_each(|(at, weight)| pushed.push_weighted(NS(*at), *weight));

        prop_assert_eq!(&collected, &pushed);
        prop_assert_eq!(collected.most_in_any(NS(window)), most);
        prop_assert_eq!(most, most_anywhere);
        prop_assert_eq!(collected.smallest_gap(), smallest.map(NS));
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
