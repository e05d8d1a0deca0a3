//! Passes what the gate logs to a function, for programs that collect no [`tracing`] events.

use std::fmt::{Debug, Write};
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// How serious a line of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Something that an operator may want to know.
    Info,
    /// Something does not work as configured.
    Warning,
    /// A defect.
    Error,
}

/// Passes each line that the gates of this process log to `pass`, from `Info` on. Has no effect if
/// the program has a [`tracing`] subscriber already, and later ones have none.
///
/// A line is a sentence, followed by its fields: `text key=value`. It contains no credentials and
/// no prompts. Each line is passed on a thread of its own, so that `pass` may take any lock of the
/// program.
///
/// ```
/// tidegate::forward_log_lines(|level, line| eprintln!("{level:?}: {line}"));
/// ```
pub fn forward_log_lines(pass: impl Fn(LogLevel, String) + Send + Sync + 'static) {
    // An error means that there is a subscriber.
    let _ = tracing::subscriber::set_global_default(Forwarder { pass: Arc::new(pass) });
}

type Pass = Arc<dyn Fn(LogLevel, String) + Send + Sync>;

/// Takes events, and ignores spans.
struct Forwarder {
    pass: Pass,
}

impl Subscriber for Forwarder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO && metadata.target().starts_with("tidegate")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let level = match *event.metadata().level() {
            Level::ERROR => LogLevel::Error,
            Level::WARN => LogLevel::Warning,
            _ => LogLevel::Info,
        };
        let (pass, text) = (self.pass.clone(), line.text + &line.fields);
        // Lines are rare. Without a thread, the line is lost.
        let _ = std::thread::Builder::new().name("tidegate-log".to_owned()).spawn(move || pass(level, text));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The text of an event.
#[derive(Default)]
struct Line {
    text: String,
    /// The fields, each with a space before it.
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.text, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
