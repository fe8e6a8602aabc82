//! A subscriber to the crate's spans and events: [`Seen`].

use std::cell::RefCell;
use std::fmt;
use std::sync::{MutexGuard, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;

use crate::prelude::*;

/// The spans and events of this thread, while the guard lives.
#[derive(Clone)]
pub(crate) struct Seen(Arc<Mutex<All>>);

#[derive(Default)]
struct All {
    spans: Vec<SpanSeen>,
    events: Vec<EventSeen>,
    asks: Option<Arc<dyn Fn() + Send + Sync>>,
}

#[derive(Debug, Clone)]
pub(crate) struct SpanSeen {
    id: Id,
    pub(crate) name: &'static str,
    pub(crate) level: Level,
    pub(crate) fields: Fields,
    pub(crate) parent: Option<&'static str>,
    pub(crate) entered: usize,
    pub(crate) left: usize,
    pub(crate) is_closed: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct EventSeen {
    pub(crate) level: Level,
    pub(crate) message: String,
    /// All fields except the message.
    pub(crate) fields: Fields,
    /// The names of all fields, also of those without a value.
    pub(crate) names: Vec<&'static str>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Fields(BTreeMap<&'static str, String>);

thread_local! {
    /// Receives what happens on this thread.
    static HERE: RefCell<Option<Seen>> = const { RefCell::new(None) };
}

/// Receives everything, and passes it to the receiver of that thread.
///
/// Tests share it: if the first thread at a call site has no subscriber, the call site is disabled for all threads.
struct Router;

/// Ends the subscription of this thread when it is dropped.
pub(crate) struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        HERE.take();
    }
}

impl Seen {
    pub(crate) fn begin() -> (Self, Guard) {
        static ROUTER: Once = Once::new();
        ROUTER.call_once(|| tracing_subscriber::registry().with(Router).init());
        let seen = Self(Arc::default());
        HERE.set(Some(seen.clone()));
        (seen, Guard)
    }

    pub(crate) fn spans(&self) -> Vec<SpanSeen> {
        self.all().spans.clone()
    }

    pub(crate) fn span(&self) -> SpanSeen {
        let spans = self.spans();
        assert_eq!(spans.len(), 1, "{spans:?}");
        spans[0].clone()
    }

    pub(crate) fn events(&self) -> Vec<EventSeen> {
        self.all().events.clone()
    }

    pub(crate) fn told(&self, message: &str) -> Vec<EventSeen> {
        let all = self.events().into_iter();
        all.filter(|event| event.message == message).collect()
    }

    pub(crate) async fn until(&self, message: &str, count: usize) {
        eventually(message, async || self.told(message).len() >= count).await;
    }

    pub(crate) fn messages(&self) -> Vec<String> {
        self.events().into_iter().map(|it| it.message).collect()
    }

    pub(crate) fn whenever(&self, asks: impl Fn() + Send + Sync + 'static) {
        self.all().asks = Some(Arc::new(asks));
    }

    pub(crate) fn forget(&self) {
        let all = &mut *self.all();
        all.spans.clear();
        all.events.clear();
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().expect("no panic")
    }
}

impl Fields {
    pub(crate) fn text(&self, name: &str) -> &str {
        let text = self.0.get(name);
        text.unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    pub(crate) fn number(&self, name: &str) -> f64 {
        self.text(name).parse().expect("a number")
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

const TARGET: &str = "tower_throttle";

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Router {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>, _: Context<'_, S>) -> bool {
        HERE.with_borrow(Option::is_some)
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().target() != TARGET {
            return;
        }
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let span = context.span(id).expect("it is new");
        let parent = span.parent().map(|parent| parent.name());
        let span = SpanSeen {
            id: id.clone(),
            name: attributes.metadata().name(),
            level: *attributes.metadata().level(),
            fields,
            parent,
            entered: 0,
            left: 0,
            is_closed: false,
        };
        here(|seen| seen.all().spans.push(span));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        change(id, |span| {
            assert!(!span.is_closed);
            values.record(&mut span.fields);
        });
    }

    fn on_enter(&self, id: &Id, _: Context<'_, S>) {
        change(id, |span| span.entered += 1);
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        change(id, |span| span.left += 1);
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        change(&id, |span| span.is_closed = true);
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != TARGET {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = fields.0.remove("message").expect("a message");
        let names = event.metadata().fields().iter().map(|field| field.name());
        let event = EventSeen {
            level: *event.metadata().level(),
            message,
            fields,
            names: names.filter(|&name| name != "message").collect(),
        };
        here(|seen| {
            let asks = {
                let mut all = seen.all();
                all.events.push(event);
                all.asks.clone()
            };
            if let Some(asks) = asks {
                asks();
            }
        });
    }
}

fn here(tell: impl FnOnce(&Seen)) {
    // A future may be dropped after the guard.
    let seen = HERE.with_borrow(Clone::clone);
    if let Some(seen) = seen {
        tell(&seen);
    }
}

fn change(id: &Id, change: impl FnOnce(&mut SpanSeen)) {
    here(|seen| {
        let mut all = seen.all();
        // The last one, as the number of one that is over is used again.
        if let Some(span) = all.spans.iter_mut().rev().find(|span| span.id == *id) {
            change(span);
        }
    });
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}
