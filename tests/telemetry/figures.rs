//! The recorded metrics: [`Figures`].

use metrics::LocalRecorderGuard;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

use crate::prelude::*;

pub(crate) struct Figures(PrometheusRecorder);

impl Figures {
    pub(crate) fn new() -> Self {
        Self(PrometheusBuilder::new().build_recorder())
    }

    pub(crate) fn build(&self, builder: LimiterBuilder) -> Limiter {
        let limiter = self.within(|| builder.build());
        limiter.expect("a valid policy")
    }

    pub(crate) fn within<T>(&self, make: impl FnOnce() -> T) -> T {
        metrics::with_local_recorder(&self.0, make)
    }

    /// While the guard lives, this thread looks metrics up here.
    pub(crate) fn here(&self) -> LocalRecorderGuard<'_> {
        metrics::set_default_local_recorder(&self.0)
    }

    /// Asserts counters and gauges: on each line, a series and its number.
    #[track_caller]
    pub(crate) fn assert_numbers(&self, expected: &str) {
        for line in expected.trim().lines() {
            let (series, number) = line.trim().split_once(' ').expect("a number");
            let number: f64 = number.parse().expect("a number");
            assert_eq!(self.number(series), number, "{series}");
        }
    }

    #[track_caller]
    pub(crate) fn number(&self, series: &str) -> f64 {
        let all = self.all();
        let number = all.get(series).copied();
        number.unwrap_or_else(|| panic!("no {series} among {:?}", all.keys()))
    }

    pub(crate) fn series(&self) -> Vec<String> {
        self.all().into_keys().collect()
    }

    /// Without what all names have in front, and with sorted labels, as `waiting{key=a,policy=ten}`.
    fn all(&self) -> BTreeMap<String, f64> {
        let text = self.0.handle().render().replace('"', "");
        let lines = text.lines();
        let lines = lines.filter_map(|line| line.strip_prefix("tower_throttle_"));
        let numbers = lines.map(|line| {
            let (series, number) = line.rsplit_once(' ').expect("a number");
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let mut labels: Vec<_> = labels.trim_end_matches('}').split(',').collect();
            labels.sort_unstable();
            let series = format!("{name}{{{}}}", labels.join(","));
            (series, number.parse().expect("a number"))
        });
        numbers.collect()
    }
}
