//! Limits how many items of a map (`Gate.map`) run at the same time.

use pyo3::prelude::*;
use tidegate_bindings::MapWindow;

use crate::bridge::{Port, Ready, Scope};
use crate::context::{Context, inherited};

/// The limit on the running items of one map, and the scope of the threads that run them.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Window {
    window: MapWindow,
    scope: Scope,
}

#[pymethods]
impl Window {
    /// Creates a window that allows at most `max_items` running items. `outer` is the context of
    /// the map's caller; inside an item of another map, the calls also count for that map.
    #[new]
    #[pyo3(signature = (max_items, outer=None))]
    fn new(max_items: usize, outer: Option<&Bound<'_, Context>>) -> Self {
        let window = MapWindow::new(max_items, outer.map(|context| &context.get().0));
        Self { window, scope: Scope::new() }
    }

    /// Returns a copy of `context` for the items, whose calls belong to the group of this map. None
    /// is the default context.
    #[pyo3(signature = (context=None))]
    fn item_context(&self, context: Option<&Bound<'_, Context>>) -> Context {
        Context(self.window.item_context(inherited(context)))
    }

    /// Counts one more item as running and returns True, if the window allows one more. Otherwise
    /// returns False.
    fn begin(&self) -> bool {
        self.window.begin()
    }

    /// Reports that one item has ended, so that another may begin.
    fn end(&self) {
        self.window.end();
    }

    /// Calls the function with an item in the current thread, and returns its result. While the
    /// function waits for the gate, [`Self::cancel_threads`] ends its wait.
    fn run_item(&self, function: &Bound<'_, PyAny>, item: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let _inside = self.scope.enter();
        function.call1((item,)).map(Bound::unbind)
    }

    /// Ends the waits for the gate in the threads of this map, because nobody needs the results of
    /// its items.
    fn cancel_threads(&self) {
        self.scope.cancel();
    }

    /// Waits until one more item may start although none has ended. Called after `begin` has
    /// returned False. Returns an asyncio future and the number that cancels the wait.
    fn ready(&self, port: &Bound<'_, Port>) -> PyResult<(Py<PyAny>, u64)> {
        let ready = self.window.ready();
        Port::submit(port, async move {
            ready.await;
            Ready
        })
    }
}
