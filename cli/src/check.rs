//! `tidegate check FILE`: validates a configuration, and prints all settings with their defaults.

mod render_settings;

use std::path::PathBuf;

use clap::Args as ClapArgs;
use tidegate::config::Matcher;
use tidegate::config_file;

use self::render_settings::{OTHERS, render};
use crate::Failure;

const AFTER_HELP: &str = "\
Prints each problem with its line; or, if there is none, every setting of each target, budget and tool,
including defaults.

Exit codes:
  0  the configuration is valid
  2  the configuration or a flag is invalid";

/// Check a configuration file, and print what each setting does
#[derive(ClapArgs)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// TOML file of at most 16 MiB; `-` reads standard input
    file: PathBuf,
    /// Print only the name of the target that takes requests to this URL
    #[arg(long)]
    url: Option<http::Uri>,
    /// Model that the request to --url names
    #[arg(long, requires = "url", value_name = "NAME")]
    model: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let config = if args.file.as_os_str() == "-" {
        config_file::read_from(std::io::stdin().lock(), "standard input")
    } else {
        config_file::read(&args.file)
    };
    let config = config.map_err(|e| Failure::usage(e.to_string()))?;
    let matcher = Matcher::new(&config.targets).map_err(|e| Failure::usage(e.to_string()))?;
    match &args.url {
        Some(url) => {
            let rejected = |why| Failure::usage(format!("--url: no call is sent to this URL: {why}"));
            tidegate::protocol::url_check::check(url).map_err(rejected)?;
            let found = matcher.find(url, args.model.as_deref()).and_then(|at| config.targets.get(at));
            println!("{}", found.map_or(OTHERS, |target| &target.name));
        }
        None => print!("{}", render(&config)),
    }
    Ok(())
}
