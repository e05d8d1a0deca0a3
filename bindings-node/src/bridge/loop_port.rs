//! The side of the bridge that belongs to one event loop. It keeps the native futures in flight by
//! the number that JavaScript gave to each of them.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::AbortHandle;
use napi::bindgen_prelude::{Array, Function};
use napi::{Env, Result, check_status, sys};
use napi_derive::napi;
use parking_lot::Mutex;
use tidegate_bindings::{BodyStream, SpawnBatch, StreamReader, open_bodies};

use super::completions::{Batch, Completion, CompletionKind, Outcome, Queue, Waker};
use super::runtime;

/// The native side of one event loop: its futures in flight, and the queue of their results. When
/// the environment of the loop ends, all futures are aborted.
#[napi]
pub struct Port {
    shared: Arc<Shared>,
    waker: Arc<Waker>,
}

struct Shared {
    queue: Arc<Queue>,
    in_flight: Mutex<HashMap<u32, AbortHandle>>,
    spawn_batch: SpawnBatch,
}

/// Number of bytes that [`Port::collect_garbage`] reports as allocated. It is more than half of any
/// heap, which makes V8 collect at once.
const HUGE_ALLOCATION_BYTES: i64 = 1 << 40;

#[napi]
impl Port {
    /// Creates the port of the calling thread's event loop. `wake` is called on that thread when
    /// the port has results for [`Port::take`].
    #[napi(constructor)]
    pub fn new(env: Env, wake: Function<'_, (), ()>) -> Result<Self> {
        let waker =
            wake.build_threadsafe_function::<()>().callee_handled::<false>().weak::<true>().build()?;
        let waker = Arc::new(waker);
        let shared = Arc::new(Shared {
            queue: Queue::new(waker.clone()),
            in_flight: Mutex::default(),
            spawn_batch: SpawnBatch::default(),
        });
        // The environment of a worker thread can end while its objects are alive and calls are in
        // flight.
        env.add_env_cleanup_hook(shared.clone(), |shared| shared.close())?;
        Ok(Self { shared, waker })
    }

