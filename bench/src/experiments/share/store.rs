//! The stores over which the processes of an experiment share a limit.

use tidegate_test_servers::RedisServer;

use super::SHARE;
use crate::Fallible;

/// Where processes share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    Local,
    Redis,
    /// Nowhere: each has it alone.
    None,
}

/// A store that processes use, until this value is dropped.
pub(super) struct OpenStore {
    /// The name or URL of the store for [`Settings::share`](super::Settings).
    pub(super) share: Option<String>,
    pub(super) redis: Option<RedisServer>,
}

impl Store {
    /// Starts an empty server if the store needs one. A local broker starts by itself.
    pub(super) fn open(self) -> Fallible<OpenStore> {
        let redis = (self == Self::Redis).then(|| RedisServer::start(&[])).transpose()?;
        let share = match self {
            Self::Local => Some(SHARE.to_owned()),
            Self::Redis => redis.as_ref().map(RedisServer::url),
            Self::None => None,
        };
        Ok(OpenStore { share, redis })
    }
}
