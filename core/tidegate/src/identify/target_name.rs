//! Names targets that are not configured.

use http::Uri;

/// Returns the name `host/model` of a target that is not configured, with the port if the URL has
/// one. Without a model, it is `host`.
pub(super) fn target_name(uri: &Uri, model: Option<&str>) -> String {
    let (host, model) = (host(uri), printable(model));
    let separator = if model.is_empty() { "" } else { "/" };
    format!("{host}{separator}{model}")
}

/// Returns the host of a URL, with the port if the URL has one, and without user and password.
pub(super) fn host(uri: &Uri) -> String {
    let host = uri.authority().map_or("unknown", |authority| authority.host());
    let port = uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{host}{port}")
}

/// Returns the name of a model without control characters, truncated to 100 characters, because
/// callers choose it. Empty if there is none.
pub(super) fn printable(model: Option<&str>) -> String {
    model.unwrap_or_default().chars().filter(|c| !c.is_control()).take(100).collect()
}
