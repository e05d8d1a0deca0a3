//! explore
mod controllers;
mod figures;
mod gateway;
mod load;

use std::time::Duration;

use controllers::{Controller, Demand, Descent, Ours, Post, Static};
use figures::Seen;
use gateway::{Door, play};
use load::Load;

use crate::Fallible;
use crate::report::Report;

const TARGET: Duration = Duration::from_secs(2);
const WORKERS: usize = 2;

fn s(n: u64) -> Duration { Duration::from_secs(n) }

fn show(name: &str, load: &Load, door: Door, make: &dyn Fn() -> Box<dyn Controller>, from: u64) {
    for seed in [1, 2] {
        let mut c = make();
        let played = play(load, &door, c.as_mut(), seed);
        let x = played.seen(s(from), load.length);
        eprintln!("{name:40} served {:5.2} intime {:5.2} p50 {:5.2} p99 {:5.2} refused {:.3} batch {:5.1} cap {:5.1} least {:5.1} last {:5.1} cuts {:3} flips {:3}", x.served, x.in_time, x.p50, x.p99, x.refused, x.batch, x.cap, x.least_cap, x.last_cap, x.cuts, x.flips);
    }
}

pub(crate) fn measure() -> Fallible<Report> {
    let post = |p: Post| move || Box::new(p.build()) as Box<dyn Controller>;
    let fixed = |n: usize| move || Box::new(Static(n)) as Box<dyn Controller>;
    let ours = || Box::new(Ours::new()) as Box<dyn Controller>;
    let load = Load::steady(s(300), [4.0, 8.0]);
    for n in [4, 8, 16, 32, 64, 96, 128, 256, 512] { show(&format!("static {n}"), &load, Door::TIGHT, &fixed(n), 60); }
    show("spiral first", &load, Door::FIRST, &post(Post::FIRST), 120);
    show("floor 16", &load, Door::FIRST, &post(Post { min: 16, ..Post::FIRST }), 120);
    show("tight", &load, Door::TIGHT, &post(Post { min: 16, ..Post::FIRST }), 120);
    show("tight nofloor", &load, Door::TIGHT, &post(Post { ..Post::FIRST }), 120);
    show("timeout", &load, Door::IMPATIENT, &post(Post { min: 16, ..Post::FIRST }), 120);
    show("timeout band", &load, Door::IMPATIENT, &post(Post { descent: Descent::Halving, ..Post::FINAL }), 120);
    show("final tight", &load, Door::TIGHT, &post(Post::FINAL), 120);
    show("ours first", &load, Door::FIRST, &ours, 120);
    show("ours impatient", &load, Door::IMPATIENT, &ours, 120);
    for (a, b) in [(3.0, 3.0), (4.0, 6.0), (5.0, 15.0), (7.0, 13.0)] {
        let load = Load::steady(s(600), [a, b]);
        for (n, p) in [("final", Post::FINAL), ("noband", Post { band: 0.0, ..Post::FINAL }), ("nocool", Post { cooldown_ticks: 0, ..Post::FINAL }), ("noband nocool", Post { cooldown_ticks: 0, band: 0.0, ..Post::FINAL }), ("halving", Post { descent: Descent::Halving, ..Post::FINAL }), ("halving nocool", Post { cooldown_ticks: 0, descent: Descent::Halving, ..Post::FINAL })] {
            show(&format!("{a}/{b} {n}"), &load, Door::TIGHT, &post(p), 120);
        }
    }
    let load = Load::steady(s(120), [5.0, 15.0]);
    for n in [4, 8, 16, 32, 64, 128, 256] {
        show(&format!("init {n} static"), &load, Door::TIGHT, &fixed(n * 2), 0);
        show(&format!("init {n} final"), &load, Door::TIGHT, &post(Post { cap_per_worker: n, min: 4, max: 256, ..Post::FINAL }), 0);
    }
    let _ = Demand::Queued;
    let _: Option<Seen> = None;
    Err("exploring".into())
}
