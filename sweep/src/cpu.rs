//! Measures the CPU usage of this process. A client without free CPU measures itself instead of the
//! server.

use rustix::time::{ClockId, clock_gettime};

use crate::driver::CpuMonitor;

/// Returns a monitor of this process's CPU usage.
///
/// Each call of the monitor returns the share of the available CPU time, 0 to 1, that this process
/// used since the previous call, or `None` if no time has passed. Not available on Windows.
pub fn cpu_monitor() -> CpuMonitor {
    let seconds = |clock: ClockId| {
        let time = clock_gettime(clock);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let cpus = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
    let read_clocks = move || (seconds(ClockId::Monotonic), seconds(ClockId::ProcessCPUTime));
    let mut last = read_clocks();
    Box::new(move || {
        let now = read_clocks();
        let (passed, used) = (now.0 - last.0, now.1 - last.1);
        last = now;
        (passed > 0.0).then(|| (used / passed / cpus).clamp(0.0, 1.0))
    })
}
