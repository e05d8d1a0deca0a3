//! `tidegate check FILE`: whether a configuration can work, and what was understood.

mod told;

use std::path::PathBuf;

use clap::Args as ClapArgs;
use tidegate::config::Matcher;
use tidegate::config_file;

use self::told::{OTHERS, told};
use crate::Failure;

/// Prints every problem of the file with its line, or, where there is none, each target, tenant and tool as it will act, every setting
/// that was left out with its default.
#[derive(ClapArgs)]
pub(crate) struct Args {
    /// The TOML file, of 16 MiB at most; `-` for standard input
    file: PathBuf,
    /// Say only which target takes requests to this URL
    #[arg(long)]
    url: Option<http::Uri>,
    /// The model that such a request names
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
            let unsent = |why| Failure::usage(format!("--url: no call is sent to this URL: {why}"));
            tidegate::wire::url::check(url).map_err(unsent)?;
            let found = matcher.find(url, args.model.as_deref()).and_then(|at| config.targets.get(at));
            println!("{}", found.map_or(OTHERS, |target| &target.name));
        }
        None => print!("{}", told(&config)),
    }
    Ok(())
}
