//! The directory of local brokers, and the election of one.
//!
//! # Files
//!
//! For a share with the name `NAME`, all in a directory that only the user can use:
//!
//! - `v3-NAME.generation`: the number of the current generation. A missing file means 0.
//! - `v3-NAME.G.lock`: the broker of generation `G` holds a POSIX record lock on it.
//! - `v3-NAME.G.sock`: the socket of this broker.
//! - `v3-NAME.members`: exists while processes other than the broker's are members. After a broker
//!   has died, its successor then waits for them.
//!
//! # Election
//!
//! Whoever gets the lock of the current generation is the broker. The kernel releases the lock when
//! the process ends, and, other than that of `flock`, it is not inherited by children. If a broker
//! holds the lock but does not answer, a member takes the lock of the next generation and increases
//! the number. The old broker looks at the number regularly, and after each pause before it
//! answers, and resigns. It also resigns if its lock file was removed, because others cannot find
//! it then.
//!
//! A broker without other members removes its files when it ends.

use std::collections::HashSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, fcntl_lock};

/// The locks that this process holds. Closing any file of a record lock releases the lock, so a
/// process must not open the file of a lock that it holds.
static HELD: Mutex<Option<HashSet<(u32, PathBuf)>>> = Mutex::new(None);
/// Maximum time to wait for [`HELD`], which another thread may have locked when the process was
/// forked.
const HELD_WITHIN: Duration = Duration::from_millis(100);
/// The largest path of a Unix domain socket that all systems accept, in bytes.
const MAX_SOCKET_PATH: usize = 100;

/// The directories that the environment names.
#[derive(Clone, Debug)]
pub(super) struct NamedDirectories {
    /// `XDG_RUNTIME_DIR`, or `None` if it is not set.
    runtime: Option<PathBuf>,
    /// The directory for temporary files.
    temporary: PathBuf,
}

/// The directory in which the brokers of one share are found.
#[derive(Clone, Debug)]
pub(super) struct BrokerDirectory {
    named: NamedDirectories,
    name: Box<str>,
    /// The path of the files up to the first dot of their names.
    base: PathBuf,
}

/// The lock of a broker. Dropping it resigns.
#[derive(Debug)]
pub(super) struct BrokerLock {
    path: PathBuf,
    pub(super) generation: u64,
    /// The locked file. `None` while it is being closed.
    file: Option<File>,
}

impl NamedDirectories {
    /// Reads the environment. Must be called by the thread that uses the gate, because the
    /// environment must not be read while another thread changes it, as Python and Node programs
    /// may.
    pub(super) fn from_env() -> Self {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        Self { runtime, temporary: std::env::temp_dir() }
    }

    /// Returns the directory for sockets that the system has made for this user: the named one, or
    /// the usual path of systemd, for processes whose environment names none (cron, for example).
    /// The environment may also name the directory of another user, after `su`.
    fn runtime_of(&self, uid: u32) -> Option<PathBuf> {
        let is_own = |path: &PathBuf| {
            path.is_absolute() && fs::metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == uid)
        };
        self.runtime.clone().into_iter().chain([format!("/run/user/{uid}").into()]).find(is_own)
    }
}

