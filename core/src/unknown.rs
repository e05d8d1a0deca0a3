//! A name that nothing has, and the nearest that something has.

use crate::error::{Error, ErrorKind};

/// Says that no `what` (a tool, a target) is called so. `advice` is for the case that there is none at all.
pub(crate) fn unknown(what: &str, name: &str, known: &[&str], advice: &str) -> Error {
    let shown: String = name.chars().take(100).collect();
    let mut text = format!("no {what} is called {shown:?}");
    let likeness = |known: &str| strsim::jaro_winkler(known, name);
    match known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b))) {
        Some(near) if likeness(near) > 0.7 => text.push_str(&format!("; did you mean {near:?}?")),
        Some(_) => text.push_str(&format!("; there are {}", known.join(", "))),
        None => text.push_str(&format!("; {advice}")),
    }
    Error::new(ErrorKind::Unknown, text)
}
