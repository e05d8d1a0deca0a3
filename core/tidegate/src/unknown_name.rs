//! The error for a target or tool that is not configured, with a suggestion for the name.

use crate::error::{Error, ErrorKind};

/// Returns the error, of the kind `Unknown`, for a target or tool `name` that is not configured.
/// `what` is "target" or "tool".
///
/// The message suggests the most similar of the `known` names, or lists all of them if none is
/// similar. If `known` is empty, the message ends with `advice`.
pub(crate) fn unknown_name(what: &str, name: &str, known: &[&str], advice: &str) -> Error {
    let shortened: String = name.chars().take(100).collect();
    let mut text = format!("there is no {what} named {shortened:?}");
    let likeness = |known: &str| strsim::jaro_winkler(known, name);
    match known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b))) {
        Some(near) if likeness(near) > 0.7 => text.push_str(&format!("; did you mean {near:?}?")),
        Some(_) => text.push_str(&format!("; the names are {}", known.join(", "))),
        None => text.push_str(&format!("; {advice}")),
    }
    Error::new(ErrorKind::Unknown, text)
}
