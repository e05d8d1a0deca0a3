//! Lengths of calls as they were seen: the public Azure traces, which lie beside the repository.

use std::path::PathBuf;

use crate::Fallible;

/// Input and output tokens of each call, in the order of the trace.
pub(crate) fn lengths(name: &str) -> Fallible<Vec<(f64, f64)>> {
    let path: PathBuf = ["..", "shared", "traces", name].iter().collect();
    let text = std::fs::read_to_string(&path).map_err(|error| {
        format!("{}: {error}; run this in the repository, with the traces beside it", path.display())
    })?;
    let mut lengths = Vec::new();
    for (number, line) in text.lines().enumerate().skip(1) {
        let mut fields = line.split(',').skip(1).map(|field| field.trim().parse::<f64>());
        match (fields.next(), fields.next()) {
            (Some(Ok(input)), Some(Ok(output))) => lengths.push((input, output)),
            _ => {
                return Err(format!("{}:{}: expected time, input, output", path.display(), number + 1).into());
            }
        }
    }
    if lengths.is_empty() { Err(format!("{} is empty", path.display()).into()) } else { Ok(lengths) }
}
