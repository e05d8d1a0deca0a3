//! Limits the number of items of a map that run at the same time.

use parking_lot::Mutex;
use tidegate::{CallGroup, Context, ItemWindow};

/// The window of one map, and the group of calls that its items make.
pub struct MapWindow {
    window: Mutex<ItemWindow>,
    group: CallGroup,
}

impl MapWindow {
    /// Returns the window of at most `most` items, inside the map in whose item it is opened.
    pub fn new(most: usize, outer: Option<&Context>) -> Self {
        let group = CallGroup::within(outer.and_then(|context| context.group.as_ref()));
        Self { window: Mutex::new(ItemWindow::new(most)), group }
    }

    /// Returns the context of the items, inside `context`.
    pub fn context(&self, context: Context) -> Context {
        Context { group: Some(self.group.clone()), ..context }
    }

    /// Begins an item, and returns `true`, if one more may run.
    pub fn begin(&self) -> bool {
        self.window.lock().begin(self.group.waits())
    }

    /// Ends an item.
    pub fn end(&self) {
        self.window.lock().end();
    }

    /// Waits, after [`MapWindow::begin`] has returned `false`, until it may return `true` although
    /// no item has ended.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let (window, group) = (*self.window.lock(), self.group.clone());
        async move { group.until(|waits| window.is_news(waits)).await }
    }
}
