//! How much of the machine this process uses: a client that is short of it measures itself.

use rustix::time::{ClockId, clock_gettime};

use crate::driver::CpuMonitor;

/// Tells, each time it is asked, the share of the processors that this process may use, since it was asked last. Windows tells no such clock here: there timers alone show it.
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
