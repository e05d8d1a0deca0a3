//! A gate built in code.

use super::Gate;
use crate::config::{self, Budget, ConfigBuilder, Mode, Target, Tenant, Tool};
use crate::error::Error;
use crate::transport::Transport;

/// Builds a [`Gate`] in code, with the same checks as a file.
#[derive(Clone)]
pub struct GateBuilder(ConfigBuilder);

impl GateBuilder {
    pub(super) fn new(config: ConfigBuilder) -> Self {
        Self(config)
    }

    /// Adds a target.
    pub fn target(self, target: Target) -> Self {
        Self(self.0.target(target))
    }

    /// What every target has that does not say otherwise.
    pub fn defaults(self, defaults: impl FnOnce(Target) -> Target) -> Self {
        Self(self.0.defaults(defaults))
    }

    /// Adds a tenant, at every target.
    pub fn tenant(self, id: impl Into<String>, tenant: Tenant) -> Self {
        Self(self.0.tenant(id, tenant))
    }

    /// Adds rates that several targets share: those that name it by [`Target::budget`].
    pub fn budget(self, name: impl Into<String>, budget: Budget) -> Self {
        Self(self.0.budget(name, budget))
    }

    /// Adds a tool: its cap, or more.
    pub fn tool(self, name: impl Into<String>, tool: impl Into<Tool>) -> Self {
        Self(self.0.tool(name, tool))
    }

    /// Sets the mode.
    pub fn mode(self, mode: Mode) -> Self {
        Self(self.0.mode(mode))
    }

    /// Sets how connections are made.
    pub fn transport(self, transport: config::Transport) -> Self {
        Self(self.0.transport(transport))
    }

    /// Checks everything, and opens the gate.
    ///
    /// # Errors
    /// `Config`, naming each setting that is wrong.
    pub fn build(self) -> Result<Gate, Error> {
        Gate::new(self.0.build()?)
    }

    /// The same over the caller's own transport.
    ///
    /// # Errors
    /// As [`GateBuilder::build`].
    pub fn build_over(self, transport: Transport) -> Result<Gate, Error> {
        Gate::over(self.0.build()?, transport)
    }
}
