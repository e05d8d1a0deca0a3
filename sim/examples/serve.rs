//! Serves the simulator at ten times real speed.
//!
//! `cargo run -p tidegate-sim --example serve -- 127.0.0.1:8000`

use tidegate_sim::{SimConfig, Simulator, serve_until};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8000".to_owned());
    let simulator = Simulator::new(SimConfig { time_scale: 10.0, ..SimConfig::calibrated() })?;
    let listener = TcpListener::bind(address).await?;
    println!("serving the model `sim` on http://{}/v1", listener.local_addr()?);
    serve_until(listener, simulator, async { drop(tokio::signal::ctrl_c().await) }).await?;
    Ok(())
}