    /// Removes all completions (results of native futures) and returns them as one flat array. Each
    /// completion has six elements: the number of its future, its [`CompletionKind`], and up to
    /// four values that depend on the kind.
    #[napi]
    pub fn take<'env>(&self, env: &'env Env) -> Result<Array<'env>> {
        let results = self.shared.queue.take();
        let mut batch = Batch::new(env.create_array(Batch::width(results.len()))?);
        for completion in results {
            match completion {
                Completion::Outcome(number, outcome) => {
                    let is_known = self.shared.in_flight.lock().remove(&number).is_some();
                    // Otherwise it was cancelled, and the outcome, with its slot, is dropped here.
                    if is_known {
                        outcome.write(&mut batch.row(number)?)?;
                    }
                }
                Completion::Chunk(number, chunk) => Box::new(chunk).write(&mut batch.row(number)?)?,
                Completion::Exchange(number, exchange) => {
                    // Otherwise it was cancelled, and dropping the exchange reports that JavaScript
                    // has finished.
                    if self.shared.in_flight.lock().contains_key(&number) {
                        exchange.write(&mut batch.row(number)?)?;
                    }
                }
                Completion::Cancelled(exchange) => {
                    let mut row = batch.row(0)?;
                    row.kind(CompletionKind::CancelExchange)?;
                    row.put(0, exchange as f64)?;
                }
                Completion::Panicked(number) => {
                    self.shared.in_flight.lock().remove(&number);
                    batch.row(number)?.kind(CompletionKind::Panicked)?;
                }
            }
        }
        Ok(batch.into_array())
    }

    /// Aborts the future with this number. If it has ended already, its result is dropped instead
    /// of delivered. Unknown numbers are ignored.
    #[napi]
    pub fn cancel(&self, number: u32) {
        let abort = self.shared.in_flight.lock().remove(&number);
        if let Some(abort) = abort {
            abort.abort();
        }
    }

    /// Hands the submitted futures to the worker threads of the runtime.
    #[napi]
    pub fn flush(&self) -> Result<()> {
        self.shared.spawn_batch.flush(&runtime::handle()?);
        Ok(())
    }

    /// Returns the number of response bodies in the process that have an unread rest. Each may
    /// occupy a slot until it is read to its end, closed, or collected as garbage.
    #[napi]
    pub fn open_bodies(&self) -> u32 {
        u32::try_from(open_bodies()).unwrap_or(u32::MAX)
    }

    /// Makes V8 collect garbage now. This closes the response bodies to which the program has lost
    /// all references, and releases their slots for the calls that wait. V8 collects when much
    /// memory is in use, so a huge allocation is reported for a moment.
    #[napi]
    pub fn collect_garbage(&self, env: Env) -> Result<()> {
        env.adjust_external_memory(HUGE_ALLOCATION_BYTES)?;
        env.adjust_external_memory(-HUGE_ALLOCATION_BYTES)?;
        Ok(())
    }

    /// Keeps the event loop alive until `unref` is called.
    #[napi(js_name = "ref")]
    #[allow(unsafe_code)]
    pub fn ref_loop(&self, env: Env) -> Result<()> {
        self.waker.handle.with_read_aborted(|aborted| {
            if aborted {
                return Ok(());
            }
            // SAFETY: the environment is this thread's, and the function lives while it is not
            // aborted.
            check_status!(unsafe { sys::napi_ref_threadsafe_function(env.raw(), self.waker.raw()) })
        })
    }

    /// Allows the event loop to end although the port exists.
    #[napi(js_name = "unref")]
    #[allow(unsafe_code)]
    pub fn unref_loop(&self, env: Env) -> Result<()> {
        self.waker.handle.with_read_aborted(|aborted| {
            if aborted {
                return Ok(());
            }
            // SAFETY: as in `ref_loop`.
            check_status!(unsafe { sys::napi_unref_threadsafe_function(env.raw(), self.waker.raw()) })
        })
    }
}

impl Port {
    /// Submits a future, which runs on the worker threads after the next [`Port::flush`]. Its
    /// output is delivered to JavaScript under `number`. Returns the number of submitted futures
    /// that now wait for the flush.
    pub(crate) fn submit<F, O>(&self, number: u32, work: F) -> usize
    where
        F: Future<Output = O> + Send + 'static,
        O: Outcome + 'static,
    {
        let queue = self.shared.queue.clone();
        let (abort, waiting) = self.shared.spawn_batch.push(work, move |outcome| {
            queue.push(match outcome {
                Some(outcome) => Completion::Outcome(number, Box::new(outcome)),
                None => Completion::Panicked(number),
            });
        });
        self.shared.in_flight.lock().insert(number, abort);
        waiting
    }

    /// Returns the queue of this event loop's completions.
    pub(crate) fn queue(&self) -> Arc<Queue> {
        self.shared.queue.clone()
    }

    /// Returns `true` if no completion is waiting to be taken.
    pub(super) fn is_idle(&self) -> bool {
        self.shared.queue.is_empty()
    }

    /// Returns a reader for a body that is read on this event loop. If no chunk has arrived when
    /// the body is read, the result is delivered to JavaScript later, under `number`.
    pub(crate) fn reader(&self, number: u32, stream: &Arc<BodyStream>) -> Result<Arc<StreamReader<Queue>>> {
        Ok(StreamReader::new(self.shared.queue.clone(), number.into(), runtime::handle()?, stream))
    }
}

impl Shared {
    fn close(&self) {
        self.queue.close();
        self.spawn_batch.clear();
        let in_flight = std::mem::take(&mut *self.in_flight.lock());
        for abort in in_flight.into_values() {
            abort.abort();
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.shared.close();
    }
}
