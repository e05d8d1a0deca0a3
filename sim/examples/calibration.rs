//! Prints the calibration table: the figures of runs 1 and 2 of the noisy-neighbour blog post,
//! beside those of the model.
//!
//! `cargo run -p tidegate-sim --example calibration`

use tidegate_sim::SimConfig;
use tidegate_sim::scenario::{Arrivals, Run, calibration};

fn main() {
    let config = SimConfig::calibrated();
    println!("constants chosen on seeds from 1-10 with paced arrivals; below, seeds 11-30");
    for arrivals in [Arrivals::Paced, Arrivals::Poisson] {
        for run in [Run::Baseline, Run::CapsOff] {
            println!("\n{run:?}, {arrivals:?}\n");
            println!("| tenant | figure             |   post |  model | range           | ratio | holds |");
            println!("|--------|--------------------|-------:|-------:|-----------------|------:|-------|");
            for f in calibration(&config, run, arrivals, 11..=30) {
                let range = format!("{:.0} - {:.0}", f.least, f.most);
                let holds = f.holds().map_or("-", |h| if h { "yes" } else { "NO" });
                println!(
                    "| {:6} | {:18} | {:6.0} | {:6.0} | {range:15} | {:5.2} | {holds:5} |",
                    f.tenant,
                    f.metric.name(),
                    f.post,
                    f.median,
                    f.ratio()
                );
            }
        }
    }
}
