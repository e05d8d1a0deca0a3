//! Calls in flight and waiting over time, with a bounded number of points.

use crate::sweep_outcome::SeriesPoint;

/// Initial minimum time between two points, in seconds. It doubles whenever the series is full.
const MIN_DISTANCE_S: f64 = 0.05;

#[derive(Debug)]
pub(super) struct TimeSeries {
    points: Vec<SeriesPoint>,
    min_distance_s: f64,
}

impl Default for TimeSeries {
    fn default() -> Self {
        Self { points: Vec::new(), min_distance_s: MIN_DISTANCE_S }
    }
}

impl TimeSeries {
    pub(super) fn push(&mut self, point: SeriesPoint) {
        if self
            .points
            .last()
            .is_some_and(|last| point.at - last.at < self.min_distance_s && point.cap == last.cap)
        {
            return;
        }
        self.points.push(point);
        if self.points.len() >= SeriesPoint::MAX_POINTS {
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.min_distance_s *= 2.0;
        }
    }

    pub(super) fn into_points(self) -> Vec<SeriesPoint> {
        self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_series_is_thinned_but_covers_the_whole_time() {
        let mut series = TimeSeries::default();
        for index in 0..100_000 {
            let at = index as f64 * 0.1;
            series.push(SeriesPoint { at, cap: 1, in_flight: 1, waiting: 0, completed: index, failed: 0 });
        }
        let points = series.into_points();
        assert!(
            (SeriesPoint::MAX_POINTS / 4..SeriesPoint::MAX_POINTS).contains(&points.len()),
            "{}",
            points.len()
        );
        assert!(points[0].at == 0.0 && points[points.len() - 1].at > 9_900.0);
    }
}
