//! What is asked, and how much of it there will be.

use std::path::PathBuf;

use fastrand::Rng;

use crate::Fallible;

/// One call: what it sends, and what it will get. The gate is not told the second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) prompt: u32,
    pub(crate) output: u32,
}

impl Work {
    pub(super) fn total(&self) -> u32 {
        self.prompt + self.output
    }
}

/// Lengths as pairs of input and output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    /// Azure's conversations of 2023: 1,155 tokens in and 211 out, in the mean.
    Conv,
    /// One call of those, one of Azure's code completions of 2023 (2,048 in and 28 out), in turns: all of one tenant, so that what is learned
    /// is a mixture.
    Mixed,
    /// Short prompts and long answers with a heavy tail: log-normal, medians 200 and 400, of which the mean answer is twice the median.
    Tail,
}

impl Workload {
    pub(super) const ALL: [Self; 3] = [Self::Conv, Self::Mixed, Self::Tail];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Conv => "conv",
            Self::Mixed => "conv and code",
            Self::Tail => "heavy tail",
        }
    }
}

/// The traces, read once.
#[derive(Debug)]
pub(crate) struct Traces {
    conv: Vec<Work>,
    code: Vec<Work>,
}

impl Traces {
    /// Reads them, leaving out what an engine of this model length could not take.
    pub(crate) fn read(longest: u32) -> Fallible<Self> {
        Ok(Self {
            conv: trace("azure_2023_conv.csv", longest)?,
            code: trace("azure_2023_code.csv", longest)?,
        })
    }

    /// So many calls. Those of a trace follow each other as they did, from a place that the seed chooses.
    pub(super) fn draw(&self, workload: Workload, seed: u64, calls: usize) -> Vec<Work> {
        let mut rng = Rng::with_seed(seed);
        let (conv, code) = (from(&self.conv, &mut rng), from(&self.code, &mut rng));
        match workload {
            Workload::Conv => conv.take(calls).collect(),
            Workload::Mixed => conv.zip(code).flat_map(|(a, b)| [a, b]).take(calls).collect(),
            Workload::Tail => (0..calls)
                .map(|_| Work {
                    prompt: log_normal(&mut rng, 200.0, 0.8, 4_000.0),
                    output: log_normal(&mut rng, 400.0, 1.2, 4_000.0),
                })
                .collect(),
        }
    }

    /// Prompts and answers of conversations, from a place that the generator chooses.
    pub(crate) fn conversations<'a>(&'a self, rng: &mut Rng) -> impl Iterator<Item = Work> + use<'a> {
        from(&self.conv, rng)
    }
}

fn from<'a>(trace: &'a [Work], rng: &mut Rng) -> impl Iterator<Item = Work> + use<'a> {
    let start = rng.usize(..trace.len());
    trace.iter().copied().cycle().skip(start)
}

fn log_normal(rng: &mut Rng, median: f64, sigma: f64, most: f64) -> u32 {
    // Box and Muller; `1 - u` is never 0.
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    let normal = radius * (std::f64::consts::TAU * rng.f64()).cos();
    (median * (sigma * normal).exp()).clamp(8.0, most) as u32
}

fn trace(file: &str, longest: u32) -> Fallible<Vec<Work>> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/traces")).join(file);
    let text = std::fs::read_to_string(&path).map_err(|error| {
        format!(
            "{}: {error}. This experiment needs the Azure LLM inference traces of 2023 in ../shared/traces, beside the repository",
            path.display()
        )
    })?;
    let row = |line: &str| {
        let mut fields = line.trim().split(',').skip(1).map(|field| field.parse::<u32>().ok());
        Some(Work { prompt: fields.next()??.max(1), output: fields.next()??.max(1) })
    };
    let rows: Option<Vec<Work>> = text.lines().skip(1).map(row).collect();
    let mut rows =
        rows.ok_or_else(|| format!("{}: a line is not TIMESTAMP,tokens,tokens", path.display()))?;
    rows.retain(|work| work.total() <= longest);
    if rows.is_empty() {
        return Err(format!("{}: no calls in it", path.display()).into());
    }
    Ok(rows)
}
