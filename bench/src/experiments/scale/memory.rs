//! Resident pages: of the scheduler for each call that waits, and after a million tenants have passed through. A fresh process for each figure.

use std::process::{Command, Stdio};

use super::WAITING;
use super::load::{Case, Load};
use crate::Fallible;
use crate::experiments::memory::resident;
use crate::report::{Op, Report, Spread};

const ROUNDS: usize = 3;
/// How many tenants pass before memory is read for the first time: more than are remembered.
const SETTLED: usize = 100_000;
const PASSING: usize = 1_000_000;

/// What a process of its own holds.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Held {
    /// Calls of ten tenants that wait.
    Few,
    /// Calls of ten thousand tenants that wait.
    Many,
    /// Tenants that come, are served once and go.
    Passing,
    /// The same, each with a budget of its own, and in debt to it when it goes.
    Indebted,
}

impl Held {
    fn name(self) -> &'static str {
        match self {
            Self::Few => "few",
            Self::Many => "many",
            Self::Passing => "passing",
            Self::Indebted => "indebted",
        }
    }
}

/// In a process of its own: what the scheduler came to hold, in bytes (a call, or in all).
pub(crate) fn hold(held: Held) -> Fallible<String> {
    let bytes = |before: usize, after: usize| (after.saturating_sub(before) * 1024) as f64;
    let queue = |tenants| -> Fallible<f64> {
        let mut load = Load::new(Case::Overtaking, tenants)?;
        let before = resident()?;
        load.queue(WAITING)?;
        Ok(bytes(before, resident()?) / WAITING as f64)
    };
    let pass = |debts: bool| -> Fallible<f64> {
        let mut load = Load::passing(debts);
        (0..SETTLED).for_each(|number| load.pass(number));
        let before = resident()?;
        (SETTLED..PASSING).for_each(|number| load.pass(number));
        if load.went != PASSING {
            return Err(format!("{} of {PASSING} passed", load.went).into());
        }
        Ok(bytes(before, resident()?))
    };
    let found = match held {
        Held::Few => queue(super::FEW)?,
        Held::Many => queue(super::MANY)?,
        Held::Passing => pass(false)?,
        Held::Indebted => pass(true)?,
    };
    Ok(found.to_string())
}

pub(super) fn measure(report: &mut Report) -> Fallible<()> {
    for (what, held, bar) in [
        ("bytes a waiting call, 10 tenants", Held::Few, 1024.0),
        ("bytes a waiting call, 10,000 tenants", Held::Many, 1024.0),
    ] {
        let found = rounds(held)?;
        report.figure(what, found);
        report.bar(what, found.most, Op::AtMost, bar);
    }
    for (what, held) in [
        ("KiB grown while tenants 100,000 to 1,000,000 pass", Held::Passing),
        ("KiB grown while tenants 100,000 to 1,000,000 pass, each in debt", Held::Indebted),
    ] {
        let found = rounds(held)?;
        let [median, least, most] = [found.median, found.least, found.most].map(|bytes| bytes / 1024.0);
        report.figure(what, Spread { median, least, most });
        report.bar(what, most, Op::AtMost, 1024.0);
    }
    Ok(())
}

fn rounds(held: Held) -> Fallible<Spread> {
    let once = || -> Fallible<f64> {
        let output = Command::new(std::env::current_exe()?)
            .args(["scale-memory", held.name()])
            .stderr(Stdio::inherit())
            .output()?;
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    };
    let found = (0..ROUNDS).map(|_| once()).collect::<Fallible<Vec<_>>>()?;
    eprintln!("{}: {found:.0?} bytes", held.name());
    Ok(Spread::of(found))
}
