//! Passes what the gates log to JavaScript.

use napi::bindgen_prelude::{FnArgs, Function};
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi::{Result, Status};
use napi_derive::napi;
use parking_lot::Mutex;
use tidegate::{LogLevel, forward_log_lines};

/// Passes a line that is logged to the event loop of a thread: whether it is a warning, and the
/// text. Returns `Ok` if the loop takes it, and another status if the thread has ended.
type Log = Box<dyn Fn(bool, String) -> Status + Send>;

/// The functions of the threads that have loaded the package, in this order.
static LOGS: Mutex<Vec<Log>> = Mutex::new(Vec::new());

/// Passes each line that is logged to `log`, on the calling thread: whether it is a warning, and
/// the text. If several threads have called this function, the first one that has not ended gets
/// the lines. Does not keep the event loop alive.
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
    LOGS.lock().push(Box::new(move |is_warning, line| {
        log.call(FnArgs::from((is_warning, line)), ThreadsafeFunctionCallMode::NonBlocking)
    }));
    // Has an effect once in a process.
    forward_log_lines(|level, line| {
        let mut logs = LOGS.lock();
        while let Some(log) = logs.first()
            && log(level != LogLevel::Info, line.clone()) != Status::Ok
        {
            drop(logs.remove(0));
        }
    });
    Ok(())
}
