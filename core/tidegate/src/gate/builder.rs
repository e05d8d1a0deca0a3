//! The builder of a gate that is configured in code.

use super::Gate;
use crate::config::{self, Budget, ConfigBuilder, Mode, Share, Target, Tenant, Tool};
use crate::error::Error;
use crate::transport::Transport;

/// A builder that configures a [`Gate`] in code.
///
/// [`build`](GateBuilder::build) makes the same checks as the configuration file.
///
/// ```
/// use tidegate::{Gate, config::Target};
///
/// let gate = Gate::builder().target(Target::new("openai").cap(64)).tool("db", 8).build()?;
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Clone)]
pub struct GateBuilder(ConfigBuilder);

impl GateBuilder {
    pub(super) fn new(config: ConfigBuilder) -> Self {
        Self(config)
    }

    /// Adds a target. [`GateBuilder::build`] fails if two targets have the same name.
    pub fn target(self, target: Target) -> Self {
        Self(self.0.target(target))
    }

    /// Sets the defaults of all targets: `defaults` receives a target and returns it with the
    /// settings. The settings of a target itself override them.
    pub fn defaults(self, defaults: impl FnOnce(Target) -> Target) -> Self {
        Self(self.0.defaults(defaults))
    }

    /// Adds the tenant `id` with its settings, such as weight and cap, to every target.
    pub fn tenant(self, id: impl Into<String>, tenant: Tenant) -> Self {
        Self(self.0.tenant(id, tenant))
    }

    /// Adds rate limits with a name. Several targets can share them by this name
    /// ([`Target::budget`]).
    pub fn budget(self, name: impl Into<String>, budget: Budget) -> Self {
        Self(self.0.budget(name, budget))
    }

    /// Adds a tool. `tool` is its cap, which is the maximum number of slots, or a [`Tool`] with
    /// more settings.
    pub fn tool(self, name: impl Into<String>, tool: impl Into<Tool>) -> Self {
        Self(self.0.tool(name, tool))
    }

    /// Sets the mode. Default: [`Mode::Enforce`]. The environment variable `TIDEGATE` overrides it.
    pub fn mode(self, mode: Mode) -> Self {
        Self(self.0.mode(mode))
    }

    /// Sets which processes share the caps of targets and tools that have the same names. By
    /// default, each process has the whole caps for itself.
    ///
    /// ```
    /// use tidegate::{Gate, config::Share};
    ///
    /// let builder = Gate::builder().tool("db", 8).share(Share::local().name("web"));
    /// ```
    pub fn share(self, share: Share) -> Self {
        Self(self.0.share(share))
    }

    /// Sets how the built-in transport makes connections. Not used by [`GateBuilder::build_over`].
    pub fn transport(self, transport: config::Transport) -> Self {
        Self(self.0.transport(transport))
    }

    /// Checks the configuration and creates a gate with the built-in transport.
    ///
    /// # Errors
    ///
    /// `Config` if a setting is invalid: the message names each invalid setting. Also for the
    /// reasons that [`Gate::new`] states.
    pub fn build(self) -> Result<Gate, Error> {
        Gate::new(self.0.build()?)
    }

    /// Checks the configuration and creates a gate that sends requests over `transport`.
    ///
    /// # Errors
    ///
    /// As for [`GateBuilder::build`].
    pub fn build_over(self, transport: Transport) -> Result<Gate, Error> {
        Gate::over(self.0.build()?, transport)
    }
}
