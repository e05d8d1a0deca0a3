//! The fallback targets of a gate, and how calls reach them: read once, when the gate opens.

use std::collections::HashMap;
use std::sync::Arc;

use super::address::{Address, Original};
use crate::body::RequestBody;
use crate::call::Call;
use crate::config::{Config, Mode, TargetConfig};
use crate::credential::Credential;
use crate::error::Error;
use crate::identify::Identify;
use crate::target::Target;
use crate::wire::base::Base;

/// By the name of the fallback target.
#[derive(Default)]
pub(crate) struct Ways(HashMap<Arc<str>, Way>);

pub(super) struct Way {
    pub(super) target: Arc<Target>,
    address: Address,
}

impl Ways {
    /// The ways to all targets that others name as their fallback.
    ///
    /// # Errors
    /// `Config` for a fallback that is no target, and for a `key_env` without a usable key. Names the variable, never what it holds.
    pub(crate) fn new(config: &Config, identify: &Identify) -> Result<Self, Error> {
        let mut ways = HashMap::new();
        // A gate that does not act refuses nothing.
        let acting = identify.mode() == Mode::Enforce;
        for from in config.targets.iter().chain([&config.default_target]).filter(|_| acting) {
            let Some(name) = from.fallback.as_ref().filter(|name| !ways.contains_key(*name)) else {
                continue;
            };
            let target = identify.named(name).map_err(|unknown| {
                Error::config(format!("targets.{}.fallback: {}", from.name, unknown.message()))
            })?;
            let address = address(target.config())?;
            ways.insert(name.clone(), Way { target, address });
        }
        Ok(Self(ways))
    }

    /// Where a call goes that its target refused.
    pub(super) fn from(&self, call: &Call) -> Option<&Way> {
        self.0.get(call.target().config().fallback.as_ref()?)
    }
}

impl Way {
    /// The call and its request for this target, made from the request that `meant`, the caller's own target, was to get.
    ///
    /// # Errors
    /// Why it cannot go there.
    pub(super) fn take(
        &self,
        call: &Call,
        original: &Original,
        meant: &TargetConfig,
        now: std::time::Instant,
    ) -> Result<(Call, http::Request<RequestBody>), &'static str> {
        let mut request = self.address.of(original, &bases(meant), call.facts().dialect)?;
        let call = call.for_fallback(self.target.clone(), self.address.model.clone(), now);
        request.extensions_mut().insert(call.clone());
        Ok((call, request))
    }
}

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

fn key(config: &TargetConfig, variable: &str) -> Result<Credential, Error> {
    Credential::in_environment(variable).map_err(|what| {
        Error::config(format!(
            "targets.{}.key_env: {variable} {what}; set it, or leave key_env out (then the caller's own key goes along, to the same host only)",
            config.name
        ))
    })
}

fn bases(config: &TargetConfig) -> Vec<Base> {
    config.matches.urls.iter().filter_map(|url| Base::parse(url)).collect()
}
