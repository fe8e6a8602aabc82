//! Every metric: its name, unit and labels. The table of the documentation is checked against this one.

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder, SharedString, Unit,
};

static METADATA: Metadata<'static> =
    Metadata::new("tower_throttle", Level::INFO, Some(module_path!()));

/// A metric, which has a series for each combination of labels.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) unit: Unit,
    pub(super) labels: &'static [&'static str],
    help: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Defines each metric, and lists them all.
macro_rules! metrics {
    ($($id:ident = $kind:ident $unit:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(pub(super) const $id: Metric = Metric {
            name: $name,
            kind: Kind::$kind,
            unit: Unit::$unit,
            labels: &[$($label),*],
            help: $help,
        };)*

        pub(super) const ALL: &[Metric] = &[$($id),*];
    };
}

metrics! {
    REQUESTS = Counter Count "tower_throttle_requests_total" ["policy", "outcome"]
        "Requests, by what has become of them";
    SPENT = Counter Count "tower_throttle_spent_total" ["policy"]
        "What the requests cost that departed";
    WAIT = Histogram Seconds "tower_throttle_wait_seconds" ["policy"]
        "How long those requests waited that departed";
    REMEMBERED = Counter Count "tower_throttle_remembered_total" ["policy"]
        "Requests that were refused without asking the store";
    WAITING = Gauge Count "tower_throttle_waiting" ["policy"] "Requests that wait";
    LINES = Gauge Count "tower_throttle_lines" ["policy"] "Keys for which requests wait";
    FORFEITS = Counter Count "tower_throttle_forfeits_total" ["policy"]
        "Slots that came too late to be used";
    RELEASED = Counter Count "tower_throttle_released_total" ["policy"]
        "Slots that were given back to the store";
    GUARD = Gauge Seconds "tower_throttle_guard_seconds" ["policy"]
        "How late after its slot a request may depart";
    PAUSES = Counter Count "tower_throttle_pauses_total" ["policy"]
        "Pauses that began or were extended";
    QUARANTINES = Counter Count "tower_throttle_quarantines_total" ["policy"]
        "Keys that rest, as the store has lost their state";
    OUTAGES = Counter Count "tower_throttle_outages_total" ["policy"] "Outages of the store";
    OUT = Gauge Count "tower_throttle_store_out" ["policy"] "Parts of the store that are out";
    CALLS = Counter Count "tower_throttle_store_calls_total" ["policy", "operation", "result"]
        "Calls to the store, by what they answered";
    LATENCY = Histogram Seconds "tower_throttle_store_call_seconds" ["policy", "operation"]
        "How long calls to the store took";
    REQUESTS_PER_CALL = Histogram Count "tower_throttle_requests_per_call" ["policy"]
        "Requests that share a call for slots";
    KEYS_PER_CALL = Histogram Count "tower_throttle_keys_per_call" []
        "Keys that share a call of a script";
    RECONNECTS = Counter Count "tower_throttle_reconnects_total" []
        "Connections to Redis that replaced another";
}

/// Tells the recorder what they all mean.
pub(super) fn describe(recorder: &dyn Recorder) {
    for metric in ALL {
        let name = KeyName::from_const_str(metric.name);
        let (unit, help) = (Some(metric.unit), SharedString::const_str(metric.help));
        match metric.kind {
            Kind::Counter => recorder.describe_counter(name, unit, help),
            Kind::Gauge => recorder.describe_gauge(name, unit, help),
            Kind::Histogram => recorder.describe_histogram(name, unit, help),
        }
    }
}

/// The values of the labels that a series has.
pub(super) type Values<'a> = &'a [SharedString];

impl Metric {
    pub(super) fn counter(&self, recorder: &dyn Recorder, values: Values<'_>) -> Counter {
        recorder.register_counter(&self.series(values), &METADATA)
    }

    pub(super) fn gauge(&self, recorder: &dyn Recorder, values: Values<'_>) -> Gauge {
        recorder.register_gauge(&self.series(values), &METADATA)
    }

    pub(super) fn histogram(&self, recorder: &dyn Recorder, values: Values<'_>) -> Histogram {
        recorder.register_histogram(&self.series(values), &METADATA)
    }

    /// One more value than there are labels is that of the key.
    fn series(&self, values: Values<'_>) -> Key {
        let names = self.labels.iter().copied().chain(["key"]);
        let labels = names.zip(values.iter().cloned());
        let labels = labels.map(|(name, value)| Label::new(name, value));
        Key::from_parts(self.name, labels.collect::<Vec<_>>())
    }
}
