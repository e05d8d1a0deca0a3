//! Limits how many items of a map (`gate.map`) run at the same time.

use napi_derive::napi;
use tidegate_bindings::MapWindow;

use crate::bridge::Port;
use crate::context::{Context, resolve};
use crate::custom_transport::Ready;

/// The limit on the number of items of one map that run at the same time, and the group in which
/// the calls of the items are counted.
#[napi]
pub struct Window(MapWindow);

#[napi]
impl Window {
    /// Creates the window of a map, which allows at most `max_items` running items. `outer` is the
    /// context in which the map was started. Calls of the items are counted in the group of this
    /// map and, if `outer` is the context of an item of another map, also in the group of that map.
    #[napi(constructor)]
    pub fn new(max_items: u32, outer: Option<&Context>) -> Self {
        let max_items = usize::try_from(max_items).unwrap_or(usize::MAX);
        Self(MapWindow::new(max_items, outer.map(|context| &context.0)))
    }

    /// Returns a copy of `context` in which calls are counted in the group of this map. Items of
    /// the map must run in such a context. If `context` is undefined, it is the default context.
    #[napi]
    pub fn item_context(&self, context: Option<&Context>) -> Context {
        Context(self.0.item_context(resolve(context)))
    }

    /// If the window allows one more running item, counts it as running and returns `true`.
    /// Otherwise returns `false`.
    #[napi]
    pub fn begin(&self) -> bool {
        self.0.begin()
    }

    /// Reports that one item has ended, so that another may begin.
    #[napi]
    pub fn end(&self) {
        self.0.end();
    }

    /// Completes `number` in JavaScript when `begin` may return `true` again because calls of the
    /// running items got slots. It does not wait for the end of an item. Called after `begin` has
    /// returned `false`.
    #[napi]
    pub fn ready(&self, port: &Port, number: u32) {
        let changed = self.0.ready();
        port.submit(number, async move {
            changed.await;
            Ready
        });
    }
}
