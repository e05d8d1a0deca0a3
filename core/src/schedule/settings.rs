//! What a scheduler is set up with, and where that comes from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{OnFull, TargetConfig, TenantConfig, ToolConfig};

/// What a scheduler is set up with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The most slots.
    pub limit: usize,
    /// The most calls that may wait, per tenant.
    pub queue: usize,
    /// Queue or refuse.
    pub on_full: OnFull,
    /// The time of waiting that raises a call by one lane; zero: never.
    pub aging: Duration,
    /// What a tenant that is not named gets.
    pub default_tenant: TenantConfig,
    /// Named tenants.
    pub tenants: BTreeMap<Arc<str>, TenantConfig>,
}

impl From<&TargetConfig> for Settings {
    fn from(target: &TargetConfig) -> Self {
        Self {
            limit: target.cap,
            queue: target.queue,
            on_full: target.on_full,
            aging: target.aging,
            default_tenant: target.default_tenant.clone(),
            tenants: target.tenants.clone(),
        }
    }
}

impl From<&ToolConfig> for Settings {
    fn from(tool: &ToolConfig) -> Self {
        Self {
            limit: tool.cap,
            queue: tool.queue,
            on_full: tool.on_full,
            aging: TargetConfig::named("").aging,
            default_tenant: TenantConfig::default(),
            tenants: BTreeMap::new(),
        }
    }
}
