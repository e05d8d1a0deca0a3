//! Finds the target of the configuration that `--target` names.

use tidegate::Config;
use tidegate::config::TargetConfig;

use crate::Failure;

/// Returns the target of `config` with this name. With `None`, returns its only target.
///
/// # Errors
///
/// Returns a usage error if there is no such target, or if there are several and `name` is `None`.
pub(crate) fn find_target<'a>(config: &'a Config, name: Option<&str>) -> Result<&'a TargetConfig, Failure> {
    let names = || config.targets.iter().map(|target| &*target.name).collect::<Vec<_>>().join(", ");
    match (name, &config.targets[..]) {
        (_, []) => {
            Err(Failure::usage("the configuration has no target; add one, or pass --url without --config"))
        }
        (Some(name), targets) => targets.iter().find(|target| &*target.name == name).ok_or_else(|| {
            Failure::usage(format!("--target {name}: no such target; the configuration has {}", names()))
        }),
        (None, [only]) => Ok(only),
        (None, _) => Err(Failure::usage(format!(
            "the configuration has several targets; pass --target with one of {}",
            names()
        ))),
    }
}
