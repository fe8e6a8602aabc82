//! The recorded metrics: [`Figures`].

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, LocalRecorderGuard, Metadata, Recorder, SharedString,
    Unit,
};
use metrics_util::registry::{AtomicStorage, Registry};
use tower_throttle::{Limiter, LimiterBuilder};

/// The metrics of the limiters that are built by this. Reading them changes no level.
pub(crate) struct Figures(Registry<Key, AtomicStorage>);

/// The metrics at some moment. Histograms have the samples since the last reading.
#[derive(Debug)]
pub(crate) struct Reading(BTreeMap<String, Value>);

#[derive(Debug, Clone)]
enum Value {
    Number(f64),
    Recorded(Vec<f64>),
}

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

    pub(crate) fn read(&self) -> Reading {
        let mut all = BTreeMap::new();
        for (key, counter) in self.0.get_counter_handles() {
            let count = counter.load(Ordering::SeqCst);
            all.insert(text(&key), Value::Number(count as f64));
        }
        for (key, gauge) in self.0.get_gauge_handles() {
            let level = f64::from_bits(gauge.load(Ordering::SeqCst));
            all.insert(text(&key), Value::Number(level));
        }
        for (key, histogram) in self.0.get_histogram_handles() {
            let mut recorded = Vec::new();
            histogram.clear_with(|some| recorded.extend_from_slice(some));
            all.insert(text(&key), Value::Recorded(recorded));
        }
        Reading(all)
    }
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

impl Reading {
    /// The value of a counter or a gauge.
    pub(crate) fn number(&self, series: &str) -> f64 {
        match self.0.get(series) {
            Some(Value::Number(number)) => *number,
            other => panic!("{series}: {other:?} among {:?}", self.series()),
        }
    }

    /// The samples of a histogram.
    pub(crate) fn recorded(&self, series: &str) -> &[f64] {
        match self.0.get(series) {
            Some(Value::Recorded(all)) => all,
            other => panic!("{series}: {other:?} among {:?}", self.series()),
        }
    }

    pub(crate) fn series(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}
