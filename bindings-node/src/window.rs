//! The number of items of a map that run at the same time.

use napi_derive::napi;
use tidegate_bindings::MapWindow;

use crate::bridge::Port;
use crate::context::{Context, resolve};
use crate::custom_transport::Ready;

/// The window of one map, and the group of calls that its items make.
#[napi]
pub struct Window(MapWindow);

#[napi]
impl Window {
    /// Returns a window of at most `most` items, inside the map in whose item it is opened.
    #[napi(constructor)]
    pub fn new(most: u32, around: Option<&Context>) -> Self {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Self(MapWindow::new(most, around.map(|context| &context.0)))
    }

    /// Returns the context of the items, inside `context`.
    #[napi]
    pub fn inside(&self, context: Option<&Context>) -> Context {
        Context(self.0.context(resolve(context)))
    }

    /// Begins an item, and returns `true`, if one more may run.
    #[napi]
    pub fn begin(&self) -> bool {
        self.0.begin()
    }

    /// Ends an item.
    #[napi]
    pub fn end(&self) {
        self.0.end();
    }

    /// Resolves the number, after `begin` has returned `false`, when it may return `true` although
    /// no item has ended.
    #[napi]
    pub fn news(&self, port: &Port, number: u32) {
        let changed = self.0.changed();
        port.submit(number, async move {
            changed.await;
            Ready
        });
    }
}
