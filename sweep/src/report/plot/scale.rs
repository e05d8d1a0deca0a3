//! Scales, which map values to positions and choose ticks.

/// Scale that maps values to positions in pixels.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    log: bool,
    /// Values at which the axis has a tick and, if there is space, a number.
    pub(super) ticks: Vec<f64>,
}

impl Scale {
    /// Returns a linear scale from 0 to at least `most`, with about `ticks` ticks at round numbers.
    /// `start` and `end` are the positions of its ends, in pixels.
    pub(super) fn from_zero(most: f64, (start, end): (f64, f64), ticks: usize) -> Self {
        let most = clamp_to_plausible(most);
        let step = round_step(most / ticks.max(1) as f64);
        let to = (most / step - 1e-9).ceil() * step;
        let ticks = (0..=(to / step).round() as usize).map(|i| i as f64 * step).collect();
        Self { from: 0.0, to, start, end, log: false, ticks }
    }

    /// Returns a linear scale that covers `least` to `most`, with about `ticks` ticks at round
    /// numbers. `start` and `end` are the positions of its ends, in pixels. The scale starts at 0
    /// if `least` is too close to `most` or above it.
    pub(super) fn between(least: f64, most: f64, (start, end): (f64, f64), ticks: usize) -> Self {
        let most = clamp_to_plausible(most);
        // The values are too close for their precision, or out of order.
        if !(least.is_finite() && most - least > 1e-6 * most && least > -most) {
            return Self::from_zero(most, (start, end), ticks);
        }
        let step = round_step((most - least) / ticks.max(1) as f64);
        let (from, to) = ((least / step + 1e-9).floor() * step, (most / step - 1e-9).ceil() * step);
        let ticks = (0..=((to - from) / step).round() as usize).map(|i| from + i as f64 * step).collect();
        Self { from, to, start, end, log: false, ticks }
    }

    /// Returns a linear scale from 0 to 1 with five ticks. `range` contains the positions of its
    /// ends, in pixels.
    pub(super) fn shares(range: (f64, f64)) -> Self {
        Self { ticks: vec![0.0, 0.25, 0.5, 0.75, 1.0], ..Self::from_zero(1.0, range, 4) }
    }

    /// Returns a linear scale of time from 0 to `most` seconds, with about `ticks` ticks at round
    /// seconds, minutes or hours. `start` and `end` are the positions of its ends, in pixels.
    pub(super) fn time(most: f64, (start, end): (f64, f64), ticks: usize) -> Self {
        const STEPS: [f64; 16] = [
            1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0,
            14400.0, 43200.0,
        ];
        let most = clamp_to_plausible(most);
        let wanted = most / ticks.max(1) as f64;
        let step = STEPS.into_iter().find(|step| *step >= wanted).unwrap_or_else(|| round_step(wanted));
        let ticks = (0..=(most / step).floor() as usize).map(|i| i as f64 * step).collect();
        Self { from: 0.0, to: most, start, end, log: false, ticks }
    }

    /// Returns a logarithmic scale that covers `least` to `most` with a margin at both ends, and
    /// about `ticks` ticks. `start` and `end` are the positions of its ends, in pixels.
    pub(super) fn ratios(least: f64, most: f64, (start, end): (f64, f64), ticks: usize) -> Self {
        let least = clamp_to_plausible(least);
        let most = clamp_to_plausible(most).max(least);
        let room = (most / least).powf(0.04).max(1.02);
        let (from, to) = (least / room, most * room);
        let ticks = round_ratios(from, to, ticks);
        Self { from, to, start, end, log: true, ticks }
    }

    /// Returns a logarithmic scale with a tick at each measured cap. `range` contains the positions
    /// of its ends, in pixels.
    pub(super) fn caps(tried: &[usize], range: (f64, f64)) -> Self {
        let (low, high) =
            (tried.iter().min().copied().unwrap_or(1), tried.iter().max().copied().unwrap_or(1));
        let ticks = tried.iter().map(|cap| *cap as f64).collect();
        Self { ticks, ..Self::ratios(low as f64, high as f64, range, 1) }
    }

