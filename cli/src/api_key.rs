//! Reads API keys from the environment.

use tidegate::config::is_variable_name;

use crate::Failure;

/// Returns the API key for a host from the environment variable `variable`. Error messages never
/// contain the key, also if it was passed in place of the variable's name.
///
/// # Errors
///
/// Returns a usage error if `variable` cannot be a name, is not set, or is blank.
pub(crate) fn read_api_key(host: &str, variable: &str) -> Result<String, Failure> {
    if !is_variable_name(variable) {
        return Err(Failure::usage(
            "--key-env: not the name of an environment variable; put the API key in a variable, and pass its name",
        ));
    }
    let key = std::env::var(variable).ok().filter(|key| !key.trim().is_empty());
    key.ok_or_else(|| {
        Failure::usage(format!(
            "{variable} is not set: put the API key for {host} in it, or pass --key-env with the name of another variable"
        ))
    })
}
