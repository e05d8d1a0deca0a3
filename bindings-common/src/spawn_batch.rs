//! Collects the futures of one event loop, and hands them to the runtime's workers in batches.

use std::pin::Pin;

use futures_util::future::{AbortHandle, abortable};
use parking_lot::Mutex;
use tokio::runtime::Handle;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Futures that wait to be handed to the worker threads of the runtime. They are handed over in
/// batches, because each hand-over wakes a sleeping thread, which costs as much as all other work
/// of passing a call between the languages.
#[derive(Default)]
pub struct SpawnBatch(Mutex<Vec<Work>>);

impl SpawnBatch {
    /// Adds a future. Returns the handle that aborts it, and the number of futures that now wait to
    /// be handed over.
    ///
    /// `on_end` receives the output, or `None` if the future panicked. It is not called if the
    /// future is aborted.
    pub fn push<T>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        on_end: impl FnOnce(Option<T>) + Send + 'static,
    ) -> (AbortHandle, usize)
    where
        T: Send + 'static,
    {
        let (work, abort) = abortable(async move {
            let mut guard = PanicGuard { on_end: Some(on_end), result: std::marker::PhantomData };
            let result = work.await;
            if let Some(on_end) = guard.on_end.take() {
                on_end(Some(result));
            }
        });
        let mut waiting = self.0.lock();
        waiting.push(Box::pin(async move {
            let _ = work.await;
        }));
        (abort, waiting.len())
    }

    /// Spawns all futures that wait in the batch on the runtime.
    pub fn flush(&self, runtime: &Handle) {
        let batch = std::mem::take(&mut *self.0.lock());
        if !batch.is_empty() {
            runtime.spawn(async move {
                for work in batch {
                    tokio::spawn(work);
                }
            });
        }
    }

    /// Drops all futures that wait in the batch, without running them.
    pub fn clear(&self) {
        let dropped = std::mem::take(&mut *self.0.lock());
        drop(dropped);
    }
}

/// A guard inside a running future. If the future panics, the guard calls `on_end` with `None`,
/// because otherwise the caller would wait forever.
struct PanicGuard<T, F: FnOnce(Option<T>)> {
    on_end: Option<F>,
    result: std::marker::PhantomData<fn() -> T>,
}

impl<T, F: FnOnce(Option<T>)> Drop for PanicGuard<T, F> {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(on_end) = self.on_end.take()
        {
            on_end(None);
        }
    }
}
