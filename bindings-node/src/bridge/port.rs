//! One event loop's side of the bridge: what it has under way, by number.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::{AbortHandle, abortable};
use napi::bindgen_prelude::{Array, Function};
use napi::{Env, Result, check_status, sys};
use napi_derive::napi;
use parking_lot::Mutex;

use super::queue::{Batch, Bell, Done, Kind, Outcome, Queue};
use super::ring::{Pull, Ring};
use super::runtime;
use crate::stream;

/// An event loop as the native side sees it. Dropped when its environment ends, which gives up everything.
#[napi]
pub struct Port {
    shared: Arc<Shared>,
    bell: Arc<Bell>,
}

struct Shared {
    queue: Arc<Queue>,
    under_way: Mutex<HashMap<u32, AbortHandle>>,
    outbox: Mutex<Vec<Started>>,
}

/// Bytes: more than half of any heap, at which V8 collects at once.
const PRESSURE: i64 = 1 << 40;

/// A call that waits to be handed to the workers with others of its kind: each hand-over wakes a sleeping worker.
type Started = Pin<Box<dyn Future<Output = ()> + Send>>;

#[napi]
impl Port {
    /// `wake` is called on the loop's thread when something is finished: it is to `take` it.
    #[napi(constructor)]
    pub fn new(env: Env, wake: Function<'_, (), ()>) -> Result<Self> {
        let bell = wake.build_threadsafe_function::<()>().callee_handled::<false>().weak::<true>().build()?;
        let bell = Arc::new(bell);
        let shared = Arc::new(Shared {
            queue: Queue::new(bell.clone()),
            under_way: Mutex::default(),
            outbox: Mutex::default(),
        });
        // The environment of a worker thread may end while its objects are alive and calls are under way.
        env.add_env_cleanup_hook(shared.clone(), |shared| shared.close())?;
        Ok(Self { shared, bell })
    }

    /// Everything that is finished, as a flat array of rows of six: number, kind, and what that kind brings.
    #[napi]
    pub fn take<'env>(&self, env: &'env Env) -> Result<Array<'env>> {
        let finished = self.shared.queue.take();
        let mut batch = Batch::new(env.create_array(Batch::width(finished.len()))?);
        for done in finished {
            match done {
                Done::Outcome(number, outcome) => {
                    let known = self.shared.under_way.lock().remove(&number).is_some();
                    // Else it was cancelled meanwhile. The outcome, and the slot in it, is dropped here.
                    if known {
                        outcome.write(&mut batch.row(number)?)?;
                    }
                }
                Done::Pulled(number, pulled) => Box::new(pulled).write(&mut batch.row(number)?)?,
                Done::Begin(number, letter) => {
                    // Else it was cancelled meanwhile: dropping the letter says that this side is over.
                    if self.shared.under_way.lock().contains_key(&number) {
                        Box::new(letter).write(&mut batch.row(number)?)?;
                    }
                }
                Done::Cancel(id) => {
                    let mut row = batch.row(0)?;
                    row.kind(Kind::Cancel)?;
                    row.put(0, id as f64)?;
                }
                Done::Lost(number) => {
                    self.shared.under_way.lock().remove(&number);
                    batch.row(number)?.kind(Kind::Lost)?;
                }
            }
        }
        Ok(batch.into_array())
    }

    /// Gives up the work of that number: drops it at once, and its result if that is on its way. Unknown numbers are ignored.
    #[napi]
    pub fn cancel(&self, number: u32) {
        let abort = self.shared.under_way.lock().remove(&number);
        if let Some(abort) = abort {
            abort.abort();
        }
    }

    /// Hands the calls that wait for it to the workers.
    #[napi]
    pub fn flush(&self) -> Result<()> {
        let batch = std::mem::take(&mut *self.shared.outbox.lock());
        if !batch.is_empty() {
            runtime::handle()?.spawn(async move {
                for started in batch {
                    tokio::spawn(started);
                }
            });
        }
        Ok(())
    }

    /// How many responses' bodies have not ended. Each holds a slot, until somebody reads it, or the garbage collector finds that nobody can.
    #[napi]
    pub fn open_bodies(&self) -> u32 {
        u32::try_from(stream::open_bodies()).unwrap_or(u32::MAX)
    }

    /// Has the garbage collector look now: for bodies that everybody lost, while calls wait for their slots. It knows of memory alone, so it
    /// is told, for a moment, of more than there can be.
    #[napi]
    pub fn collect(&self, env: Env) -> Result<()> {
        env.adjust_external_memory(PRESSURE)?;
        env.adjust_external_memory(-PRESSURE)?;
        Ok(())
    }

    /// From now on the loop's process, or thread, stays alive for what is under way.
    #[napi]
    #[allow(unsafe_code)]
    pub fn hold(&self, env: Env) -> Result<()> {
        self.bell.handle.with_read_aborted(|aborted| {
            if aborted {
                return Ok(());
            }
            // SAFETY: the environment is this thread's, and the function lives while it is not aborted.
            check_status!(unsafe { sys::napi_ref_threadsafe_function(env.raw(), self.bell.raw()) })
        })
    }

    /// Nothing is under way: the process may end.
    #[napi]
    #[allow(unsafe_code)]
    pub fn release(&self, env: Env) -> Result<()> {
        self.bell.handle.with_read_aborted(|aborted| {
            if aborted {
                return Ok(());
            }
            // SAFETY: as in `hold`.
            check_status!(unsafe { sys::napi_unref_threadsafe_function(env.raw(), self.bell.raw()) })
        })
    }
}

impl Port {
    /// Runs the work on the workers, once flushed; its outcome comes with the number.
    pub(crate) fn submit<F, O>(&self, number: u32, work: F) -> usize
    where
        F: Future<Output = O> + Send + 'static,
        O: Outcome + 'static,
    {
        let queue = self.shared.queue.clone();
        let (work, abort) = abortable(async move {
            let lost = Lost { queue: &queue, number };
            let outcome = work.await;
            lost.queue.push(Done::Outcome(number, Box::new(outcome)));
        });
        self.shared.under_way.lock().insert(number, abort);
        let mut outbox = self.shared.outbox.lock();
        outbox.push(Box::pin(async move {
            let _ = work.await;
        }));
        outbox.len()
    }

    /// Where what this loop is to know goes.
    pub(crate) fn queue(&self) -> Arc<Queue> {
        self.shared.queue.clone()
    }

    /// Whether nothing is finished.
    pub(super) fn is_idle(&self) -> bool {
        self.shared.queue.is_empty()
    }

    /// A ring for a stream that is read on this loop.
    pub(crate) fn ring(&self, number: u32, stream: &Arc<dyn Pull>) -> Result<Arc<Ring>> {
        Ok(Ring::new(self.shared.queue.clone(), number, runtime::handle()?, Arc::downgrade(stream)))
    }
}

impl Shared {
    fn close(&self) {
        self.queue.close();
        let unsent = std::mem::take(&mut *self.outbox.lock());
        drop(unsent);
        let under_way = std::mem::take(&mut *self.under_way.lock());
        for abort in under_way.into_values() {
            abort.abort();
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Says so when a task ends by a panic, rather than leave its promise waiting for ever.
struct Lost<'a> {
    queue: &'a Queue,
    number: u32,
}

impl Drop for Lost<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.queue.push(Done::Lost(self.number));
        }
    }
}
