//! Measures the CPU usage of this process. A client that lacks CPU time measures itself instead of
//! the server.

use rustix::time::{ClockId, clock_gettime};

use crate::driver::CpuMonitor;

/// Returns a monitor that reports, on each call, the share of the available CPU time that this
/// process used since the previous call.
///
/// Not available on Windows; there, only late timers show a busy client.
pub fn cpu_monitor() -> CpuMonitor {
    let seconds = |clock: ClockId| {
        let time = clock_gettime(clock);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let cpu_monitor = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
    let look = move || (seconds(ClockId::Monotonic), seconds(ClockId::ProcessCPUTime));
    let mut last = look();
    Box::new(move || {
        let now = look();
        let (passed, used) = (now.0 - last.0, now.1 - last.1);
        last = now;
        (passed > 0.0).then(|| (used / passed / cpu_monitor).clamp(0.0, 1.0))
    })
}
