//! Limits how many items of a map (`Gate.map`) run at the same time.

use pyo3::prelude::*;
use tidegate_bindings::MapWindow;

use crate::bridge::{Port, Ready, Scope};
use crate::context::{Context, inherited};

/// The limit on the number of items of one map that run at the same time, the group in which the
/// calls of the items are counted, and the scope of the threads that run the items.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Window {
    window: MapWindow,
    scope: Scope,
}

#[pymethods]
impl Window {
    /// Creates the window of a map, which allows at most `max_items` running items. `outer` is the
    /// context in which the map was started. Calls of the items are counted in the group of this
    /// map and, if `outer` is the context of an item of another map, also in the group of that map.
    #[new]
    #[pyo3(signature = (max_items, outer=None))]
    fn new(max_items: usize, outer: Option<&Bound<'_, Context>>) -> Self {
        let window = MapWindow::new(max_items, outer.map(|context| &context.get().0));
        Self { window, scope: Scope::new() }
    }

    /// Returns a copy of `context` in which calls are counted in the group of this map. Items of
    /// the map must run in such a context. If `context` is None, it is the default context.
    #[pyo3(signature = (context=None))]
    fn item_context(&self, context: Option<&Bound<'_, Context>>) -> Context {
        Context(self.window.item_context(inherited(context)))
    }

    /// If the window allows one more running item, counts it as running and returns True. Otherwise
    /// returns False.
    fn begin(&self) -> bool {
        self.window.begin()
    }

    /// Reports that one item has ended, so that another may begin.
    fn end(&self) {
        self.window.end();
    }

    /// Calls `function` with an item on the current thread, and returns its result. If
    /// [`Self::cancel_threads`] is called, the waits of the function for the gate end.
    fn run_item(&self, function: &Bound<'_, PyAny>, item: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let _inside = self.scope.enter();
        function.call1((item,)).map(Bound::unbind)
    }

    /// Ends the waits for the gate in the threads of this map, now and later. Called when the
    /// results of the items are no longer needed.
    fn cancel_threads(&self) {
        self.scope.cancel();
    }

    /// Starts to wait until `begin` may return True again because calls of the running items got
    /// slots. Returns an asyncio future that completes then, and the number that cancels the wait.
    /// Does not wait for the end of an item. Called after `begin` has returned False.
    fn ready(&self, port: &Bound<'_, Port>) -> PyResult<(Py<PyAny>, u64)> {
        let ready = self.window.ready();
        Port::submit(port, async move {
            ready.await;
            Ready
        })
    }
}
