//! Wakes an event loop: through a descriptor that the loop watches, or through a waiting thread.

use std::io;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

/// A signal that workers set and one event loop waits for.
pub(super) enum Bell {
    /// The loop watches the descriptor (`add_reader`).
    #[cfg(unix)]
    Watched(Descriptor),
    /// A helper thread waits, and calls `call_soon_threadsafe`. For loops without `add_reader`,
    /// such as Windows' proactor loop.
    Awaited { rung: Mutex<bool>, heard: Condvar },
    /// The loop itself runs the workers, and waits for the bell: a loop on virtual time.
    Heard(Notify),
}

impl Bell {
    /// Returns a bell that a loop can watch, if the platform has one.
    #[cfg(unix)]
    pub(super) fn watched() -> io::Result<Self> {
        Descriptor::open().map(Self::Watched)
    }

    #[cfg(not(unix))]
    pub(super) fn watched() -> io::Result<Self> {
        Ok(Self::awaited())
    }

    pub(super) fn awaited() -> Self {
        Self::Awaited { rung: Mutex::new(false), heard: Condvar::new() }
    }

    /// Returns the descriptor to watch, if the bell has one.
    pub(super) fn fileno(&self) -> Option<i32> {
        match self {
            #[cfg(unix)]
            Self::Watched(descriptor) => Some(descriptor.fileno()),
            Self::Awaited { .. } | Self::Heard(_) => None,
        }
    }

    /// Sets the signal. Never blocks. Has no effect if it is set already.
    pub(super) fn ring(&self) {
        match self {
            #[cfg(unix)]
            Self::Watched(descriptor) => descriptor.ring(),
            Self::Awaited { rung, heard } => {
                *rung.lock() = true;
                heard.notify_one();
            }
            Self::Heard(bell) => bell.notify_one(),
        }
    }

    /// Clears the signal of the descriptor. Never blocks.
    pub(super) fn silence(&self) {
        match self {
            #[cfg(unix)]
            Self::Watched(descriptor) => descriptor.silence(),
            Self::Awaited { .. } | Self::Heard(_) => {}
        }
    }

    /// Waits until a bell of the kind `Heard` is rung.
    pub(super) async fn heard(&self) {
        match self {
            Self::Heard(bell) => bell.notified().await,
            _ => std::future::pending().await,
        }
    }

    /// Blocks until a bell of the kind `Awaited` is rung. Returns at once for other kinds.
    pub(super) fn wait(&self) {
        match self {
            #[cfg(unix)]
            Self::Watched(_) => {}
            Self::Heard(_) => {}
            Self::Awaited { rung, heard } => {
                let mut rung = rung.lock();
                while !*rung {
                    heard.wait(&mut rung);
                }
                *rung = false;
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

    /// An eventfd: one descriptor, one counter.
    pub(in super::super) struct Descriptor(OwnedFd);

    impl Descriptor {
        pub(super) fn open() -> io::Result<Self> {
            Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        }

        pub(super) fn fileno(&self) -> i32 {
            self.0.as_raw_fd()
        }

        pub(super) fn ring(&self) {
            // A full counter means that the signal is set already. No other error can occur,
            // because the descriptor belongs to this value.
            let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
        }

        pub(super) fn silence(&self) {
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

    /// A pipe, where there is no eventfd.
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

        pub(super) fn ring(&self) {
            // A full pipe means that the signal is set already.
            let _ = rustix::io::write(&self.writer, &[1]);
        }

        pub(super) fn silence(&self) {
            let _ = rustix::io::read(&self.reader, &mut [0u8; 64]);
        }
    }
}
