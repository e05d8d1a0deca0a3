//! The native half of the Python package: a bridge between asyncio and tokio, and the core behind it.
//!
//! What is Python's and what is native: Python knows httpx, the SDKs and their exceptions; native code knows bytes, headers and the core.
//! They meet in one crossing a call and one a chunk.

mod bridge;
mod context;
mod errors;
mod fake;
mod gate;
mod kept;
mod manner;
mod reply;
mod request;
mod slot;
mod stream;
mod sweep;
mod tool;
mod upload;
mod window;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use crate::bridge::runtime::{after_fork_in_child, stop};
    #[pymodule_export]
    use crate::bridge::{Clock, Drain, Port, is_virtual};
    #[pymodule_export]
    use crate::context::Context;
    #[pymodule_export]
    use crate::errors::error;
    #[pymodule_export]
    use crate::fake::FakeTarget;
    #[pymodule_export]
    use crate::gate::Gate;
    #[pymodule_export]
    use crate::kept::{Exchange, KeptCall};
    #[pymodule_export]
    use crate::reply::Reply;
    #[pymodule_export]
    use crate::slot::Slot;
    #[pymodule_export]
    use crate::sweep::{Sweep, SweepRun, sweep_card, sweep_csv, sweep_figure, sweep_html};
    #[pymodule_export]
    use crate::tool::{Asked, Permit};
    #[pymodule_export]
    use crate::upload::{Call, Upload};
    #[pymodule_export]
    use crate::window::Window;
}
