//! Reads the operating mode of the gate from the environment variable `TIDEGATE`.

use std::env;
use std::ffi::OsStr;

use crate::Error;
use crate::config::{Mode, describe_text};

/// Returns the mode that `TIDEGATE` sets, which overrides the configuration: `on` (enforce),
/// `observe` or `off`. Upper and lower case are equivalent. Returns `None` if the variable is unset
/// or empty.
///
/// # Errors
///
/// [`ErrorKind::Config`](crate::ErrorKind::Config) for any other value, because ignoring a misspelt
/// `off` would leave the gate on.
pub fn from_env() -> Result<Option<Mode>, Error> {
    env::var_os("TIDEGATE").map_or(Ok(None), |value| from_word(&value))
}

/// Parses the value of `TIDEGATE`, ignoring case and surrounding white space. `enforce` is an alias
/// of `on`. Returns `None` for an empty value.
///
/// # Errors
/// `Config` if the value is none of the known words. The message does not contain values that look
/// like secrets.
fn from_word(value: &OsStr) -> Result<Option<Mode>, Error> {
    let word = value.to_string_lossy().trim().to_ascii_lowercase();
    match word.as_str() {
        "" => Ok(None),
        "on" | "enforce" => Ok(Some(Mode::Enforce)),
        "observe" => Ok(Some(Mode::Observe)),
        "off" => Ok(Some(Mode::Off)),
        _ => Err(Error::config(format!(
            "TIDEGATE: expected \"on\", \"observe\" or \"off\" in the environment; got {}",
            describe_text(&word)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_modes_are_parsed_and_others_are_rejected() {
        let read = |word: &str| from_word(OsStr::new(word));
        assert_eq!(read("off").unwrap(), Some(Mode::Off));
        assert_eq!(read(" OFF ").unwrap(), Some(Mode::Off));
        assert_eq!(read("observe").unwrap(), Some(Mode::Observe));
        assert_eq!(read("on").unwrap(), Some(Mode::Enforce));
        assert_eq!(read("").unwrap(), None);
        assert_eq!(
            read("of").unwrap_err().message(),
            "TIDEGATE: expected \"on\", \"observe\" or \"off\" in the environment; got the string \"of\""
        );
        assert!(!read("sk-0123456789abcdef0123456789").unwrap_err().to_string().contains("sk-"));
    }
}
