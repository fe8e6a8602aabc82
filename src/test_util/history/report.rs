//! What a broken bound looks like: the fullest interval and the times in and around it.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use super::{Event, History};

/// How many times are shown on either side of the interval.
const AROUND: usize = 3;

/// How many times are shown of those within the interval, half of them at each end.
const WITHIN: usize = 24;

pub(super) fn excess(history: &History, n: u64, window: Duration, inside: Range<usize>) -> String {
    let Range { start: begin, end } = inside;
    let weights = history.events[inside.clone()]
        .iter()
        .map(|event| event.weight);
    let (weight, start) = (weights.sum::<u64>(), history.events[begin].at);
    let cut = begin + WITHIN / 2..end.saturating_sub(WITHIN / 2).max(begin + WITHIN / 2);
    let mut text = format!(
        "{weight} in [{start:?}, {:?}), where any {window:?} may hold at most {n} \
         (> marks them; time, since the start, weight if not 1):",
        start.saturating_add(window),
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
        let sign = if at < start { '-' } else { '+' };
        let offset = at.abs_diff(start);
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

    #[test]
    fn an_excess_is_reported_with_its_interval_and_the_times_around_it() {
        let events = [(0, 1), (900, 1), (1_000, 2), (1_100, 1), (1_900, 1)];
        let history = events.map(|(at, weight)| (MS(at), weight));
        let history: History = history.into_iter().collect();
        let panic = std::panic::catch_unwind(|| history.assert_at_most(2, MS(1_000)));
        let text = support::errors::panic_text(panic.unwrap_err());
        let (headline, times) = text.split_once('\n').unwrap();
        let expected = "4 in [900ms, 1.9s), where any 1s may hold at most 2 ";
        assert!(headline.starts_with(expected), "{text}");
        let expected = [
            "    0ns  -900ms",
            "  > 900ms  +0ns",
            "  > 1s  +100ms  weight 2",
            "  > 1.1s  +200ms",
            "    1.9s  +1s",
        ];
        assert_eq!(times.lines().collect::<Vec<_>>(), expected);
    }
}
