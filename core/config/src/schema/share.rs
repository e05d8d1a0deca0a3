//! The keys of shared limits: whether several processes share the caps of targets and tools.

use super::{Given, ShareStore, Text, TextRule};

builders! {
    /// Builds the settings of shared limits, for
    /// [`ConfigBuilder::share`](crate::ConfigBuilder::share).
    Share;
}

impl Share {
    /// Shares the caps among the processes of the same user on this machine (`store = "local"`).
    pub fn local() -> Self {
        Self::default().store(ShareStore::Local)
    }
}

settings! {
    /// Which processes share the caps of targets and tools.
    pub struct ShareConfig, table SHARE "ShareConfig", builders [Share];
    check check_store;
    keys {
        /// Where the shared state is stored, which determines the processes that share caps.
        store: ShareStore = ShareStore::Off, ();
        /// The name of the group: only processes with the same name share caps. It becomes part of
        /// a file name.
        name: Text = "default".into(), SHARE_NAME;
        /// Whether a process admits no calls if the store is lost for longer than a lease. By
        /// default, it then uses each cap divided by the last known number of processes.
        strict: bool = false, ();
    }
}

/// Accepts names that are safe as part of a file name on every system.
const SHARE_NAME: TextRule<Text> = TextRule {
    expected: "a name of 1 to 40 characters of a-z, A-Z, 0-9, - and _",
    parse: |name| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_valid = matches!(name.len(), 1..=40) && name.bytes().all(is_allowed);
        if is_valid { Ok(name.into()) } else { Err("") }
    },
};

/// Reports keys that have no effect because `store` is missing.
fn check_store(_: &ShareConfig, given: &Given<'_>) {
    if !given.has("store") {
        for key in ["name", "strict"] {
            given.reject_key(key, "has no effect without a \"store\"; set store = \"local\", or remove it");
        }
    }
}
