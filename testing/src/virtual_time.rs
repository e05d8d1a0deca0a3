//! Virtual time: a runtime whose clock stands still while tasks are ready, and otherwise jumps to
//! the next timer.
//!
//! The runtime has no worker thread. A thread that waits for a result runs the tasks with
//! [`VirtualTime::run`]. Thus tasks and waiting threads have one order of events, 90 virtual
//! seconds pass in milliseconds, and runs are deterministic.

use std::future::Future;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Real time after which a call of [`VirtualTime::run`] returns although its future has not
/// completed.
const TICK_INTERVAL: Duration = Duration::from_millis(50);

/// Number of times that [`VirtualTime::turn`] lets the scheduler run the tasks that are ready. A
/// cancellation takes several rounds: the cancelled call wakes its task, the task drops what it
/// owns, and this wakes other tasks.
const WAKE_ROUNDS: usize = 4;

/// A runtime with a virtual clock. Only threads that call [`VirtualTime::run`] or
/// [`VirtualTime::turn`] run its tasks.
#[derive(Debug)]
pub struct VirtualTime {
    runtime: Runtime,
    start: Instant,
    tick: Arc<Notify>,
}

impl VirtualTime {
    /// Returns a runtime whose virtual time is 0.
    ///
    /// # Errors
    ///
    /// Returns an error if the runtime or its helper thread cannot be started.
    pub fn new() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let start = {
            let _context = runtime.enter();
            Instant::now()
        };
        let tick = Arc::new(Notify::new());
        let weak = Arc::downgrade(&tick);
        std::thread::Builder::new()
            .name("tidegate-ticks".to_owned())
            .spawn(move || notify_periodically(&weak))?;
        Ok(Self { runtime, start, tick })
    }

    /// Returns a handle with which other threads can spawn tasks on the runtime.
    pub fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Returns the instant of the runtime's clock at which the runtime was created.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// Returns the virtual time since the runtime was created.
    pub fn elapsed(&self) -> Duration {
        let _context = self.runtime.enter();
        self.start.elapsed()
    }

    /// Runs all tasks until `future` completes. Whenever no task is ready, advances the clock to
    /// the next timer.
    ///
    /// Returns `None` and drops `future` if it has not completed after at most 50 ms of real time,
    /// for example because it waits for another thread.
    pub fn run<F: Future>(&self, future: F) -> Option<F::Output> {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                output = future => Some(output),
                () = self.tick.notified() => None,
            }
        })
    }

    /// Runs the tasks that are ready without advancing the clock. Also runs the tasks that these
    /// tasks make ready, in up to four rounds.
    pub fn turn(&self) {
        self.runtime.block_on(async {
            for _ in 0..WAKE_ROUNDS {
                tokio::task::yield_now().await;
            }
        });
    }
}

/// Makes unfinished calls of [`VirtualTime::run`] return every [`TICK_INTERVAL`], until the runtime
/// is dropped.
fn notify_periodically(tick: &Weak<Notify>) {
    loop {
        std::thread::sleep(TICK_INTERVAL);
        match tick.upgrade() {
            Some(tick) => tick.notify_waiters(),
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_only_while_something_waits() {
        let time = VirtualTime::new().expect("a thread");
        let sleeper = time.handle().spawn(async { tokio::time::sleep(Duration::from_secs(90)).await });
        time.turn();
        assert_eq!(time.elapsed(), Duration::ZERO);
        while time.run(async { tokio::time::sleep(Duration::from_secs(60)).await }).is_none() {}
        assert!(!sleeper.is_finished());
        while time.run(async { tokio::time::sleep(Duration::from_secs(60)).await }).is_none() {}
        assert!(sleeper.is_finished());
        assert_eq!(time.elapsed(), Duration::from_secs(120));
    }

    #[test]
    fn endless_wait_returns_without_time_passing() {
        let time = VirtualTime::new().expect("a thread");
        assert_eq!(time.run(std::future::pending::<()>()), None);
        assert_eq!(time.elapsed(), Duration::ZERO);
    }
}
