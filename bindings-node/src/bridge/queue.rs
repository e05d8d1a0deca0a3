//! What workers finished, on its way to one event loop.

use std::sync::Arc;

use napi::bindgen_prelude::{Array, ToNapiValue};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Result, Status};
use parking_lot::Mutex;

use super::ring::Pulled;
use super::runtime;
use crate::kept::Letter;

/// What rings on the event loop's thread. Weak: by itself it keeps no process alive.
pub(super) type Bell = ThreadsafeFunction<(), (), (), Status, false, true>;

/// A result that becomes JavaScript values once the loop's thread is at it.
pub(crate) trait Outcome: Send {
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()>;
}

pub(super) enum Done {
    /// The work of that number ended so.
    Outcome(u32, Box<dyn Outcome>),
    /// The stream of that number was pulled, with this result.
    Pulled(u32, Pulled),
    /// The work of that number panicked.
    Lost(u32),
    /// The call of that number is to be served by the caller's own fetch.
    Begin(u32, Letter),
    /// Nobody waits for that exchange any more.
    Cancel(u64),
}

/// Filled by workers, drained in batches by one loop.
pub(crate) struct Queue {
    items: Mutex<Items>,
}

struct Items {
    done: Vec<Done>,
    bell: Option<Arc<Bell>>,
}

impl Queue {
    pub(super) fn new(bell: Arc<Bell>) -> Arc<Self> {
        Arc::new(Self { items: Mutex::new(Items { done: Vec::new(), bell: Some(bell) }) })
    }

    /// Rings only for the first of a batch. After [`Queue::close`] what is pushed is dropped.
    pub(super) fn push(&self, done: Done) {
        let bell = {
            let mut items = self.items.lock();
            let Some(bell) = items.bell.clone() else {
                drop(items);
                drop(done);
                return;
            };
            items.done.push(done);
            (items.done.len() == 1).then_some(bell)
        };
        if let Some(bell) = bell {
            bell.call((), ThreadsafeFunctionCallMode::NonBlocking);
            runtime::stir();
        }
    }

    /// An exchange for the caller's own fetch.
    pub(crate) fn begin(&self, number: u32, letter: Letter) {
        self.push(Done::Begin(number, letter));
    }

    /// Nobody waits for that exchange any more.
    pub(crate) fn cancel(&self, id: u64) {
        self.push(Done::Cancel(id));
    }

    /// Everything so far.
    pub(super) fn take(&self) -> Vec<Done> {
        std::mem::take(&mut self.items.lock().done)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.lock().done.is_empty()
    }

    /// Drops what is there and whatever comes.
    pub(super) fn close(&self) {
        let (rest, bell) = {
            let mut items = self.items.lock();
            (std::mem::take(&mut items.done), items.bell.take())
        };
        drop((rest, bell));
    }
}

/// How many values a row has: its number, its kind, and what that kind brings.
const WIDTH: u32 = 6;

/// What a row is, for `ts/port.ts`.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// status, headers, body, attempt (of the caller's own fetch)
    Answer = 0,
    /// failure
    Failure = 1,
    /// bytes
    Chunk = 2,
    End = 3,
    /// There is room in an upload.
    Room = 4,
    /// permit
    Permit = 5,
    /// a whole number
    Count = 6,
    Lost = 7,
    /// exchange, changed headers, another URL
    Begin = 8,
    /// the exchange's id
    Cancel = 9,
    /// slot
    Slot = 10,
}

/// A flat array of rows: arrays inside arrays would cost an object each.
pub(super) struct Batch<'env> {
    array: Array<'env>,
    rows: u32,
}

/// One row, being written.
pub(crate) struct Row<'batch, 'env> {
    array: &'batch mut Array<'env>,
    at: u32,
}

impl<'env> Batch<'env> {
    pub(super) fn new(array: Array<'env>) -> Self {
        Self { array, rows: 0 }
    }

    pub(super) fn row(&mut self, number: u32) -> Result<Row<'_, 'env>> {
        let at = self.rows * WIDTH;
        self.rows += 1;
        self.array.set(at, number)?;
        Ok(Row { array: &mut self.array, at })
    }

    pub(super) fn into_array(self) -> Array<'env> {
        self.array
    }

    pub(super) fn width(rows: usize) -> u32 {
        u32::try_from(rows).map_or(u32::MAX, |rows| rows.saturating_mul(WIDTH))
    }
}

impl Row<'_, '_> {
    pub(crate) fn kind(&mut self, kind: Kind) -> Result<()> {
        self.array.set(self.at + 1, kind as u32)
    }

    /// What the kind brings: the `nth` of it, from 0.
    pub(crate) fn put(&mut self, nth: u32, value: impl ToNapiValue) -> Result<()> {
        self.array.set(self.at + 2 + nth, value)
    }
}
