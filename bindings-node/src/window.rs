//! How many items of a map may be under way, as JavaScript asks it.

use napi::Result;
use napi_derive::napi;
use parking_lot::Mutex;
use tidegate::Crowd;

use crate::bridge::{Kind, Outcome, Port, Row};
use crate::context::{Context, resolve};

/// The window of one map, and the crowd that its items' calls are.
#[napi]
pub struct Window {
    window: Mutex<tidegate::Window>,
    crowd: Crowd,
}

#[napi]
impl Window {
    /// Of `most` items at once at most; inside a context, and inside the map whose items run in that.
    #[napi(constructor)]
    pub fn new(most: u32, around: Option<&Context>) -> Self {
        let around = around.and_then(|context| context.0.crowd.as_ref());
        let window = tidegate::Window::new(usize::try_from(most).unwrap_or(usize::MAX));
        Self { window: Mutex::new(window), crowd: Crowd::within(around) }
    }

    /// The context in which its items run: as it is, but for whose calls they are.
    #[napi]
    pub fn inside(&self, context: Option<&Context>) -> Context {
        Context(tidegate::Context { crowd: Some(self.crowd.clone()), ..resolve(context) })
    }

    /// Begins one more, if one may.
    #[napi]
    pub fn begin(&self) -> bool {
        self.window.lock().begin(self.crowd.waits())
    }

    /// One has ended.
    #[napi]
    pub fn end(&self) {
        self.window.lock().end();
    }

    /// After a no: the number is told when it is worth asking again though nothing has ended.
    #[napi]
    pub fn news(&self, port: &Port, number: u32) {
        let (window, crowd) = (*self.window.lock(), self.crowd.clone());
        port.submit(number, async move {
            crowd.until(|waits| window.is_news(waits)).await;
            News
        });
    }
}

struct News;

impl Outcome for News {
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()> {
        row.kind(Kind::Room)
    }
}
