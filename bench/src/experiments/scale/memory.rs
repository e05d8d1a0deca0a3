//! Measures the scheduler's resident memory: per waiting call, and after a million tenants have
//! made one call each. Each figure is measured in a new process.

use std::collections::HashMap;
use std::process::{Command, Stdio};

use super::WAITING;
use super::full_target::{Case, Load};
use crate::Fallible;
use crate::experiments::memory::resident;
use crate::report::{Op, Report, Spread};

const ROUNDS: usize = 3;
/// The number of tenants that have made one call each when memory is read for the first time. The
/// scheduler keeps data of fewer tenants than this.
const SETTLED: usize = 100_000;
const PASSING: usize = 1_000_000;

/// The data that a process keeps in memory while its memory use is measured.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Held {
    /// A scheduler with waiting calls of 10 tenants.
    Few,
    /// A scheduler with waiting calls of 10,000 tenants.
    Many,
    /// A scheduler after a million tenants with one call each.
    Passing,
    /// A scheduler after a million tenants with one call each. Each tenant has a token budget and
    /// is in debt at the end.
    Indebted,
    /// A map with a counter for each tenant that is never removed, like the published code of VTC.
    Counters,
}

impl Held {
    fn name(self) -> &'static str {
        match self {
            Self::Few => "few",
            Self::Many => "many",
            Self::Passing => "passing",
            Self::Indebted => "indebted",
            Self::Counters => "counters",
        }
    }
}

/// Builds the data in this process, and returns the growth of the resident memory in bytes, as
/// text. For waiting calls, this is the growth per call. Otherwise, it is the growth from the
/// 100,000th to the 1,000,000th tenant.
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
    let count = || -> Fallible<f64> {
        let mut counters: HashMap<String, f64> = HashMap::new();
        let mut pass = |number: usize| *counters.entry(format!("passing-{number}")).or_default() += 1.0;
        (0..SETTLED).for_each(&mut pass);
        let before = resident()?;
        (SETTLED..PASSING).for_each(&mut pass);
        Ok(bytes(before, resident()?) + counters.len() as f64 - PASSING as f64)
    };
    let found = match held {
        Held::Few => queue(super::FEW)?,
        Held::Many => queue(super::MANY)?,
        Held::Passing => pass(false)?,
        Held::Indebted => pass(true)?,
        Held::Counters => count()?,
    };
    Ok(found.to_string())
}

/// Measures each figure in a process of its own, and records figures and pass criteria in `report`.
pub(super) fn measure(report: &mut Report) -> Fallible<()> {
    for (what, held, bar) in [
        ("bytes a waiting call, 10 tenants", Held::Few, 1024.0),
        ("bytes a waiting call, 10,000 tenants", Held::Many, 1024.0),
    ] {
        let found = rounds(held)?;
        report.figure(what, found);
        report.bar(what, found.most, Op::AtMost, bar);
    }
    let kib = |found: Spread| {
        let [median, least, most] = [found.median, found.least, found.most].map(|bytes| bytes / 1024.0);
        Spread { median, least, most }
    };
    let grown = "KiB grown while tenants 100,000 to 1,000,000 pass";
    for (what, held) in
        [(grown.to_owned(), Held::Passing), (format!("{grown}, each in debt"), Held::Indebted)]
    {
        let found = kib(rounds(held)?);
        report.figure(&what, found);
        report.bar(what, found.most, Op::AtMost, 1024.0);
    }
    let counters = kib(rounds(Held::Counters)?);
    report.peer("a counter for each", grown, counters);
    report.bar(format!("{grown}, a counter for each"), counters.least, Op::AtLeast, 1024.0);
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
