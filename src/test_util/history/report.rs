//! What a broken bound looks like: the fullest interval and the times in and around it.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Busiest, Event, History};

/// How many times are shown on either side of the interval.
const AROUND: usize = 3;

/// How many times are shown of those within the interval, half of them at each end.
const WITHIN: usize = 24;

pub(super) fn excess(history: &History, n: u64, window: Duration, busiest: Busiest) -> String {
    let is_before = |event: &Event| event.at < busiest.start;
    let begin = history.events.partition_point(is_before);
    let end = begin + busiest.events;
    let inside = begin..end;
    let cut = begin + WITHIN / 2..end.saturating_sub(WITHIN / 2).max(begin + WITHIN / 2);
    let mut text = format!(
        "{} in [{:?}, {:?}), where any {window:?} may hold at most {n} \
         (> marks them; time, since the start, weight if not 1):",
        busiest.weight,
        busiest.start,
        busiest.start.saturating_add(window),
    );
    for place in begin.saturating_sub(AROUND)..history.len().min(end + AROUND) {
        if cut.contains(&place) {
            if place == cut.start {
                let _ = write!(text, "\n  > … {} more", cut.len());
            }
            continue;
        }
        let Event { at, weight } = history.events[place];
        let mark = if inside.contains(&place) { '>' } else { ' ' };
        let sign = if at < busiest.start { '-' } else { '+' };
        let offset = at.abs_diff(busiest.start);
        let _ = write!(text, "\n  {mark} {at:?}  {sign}{offset:?}");
        if weight != 1 {
            let _ = write!(text, "  weight {weight}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn panic_of(history: &History, n: u64, window: Duration) -> String {
        let panic = std::panic::catch_unwind(|| history.assert_at_most(n, window)).unwrap_err();
        panic.downcast_ref::<String>().unwrap().clone()
    }

    #[test]
    fn an_excess_is_reported_with_its_interval_and_the_times_around_it() {
        let text = panic_of(
            &[0, 900, 1_000, 1_100, 1_900].map(MS).into_iter().collect(),
            2,
            MS(1_000),
        );
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[0].starts_with("3 in [900ms, 1.9s), where any 1s may hold at most 2 "),
            "{text}"
        );
        assert_eq!(lines[1], "    0ns  -900ms");
        assert_eq!(
            lines[2..5],
            ["  > 900ms  +0ns", "  > 1s  +100ms", "  > 1.1s  +200ms"]
        );
        assert_eq!(lines[5], "    1.9s  +1s");
    }

    #[test]
    fn a_long_report_is_cut_in_its_middle() {
        let text = panic_of(&(0..1_000).map(MS).collect(), 2, MS(900));
        assert!(text.contains("> … 876 more"), "{text}");
        assert_eq!(text.lines().count(), 1 + 24 + 1 + 3);
    }

    #[test]
    fn a_weight_is_named_where_it_is_not_one() {
        let history = [(MS(0), 1), (MS(1), 4)].into_iter().collect();
        let text = panic_of(&history, 4, MS(10));
        assert!(
            text.ends_with("\n  > 0ns  +0ns\n  > 1ms  +1ms  weight 4"),
            "{text}"
        );
    }

    #[test]
    fn an_interval_up_to_the_end_of_time_does_not_overflow() {
        let history = [Duration::ZERO, Duration::MAX].into_iter().collect();
        assert!(panic_of(&history, 0, Duration::MAX).starts_with("1 in [0ns, "));
    }
}
