//! The results of workers, on their way to one event loop.

use std::sync::Arc;

use napi::bindgen_prelude::{Array, ToNapiValue};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Result, Status};
use parking_lot::Mutex;
use tidegate_bindings::{Chunk, ChunkQueue, ResultQueue};

use super::runtime;

/// Wakes the event loop. Weak: it keeps no process alive by itself.
pub(super) type Waker = ThreadsafeFunction<(), (), (), Status, false, true>;

/// A result that the thread of the loop turns into JavaScript values.
pub(crate) trait Outcome: Send {
    /// Writes the values into the row.
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()>;
}

/// An entry of a queue. The numbers are those that JavaScript gave to its works and streams.
pub(super) enum Done {
    /// The result of a work.
    Outcome(u32, Box<dyn Outcome>),
    /// The result of a read that had to wait.
    Chunk(u32, Chunk),
    /// The work panicked.
    Panicked(u32),
    /// An exchange of this call, for the caller's own fetch.
    Exchange(u32, Box<dyn Outcome>),
    /// The exchange with this id was cancelled.
    Cancelled(u64),
}

/// Results that workers push and one event loop takes in batches.
pub(crate) struct Queue {
    results: ResultQueue<Done>,
    waker: Mutex<Option<Arc<Waker>>>,
}

impl Queue {
    pub(super) fn new(waker: Arc<Waker>) -> Arc<Self> {
        Arc::new(Self { results: ResultQueue::new(), waker: Mutex::new(Some(waker)) })
    }

    /// Adds an entry, and wakes the loop for the first entry of a batch.
    pub(super) fn push(&self, done: Done) {
        if self.results.push(done) {
            let waker = self.waker.lock().clone();
            if let Some(waker) = waker {
                waker.call((), ThreadsafeFunctionCallMode::NonBlocking);
                runtime::stir();
            }
        }
    }

    /// Adds an exchange of a call, for the caller's own fetch.
    pub(crate) fn offer(&self, call: u32, exchange: impl Outcome + 'static) {
        self.push(Done::Exchange(call, Box::new(exchange)));
    }

    /// Adds the cancellation of an exchange.
    pub(crate) fn cancel(&self, exchange: u64) {
        self.push(Done::Cancelled(exchange));
    }

    /// Removes and returns all entries.
    pub(super) fn take(&self) -> Vec<Done> {
        self.results.take()
    }

    /// Returns `true` if there is no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// Drops all entries, and those that are pushed later.
    pub(super) fn close(&self) {
        self.results.close();
        let waker = self.waker.lock().take();
        drop(waker);
    }
}

impl ChunkQueue for Queue {
    fn push_chunk(&self, number: u64, chunk: Chunk) {
        // JavaScript's numbers have 32 bits: `Port::reader` widened this one.
        self.push(Done::Chunk(number as u32, chunk));
    }
}

/// The number of values of a row: its number, its kind, and the values of that kind.
const WIDTH: u32 = 6;

/// The kind of a row, for `ts/native-port.ts`.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Status, headers, body, and the attempt of the caller's own fetch.
    Answer = 0,
    /// The failure of a call.
    Failure = 1,
    /// Bytes.
    Chunk = 2,
    /// The end of a body. No values.
    End = 3,
    /// There may be room in an upload or in a map. No values.
    Room = 4,
    /// The permit of a tool slot.
    Permit = 5,
    /// The result of a work: a whole number.
    Count = 6,
    /// The work panicked. No values.
    Lost = 7,
    /// An exchange, the changed headers, and the changed URL.
    Begin = 8,
    /// The id of the exchange.
    Cancel = 9,
    /// The slot of a target.
    Slot = 10,
}

/// A flat array of rows, because arrays inside the array would cost an object each.
pub(super) struct Batch<'env> {
    array: Array<'env>,
    rows: u32,
}

/// A row that is being written.
pub(crate) struct Row<'batch, 'env> {
    array: &'batch mut Array<'env>,
    start: u32,
}

impl<'env> Batch<'env> {
    pub(super) fn new(array: Array<'env>) -> Self {
        Self { array, rows: 0 }
    }

    /// Begins a row of the work or stream with this number.
    pub(super) fn row(&mut self, number: u32) -> Result<Row<'_, 'env>> {
        let start = self.rows * WIDTH;
        self.rows += 1;
        self.array.set(start, number)?;
        Ok(Row { array: &mut self.array, start })
    }

    /// Returns the array of all rows.
    pub(super) fn into_array(self) -> Array<'env> {
        self.array
    }

    /// Returns the number of values of that many rows.
    pub(super) fn width(rows: usize) -> u32 {
        u32::try_from(rows).map_or(u32::MAX, |rows| rows.saturating_mul(WIDTH))
    }
}

impl Row<'_, '_> {
    /// Sets the kind of the row.
    pub(crate) fn kind(&mut self, kind: Kind) -> Result<()> {
        self.array.set(self.start + 1, kind as u32)
    }

    /// Sets the value with this index, from 0, of those that the kind has.
    pub(crate) fn put(&mut self, index: u32, value: impl ToNapiValue) -> Result<()> {
        self.array.set(self.start + 2 + index, value)
    }
}
