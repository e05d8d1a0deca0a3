//! Slots and queue over time, thinned out as they grow.

use crate::outcome::Moment;

/// The finest that is kept, in seconds.
const FINEST: f64 = 0.05;

#[derive(Debug)]
pub(super) struct Series {
    moments: Vec<Moment>,
    apart: f64,
}

impl Default for Series {
    fn default() -> Self {
        Self { moments: Vec::new(), apart: FINEST }
    }
}

impl Series {
    pub(super) fn push(&mut self, moment: Moment) {
        if self.moments.last().is_some_and(|last| moment.at - last.at < self.apart && moment.cap == last.cap)
        {
            return;
        }
        self.moments.push(moment);
        if self.moments.len() >= Moment::MOST {
            let mut place = 0;
            self.moments.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.apart *= 2.0;
        }
    }

    pub(super) fn into_moments(self) -> Vec<Moment> {
        self.moments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_long_it_stays_short_and_whole() {
        let mut series = Series::default();
        for place in 0..100_000 {
            let at = place as f64 * 0.1;
            series.push(Moment { at, cap: 1, in_flight: 1, waiting: 0, completed: place, failed: 0 });
        }
        let moments = series.into_moments();
        assert!((Moment::MOST / 4..Moment::MOST).contains(&moments.len()), "{}", moments.len());
        assert!(moments[0].at == 0.0 && moments[moments.len() - 1].at > 9_900.0);
    }
}
