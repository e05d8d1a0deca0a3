//! An order of tenants by a value that changes often and is rarely read. Changes are only recorded,
//! and the order is sorted when it is read.

use std::collections::BTreeSet;

use super::TenantId;

/// An order of tenants by a value of type `V`, sorted only when it is read. See [the module](self).
#[derive(Debug)]
pub(super) struct LazyOrder<V> {
    /// The values, indexed by tenant.
    known: Vec<Known<V>>,
    /// The order as of the last read.
    order: BTreeSet<(V, TenantId)>,
    /// The tenants whose value was set since the last read, each once.
    changed: Vec<TenantId>,
}

/// The value of one tenant.
#[derive(Clone, Debug)]
struct Known<V> {
    /// The current value, or `None` if the tenant is not in the order.
    value: Option<V>,
    /// The value as of the last read, or `None` if the tenant was not in the order.
    in_order: Option<V>,
    /// Whether the tenant is listed in [`LazyOrder::changed`].
    is_changed: bool,
}

impl<V> Default for LazyOrder<V> {
    fn default() -> Self {
        Self { known: Vec::new(), order: BTreeSet::new(), changed: Vec::new() }
    }
}

impl<V: Copy + Ord> LazyOrder<V> {
    /// Sets the value of a tenant. `None` removes the tenant from the order.
    pub(super) fn set(&mut self, tenant: TenantId, value: Option<V>) {
        if self.known.len() <= tenant.0 {
            let none = Known { value: None, in_order: None, is_changed: false };
            self.known.resize(tenant.0 + 1, none);
        }
        let Some(known) = self.known.get_mut(tenant.0) else { return };
        known.value = value;
        if !known.is_changed {
            known.is_changed = true;
            self.changed.push(tenant);
        }
    }

    /// Returns all tenants with their values in ascending order. Sorts the tenants whose values
    /// were set since the last read.
    pub(super) fn order(&mut self) -> &BTreeSet<(V, TenantId)> {
        for tenant in self.changed.drain(..) {
            let Some(known) = self.known.get_mut(tenant.0) else { continue };
            known.is_changed = false;
            if known.in_order != known.value {
                known.in_order.map(|value| self.order.remove(&(value, tenant)));
                known.value.map(|value| self.order.insert((value, tenant)));
                known.in_order = known.value;
            }
        }
        &self.order
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The order equals that of a map of the same values, sorted at each read.
        #[test]
        fn agrees_with_a_map(steps in prop::collection::vec((0usize..8, prop::option::of(0u8..8), any::<bool>()), 1..200)) {
            let (mut lazy_order, mut map) = (LazyOrder::default(), BTreeMap::new());
            for (tenant, value, ask) in steps {
                lazy_order.set(TenantId(tenant), value);
                match value {
                    Some(value) => map.insert(TenantId(tenant), value),
                    None => map.remove(&TenantId(tenant)),
                };
                if ask {
                    let truth: BTreeSet<_> = map.iter().map(|(tenant, value)| (*value, *tenant)).collect();
                    prop_assert_eq!(lazy_order.order(), &truth);
                }
                prop_assert!(lazy_order.changed.len() <= 8);
            }
        }
    }
}
