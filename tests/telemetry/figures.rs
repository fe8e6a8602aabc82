//! The recorded metrics: [`Figures`].

use std::sync::atomic::Ordering;

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, LocalRecorderGuard, Metadata, Recorder, SharedString,
    Unit,
};
use metrics_util::registry::{AtomicStorage, Registry};
use tower_throttle::{Limiter, LimiterBuilder};

/// The metrics of the limiters that are built by this.
pub(crate) struct Figures(Registry<Key, AtomicStorage>);

impl Figures {
    pub(crate) fn new() -> Self {
        Self(Registry::atomic())
    }

    pub(crate) fn build(&self, builder: LimiterBuilder) -> Limiter {
        let limiter = self.within(|| builder.build());
        limiter.expect("a valid policy")
    }

    pub(crate) fn within<T>(&self, make: impl FnOnce() -> T) -> T {
        metrics::with_local_recorder(self, make)
    }

    /// While the guard lives, this thread looks metrics up here.
    pub(crate) fn here(&self) -> LocalRecorderGuard<'_> {
        metrics::set_default_local_recorder(self)
    }

    /// The value of a counter or a gauge.
    #[track_caller]
    pub(crate) fn number(&self, series: &str) -> f64 {
        let counter = find(self.0.get_counter_handles(), series);
        let gauge = find(self.0.get_gauge_handles(), series);
        match (counter, gauge) {
            (Some(counter), _) => counter.load(Ordering::SeqCst) as f64,
            (_, Some(gauge)) => f64::from_bits(gauge.load(Ordering::SeqCst)),
            _ => panic!("no {series} among {:?}", self.series()),
        }
    }

    /// The samples of a histogram since the last call.
    #[track_caller]
    pub(crate) fn recorded(&self, series: &str) -> Vec<f64> {
        let mut recorded = Vec::new();
        let histogram = find(self.0.get_histogram_handles(), series);
        let histogram = histogram.unwrap_or_else(|| panic!("no {series}"));
        histogram.clear_with(|some| recorded.extend_from_slice(some));
        recorded
    }

    pub(crate) fn series(&self) -> Vec<String> {
        let counters = self.0.get_counter_handles().into_keys();
        let gauges = self.0.get_gauge_handles().into_keys();
        let histograms = self.0.get_histogram_handles().into_keys();
        let all = counters.chain(gauges).chain(histograms);
        all.map(|key| text(&key)).collect()
    }
}

fn find<T>(handles: impl IntoIterator<Item = (Key, T)>, series: &str) -> Option<T> {
    let mut handles = handles.into_iter();
    let found = handles.find(|(key, _)| text(key) == series);
    found.map(|(_, handle)| handle)
}

impl Recorder for Figures {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.0.get_or_create_counter(key, |it| it.clone().into())
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.0.get_or_create_gauge(key, |it| it.clone().into())
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.0.get_or_create_histogram(key, |it| it.clone().into())
    }
}

/// The name without what all have in front, and the labels, as `waiting{key=a,policy=ten}`.
fn text(key: &Key) -> String {
    let name = key.name().strip_prefix("tower_throttle_");
    let name = name.expect("what all have in front");
    let labels = key
        .labels()
        .map(|it| format!("{}={}", it.key(), it.value()));
    let mut labels: Vec<_> = labels.collect();
    labels.sort_unstable();
    format!("{name}{{{}}}", labels.join(","))
}
