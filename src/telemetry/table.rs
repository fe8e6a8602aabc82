//! All metrics, with names, units and labels. A test compares the table in the documentation with this one.

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder, SharedString, Unit,
};

static METADATA: Metadata<'static> =
    Metadata::new("tower_throttle", Level::INFO, Some(module_path!()));

/// A metric. It has a series for each combination of labels.
#[derive(Debug)]
pub(super) struct Metric {
    name: &'static str,
    describe: Describe,
    unit: Unit,
    labels: &'static [&'static str],
    help: &'static str,
}

/// Describes a metric of one kind.
type Describe = fn(&dyn Recorder, KeyName, Option<Unit>, SharedString);

/// Defines each metric, and lists them all.
macro_rules! metrics {
    ($($id:ident = $describe:ident $unit:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(pub(super) const $id: Metric = Metric {
            name: $name,
            describe: |recorder, name, unit, help| recorder.$describe(name, unit, help),
            unit: Unit::$unit,
            labels: &[$($label),*],
            help: $help,
        };)*

        const ALL: &[Metric] = &[$($id),*];
    };
}

metrics! {
    REQUESTS = describe_counter Count "tower_throttle_requests_total" ["policy", "outcome"]
        "Requests that ended, by outcome";
    SPENT = describe_counter Count "tower_throttle_spent_total" ["policy", "unit"]
        "Cost of the requests that departed";
    OF_SHARES = describe_counter Count "tower_throttle_share_spent_total" ["policy", "share", "unit"]
        "Cost of the requests of a share that departed";
    COMBINED = describe_counter Count "tower_throttle_combined_total" ["policy"]
        "Requests whose share was combined with others, as a key has too many";
    INVERSIONS = describe_counter Count "tower_throttle_inversions_total" ["policy"]
        "Requests that departed while one of a higher priority waited in this process";
    REFUNDED = describe_counter Count "tower_throttle_refunded_total" ["policy", "unit"]
        "Cost that corrections or unused permits gave back";
    DEBT = describe_counter Count "tower_throttle_debt_total" ["policy", "unit"]
        "Cost that corrections charged in addition";
    WAIT = describe_histogram Seconds "tower_throttle_wait_seconds" ["policy", "priority"]
        "How long the requests waited that departed";
    REMEMBERED = describe_counter Count "tower_throttle_remembered_total" ["policy"]
        "Requests that were refused without a call to the store";
    WAITING = describe_gauge Count "tower_throttle_waiting" ["policy", "priority"] "Requests that wait";
    PLACES = describe_gauge Count "tower_throttle_places" ["policy"]
        "Places that requests in progress hold";
    RECLAIMED = describe_counter Count "tower_throttle_reclaimed_places_total" ["policy"]
        "Places whose lease had ended, as this process has noticed";
    LOST = describe_counter Count "tower_throttle_lost_places_total" ["policy"]
        "Places whose lease has ended while the work went on";
    QUEUES = describe_gauge Count "tower_throttle_queues" ["policy"]
        "Keys for which requests wait, hold a place or have corrections";
    MISSED = describe_counter Count "tower_throttle_missed_total" ["policy"]
        "Grants that requests were too late to use";
    RETURNED = describe_counter Count "tower_throttle_returned_total" ["policy"]
        "Departures that were given back to the store";
    GUARD = describe_gauge Seconds "tower_throttle_guard_seconds" ["policy"]
        "How much later than granted a request may depart";
    PAUSES = describe_counter Count "tower_throttle_pauses_total" ["policy"]
        "Pauses that this process has applied";
    QUARANTINES = describe_counter Count "tower_throttle_quarantines_total" ["policy"]
        "Keys that went into quarantine, as the store has lost their state";
    OUTAGES = describe_counter Count "tower_throttle_outages_total" ["policy"] "Outages of the store";
    OUT = describe_gauge Count "tower_throttle_store_out" ["policy"] "Shards of the store that are out";
    CALLS = describe_counter Count "tower_throttle_store_calls_total" ["policy", "operation", "result"]
        "Calls to the store, by result";
    LATENCY = describe_histogram Seconds "tower_throttle_store_call_seconds" ["policy", "operation"]
        "How long calls to the store took";
    REQUESTS_PER_CALL = describe_histogram Count "tower_throttle_requests_per_call" ["policy"]
        "Requests for which a call asks";
    KEYS_PER_CALL = describe_histogram Count "tower_throttle_keys_per_call" ["policy"]
        "Keys that share a call";
    RECONNECTS = describe_counter Count "tower_throttle_reconnects_total" []
        "Connections to Redis that replaced another";
}

/// Describes all metrics to a recorder.
pub(super) fn describe(recorder: &dyn Recorder) {
    for metric in ALL {
        let name = KeyName::from_const_str(metric.name);
        let (unit, help) = (Some(metric.unit), SharedString::const_str(metric.help));
        (metric.describe)(recorder, name, unit, help);
    }
}

impl Metric {
    pub(super) fn counter(&self, recorder: &dyn Recorder, values: &[SharedString]) -> Counter {
        recorder.register_counter(&self.series(values), &METADATA)
    }

    pub(super) fn gauge(&self, recorder: &dyn Recorder, values: &[SharedString]) -> Gauge {
        recorder.register_gauge(&self.series(values), &METADATA)
    }

    pub(super) fn histogram(&self, recorder: &dyn Recorder, values: &[SharedString]) -> Histogram {
        recorder.register_histogram(&self.series(values), &METADATA)
    }

    /// If there is one value more than labels, it is the key.
    fn series(&self, values: &[SharedString]) -> Key {
        let names = self.labels.iter().copied().chain(["key"]);
        let labels = names.zip(values.iter().cloned());
        let labels = labels.map(|(name, value)| Label::new(name, value));
        Key::from_parts(self.name, labels.collect::<Vec<_>>())
    }
}
