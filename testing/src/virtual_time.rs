//! Virtual time: a runtime whose clock stands still while there is anything to do, and jumps to the next timer when there is not.
//!
//! It has no worker: whoever waits runs it, by [`VirtualTime::run`]. So what runs on it and who waits for it share one order of events, and ninety
//! seconds pass in milliseconds, the same each time.

use std::future::Future;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::time::Instant;

/// How often, in real time, a wait that nothing ends lets its thread look up.
const TICK_INTERVAL: Duration = Duration::from_millis(50);

/// A call that is given up wakes its task, which drops what it holds, which wakes who waits for that.
const WAKE_ROUNDS: usize = 4;

/// A runtime on virtual time.
#[derive(Debug)]
pub struct VirtualTime {
    runtime: Runtime,
    start: Instant,
    tick: Arc<Notify>,
}

impl VirtualTime {
    /// At 0 seconds.
    ///
    /// # Errors
    /// Where the system allows no thread.
    pub fn new() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let start = {
            let _context = runtime.enter();
            Instant::now()
        };
        let tick = Arc::new(Notify::new());
        let weak = Arc::downgrade(&tick);
        std::thread::Builder::new().name("tidegate-ticks".to_owned()).spawn(move || ticks(&weak))?;
        Ok(Self { runtime, start, tick })
    }

    /// For what is to run on it.
    pub fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// When it was made.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// How long ago that is.
    pub fn elapsed(&self) -> Duration {
        let _context = self.runtime.enter();
        self.start.elapsed()
    }

    /// Runs everything, and lets time pass where nothing is ready, until the future is. None: nothing came of it, nor could time pass, for a
    /// moment of real time (at most 50 ms); the future is dropped.
    pub fn run<F: Future>(&self, future: F) -> Option<F::Output> {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                output = future => Some(output),
                () = self.tick.notified() => None,
            }
        })
    }

    /// Runs what is ready, and what that wakes at once, without letting time pass.
    pub fn turn(&self) {
        self.runtime.block_on(async {
            for _ in 0..WAKE_ROUNDS {
                tokio::task::yield_now().await;
            }
        });
    }
}

/// As long as there is anybody to wait.
fn ticks(tick: &Weak<Notify>) {
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
