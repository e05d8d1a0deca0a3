//! Limits how many items of a map (`gate.map`) run at the same time.

use parking_lot::Mutex;
use tidegate::{CallGroup, Context, ItemWindow};

/// The limit on the running items of one map, and the group of the calls that its items make.
pub struct MapWindow {
    window: Mutex<ItemWindow>,
    group: CallGroup,
}

impl MapWindow {
    /// Returns a window that allows at most `max_items` running items. `outer` is the context of
    /// the map's caller; inside an item of another map, the calls also count for that map.
    pub fn new(max_items: usize, outer: Option<&Context>) -> Self {
        let group = CallGroup::new(outer.and_then(|context| context.group.as_ref()));
        Self { window: Mutex::new(ItemWindow::new(max_items)), group }
    }

    /// Returns a copy of `context` for the items, whose calls belong to the group of this map.
    pub fn item_context(&self, context: Context) -> Context {
        Context { group: Some(self.group.clone()), ..context }
    }

    /// Counts one more item as running and returns `true`, if the window allows one more. Otherwise
    /// returns `false`.
    pub fn begin(&self) -> bool {
        self.window.lock().begin(self.group.waits())
    }

    /// Reports that one item has ended, so that another may begin.
    pub fn end(&self) {
        self.window.lock().end();
    }

    /// Waits until [`Self::begin`] may return `true` although no item has ended. Called after it
    /// has returned `false`.
    pub fn ready(&self) -> impl Future<Output = ()> + Send + use<> {
        let (window, group) = (*self.window.lock(), self.group.clone());
        async move { group.until(|waits| window.may_begin_now(waits)).await }
    }
}
