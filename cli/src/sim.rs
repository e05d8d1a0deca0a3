//! `tidegate sim`: serves the simulator over HTTP.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args as ClapArgs;
use serde_json::json;
use tidegate_sim::{SimConfig, Simulator, serve_until};
use tokio::net::TcpListener;

use crate::Failure;
use crate::output::print_line;
use crate::signals::{count_signals, received};

/// Time after the first signal in which calls in flight can finish.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

const AFTER_HELP: &str = "\
Serves chat completions, completions, Responses, Anthropic's messages and Gemini's generateContent, streamed or
not, and /v1/models, /tokenize (the number of tokens only), /health and /metrics. GET /sim/stats returns
statistics, and POST /sim/faults replaces the injected faults.

Forced tool calls (tool_choice) and structured outputs (a JSON schema as output format) are answered with JSON that
is valid against the schema. Each property is present, and values are constants, such as \"text\" and 1. A schema
without such a value gets status 400 with the reason.

At the first Ctrl-C, calls in flight have 5 s to finish; a second one ends at once.";

/// Simulate a vLLM deployment over HTTP
#[derive(ClapArgs)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Address to listen on; port 0 selects a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8000")]
    listen: String,
    /// Simulated seconds per real second (0.001 to 100000) [default: 1]
    #[arg(long, value_name = "X")]
    time_scale: Option<f64>,
    /// Number of engines behind the router (1 to 1024) [default: 2]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Model name to serve; can be repeated [default: sim]
    #[arg(long = "model", value_name = "NAME")]
    models: Vec<String>,
    /// Call each offered tool once before an answer in text, even if tool_choice does not force a
    /// call
    #[arg(long)]
    tool_calls: bool,
    /// JSON file with simulator settings; the options above override it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// JSON file with faults to inject from the start
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    /// Print the listen address as one line of JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let config = build_config(args)?;
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|e| Failure::runtime(format!("cannot start the async runtime: {e}")))?;
    let served = runtime.block_on(serve(args, config));
    // Responses that stall forever must not keep the process alive.
    runtime.shutdown_background();
    served
}

fn build_config(args: &Args) -> Result<SimConfig, Failure> {
    let mut config = match &args.config {
        Some(path) => read_json(path)?,
        None => SimConfig::calibrated(),
    };
    if let Some(scale) = args.time_scale {
        config.time_scale = scale;
    }
    if let Some(workers) = args.workers {
        config.workers = workers;
    }
    config.tool_calls |= args.tool_calls;
    // Clients recognize the server as vLLM.
    config.system_fingerprint.get_or_insert_with(|| "vllm-sim".to_owned());
    if !args.models.is_empty() {
        config.models.clone_from(&args.models);
    }
    if let Some(path) = &args.faults {
        config.faults = read_json(path)?;
    }
    config.validate().map_err(|e| Failure::usage(e.to_string()))?;
    Ok(config)
}

fn read_json<T: for<'de> serde::Deserialize<'de>>(path: &Path) -> Result<T, Failure> {
    let name = path.display();
    let text =
        std::fs::read_to_string(path).map_err(|e| Failure::usage(format!("{name}: cannot be read: {e}")))?;
    serde_json::from_str(&text).map_err(|e| Failure::usage(format!("{name}: {e}")))
}

async fn serve(args: &Args, config: SimConfig) -> Result<(), Failure> {
    let cannot = |e: std::io::Error| {
        Failure::runtime(format!("cannot listen on {}: {e}; pass a free address with --listen", args.listen))
    };
    let signals = count_signals()?;
    let listener = TcpListener::bind(&args.listen).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let (models, scale, workers) = (config.models.clone(), config.time_scale, config.workers);
    let simulator = Simulator::new(config).map_err(|e| Failure::usage(e.to_string()))?;
    if args.json {
        print_line(
            json!({"address": address.to_string(), "base_url": format!("http://{address}/v1"), "models": models}),
        )?;
    } else {
        let names = if models.is_empty() { "any model".to_owned() } else { models.join(", ") };
        print_line(format_args!(
            "serving {names} on http://{address}/v1 ({workers} workers, time x {scale})"
        ))?;
    }
    tokio::select! {
        served = serve_until(listener, simulator, received(signals.clone(), 1)) => served.map_err(cannot),
        () = received(signals.clone(), 2) => Ok(()),
        () = async { received(signals, 1).await; tokio::time::sleep(SHUTDOWN_GRACE).await } => Ok(()),
    }
}
