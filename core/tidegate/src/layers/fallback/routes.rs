//! The fallback targets of a gate, and how requests to each of them are addressed. Created when the
//! gate is created.

use std::collections::HashMap;
use std::sync::Arc;

use super::fallback_request::{Address, Original};
use crate::body::RequestBody;
use crate::call::Call;
use crate::config::{Config, Mode, TargetConfig};
use crate::credential::Credential;
use crate::error::Error;
use crate::identify::Identify;
use crate::target::Target;
use tidegate_protocol::base_url::BaseUrl;

/// The routes to the fallback targets of a gate, by target name. Empty if no target has a fallback,
/// or if the mode is not `enforce`.
#[derive(Default)]
pub(crate) struct FallbackRoutes(HashMap<Arc<str>, FallbackRoute>);

/// A fallback target, and how requests to it are addressed.
pub(super) struct FallbackRoute {
    pub(super) target: Arc<Target>,
    address: Address,
}

impl FallbackRoutes {
    /// Creates the routes to all targets that other targets name as their fallback.
    ///
    /// # Errors
    /// `Config` if a fallback is not a target of the gate, or if the environment variable of a
    /// `key_env` has no usable key. The error names the variable, but not its value.
    pub(crate) fn new(config: &Config, identify: &Identify) -> Result<Self, Error> {
        let mut routes = HashMap::new();
        // In mode `observe`, no call is rejected.
        let acting = identify.mode() == Mode::Enforce;
        for from in config.targets.iter().chain([&config.default_target]).filter(|_| acting) {
            let Some(name) = from.fallback.as_ref().filter(|name| !routes.contains_key(*name)) else {
                continue;
            };
            let target = identify.named(name).map_err(|unknown| {
                Error::config(format!("targets.{}.fallback: {}", from.name, unknown.message()))
            })?;
            let address = address(target.config())?;
            routes.insert(name.clone(), FallbackRoute { target, address });
        }
        Ok(Self(routes))
    }

    /// Returns the route to the fallback of the call's target. Returns `None` if the target has no
    /// fallback.
    pub(super) fn of_call(&self, call: &Call) -> Option<&FallbackRoute> {
        self.0.get(call.target().config().fallback.as_ref()?)
    }
}

impl FallbackRoute {
    /// Creates the call to this fallback target and its request. `original` is the request that the
    /// caller sent to the target `first_target`.
    ///
    /// # Errors
    /// The reason why the call cannot be sent to this target.
    pub(super) fn redirect(
        &self,
        call: &Call,
        original: &Original,
        first_target: &TargetConfig,
    ) -> Result<(Call, http::Request<RequestBody>), &'static str> {
        let mut request = self.address.request(original, &bases(first_target), call.facts().dialect)?;
        let call = call.for_fallback(self.target.clone(), self.address.model.clone());
        request.extensions_mut().insert(call.clone());
        Ok((call, request))
    }
}

/// Returns how requests to a target are addressed, with the credential from its `key_env`.
///
/// # Errors
/// As for [`key`].
fn address(config: &TargetConfig) -> Result<Address, Error> {
    let credential = match &config.key_env {
        None => None,
        Some(variable) => Some(key(config, variable)?),
    };
    Ok(Address {
        bases: bases(config),
        model: config.model.clone(),
        credential,
        is_pool: config.pool.is_some(),
        forward_headers: config.forward_headers.clone(),
    })
}

/// Reads the credential of the target `config` from the environment variable `variable`.
///
/// # Errors
/// `Config` if the variable is not set, or has no usable key.
fn key(config: &TargetConfig, variable: &str) -> Result<Credential, Error> {
    Credential::from_env(variable).map_err(|what| {
        Error::config(format!(
            "targets.{}.key_env: {variable} {what}; set it, or remove key_env (then the caller's own key is sent, to the same host only)",
            config.name
        ))
    })
}

/// Returns the parsed `urls` of a target. URLs that cannot be parsed are left out.
fn bases(config: &TargetConfig) -> Vec<BaseUrl> {
    config.matches.urls.iter().filter_map(|url| BaseUrl::parse(url)).collect()
}
