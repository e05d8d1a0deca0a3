//! Locates failures by position: the number of exchanges that were open just after an attempt was
//! sent. A concurrency limit rejects only the highest positions. A rate limit rejects positions
//! that were accepted before.

/// Position of one attempt and whether it succeeded. The position is the number of open exchanges
/// just after the attempt was sent, including this one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AttemptMark {
    pub(super) sent_at: f64,
    pub(super) position: usize,
    pub(super) failed: bool,
}

/// The position (number of open exchanges just after an attempt was sent) that best separates
/// accepted attempts, up to it, from failed attempts, above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    /// Highest position that counts as accepted. 0 if there is none.
    pub(super) at: usize,
    /// Number of accepted attempts whose position is above `at`.
    pub(super) accepted_above: usize,
    /// Number of failed attempts whose position is at most `at`.
    pub(super) failed_below: usize,
    /// Number of accepted attempts at all positions.
    pub(super) accepted: usize,
    /// Number of failed attempts at all positions.
    pub(super) failed: usize,
}

/// Returns the edge with the fewest attempts on the wrong side: accepted ones above it and failed
/// ones up to it. Of several such edges, returns the lowest. Returns `None` if no attempt failed.
pub(super) fn edge<'a>(marks: impl IntoIterator<Item = &'a AttemptMark>) -> Option<Edge> {
    // Position to (accepted, failed).
    let mut counts = std::collections::BTreeMap::<usize, (usize, usize)>::new();
    for mark in marks {
        let count = counts.entry(mark.position).or_default();
        if mark.failed { count.1 += 1 } else { count.0 += 1 }
    }
    let accepted: usize = counts.values().map(|count| count.0).sum();
    let failed: usize = counts.values().map(|count| count.1).sum();
    if failed == 0 {
        return None;
    }
    let lowest = *counts.keys().next()?;
    let mut best =
        Edge { at: lowest.saturating_sub(1), accepted_above: accepted, failed_below: 0, accepted, failed };
    let (mut above, mut below) = (accepted, 0);
    for (&position, &(ok, bad)) in &counts {
        above -= ok;
        below += bad;
        if above + below < best.accepted_above + best.failed_below {
            best = Edge { at: position, accepted_above: above, failed_below: below, accepted, failed };
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
        assert_eq!((edge.at, edge.accepted_above, edge.failed_below), (24, 0, 0));
    }

    #[test]
    fn edge_is_below_all_positions_if_all_failed() {
        let marks = [mark(5, true), mark(6, true)];
        assert_eq!(edge(&marks).map(|edge| edge.at), Some(4));
        assert_eq!(edge(&[mark(3, false)]), None);
    }
}
