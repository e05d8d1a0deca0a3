//! Passes what the gates log to JavaScript.

use napi::bindgen_prelude::{FnArgs, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Result, Status};
use napi_derive::napi;
use parking_lot::Mutex;
use tidegate::{LogLevel, forward_log_lines};

/// Passes a line that is logged to the event loop of a thread: whether it is a warning, and the
/// text. Does not keep the loop alive.
type Log = ThreadsafeFunction<FnArgs<(bool, String)>, (), FnArgs<(bool, String)>, Status, false, true>;

/// The functions of the threads that have loaded the package, in the order in which they did.
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
    let mut logs = LOGS.lock();
    // The others are those of threads that have ended.
    logs.retain(|log| !log.aborted());
    logs.push(log);
    drop(logs);
    // Has an effect once in a process.
    forward_log_lines(|level, line| {
        let mut logs = LOGS.lock();
        while let Some(log) = logs.first() {
            let line = FnArgs::from((level != LogLevel::Info, line.clone()));
            if log.call(line, ThreadsafeFunctionCallMode::NonBlocking) == Status::Ok {
                break;
            }
            drop(logs.remove(0));
        }
    });
    Ok(())
}
