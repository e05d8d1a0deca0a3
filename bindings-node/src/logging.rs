//! Passes what the gates log to JavaScript.

use napi::bindgen_prelude::{FnArgs, Function};
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi::{Result, Status};
use napi_derive::napi;
use tidegate::{LogLevel, forward_log_lines};

/// Passes each line that is logged to `log`, on the calling thread: whether it is a warning, and the text. Has
/// an effect once in a process. Does not keep the event loop alive.
///
/// # Errors
///
/// If Node cannot create the function that other threads call.
#[napi]
pub fn forward_log(log: Function<'_, FnArgs<(bool, String)>, ()>) -> Result<()> {
    let log = log
        .build_threadsafe_function::<FnArgs<(bool, String)>>()
        .callee_handled::<false>()
        .weak::<true>()
        .build()?;
    forward_log_lines(move |level, line| {
        let is_warning = level != LogLevel::Info;
        let _: Status = log.call(FnArgs::from((is_warning, line)), ThreadsafeFunctionCallMode::NonBlocking);
    });
    Ok(())
}
