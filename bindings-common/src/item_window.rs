//! Limits how many items of a map (`gate.map`) run at the same time.

use parking_lot::Mutex;
use tidegate::{CallGroup, Context, ItemWindow};

/// The limit on the number of items of one map that run at the same time, and the group in which
/// the calls of the items are counted.
pub struct MapWindow {
    window: Mutex<ItemWindow>,
    group: CallGroup,
}

impl MapWindow {
    /// Creates the window of a map, which allows at most `max_items` running items. `outer` is the
    /// context in which the map was started. Calls of the items are counted in the group of this
    /// map and, if `outer` is the context of an item of another map, also in the group of that map.
    pub fn new(max_items: usize, outer: Option<&Context>) -> Self {
        let group = CallGroup::new(outer.and_then(|context| context.group.as_ref()));
        Self { window: Mutex::new(ItemWindow::new(max_items)), group }
    }

    /// Returns a copy of `context` in which calls are counted in the group of this map. Items of
    /// the map must run in such a context.
    pub fn item_context(&self, context: Context) -> Context {
        Context { group: Some(self.group.clone()), ..context }
    }

    /// If the window allows one more running item, counts it as running and returns `true`.
    /// Otherwise returns `false`.
    pub fn begin(&self) -> bool {
        self.window.lock().begin(self.group.waits())
    }

    /// Reports that one item has ended, so that another may begin.
    pub fn end(&self) {
        self.window.lock().end();
    }

    /// Returns a future that resolves when [`Self::begin`] may return `true` again because calls of
    /// the running items got slots. It does not wait for the end of an item. Called after `begin`
    /// has returned `false`.
    pub fn ready(&self) -> impl Future<Output = ()> + Send + use<> {
        let (window, group) = (*self.window.lock(), self.group.clone());
        async move { group.until(|waits| window.may_begin_now(waits)).await }
    }
}
