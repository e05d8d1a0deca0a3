//! Measures the CPU usage of this process and of the whole machine. A client without free CPU
//! measures itself instead of the server.

use rustix::time::{ClockId, clock_gettime};

use crate::driver::{CpuMonitor, CpuUsage};

/// Returns a monitor of the CPU usage of this process and, on Linux, of the whole machine.
///
/// Each call of the monitor returns the usage since the previous call, or `None` if no time has
/// passed. Not available on Windows.
pub fn cpu_monitor() -> CpuMonitor {
    let seconds = |clock: ClockId| {
        let time = clock_gettime(clock);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let cpus = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
    let read_clocks = move || (seconds(ClockId::Monotonic), seconds(ClockId::ProcessCPUTime));
    let (mut last, mut last_machine) = (read_clocks(), machine_ticks());
    Box::new(move || {
        let (now, machine_now) = (read_clocks(), machine_ticks());
        let (passed, used) = (now.0 - last.0, now.1 - last.1);
        let machine = last_machine.zip(machine_now).and_then(|(then, now)| {
            let total = now.1.checked_sub(then.1).filter(|total| *total > 0)?;
            Some((now.0.saturating_sub(then.0) as f64 / total as f64).clamp(0.0, 1.0))
        });
        (last, last_machine) = (now, machine_now);
        (passed > 0.0).then(|| CpuUsage { process: (used / passed / cpus).clamp(0.0, 1.0), machine })
    })
}

/// Returns the CPU time of all programs and the total CPU time of the machine, in clock ticks since
/// the machine started. Returns `None` on systems without `/proc/stat`.
fn machine_ticks() -> Option<(u64, u64)> {
    parse_stat(&std::fs::read_to_string("/proc/stat").ok()?)
}

fn parse_stat(text: &str) -> Option<(u64, u64)> {
    let ticks = text.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    // The guest times at the end are part of the first two.
    let ticks: Vec<u64> = ticks.take(8).map_while(|field| field.parse().ok()).collect();
    let idle = ticks.get(3)? + ticks.get(4)?;
    let total = ticks.iter().sum::<u64>();
    Some((total - idle, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_usage_excludes_idle_time() {
        assert_eq!(parse_stat("cpu  10 1 5 80 4 0 0 0 9 9\ncpu0 1 1 1 1\n"), Some((16, 100)));
        assert_eq!(parse_stat("cpu  10\n"), None);
    }
}
