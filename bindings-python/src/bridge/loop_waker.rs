//! Wakes an event loop: through a descriptor that the loop watches, or through a waiting thread.

use std::io;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

/// A signal that worker threads set and one event loop waits for.
pub(super) enum LoopWaker {
    /// The loop watches a file descriptor (`add_reader`).
    #[cfg(unix)]
    Descriptor(Descriptor),
    /// A helper thread waits for the signal, and calls the loop's `call_soon_threadsafe`. For loops
    /// without `add_reader`, such as the proactor loop of Windows.
    Thread { is_set: Mutex<bool>, changed: Condvar },
    /// The loop is on virtual time: it runs the tokio runtime itself and waits for the signal
    /// there.
    Virtual(Notify),
}

impl LoopWaker {
    /// Returns a waker with a descriptor, or one for a helper thread if the platform has no
    /// descriptors.
    #[cfg(unix)]
    pub(super) fn with_descriptor() -> io::Result<Self> {
        Descriptor::open().map(Self::Descriptor)
    }

    #[cfg(not(unix))]
    pub(super) fn with_descriptor() -> io::Result<Self> {
        Ok(Self::with_thread())
    }

    pub(super) fn with_thread() -> Self {
        Self::Thread { is_set: Mutex::new(false), changed: Condvar::new() }
    }

    /// Returns the descriptor that the loop watches; `None` for other kinds of wakers.
    pub(super) fn fileno(&self) -> Option<i32> {
        match self {
            #[cfg(unix)]
            Self::Descriptor(descriptor) => Some(descriptor.fileno()),
            Self::Thread { .. } | Self::Virtual(_) => None,
        }
    }

    /// Sets the signal, which wakes the loop. Has no effect if the signal is set already. Never
    /// blocks.
    pub(super) fn wake(&self) {
        match self {
            #[cfg(unix)]
            Self::Descriptor(descriptor) => descriptor.wake(),
            Self::Thread { is_set, changed } => {
                *is_set.lock() = true;
                changed.notify_one();
            }
            Self::Virtual(waker) => waker.notify_one(),
        }
    }

    /// Clears the signal of a descriptor. Has no effect on other kinds of wakers. Never blocks.
    pub(super) fn clear(&self) {
        match self {
            #[cfg(unix)]
            Self::Descriptor(descriptor) => descriptor.clear(),
            Self::Thread { .. } | Self::Virtual(_) => {}
        }
    }

    /// Waits until the signal is set. Only for wakers of the kind `Virtual`: for others, the future
    /// never resolves.
    pub(super) async fn woken(&self) {
        match self {
            Self::Virtual(waker) => waker.notified().await,
            _ => std::future::pending().await,
        }
    }

    /// Blocks until the signal is set. Only for wakers of the kind `Thread`: for others, returns at
    /// once.
    pub(super) fn wait(&self) {
        match self {
            #[cfg(unix)]
            Self::Descriptor(_) => {}
            Self::Virtual(_) => {}
            Self::Thread { is_set, changed } => {
                let mut is_set = is_set.lock();
                while !*is_set {
                    changed.wait(&mut is_set);
                }
                *is_set = false;
            }
        }
    }
}

#[cfg(unix)]
pub(super) use self::descriptor::Descriptor;

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
mod descriptor {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};

    use rustix::event::{EventfdFlags, eventfd};

    /// A file descriptor with a counter (eventfd). The signal is set while the counter is above 0.
    pub(in super::super) struct Descriptor(OwnedFd);

    impl Descriptor {
        pub(super) fn open() -> io::Result<Self> {
            Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        }

        pub(super) fn fileno(&self) -> i32 {
            self.0.as_raw_fd()
        }

        pub(super) fn wake(&self) {
            // A full counter means that the signal is set already. No other error can occur,
            // because the descriptor belongs to this value.
            let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
        }

        pub(super) fn clear(&self) {
            let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
        }
    }
}

#[cfg(all(unix, not(any(target_os = "linux", target_os = "android", target_os = "freebsd"))))]
mod descriptor {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};

    use rustix::fs::{OFlags, fcntl_setfl};
    use rustix::io::{FdFlags, fcntl_setfd};

    /// A pipe, for platforms without eventfd. The signal is set while the pipe contains bytes.
    pub(in super::super) struct Descriptor {
        reader: OwnedFd,
        writer: OwnedFd,
    }

    impl Descriptor {
        pub(super) fn open() -> io::Result<Self> {
            let (reader, writer) = rustix::pipe::pipe()?;
            for end in [&reader, &writer] {
                fcntl_setfd(end, FdFlags::CLOEXEC)?;
                fcntl_setfl(end, OFlags::NONBLOCK)?;
            }
            Ok(Self { reader, writer })
        }

        pub(super) fn fileno(&self) -> i32 {
            self.reader.as_raw_fd()
        }

        pub(super) fn wake(&self) {
            // A full pipe means that the signal is set already.
            let _ = rustix::io::write(&self.writer, &[1]);
        }

        pub(super) fn clear(&self) {
            let _ = rustix::io::read(&self.reader, &mut [0u8; 64]);
        }
    }
}
