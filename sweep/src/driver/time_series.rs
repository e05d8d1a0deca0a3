//! Slots and queue over time, thinned as the series grows.

use crate::outcome::SeriesPoint;

/// Minimum distance of two points, in seconds.
const MIN_DISTANCE_S: f64 = 0.05;

#[derive(Debug)]
pub(super) struct Series {
    moments: Vec<SeriesPoint>,
    apart: f64,
}

impl Default for Series {
    fn default() -> Self {
        Self { moments: Vec::new(), apart: MIN_DISTANCE_S }
    }
}

impl Series {
    pub(super) fn push(&mut self, moment: SeriesPoint) {
        if self.moments.last().is_some_and(|last| moment.at - last.at < self.apart && moment.cap == last.cap)
        {
            return;
        }
        self.moments.push(moment);
        if self.moments.len() >= SeriesPoint::MOST {
            let mut place = 0;
            self.moments.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.apart *= 2.0;
        }
    }

    pub(super) fn into_moments(self) -> Vec<SeriesPoint> {
        self.moments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_series_is_thinned_but_covers_the_whole_time() {
        let mut series = Series::default();
        for place in 0..100_000 {
            let at = place as f64 * 0.1;
            series.push(SeriesPoint { at, cap: 1, in_flight: 1, waiting: 0, completed: place, failed: 0 });
        }
        let moments = series.into_moments();
        assert!((SeriesPoint::MOST / 4..SeriesPoint::MOST).contains(&moments.len()), "{}", moments.len());
        assert!(moments[0].at == 0.0 && moments[moments.len() - 1].at > 9_900.0);
    }
}
