//! Tests of [`FitSet`]: a property test against a sorted `Vec`, and the depth of the tree.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::available::{Available, LongestPrompt, ReplicaAvailability};
use super::super::fit_set::FitSet;
use super::super::requirements::{CallClass, Requirements};
use super::*;
use crate::budget::{AvailableBudget, Need};
use crate::placement::ReplicaSet;
use crate::testing::epoch;

#[derive(Clone, Debug)]
enum Act {
    Insert(u16, [u32; 3]),
    Remove(u16),
    Set(u16, [u32; 3]),
}

fn act() -> impl Strategy<Value = Act> {
    let sizes = || [0u32..20, 0u32..20, 0u32..20];
    prop_oneof![
        4 => (0u16..80, sizes()).prop_map(|(key, sizes)| Act::Insert(key, sizes)),
        2 => (0u16..80).prop_map(Act::Remove),
        1 => (0u16..80, sizes()).prop_map(|(key, sizes)| Act::Set(key, sizes)),
    ]
}

fn needs([tokens, kv, tenant_tokens]: [u32; 3]) -> Requirements {
    // Several kinds of calls, by what they require.
    let has_failed = (tokens + kv) % 3 == 0;
    Requirements {
        need: Need { tokens, kv, ..Need::ZERO },
        tenant_tokens,
        class: CallClass::new((tokens + 3 * kv) % 40),
        has_failed,
    }
}

proptest! {
    #[test]
    fn fit_set_equals_a_sorted_list(
        acts in prop::collection::vec(act(), 1..200),
        probe in [0u32..20, 0u32..20, 0u32..20], after in 0u16..80, unfailed_only in any::<bool>(),
        of_kinds in prop::option::of(prop::collection::vec(prop::option::weighted(0.5, 0u32..20), 40)),
    ) {
        let now = epoch();
        let mut list: Vec<(u16, Requirements)> = Vec::new();
        let mut ranked = FitSet::default();
        for act in acts {
            match act {
                Act::Insert(key, sizes) => {
                    if let Err(at) = list.binary_search_by_key(&key, |(key, _)| *key) {
                        list.insert(at, (key, needs(sizes)));
                        ranked.insert(key, needs(sizes));
                    }
                }
                Act::Remove(key) => {
                    let found = list.binary_search_by_key(&key, |(key, _)| *key);
                    prop_assert_eq!(ranked.remove(&key), found.is_ok());
                    found.into_iter().for_each(|at| { list.remove(at); });
                }
                Act::Set(key, sizes) => {
                    if let Some((_, kept)) = list.iter_mut().find(|(kept, _)| *kept == key) {
                        *kept = needs(sizes);
                    }
                    ranked.set(&key, needs(sizes));
                }
            }
            let [tokens, kv, tenant_tokens] = probe;
            let shared = AvailableBudget { has_requests: true, max_need: Need { tokens, kv, ..Need::UNBOUNDED } };
            let most = |longest: Option<u32>| LongestPrompt::max_of(longest.map(|longest| (0, longest)).into_iter());
            let replicas = of_kinds.clone().map(|classes| Arc::new(ReplicaAvailability::new(ReplicaSet::NONE, None, classes.into_iter().map(most))));
            for available in [Available::new(shared, None), Available::new(shared, replicas)] {
                let available = Available { unfailed_only, ..available };
                let fits = |(_, needs): &&(u16, Requirements)| {
                    let longest = match &of_kinds {
                        Some(classes) if available.replicas.is_some() => classes[needs.class.number().unwrap()],
                        _ => Some(kv),
                    };
                    let is_left_out = unfailed_only && needs.has_failed;
                    !is_left_out && needs.tenant_tokens <= tenant_tokens && needs.need.tokens <= tokens && longest.is_some_and(|most| needs.need.kv <= most)
                };
                prop_assert_eq!(ranked.next_fit(None, &available, tenant_tokens), list.iter().find(fits).map(|(key, _)| *key));
                let behind = list.iter().filter(|(key, _)| *key > after);
                let behind = behind.into_iter().find(fits).map(|(key, _)| *key);
                prop_assert_eq!(ranked.next_fit(Some(&after), &available, tenant_tokens), behind);
            }
            prop_assert_eq!(ranked.first(), list.first().copied());
            prop_assert_eq!((ranked.len(), ranked.is_empty()), (list.len(), list.is_empty()));
            prop_assert_eq!(ranked.least(), list.iter().map(|(_, needs)| *needs).reduce(Requirements::least));
            prop_assert_eq!(ranked.rank(&after), list.iter().filter(|(key, _)| *key < after).count());
            prop_assert_eq!(ranked.nth(after as usize), list.get(after as usize).map(|(key, _)| *key));
            // Larger requirements are met later, and very large ones never.
            let time = |needs: &Requirements| {
                let sum = u64::from(needs.need.tokens + needs.need.kv);
                (sum < 30).then(|| now + Duration::from_secs(sum))
            };
            let soonest = ranked.soonest(None, &mut { time }, &mut |_, needs| time(needs));
            prop_assert_eq!(soonest, list.iter().filter_map(|(_, needs)| time(needs)).min());
        }
    }
}

/// 100,000 keys that are inserted in ascending order do not make the tree deep.
#[test]
fn tree_stays_balanced_if_keys_come_in_order() {
    let mut ranked = FitSet::default();
    (0..100_000u32).for_each(|key| ranked.insert(key, needs([1, 1, 1])));
    assert!(ranked.depth() < 60, "{}", ranked.depth());
    (0..100_000u32).filter(|key| key % 8 != 0).for_each(|key| assert!(ranked.remove(&key)));
    assert!(ranked.len() == 12_500 && ranked.depth() < 50);
}
