//! `tidegate check FILE`: validates a configuration, and prints all settings with their defaults.
//! `--replicas` also asks the replicas of its pools for their health and models.

mod render_replicas;
mod render_settings;

use std::path::PathBuf;

use clap::Args as ClapArgs;
use tidegate::config::{Config, Matcher};
use tidegate::internals::mode_from_env;
use tidegate::{Gate, config_file};

use self::render_replicas::render_pool;
use self::render_settings::{OTHERS, render};
use crate::Failure;
use crate::output::{print, print_line};

const AFTER_HELP: &str = "\
Prints each problem with its line; or, if there is none, every setting of each target, budget and tool,
including defaults.

With --replicas, prints instead for each replica of each pool whether it is healthy and which models it
serves, adapters included.

Exit codes:
  0  the configuration is valid
  1  with --replicas: a replica is not healthy, or its models are not known
  2  the configuration or a flag is invalid";

/// Check a configuration file, and print what each setting does
#[derive(ClapArgs)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// TOML file of at most 16 MiB; `-` reads standard input
    file: PathBuf,
    /// Print only the name of the target that takes requests to this URL
    // Read later, because errors of clap contain the value.
    #[arg(long)]
    url: Option<String>,
    /// Model that the request to --url names
    #[arg(long, requires = "url", value_name = "NAME")]
    model: Option<String>,
    /// Ask each replica of each pool for its health and its models, and print the answers
    #[arg(long, conflicts_with = "url")]
    replicas: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let config = if args.file.as_os_str() == "-" {
        config_file::read_from(std::io::stdin().lock(), "standard input")
    } else {
        config_file::read(&args.file)
    };
    let config = config.map_err(|e| Failure::usage(e.to_string()))?;
    if args.replicas {
        return check_replicas(config);
    }
    let matcher = Matcher::new(&config.targets).map_err(|e| Failure::usage(e.to_string()))?;
    match &args.url {
        Some(url) => {
            let url = crate::parse_url(url).map_err(|e| Failure::usage(format!("--url: {e}")))?;
            let rejected = |why| Failure::usage(format!("--url: no call is sent to this URL: {why}"));
            tidegate::protocol::url_check::check(&url).map_err(rejected)?;
            let found = matcher.find(&url, args.model.as_deref()).and_then(|at| config.targets.get(at));
            print_line(found.map_or(OTHERS, |target| &target.name))
        }
        None => {
            let from_env = mode_from_env().map_err(|e| Failure::usage(e.to_string()))?;
            print(render(&config, from_env))
        }
    }
}

/// Asks each replica of each pool in `config`, and prints the answers.
fn check_replicas(mut config: Config) -> Result<(), Failure> {
    // Other targets may need keys that are not set here.
    config.targets.retain(|target| target.pool.is_some());
    let others = std::iter::once(&mut config.default_target);
    config.targets.iter_mut().chain(others).for_each(|target| target.fallback = None);
    let gate = Gate::new(config).map_err(|error| Failure::usage(error.to_string()))?;
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Failure::runtime(format!("cannot start the async runtime: {error}")))?;
    let pools = runtime.block_on(gate.check_replicas());
    if pools.is_empty() {
        return Err(Failure::usage("--replicas: no target of the configuration is a pool"));
    }
    let mut failed = 0;
    for pool in &pools {
        let (text, problems) = render_pool(pool);
        print(text)?;
        failed += problems;
    }
    match failed {
        0 => Ok(()),
        1 => Err(Failure::runtime("1 problem was found; see above")),
        _ => Err(Failure::runtime(format!("{failed} problems were found; see above"))),
    }
}