    /// Returns a scale for positive `values`: linear from 0 if the largest is at most 20 times the
    /// smallest, otherwise logarithmic. `range` contains the positions of its ends, in pixels.
    pub(super) fn for_durations(values: &[f64], range: (f64, f64), ticks: usize) -> Self {
        let known = values.iter().copied().filter(|value| value.is_finite() && *value > 0.0);
        let most = known.clone().fold(0.0, f64::max);
        let least = known.fold(f64::INFINITY, f64::min);
        if most > 20.0 * least {
            Self::ratios(least, most, range, ticks)
        } else {
            Self::from_zero(most * 1.04, range, ticks)
        }
    }

    /// Returns the position of a value in pixels. Values outside the scale have the position of the
    /// nearer end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(f64::MIN_POSITIVE) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        self.start + share * (self.end - self.start)
    }

    /// Returns the positions of both ends, in pixels.
    pub(super) fn ends(&self) -> (f64, f64) {
        (self.start, self.end)
    }
}

/// Clamps a value to 1e-9 to 1e15, which bounds the number of ticks. Values that are not positive
/// become 1.
fn clamp_to_plausible(value: f64) -> f64 {
    if value > 0.0 { value.clamp(1e-9, 1e15) } else { 1.0 }
}

/// Returns the smallest number of the series 1, 2, 5, 10, 20, ... (and 0.5, 0.2, ...) that is at
/// least `wanted`.
fn round_step(wanted: f64) -> f64 {
    let decade = 10_f64.powf(wanted.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * decade >= wanted * 0.999);
    step.unwrap_or(10.0) * decade
}

/// Returns the ticks of a logarithmic scale between `from` and `to`. Of several series of round
/// numbers (1, 10, 100 ...; 1, 2, 5, 10 ...; and others), uses the one whose number of ticks in
/// this range is closest to `wanted`.
fn round_ratios(from: f64, to: f64, wanted: usize) -> Vec<f64> {
    let inside = |value: &f64| (from..=to).contains(value);
    let decades = |marks: &[f64]| -> Vec<f64> {
        let (first, last) = (from.log10().floor() as i32, to.log10().ceil() as i32);
        (first..=last)
            .flat_map(|e| marks.iter().map(move |mark| mark * 10_f64.powi(e)).collect::<Vec<_>>())
            .filter(inside)
            .collect()
    };
    let nines: Vec<f64> = (1..10).map(f64::from).collect();
    let halves: Vec<f64> = (10..100).step_by(5).map(|tenths| f64::from(tenths) / 10.0).collect();
    let fifths: Vec<f64> = (10..100).step_by(2).map(|tenths| f64::from(tenths) / 10.0).collect();
    [
        decades(&[1.0]),
        decades(&[1.0, 3.0]),
        decades(&[1.0, 2.0, 5.0]),
        decades(&nines),
        decades(&halves),
        decades(&fifths),
    ]
    .into_iter()
    .min_by_key(|ticks| ticks.len().abs_diff(wanted) + if ticks.len() < 2 { 100 } else { 0 })
    .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_range() {
        assert_eq!(Scale::from_zero(11.3, (0.0, 100.0), 4).ticks, [0.0, 5.0, 10.0, 15.0]);
        assert_eq!(Scale::time(95.0, (0.0, 100.0), 5).ticks, [0.0, 30.0, 60.0, 90.0]);
        assert_eq!(Scale::ratios(1.0, 100.0, (0.0, 1.0), 7).ticks, [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
    }

    proptest! {
        #[test]
        fn every_value_maps_into_the_range(
            (a, b) in (prop::num::f64::ANY, prop::num::f64::ANY), value in prop::num::f64::ANY, wanted in 1_usize..12,
        ) {
            for scale in [
                Scale::from_zero(b, (40.0, 400.0), wanted),
                Scale::time(b, (40.0, 400.0), wanted),
                Scale::between(a, b, (40.0, 400.0), wanted),
                Scale::ratios(a.min(b), a.max(b), (40.0, 400.0), wanted),
                Scale::for_durations(&[a, b], (40.0, 400.0), wanted),
            ] {
                prop_assert!((40.0..=400.0).contains(&scale.at(value)));
                prop_assert!(scale.ticks.windows(2).all(|pair| pair[0] < pair[1]));
                prop_assert!(scale.ticks.len() <= 100);
            }
        }
    }
}
