//! The tenants that a scheduler knows: the configured ones for ever, others while they have something going on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use super::waiters::WaiterId;
use crate::config::TenantConfig;
use crate::fairness::{Account, Tag};

/// How many tenants that nobody configured are remembered before idle ones are forgotten.
const REMEMBERED: usize = 1024;

/// A tenant's place in the table. Valid while the tenant holds or awaits a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TenantId(usize);

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
    forget_at: usize,
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
            forget_at: REMEMBERED,
        };
        for (name, config) in named {
            tenants.insert(name.clone(), &config.clone(), true);
        }
        tenants
    }

    /// The tenant of that name, made where it is new. `fresh` says of an idle one whether nothing is lost by forgetting it.
    pub(super) fn find(&mut self, name: &Arc<str>, fresh: impl Fn(&Tenant) -> bool) -> TenantId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        if self.unconfigured >= self.forget_at {
            self.forget(fresh);
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

    /// Forgets who is idle. Next time at twice what is left, so that the cost a call stays constant.
    fn forget(&mut self, fresh: impl Fn(&Tenant) -> bool) {
        for (index, place) in self.table.iter_mut().enumerate() {
            let idle = place
                .as_ref()
                .is_some_and(|t| !t.configured && t.in_flight == 0 && t.waiting == 0 && fresh(t));
            if idle && let Some(tenant) = place.take() {
                self.ids.remove(&tenant.name);
                self.free.push(index);
                self.unconfigured -= 1;
            }
        }
        self.forget_at = (2 * self.unconfigured).max(REMEMBERED);
    }

    pub(super) fn get(&self, id: TenantId) -> Option<&Tenant> {
        self.table.get(id.0)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: TenantId) -> Option<&mut Tenant> {
        self.table.get_mut(id.0)?.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Tenant> {
        self.table.iter().flatten()
    }
}
