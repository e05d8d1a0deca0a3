//! The queue of completions (results of native futures) for one event loop.

use std::sync::Arc;

use napi::bindgen_prelude::{Array, ToNapiValue};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Result, Status};
use parking_lot::Mutex;
use tidegate_bindings::{Chunk, ChunkQueue, ResultQueue};

use super::runtime;

/// A function that any thread can call to wake the event loop. It does not keep the process alive.
pub(super) type Waker = ThreadsafeFunction<(), (), (), Status, false, true>;

/// A result that the thread of the event loop converts into JavaScript values.
pub(crate) trait Outcome: Send {
    /// Writes the kind and the values of the result into its row.
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()>;
}

/// An entry of a [`Queue`]. A `u32` is the number that JavaScript gave to the future or stream.
pub(super) enum Completion {
    /// The output of the future with this number.
    Outcome(u32, Box<dyn Outcome>),
    /// The result of a read that had to wait, from the stream with this number.
    Chunk(u32, Chunk),
    /// The future with this number panicked.
    Panicked(u32),
    /// A request to make an exchange with the caller's own fetch, for the call with this number.
    Exchange(u32, Box<dyn Outcome>),
    /// The exchange with this id, which the caller's own fetch makes, was cancelled.
    Cancelled(u64),
}

/// Completions (the results of native futures) that workers push and one event loop takes in
/// batches.
pub(crate) struct Queue {
    results: ResultQueue<Completion>,
    waker: Mutex<Option<Arc<Waker>>>,
}

impl Queue {
    pub(super) fn new(waker: Arc<Waker>) -> Arc<Self> {
        Arc::new(Self { results: ResultQueue::new(), waker: Mutex::new(Some(waker)) })
    }

    /// Adds a completion, and wakes the event loop if the queue was empty.
    pub(super) fn push(&self, completion: Completion) {
        if self.results.push(completion) {
            let waker = self.waker.lock().clone();
            if let Some(waker) = waker {
                waker.call((), ThreadsafeFunctionCallMode::NonBlocking);
                runtime::notify_virtual_time();
            }
        }
    }

    /// Adds a request to make an exchange with the caller's own fetch, for the call with the number
    /// `call`.
    pub(crate) fn offer(&self, call: u32, exchange: impl Outcome + 'static) {
        self.push(Completion::Exchange(call, Box::new(exchange)));
    }

    /// Adds the cancellation of the exchange with this id.
    pub(crate) fn cancel(&self, exchange: u64) {
        self.push(Completion::Cancelled(exchange));
    }

    /// Removes and returns all completions, in the order in which they were pushed.
    pub(super) fn take(&self) -> Vec<Completion> {
        self.results.take()
    }

    /// Returns `true` if no completion is waiting to be taken.
    pub(super) fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// Closes the queue: drops the completions in it, and later ones when they are pushed.
    pub(super) fn close(&self) {
        self.results.close();
        let waker = self.waker.lock().take();
        drop(waker);
    }
}

impl ChunkQueue for Queue {
    fn push_chunk(&self, number: u64, chunk: Chunk) {
        // JavaScript's numbers have 32 bits: `Port::reader` widened this one.
        self.push(Completion::Chunk(number as u32, chunk));
    }
}

/// Number of array elements in a row: the number, the kind, and up to four values of that kind.
const WIDTH: u32 = 6;

/// What a completion reports. The numbers equal those of `CompletionKind` in `ts/completions.ts`.
#[derive(Clone, Copy)]
pub(crate) enum CompletionKind {
    /// A response. Values: the status; the reason phrase and the headers as one string; the body,
    /// or null if it is empty; and, if the caller's own fetch made the exchange, the index of the
    /// attempt.
    Answer = 0,
    /// A failure. Value: the `Failure`.
    Failure = 1,
    /// A chunk of a response body. Value: its bytes.
    Chunk = 2,
    /// The end of a response body. No values.
    End = 3,
    /// The end of a wait that has no result: an upload or an exchange can take its next chunk, or a
    /// map can start another item. No values.
    Ready = 4,
    /// A slot of a tool was granted. Value: the `Permit`.
    Permit = 5,
    /// A drain has ended. Value: the number of calls that are still active.
    Count = 6,
    /// The future panicked. No values.
    Panicked = 7,
    /// A request to make an exchange with the caller's own fetch. Values: the `Exchange`, the
    /// changed headers, and the changed URL or null.
    Exchange = 8,
    /// The cancellation of an exchange. Value: the id of the exchange.
    CancelExchange = 9,
    /// A slot of a target was granted. Value: the `Slot`.
    Slot = 10,
}

/// Builds the array that `Port::take` returns. The rows are stored one after the other in a single
/// array, because an array per row would cost one more JavaScript object per row.
pub(super) struct Batch<'env> {
    array: Array<'env>,
    rows: u32,
}

/// A row of a [`Batch`] that is being written.
pub(crate) struct Row<'batch, 'env> {
    array: &'batch mut Array<'env>,
    start: u32,
}

impl<'env> Batch<'env> {
    pub(super) fn new(array: Array<'env>) -> Self {
        Self { array, rows: 0 }
    }

    /// Appends the row of the future or stream with this number, and returns it to be filled.
    pub(super) fn row(&mut self, number: u32) -> Result<Row<'_, 'env>> {
        let start = self.rows * WIDTH;
        self.rows += 1;
        self.array.set(start, number)?;
        Ok(Row { array: &mut self.array, start })
    }

    /// Returns the array with the values of all rows.
    pub(super) fn into_array(self) -> Array<'env> {
        self.array
    }

    /// Returns the number of array elements that `rows` rows take.
    pub(super) fn width(rows: usize) -> u32 {
        u32::try_from(rows).map_or(u32::MAX, |rows| rows.saturating_mul(WIDTH))
    }
}

impl Row<'_, '_> {
    /// Sets the kind of the completion, which determines the meaning of its values.
    pub(crate) fn kind(&mut self, kind: CompletionKind) -> Result<()> {
        self.array.set(self.start + 1, kind as u32)
    }

    /// Sets one of the four values of the completion. `index` is from 0 to 3.
    pub(crate) fn put(&mut self, index: u32, value: impl ToNapiValue) -> Result<()> {
        self.array.set(self.start + 2 + index, value)
    }
}
