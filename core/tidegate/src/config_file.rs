//! Reads configurations from files and other sources.

use std::io::Read;
use std::path::Path;

use crate::config::Config;
use crate::{Error, read_file};

/// Maximum size of a configuration, in bytes: 16 MiB. 20,000 targets take about 2 MiB.
const MAX_BYTES: u64 = 16 << 20;

/// Reads a configuration from a TOML file.
///
/// ```no_run
/// let config = tidegate::config_file::read("tidegate.toml")?;
/// let gate = tidegate::Gate::new(config)?;
/// # Ok::<(), tidegate::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Config`](crate::ErrorKind::Config) if the configuration is invalid: the message has
/// one line for each problem, with the name of the file and the number of the line. Also if the
/// file cannot be read, is not UTF-8, is not a regular file (a FIFO or device is rejected), or is
/// larger than 16 MiB.
pub fn read(path: impl AsRef<Path>) -> Result<Config, Error> {
    let path = path.as_ref();
    parse(&path.display().to_string(), read_file::read(path, MAX_BYTES))
}

/// Reads a TOML configuration from a source such as standard input, to its end. `name` is the name
/// of the source in error messages.
///
/// # Errors
/// As for [`read`].
///
/// ```
/// let config = tidegate::config_file::read_from(&b"targets.openai = 64"[..], "standard input")?;
/// assert_eq!(config.targets[0].cap, 64);
/// # Ok::<(), tidegate::Error>(())
/// ```
pub fn read_from(source: impl Read, name: &str) -> Result<Config, Error> {
    parse(name, read_file::read_text(source, MAX_BYTES))
}

/// Returns the configuration in `text`, which was read from the source `name`. If `text` is an
/// error, because reading failed, returns that error with the name of the source.
fn parse(name: &str, text: Result<String, String>) -> Result<Config, Error> {
    let text = text.map_err(|why| Error::config(format!("{name}: {why}")))?;
    Ok(Config::from_toml(&text).map_err(|error| error.in_source(name))?)
}
