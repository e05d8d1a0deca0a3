//! One event loop's side of the bridge: its works in flight, by number.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::AbortHandle;
use napi::bindgen_prelude::{Array, Function};
use napi::{Env, Result, check_status, sys};
use napi_derive::napi;
use parking_lot::Mutex;
use tidegate_bindings::{BodyStream, Outbox, StreamReader, open_bodies};

use super::queue::{Batch, Done, Kind, Outcome, Queue, Waker};
use super::runtime;

/// An event loop as the native side sees it. It is dropped when its environment ends, which drops
/// all its work.
#[napi]
pub struct Port {
    shared: Arc<Shared>,
    waker: Arc<Waker>,
}

struct Shared {
    queue: Arc<Queue>,
    in_flight: Mutex<HashMap<u32, AbortHandle>>,
    outbox: Outbox,
}

/// Bytes that `collect` reports: more than half of any heap, at which V8 collects at once.
const PRESSURE: i64 = 1 << 40;

#[napi]
impl Port {
    /// `wake` is called on the thread of the loop when there are results to `take`.
    #[napi(constructor)]
    pub fn new(env: Env, wake: Function<'_, (), ()>) -> Result<Self> {
        let waker =
            wake.build_threadsafe_function::<()>().callee_handled::<false>().weak::<true>().build()?;
        let waker = Arc::new(waker);
        let shared = Arc::new(Shared {
            queue: Queue::new(waker.clone()),
            in_flight: Mutex::default(),
            outbox: Outbox::default(),
        });
        // The environment of a worker thread can end while its objects are alive and calls are in
        // flight.
        env.add_env_cleanup_hook(shared.clone(), |shared| shared.close())?;
        Ok(Self { shared, waker })
    }

    /// Returns all results as a flat array of rows of six values: number, kind, and the values of
    /// that kind.
    #[napi]
    pub fn take<'env>(&self, env: &'env Env) -> Result<Array<'env>> {
        let results = self.shared.queue.take();
        let mut batch = Batch::new(env.create_array(Batch::width(results.len()))?);
        for done in results {
            match done {
                Done::Outcome(number, outcome) => {
                    let is_known = self.shared.in_flight.lock().remove(&number).is_some();
                    // Otherwise it was cancelled, and the outcome, with its slot, is dropped here.
                    if is_known {
                        outcome.write(&mut batch.row(number)?)?;
                    }
                }
                Done::Chunk(number, chunk) => Box::new(chunk).write(&mut batch.row(number)?)?,
                Done::Exchange(number, exchange) => {
                    // Otherwise it was cancelled, and dropping the exchange says that this side is
                    // done.
                    if self.shared.in_flight.lock().contains_key(&number) {
                        exchange.write(&mut batch.row(number)?)?;
                    }
                }
                Done::Cancelled(exchange) => {
                    let mut row = batch.row(0)?;
                    row.kind(Kind::Cancel)?;
                    row.put(0, exchange as f64)?;
                }
                Done::Panicked(number) => {
                    self.shared.in_flight.lock().remove(&number);
                    batch.row(number)?.kind(Kind::Lost)?;
                }
            }
        }
        Ok(batch.into_array())
    }

    /// Drops the work with this number at once, and its result if that is on its way. Unknown
    /// numbers are ignored.
    #[napi]
    pub fn cancel(&self, number: u32) {
        let abort = self.shared.in_flight.lock().remove(&number);
        if let Some(abort) = abort {
            abort.abort();
        }
    }

    /// Hands the submitted works to the workers.
    #[napi]
    pub fn flush(&self) -> Result<()> {
        self.shared.outbox.flush(&runtime::handle()?);
        Ok(())
    }

    /// Returns the number of response bodies that have not ended. Each holds a slot until it is
    /// read, or until the garbage collector finds it unreachable.
    #[napi]
    pub fn open_bodies(&self) -> u32 {
        u32::try_from(open_bodies()).unwrap_or(u32::MAX)
    }

    /// Makes the garbage collector run now, to find lost bodies while calls wait for their slots.
    /// The collector reacts to memory only, so more memory than there can be is reported for a
    /// moment.
    #[napi]
    pub fn collect(&self, env: Env) -> Result<()> {
        env.adjust_external_memory(PRESSURE)?;
        env.adjust_external_memory(-PRESSURE)?;
        Ok(())
    }

    /// Keeps the process or thread of the loop alive from now on.
    #[napi]
    #[allow(unsafe_code)]
    pub fn hold(&self, env: Env) -> Result<()> {
        self.waker.handle.with_read_aborted(|aborted| {
            if aborted {
                return Ok(());
            }
            // SAFETY: the environment is this thread's, and the function lives while it is not
            // aborted.
            check_status!(unsafe { sys::napi_ref_threadsafe_function(env.raw(), self.waker.raw()) })
        })
    }

    /// Lets the process or thread end, because no work is in flight.
    #[napi]
    #[allow(unsafe_code)]
    pub fn release(&self, env: Env) -> Result<()> {
        self.waker.handle.with_read_aborted(|aborted| {
            if aborted {
                return Ok(());
            }
            // SAFETY: as in `hold`.
            check_status!(unsafe { sys::napi_unref_threadsafe_function(env.raw(), self.waker.raw()) })
        })
    }
}

impl Port {
    /// Runs the work on the workers after the next flush. Its outcome arrives with the number.
    /// Returns how many works wait for the flush.
    pub(crate) fn submit<F, O>(&self, number: u32, work: F) -> usize
    where
        F: Future<Output = O> + Send + 'static,
        O: Outcome + 'static,
    {
        let queue = self.shared.queue.clone();
        let (abort, waiting) = self.shared.outbox.push(work, move |outcome| {
            queue.push(match outcome {
                Some(outcome) => Done::Outcome(number, Box::new(outcome)),
                None => Done::Panicked(number),
            });
        });
        self.shared.in_flight.lock().insert(number, abort);
        waiting
    }

    /// Returns the queue of the loop.
    pub(crate) fn queue(&self) -> Arc<Queue> {
        self.shared.queue.clone()
    }

    /// Returns `true` if there are no results.
    pub(super) fn is_idle(&self) -> bool {
        self.shared.queue.is_empty()
    }

    /// Returns a reader for a body that is read on this loop.
    pub(crate) fn reader(&self, number: u32, stream: &Arc<BodyStream>) -> Result<Arc<StreamReader<Queue>>> {
        Ok(StreamReader::new(self.shared.queue.clone(), number.into(), runtime::handle()?, stream))
    }
}

impl Shared {
    fn close(&self) {
        self.queue.close();
        self.outbox.clear();
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
