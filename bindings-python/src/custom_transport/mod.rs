//! Calls whose exchanges the client's own transport makes, in Python: on the event loop or the
//! thread that made the call.
//!
//! A worker thread of the runtime offers the exchange and continues with other work. Python code
//! makes the exchange ([`on_loop`], [`on_thread`]), and reports the response through [`Exchange`].

mod exchange;
mod on_loop;
mod on_thread;

use tidegate::RequestBody;
use tidegate_bindings::unread_body;

pub(crate) use self::exchange::Exchange;
pub(crate) use self::on_loop::LoopHost;
pub(crate) use self::on_thread::CustomCall;

/// Returns a placeholder for a request body that the client's own transport reads itself.
pub(crate) fn unread_upload() -> RequestBody {
    unread_body("the client's own transport")
}
