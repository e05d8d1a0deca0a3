//! Configuration: one set of keys for the TOML file, the builder, and dicts or JSON from the bindings.

mod model;

pub use model::{
    Config, Mode, OnFull, RetryConfig, TargetConfig, TargetMatch, TenantConfig, ToolConfig, TransportConfig,
};
