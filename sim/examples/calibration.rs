//! Prints the calibration table: the post's runs 1 and 2 beside the model.
//!
//! `cargo run --release -p tidegate-sim --example calibration [base prompt seq kv_tokens max_seqs ingress]`
use tidegate_sim::SimConfig;
use tidegate_sim::scenario::{Arrivals, Run, Summary, noisy_neighbour, quantile};

fn main() {
    let args: Vec<f64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let mut c = SimConfig::default();
    if args.len() >= 6 {
        c.engine.step.base_ms = args[0];
        c.engine.step.per_prompt_token_ms = args[1];
        c.engine.step.per_sequence_ms = args[2];
        c.engine.num_blocks = (args[3] / 16.0) as u32;
        c.engine.max_num_seqs = args[4] as u32;
        c.ingress_ms = args[5];
    }
    let seeds = if args.len() >= 7 { 1..=10 } else { 11..=30 };
    for arrivals in [Arrivals::Paced, Arrivals::Poisson] {
        for run in [Run::Baseline, Run::CapsOff] {
            let reports: Vec<_> = seeds.clone().map(|s| noisy_neighbour(&c, run, arrivals, s)).collect();
            println!(
                "{arrivals:?} {run:?} preemptions {:?} kv {:.2}",
                reports[0].preemptions, reports[0].peak_kv
            );
            for (i, t) in run.tenants().iter().enumerate() {
                let mut line = format!("  {}", t.name);
                for (what, f) in [
                    ("med", (|s: &Summary| s.ttft_median_ms) as fn(&Summary) -> f64),
                    ("p99", |s| s.ttft_p99_ms),
                    ("dec", |s| s.decode_median_ms),
                    ("peak", |s| s.peak_in_flight as f64),
                ] {
                    let mut v: Vec<f64> = reports.iter().map(|r| f(&r.tenants[i].1)).collect();
                    let m = quantile(&mut v, 0.5);
                    line += &format!("  {what} {:.0} [{:.0}-{:.0}]", m, v[0], v[v.len() - 1]);
                }
                println!("{line}");
            }
        }
    }
}
