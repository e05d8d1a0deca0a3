//! The number of items of a map that run at the same time.

use pyo3::prelude::*;
use tidegate_bindings::MapWindow;

use crate::bridge::{Outcome, Port, Scope};
use crate::context::{Context, inherited};

/// The window of one map, and the group of calls that its items make.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Window {
    window: MapWindow,
    scope: Scope,
}

#[pymethods]
impl Window {
    /// Returns a window of at most `most` items, inside the map in whose item it is opened.
    #[new]
    #[pyo3(signature = (most, around=None))]
    fn new(most: usize, around: Option<&Bound<'_, Context>>) -> Self {
        let window = MapWindow::new(most, around.map(|context| &context.get().0));
        Self { window, scope: Scope::new() }
    }

    /// Returns the context of the items, inside `context`.
    #[pyo3(signature = (context=None))]
    fn inside(&self, context: Option<&Bound<'_, Context>>) -> Context {
        Context(self.window.context(inherited(context)))
    }

    /// Begins an item, and returns `True`, if one more may run.
    fn begin(&self) -> bool {
        self.window.begin()
    }

    /// Ends an item.
    fn end(&self) {
        self.window.end();
    }

    /// Calls the function for an item in the current thread. Its waits for the gate end when the
    /// map is left.
    fn work(&self, function: &Bound<'_, PyAny>, item: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let _inside = self.scope.enter();
        function.call1((item,)).map(Bound::unbind)
    }

    /// Reports that the map was left: the results of its items are no longer needed.
    fn leave(&self) {
        self.scope.leave();
    }

    /// Waits, after `begin` has returned `False`, until it may return `True` although no item has
    /// ended. Returns an asyncio future and the number that cancels it.
    fn news(&self, port: &Bound<'_, Port>) -> PyResult<(Py<PyAny>, u64)> {
        let changed = self.window.changed();
        Port::submit(port, async move {
            changed.await;
            Changed
        })
    }
}

/// The result of a wait for a change of the window. `None` in Python.
struct Changed;

impl Outcome for Changed {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(py.None())
    }
}