impl BrokerDirectory {
    /// Finds the directory of the brokers, and creates it if necessary: `tidegate` in the user's
    /// runtime directory, otherwise `tidegate-UID` in the directory for temporary files.
    ///
    /// # Errors
    /// The directory cannot be created, belongs to another user, or is open to others.
    pub(super) fn new(named: &NamedDirectories, name: &str) -> io::Result<Self> {
        let uid = rustix::process::geteuid().as_raw();
        let directory = match named.runtime_of(uid) {
            Some(runtime) => runtime.join("tidegate"),
            None => named.temporary.join(format!("tidegate-{uid}")),
        };
        match fs::DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(at(&directory, &error)),
            _ => {}
        }
        // Not through a link, which another user may have made.
        let metadata = fs::symlink_metadata(&directory).map_err(|error| at(&directory, &error))?;
        if !metadata.is_dir() || metadata.uid() != uid || metadata.mode() & 0o077 != 0 {
            let problem = "must be a directory that belongs to this user and is closed to others (mode 700)";
            return Err(io::Error::other(format!("{} {problem}", directory.display())));
        }
        let found =
            Self { named: named.clone(), name: name.into(), base: directory.join(format!("v3-{name}")) };
        if found.socket(u64::MAX).as_os_str().len() > MAX_SOCKET_PATH {
            let problem = "is too long for the path of a socket: choose a shorter `share.name`, or set `XDG_RUNTIME_DIR` to a shorter path";
            return Err(io::Error::other(format!("{} {problem}", found.base.display())));
        }
        Ok(found)
    }

    /// Returns `true` if new members look for their broker elsewhere. This happens when the user
    /// logs in or out, which creates or removes the runtime directory.
    pub(super) fn has_moved(&self) -> bool {
        Self::new(&self.named, &self.name).is_ok_and(|found| found.base != self.base)
    }

    fn file(&self, suffix: &str) -> PathBuf {
        let mut path = self.base.clone().into_os_string();
        path.push(suffix);
        path.into()
    }

    /// Returns the path of the socket of a generation.
    pub(super) fn socket(&self, generation: u64) -> PathBuf {
        self.file(&format!(".{generation}.sock"))
    }

    /// Returns the number of the current generation.
    pub(super) fn generation(&self) -> u64 {
        let text = fs::read_to_string(self.file(".generation")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// Takes the lock of a generation. Returns `None` if a broker holds it.
    ///
    /// # Errors
    /// The lock file cannot be written.
    pub(super) fn try_lock(&self, generation: u64) -> io::Result<Option<BrokerLock>> {
        let path = self.file(&format!(".{generation}.lock"));
        let Some(mut held) = HELD.try_lock_for(HELD_WITHIN) else { return Ok(None) };
        let held = held.get_or_insert_default();
        let key = (std::process::id(), path.clone());
        if held.contains(&key) {
            return Ok(None);
        }
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(|error| at(&path, &error))?;
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => return Ok(None),
            Err(error) => return Err(at(&path, &error.into())),
        }
        if self.generation() > generation || !is_at(&file, &path) {
            // The lock of a generation that has ended in the meantime, or whose broker has removed
            // it.
            return Ok(None);
        }
        held.insert(key);
        Ok(Some(BrokerLock { path, generation, file: Some(file) }))
    }

    /// Makes `generation` the current one, and removes the files of the one before.
    ///
    /// # Errors
    /// The file of the number cannot be written.
    pub(super) fn set_generation(&self, generation: u64) -> io::Result<()> {
        let path = self.file(".generation");
        let new = self.file(&format!(".generation.{}", std::process::id()));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(generation.to_string().as_bytes())?;
        fs::rename(&new, &path)?;
        if let Some(old) = generation.checked_sub(1) {
            let _ = fs::remove_file(self.socket(old));
            let _ = fs::remove_file(self.file(&format!(".{old}.lock")));
        }
        Ok(())
    }

    /// Removes the files of a broker without other members that ends, unless another one has taken
    /// over.
    pub(super) fn remove_files(&self, lock: &BrokerLock) {
        if self.generation() == lock.generation && lock.is_in_place() {
            let _ = fs::remove_file(self.socket(lock.generation));
            self.set_has_members(false);
            // Last, because another broker may start then.
            let _ = fs::remove_file(&lock.path);
        }
    }

    /// Returns `true` if a broker had members in other processes when it ended.
    pub(super) fn had_members(&self) -> bool {
        self.file(".members").exists()
    }

    /// Records whether processes other than the broker's are members.
    pub(super) fn set_has_members(&self, has_members: bool) {
        let path = self.file(".members");
        // Without the file, a successor does not wait for the members, which is the smaller harm.
        let _ = if has_members {
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map(drop)
        } else {
            fs::remove_file(path)
        };
    }
}

impl BrokerLock {
    /// Returns `false` if the lock file was removed or replaced, so that others can take another
    /// lock of this generation.
    pub(super) fn is_in_place(&self) -> bool {
        self.file.as_ref().is_some_and(|file| is_at(file, &self.path))
    }
}

impl Drop for BrokerLock {
    fn drop(&mut self) {
        // In this order, so that nobody in this process opens the file before it is closed.
        let mut held = HELD.try_lock_for(HELD_WITHIN);
        drop(self.file.take());
        if let Some(held) = held.as_mut().and_then(|held| held.as_mut()) {
            held.remove(&(std::process::id(), std::mem::take(&mut self.path)));
        }
    }
}

/// Returns `false` if the path leads to another file than the open one, or to none.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
    // Not opened, because closing it would release the lock.
    match fs::metadata(path) {
        Ok(found) => file.metadata().is_ok_and(|open| identity(open) == identity(found)),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Adds the path to an error.
fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
