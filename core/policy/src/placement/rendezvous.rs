//! Weighted rendezvous hashing: independent clients agree on the replica that owns a key.
//!
//! For each replica, a number is computed from the key and the replica's URL. The replica with the
//! largest number owns the key. If a replica leaves, only the keys that it owned move, to the
//! remaining replicas in proportion to their weights. If a weight changes, keys move only to or
//! from that replica.

/// Returns the hash of a replica's URL, which is the same for all clients and versions: FNV-1a,
/// followed by [`mix`].
pub(super) fn name(url: &str) -> u64 {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    mix(url.bytes().fold(0xcbf2_9ce4_8422_2325, fnv))
}

/// Returns a replica's pseudo-random number for a key: `-weight / ln(u)`, with `u` between 0 and 1.
/// `replica` is the hash that [`name`] returns. The probability that a replica has the largest
/// number is proportional to its weight.
pub(super) fn draw(key: u64, replica: u64, weight: f64) -> f64 {
    // 53 bits, and neither 0 nor 1.
    let u = ((mix(key ^ replica.rotate_left(32)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    -weight / u.ln()
}

/// Returns a hash of a number, by the last steps of SplitMix64: each bit of the result depends on
/// each bit of the number.
pub(super) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(key: u64, replicas: &[(u64, f64)]) -> usize {
        let draws = replicas.iter().map(|(name, weight)| draw(key, *name, *weight));
        draws.enumerate().max_by(|one, other| one.1.total_cmp(&other.1)).unwrap().0
    }

    fn eight() -> Vec<(u64, f64)> {
        (0..8).map(|n| (name(&format!("http://10.0.0.{n}:8000")), 1.0)).collect()
    }

    #[test]
    fn only_keys_of_a_removed_replica_move() {
        let all = eight();
        let mut fewer = all.clone();
        fewer.remove(3);
        let mut moved = 0;
        for key in (0..20_000).map(mix) {
            let (before, after) = (owner(key, &all), owner(key, &fewer));
            if before == 3 {
                moved += 1;
            } else {
                assert_eq!(all[before], fewer[after]);
            }
        }
        assert!((2_300..2_700).contains(&moved), "an eighth: {moved}");
    }

    #[test]
    fn replicas_own_keys_in_proportion_to_their_weights() {
        let mut all = eight();
        all[5].1 = 3.0;
        let mut owned = [0; 8];
        (0..20_000).map(mix).for_each(|key| owned[owner(key, &all)] += 1);
        for (at, owned) in owned.iter().enumerate() {
            let expected: i32 = if at == 5 { 6_000 } else { 2_000 };
            assert!((owned - expected).abs() < 250, "{at}: {owned}");
        }
    }

    #[test]
    fn hashes_are_stable_across_versions() {
        assert_eq!(name("http://10.0.0.1:8000"), 0x3fef_1883_c512_6a18);
        assert!(draw(1, 2, 1.0).is_finite() && draw(u64::MAX, 0, 0.01) > 0.0);
    }
}
