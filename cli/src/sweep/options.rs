//! Builds a sweep from the command-line flags and the configuration file.

use std::path::Path;
use std::time::Duration;

use tidegate::config::{TargetConfig, TransportConfig};
use tidegate::config_file;
use tidegate_sweep::spend::TokenPrices;
use tidegate_sweep::{Lengths, MixOptions, Sweep, SweepOptions};

use super::args::Args;
use crate::Failure;
use crate::api_key::read_api_key;
use crate::find_target::find_target;

/// Returns the sweep that the flags and the configuration describe, with the API key from the
/// environment, and the settings of its connections.
pub(super) fn build_sweep(args: &Args) -> Result<(Sweep, TransportConfig), Failure> {
    let wrong = |error: tidegate_sweep::SweepError| Failure::usage(error.to_string());
    let target = args.target.as_deref().zip(args.config.as_deref());
    let (target, transport) = target.map(|(name, file)| read_target(name, file)).transpose()?.unzip();
    let mut sweep = match &args.resume {
        // The options in the journal contain those of the target, and the flags that overrode them.
        Some(directory) => {
            Sweep::resume(directory, |options| apply_flags(options, args, None)).map_err(wrong)?
        }
        None => {
            let mut options = SweepOptions { engine_metrics: true, ..SweepOptions::default() };
            apply_flags(&mut options, args, target.as_ref());
            if options.url.is_empty() {
                return Err(Failure::usage(match &target {
                    Some(target) => format!("target {} has no URL; pass --url", target.name),
                    None => "no server given; pass --url, --target with --config, or --resume".to_owned(),
                }));
            }
            if options.model.is_empty() {
                return Err(Failure::usage(match &target {
                    Some(target) => {
                        format!("target {} does not name exactly one model; pass --model", target.name)
                    }
                    None => "no model given; pass --model".to_owned(),
                }));
            }
            Sweep::new(options).map_err(wrong)?
        }
    };
    let key_env = args.key_env.clone().or_else(|| target.as_ref()?.key_env.as_deref().map(str::to_owned));
    if let Some(target) = target {
        sweep = sweep.target(target).map_err(wrong)?;
    }
    if let Some(directory) = &args.out {
        sweep = sweep.keep(directory);
    }
    // A server for which no variable is usual may need no key.
    let variable = key_env.as_deref().or(sweep.endpoint().usual_key_env());
    if let Some(key) = variable.map(|variable| read_api_key(sweep.endpoint().host(), variable)).transpose()? {
        sweep = sweep.key(&key).map_err(wrong)?;
    }
    Ok((sweep, transport.unwrap_or_default()))
}

fn read_target(name: &str, file: &Path) -> Result<(TargetConfig, TransportConfig), Failure> {
    let config = config_file::read(file).map_err(|error| Failure::usage(error.to_string()))?;
    Ok((config.detached(find_target(&config, Some(name))?), config.transport))
}

/// Overwrites `options` with the settings of `target`, unless that is `None`, and then with the
/// flags that were given.
fn apply_flags(options: &mut SweepOptions, args: &Args, target: Option<&TargetConfig>) {
    if let Some(target) = target {
        options.take_from(target);
    }
    set_if_given(&mut options.url, args.url.as_ref());
    set_if_given(&mut options.model, args.model.as_ref());
    set_if_given(&mut options.seed, args.seed.as_ref());
    options.api = args.api.map(Into::into).or(options.api);
    options.name = args.name.clone().or(options.name.take());
    options.exact_output |= args.exact_output;
    mix(options, args);
    let search = &mut options.search;
    set_if_given(&mut search.start, args.start.as_ref());
    set_if_given(&mut search.min_cap, args.min_cap.as_ref());
    set_if_given(&mut search.max_cap, args.max_cap.as_ref());
    set_if_given(&mut search.tolerance, args.tolerance.as_ref());
    set_if_given(&mut search.too_many, args.too_many.as_ref());
    set_if_given(&mut search.confidence, args.confidence.as_ref());
    // The default start may lie outside of the given range. A start that the user gave is checked
    // later.
    if args.start.is_none() {
        search.start = search.start.clamp(search.min_cap, search.max_cap.max(search.min_cap));
    }
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    search.ttft = seconds(args.ttft).or(search.ttft);
    search.tpot = seconds(args.tpot).or(search.tpot);
    if let (Some(input), Some(output)) = (args.price_in, args.price_out) {
        options.prices = Some(TokenPrices { input, output });
    }
    let ceilings = &mut options.ceilings;
    ceilings.cost = args.max_cost.or(ceilings.cost);
    ceilings.tokens = args.max_tokens.or(ceilings.tokens);
    ceilings.seconds = seconds(args.max_time).or(ceilings.seconds);
    ceilings.calls = args.max_calls.or(ceilings.calls);
}

fn mix(options: &mut SweepOptions, args: &Args) {
    if let Some(path) = &args.trace {
        options.mix = MixOptions::Trace { path: path.clone() };
    } else if let Some(path) = &args.prompts {
        options.mix = MixOptions::Lines { path: path.clone(), output: args.output_tokens };
    } else if let MixOptions::Synthetic { input, output } = &mut options.mix {
        let spread = args.spread;
        let lengths = |lengths: &mut Lengths, mean: Option<u64>| {
            set_if_given(&mut lengths.mean, mean.as_ref());
            set_if_given(&mut lengths.spread, spread.as_ref());
        };
        lengths(input, args.input_tokens);
        lengths(output, args.output_tokens);
    }
}

fn set_if_given<T: Clone>(setting: &mut T, given: Option<&T>) {
    if let Some(given) = given {
        setting.clone_from(given);
    }
}
