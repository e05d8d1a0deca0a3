//! Kneedle, a common method to find the knee of a curve.
//!
//! Satopää, Albrecht, Irwin, Raghavan, "Finding a 'Kneedle' in a Haystack: Detecting Knee Points in
//! System Behavior" (ICDCSW 2011), for a concave increasing curve. The first step of the method,
//! smoothing, is left out because there are few points.

/// Returns the index of the knee of `points`, which are in order of `x`. A higher `sensitivity`
/// requires a clearer knee. Returns `None` if there is no knee.
pub(crate) fn knee(points: &[(f64, f64)], sensitivity: f64) -> Option<usize> {
    let (first, last) = (points.first()?, points.last()?);
    let least = points.iter().map(|(_, y)| *y).fold(f64::INFINITY, f64::min);
    let most = points.iter().map(|(_, y)| *y).fold(f64::NEG_INFINITY, f64::max);
    let (width, height) = (last.0 - first.0, most - least);
    if points.len() < 3 || width <= 0.0 || height <= 0.0 {
        return None;
    }
    // The height of each point above the diagonal, after normalising the points to the unit square.
    let above: Vec<f64> = points.iter().map(|(x, y)| (y - least) / height - (x - first.0) / width).collect();
    // One over the number of steps: the mean difference of consecutive normalised x.
    let spacing = 1.0 / (points.len() - 1) as f64;
    let mut candidate: Option<(usize, f64)> = None;
    for (place, three) in above.windows(3).enumerate() {
        let [before, here, after] = three else { continue };
        if let Some((found, threshold)) = candidate
            && *here < threshold
        {
            return Some(found);
        }
        if here > before && here >= after {
            candidate = Some((place + 1, here - sensitivity * spacing));
        } else if here < before && here <= after {
            // A local minimum cancels the threshold.
            candidate = None;
        }
    }
    let end = above.last()?;
    candidate.filter(|(_, threshold)| end < threshold).map(|(found, _)| found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_knee_of_the_papers_example() {
        // Figure 2 of the paper: y = -1/x + 5 on ten points, with a knee at x = .22.
        let points: Vec<(f64, f64)> =
            (0..10).map(|i| f64::from(i) / 9.0).map(|x| (x, -1.0 / (x + 0.1) + 5.0)).collect();
        assert_eq!(knee(&points, 1.0).map(|at| (points[at].0 * 100.0).round()), Some(22.0));
    }

    #[test]
    fn line_has_no_knee_and_a_knee_moves_with_the_range() {
        let line: Vec<(f64, f64)> = (0..10).map(|x| (f64::from(x), f64::from(x))).collect();
        assert_eq!(knee(&line, 1.0), None);
        // The scalability law with its peak at 97.
        let usl = |most: i32| -> Vec<(f64, f64)> {
            let curve = |n: f64| n / (1.0 + 0.01 * (n - 1.0) + 0.000_105 * n * (n - 1.0));
            (1..=16).map(|i| f64::from(i * most / 16)).map(|n| (n, curve(n))).collect()
        };
        let at = |most: i32| knee(&usl(most), 1.0).map(|place| usl(most)[place].0);
        assert!(at(64) < at(192), "{:?} {:?}", at(64), at(192));
    }
}
