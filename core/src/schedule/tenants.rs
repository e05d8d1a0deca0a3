//! The tenants that a scheduler knows: the configured ones for ever, others while they have something going on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use super::ids::{TenantId, WaiterId};
use crate::config::TenantConfig;
use crate::fairness::{Account, Tag};

/// How many tenants that nobody configured are remembered before idle ones are forgotten.
const REMEMBERED: usize = 1024;
/// How many places are looked at for idle tenants each time a new one comes. More than one, so that forgetting keeps ahead of coming; a few,
/// so that no call pays for the rest.
const LOOKS: usize = 4;

/// A tenant's queue in one lane, oldest call first.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) calls: BTreeSet<(Instant, WaiterId)>,
    pub(super) account: Account,
    /// Where the line stands among those that could go now, so that it can be taken out again.
    pub(super) standing: Option<(Tag, Instant)>,
}

#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) name: Arc<str>,
    pub(super) weight: f64,
    pub(super) cap: usize,
    pub(super) queue: usize,
    pub(super) in_flight: usize,
    pub(super) peak: usize,
    pub(super) waiting: usize,
    pub(super) lines: [Line; 3],
    configured: bool,
}

#[derive(Debug)]
pub(super) struct Tenants {
    table: Vec<Option<Tenant>>,
    free: Vec<usize>,
    ids: HashMap<Arc<str>, TenantId>,
    default: TenantConfig,
    queue: usize,
    unconfigured: usize,
    /// The place that is looked at next for an idle tenant.
    hand: usize,
}

impl Tenants {
    pub(super) fn new(default: TenantConfig, named: &BTreeMap<Arc<str>, TenantConfig>, queue: usize) -> Self {
        let mut tenants = Self {
            table: Vec::new(),
            free: Vec::new(),
            ids: HashMap::new(),
            default,
            queue,
            unconfigured: 0,
            hand: 0,
        };
        for (name, config) in named {
            tenants.insert(name.clone(), &config.clone(), true);
        }
        tenants
    }

    /// The tenant of that name, made where it is new.
    pub(super) fn find(&mut self, name: &Arc<str>) -> TenantId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        if self.unconfigured >= REMEMBERED {
            self.forget();
        }
        self.unconfigured += 1;
        let config = self.default.clone();
        self.insert(name.clone(), &config, false)
    }

    fn insert(&mut self, name: Arc<str>, config: &TenantConfig, configured: bool) -> TenantId {
        let tenant = Tenant {
            name: name.clone(),
            weight: config.weight,
            cap: config.cap.unwrap_or(usize::MAX),
            queue: config.queue.unwrap_or(self.queue),
            in_flight: 0,
            peak: 0,
            waiting: 0,
            lines: Default::default(),
            configured,
        };
        let id = match self.free.pop() {
            Some(free) => TenantId(free),
            None => {
                self.table.push(None);
                TenantId(self.table.len() - 1)
            }
        };
        if let Some(place) = self.table.get_mut(id.0) {
            *place = Some(tenant);
        }
        self.ids.insert(name, id);
        id
    }

    /// Forgets some who are idle. That forgives each of them the charge of its last call at most: a finish tag is never further ahead.
    fn forget(&mut self) {
        for _ in 0..LOOKS {
            self.hand = (self.hand + 1) % self.table.len().max(1);
            let Some(place) = self.table.get_mut(self.hand) else { return };
            let idle = place.as_ref().is_some_and(|t| !t.configured && t.in_flight == 0 && t.waiting == 0);
            if idle && let Some(tenant) = place.take() {
                self.ids.remove(&tenant.name);
                self.free.push(self.hand);
                self.unconfigured -= 1;
            }
        }
    }

    pub(super) fn get(&self, id: TenantId) -> Option<&Tenant> {
        self.table.get(id.0)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: TenantId) -> Option<&mut Tenant> {
        self.table.get_mut(id.0)?.as_mut()
    }

    /// How many places the table has.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.table.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Tenant> {
        self.table.iter().flatten()
    }
}
