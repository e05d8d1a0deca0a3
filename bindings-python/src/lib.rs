//! The native half of the Python package: a bridge between asyncio and tokio, in front of the core.
//!
//! Python handles httpx, the SDKs and their exceptions. Native code handles bytes, headers and the
//! core. A call is passed between the languages once, and so is each chunk.

mod body_upload;
mod bridge;
mod context;
mod custom_transport;
mod errors;
mod fake_target;
mod forks;
mod gate;
mod item_window;
mod logging;
mod proxies;
mod request;
mod response;
mod seconds_argument;
mod subinterpreters;
mod sweep;
mod target_slot;
mod tool_slot;

use pyo3::prelude::*;

use crate::body_upload::{Upload, UploadCall};
use crate::bridge::runtime::stop;
use crate::bridge::{Clock, Drain, Port, Waiter, is_virtual};
use crate::context::Context;
use crate::custom_transport::{CustomCall, Exchange};
use crate::errors::error;
use crate::fake_target::FakeTarget;
use crate::gate::Gate;
use crate::item_window::Window;
use crate::proxies::ClientProxies;
use crate::response::Reply;
use crate::sweep::{Sweep, SweepRun, sweep_card, sweep_csv, sweep_figure, sweep_html};
use crate::target_slot::Slot;
use crate::tool_slot::{Permit, ToolRequest};

/// Adds the classes and functions to the module `tidegate._native`. This is a function and not a
/// declarative module, because the latter would create its classes before the interpreter is
/// checked.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    subinterpreters::require_main(module.py())?;
    forks::watch()?;
    logging::forward();
    module.add_function(wrap_pyfunction!(stop, module)?)?;
    module.add_function(wrap_pyfunction!(is_virtual, module)?)?;
    module.add_function(wrap_pyfunction!(error, module)?)?;
    module.add_function(wrap_pyfunction!(sweep_card, module)?)?;
    module.add_function(wrap_pyfunction!(sweep_csv, module)?)?;
    module.add_function(wrap_pyfunction!(sweep_figure, module)?)?;
    module.add_function(wrap_pyfunction!(sweep_html, module)?)?;
    module.add_class::<Clock>()?;
    module.add_class::<Drain>()?;
    module.add_class::<Port>()?;
    module.add_class::<Waiter>()?;
    module.add_class::<Context>()?;
    module.add_class::<FakeTarget>()?;
    module.add_class::<Gate>()?;
    module.add_class::<Exchange>()?;
    module.add_class::<CustomCall>()?;
    module.add_class::<ClientProxies>()?;
    module.add_class::<Reply>()?;
    module.add_class::<Slot>()?;
    module.add_class::<Sweep>()?;
    module.add_class::<SweepRun>()?;
    module.add_class::<ToolRequest>()?;
    module.add_class::<Permit>()?;
    module.add_class::<UploadCall>()?;
    module.add_class::<Upload>()?;
    module.add_class::<Window>()
}
