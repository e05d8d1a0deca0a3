//! How many items of a map may be under way, as Python asks it.

use parking_lot::Mutex;
use pyo3::prelude::*;
use tidegate::Crowd;

use crate::bridge::{Outcome, Port, Scope};
use crate::context::Context;

/// The window of one map, and the crowd that its items' calls are.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct Window {
    window: Mutex<tidegate::Window>,
    crowd: Crowd,
    scope: Scope,
}

#[pymethods]
impl Window {
    /// Of `most` items at once at most; inside a context, and inside the map whose items run in that.
    #[new]
    #[pyo3(signature = (most, around=None))]
    fn new(most: usize, around: Option<&Bound<'_, Context>>) -> Self {
        let around = around.and_then(|context| context.get().0.crowd.as_ref());
        Self {
            window: Mutex::new(tidegate::Window::new(most)),
            crowd: Crowd::within(around),
            scope: Scope::new(),
        }
    }

    /// The context in which its items run: as it is, but for whose calls they are.
    #[pyo3(signature = (context=None))]
    fn inside(&self, context: Option<&Bound<'_, Context>>) -> Context {
        let context = context.map(|context| context.get().0.clone()).unwrap_or_default();
        Context(tidegate::Context { crowd: Some(self.crowd.clone()), ..context })
    }

    /// Begins one more, if one may.
    fn begin(&self) -> bool {
        self.window.lock().begin(self.crowd.waits())
    }

    /// One has ended.
    fn end(&self) {
        self.window.lock().end();
    }

    /// Calls the function for an item, in a thread of its own: what it waits for there ends when the map is left.
    fn work(&self, function: &Bound<'_, PyAny>, item: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let _inside = self.scope.enter();
        function.call1((item,)).map(Bound::unbind)
    }

    /// Nobody waits for the items' results any more.
    fn leave(&self) {
        self.scope.leave();
    }

    /// After a no: the asyncio future that is done when it is worth asking again though nothing has ended, and the number to cancel it by.
    fn news(&self, port: &Bound<'_, Port>) -> PyResult<(Py<PyAny>, u64)> {
        let (window, crowd) = (*self.window.lock(), self.crowd.clone());
        Port::submit(port, async move {
            crowd.until(|waits| window.is_news(waits)).await;
            News
        })
    }
}

struct News;

impl Outcome for News {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(py.None())
    }
}
