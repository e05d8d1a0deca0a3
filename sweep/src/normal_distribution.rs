//! Random numbers and quantiles of the standard normal distribution.

use fastrand::Rng;

/// Returns a random number of the standard normal distribution, by the Box-Muller transform.
pub(crate) fn draw(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

/// Returns the standard normal quantile at `p`, which is clamped to 1e-12 and 1 - 1e-12. Uses P. J.
/// Acklam's rational approximation, with a relative error of at most 1.2e-9.
pub(crate) fn quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969683028665376e1,
        2.209460984245205e2,
        -2.759285104469687e2,
        1.383_577_518_672_69e2,
        -3.066479806614716e1,
        2.506628277459239,
    ];
    const B: [f64; 5] = [
        -5.447609879822406e1,
        1.615858368580409e2,
        -1.556989798598866e2,
        6.680131188771972e1,
        -1.328068155288572e1,
    ];
    const C: [f64; 6] = [
        -7.784894002430293e-3,
        -3.223964580411365e-1,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const D: [f64; 4] = [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416];
    let horner = |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, c| sum * x + c);
    let p = p.clamp(1e-12, 1.0 - 1e-12);
    let tail = |q: f64| horner(&C, q) / (horner(&D, q) * q + 1.0);
    if p < 0.02425 {
        tail((-2.0 * p.ln()).sqrt())
    } else if p > 1.0 - 0.02425 {
        -tail((-2.0 * (1.0 - p).ln()).sqrt())
    } else {
        let q = p - 0.5;
        let r = q * q;
        horner(&A, r) * q / (horner(&B, r) * r + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_matches_known_values() {
        for (p, z) in [(0.5, 0.0), (0.975, 1.959964), (0.995, 2.575829), (0.01, -2.326348)] {
            assert!((quantile(p) - z).abs() < 1e-5, "{p}");
        }
    }

    #[test]
    fn draws_have_mean_zero_and_deviation_one() {
        let mut rng = Rng::with_seed(7);
        let drawn: Vec<f64> = (0..20_000).map(|_| draw(&mut rng)).collect();
        let mean = drawn.iter().sum::<f64>() / 20_000.0;
        let spread = (drawn.iter().map(|x| x * x).sum::<f64>() / 20_000.0).sqrt();
        assert!(mean.abs() < 0.03 && (spread - 1.0).abs() < 0.03, "{mean}, {spread}");
    }
}
