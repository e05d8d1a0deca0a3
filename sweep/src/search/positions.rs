//! Locates failures by position, the number of open calls when a call was sent. A concurrency limit
//! rejects only the highest positions, and a rate limit rejects positions that were accepted before
//! and after.

/// One ended attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AttemptMark {
    pub(super) sent_at: f64,
    pub(super) position: usize,
    pub(super) failed: bool,
}

/// The position that best separates accepted from failed attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    /// Highest accepted position.
    pub(super) at: usize,
    /// Attempts accepted above the edge.
    pub(super) taken_above: usize,
    /// Attempts failed at or below the edge.
    pub(super) failed_below: usize,
    /// Total accepted attempts.
    pub(super) taken: usize,
    /// Total failed attempts.
    pub(super) failed: usize,
}

/// Returns the best edge, or the lowest of several equal ones, or `None` if nothing failed.
pub(super) fn edge<'a>(marks: impl IntoIterator<Item = &'a AttemptMark>) -> Option<Edge> {
    // Position to (accepted, failed).
    let mut counts = std::collections::BTreeMap::<usize, (usize, usize)>::new();
    for mark in marks {
        let count = counts.entry(mark.position).or_default();
        if mark.failed { count.1 += 1 } else { count.0 += 1 }
    }
    let taken: usize = counts.values().map(|count| count.0).sum();
    let failed: usize = counts.values().map(|count| count.1).sum();
    if failed == 0 {
        return None;
    }
    let lowest = *counts.keys().next()?;
    let mut best = Edge { at: lowest.saturating_sub(1), taken_above: taken, failed_below: 0, taken, failed };
    let (mut above, mut below) = (taken, 0);
    for (&position, &(ok, bad)) in &counts {
        above -= ok;
        below += bad;
        if above + below < best.taken_above + best.failed_below {
            best = Edge { at: position, taken_above: above, failed_below: below, taken, failed };
        }
    }
    Some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(position: usize, failed: bool) -> AttemptMark {
        AttemptMark { sent_at: 0.0, position, failed }
    }

    #[test]
    fn concurrency_limit_gives_an_edge() {
        let marks: Vec<_> = (1..=32).map(|position| mark(position, position > 24)).collect();
        let edge = edge(&marks).expect("some failed");
        assert_eq!((edge.at, edge.taken_above, edge.failed_below), (24, 0, 0));
    }

    #[test]
    fn edge_is_below_all_positions_if_all_failed() {
        let marks = [mark(5, true), mark(6, true)];
        assert_eq!(edge(&marks).map(|edge| edge.at), Some(4));
        assert_eq!(edge(&[mark(3, false)]), None);
    }
}
