//! Limits how many items of a map (`gate.map`) run at the same time.

use napi_derive::napi;
use tidegate_bindings::MapWindow;

use crate::bridge::Port;
use crate::context::{Context, resolve};
use crate::custom_transport::Ready;

/// The limit on the running items of one map, and the group of the calls that its items make.
#[napi]
pub struct Window(MapWindow);

#[napi]
impl Window {
    /// Creates a window that allows at most `max_items` running items. `outer` is the context of
    /// the map's caller; inside an item of another map, the calls also count for that map.
    #[napi(constructor)]
    pub fn new(max_items: u32, outer: Option<&Context>) -> Self {
        let max_items = usize::try_from(max_items).unwrap_or(usize::MAX);
        Self(MapWindow::new(max_items, outer.map(|context| &context.0)))
    }

    /// Returns a copy of `context` for the items, whose calls belong to the group of this map.
    /// Undefined is the default context.
    #[napi]
    pub fn item_context(&self, context: Option<&Context>) -> Context {
        Context(self.0.item_context(resolve(context)))
    }

    /// Counts one more item as running and returns `true`, if the window allows one more. Otherwise
    /// returns `false`.
    #[napi]
    pub fn begin(&self) -> bool {
        self.0.begin()
    }

    /// Reports that one item has ended, so that another may begin.
    #[napi]
    pub fn end(&self) {
        self.0.end();
    }

    /// Reports to JavaScript, under `number`, when `begin` may return `true` although no item has
    /// ended. Called after it has returned `false`.
    #[napi]
    pub fn ready(&self, port: &Port, number: u32) {
        let changed = self.0.ready();
        port.submit(number, async move {
            changed.await;
            Ready
        });
    }
}
