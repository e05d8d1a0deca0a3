//! The tenants of a scheduler. Configured tenants are kept; others are forgotten when idle.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::fit_set::FitSet;
use super::ids::{TenantId, WaiterId};
use super::lanes::{Lanes, LinePosition};
use super::settings::Settings;
use super::span::Span;
use super::tenant_tokens::TenantTokens;
use crate::Lane;
use crate::fairness::Account;
use tidegate_config::TenantConfig;

/// Unconfigured tenants kept before idle ones are forgotten.
const REMEMBERED: usize = 1024;
/// Table entries checked for idle tenants when a tenant is added. More than one, so that forgetting
/// keeps up with adding; few, so that the cost stays small.
const LOOKS: usize = 4;
/// Unconfigured tenants kept before those in debt are forgotten, too.
const MAX_REMEMBERED: usize = 65_536;

/// A call's sort key in its line: when it was queued, delayed by its length if short calls are
/// preferred.
pub(super) type Place = (Instant, WaiterId);

/// A tenant's queue in one lane.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) calls: FitSet<Place>,
    /// Calls in the line that are not retries.
    pub(super) fresh: usize,
    pub(super) account: Account,
    /// The line's position in its lane, if it is ready.
    pub(super) position: Option<LinePosition>,
    /// Until when the line is parked because its tenant is out of tokens.
    pub(super) parked: Option<Instant>,
    /// When a call of the line was last dispatched.
    pub(super) last_dispatch: Option<Instant>,
    /// The lane's dispatch count when the line was last served or became ready.
    pub(super) passed_since: u64,
    /// Whether the line is listed among the lane's debtors.
    pub(super) is_debtor: bool,
}

#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) name: Arc<str>,
    pub(super) weight: f64,
    pub(super) cap: usize,
    pub(super) queue: usize,
    /// The share of the slots reserved for the tenant (0 to 1).
    pub(super) floor: f64,
    /// Whether the tenant's waiting calls may be shed for more urgent ones.
    pub(super) shed: bool,
    pub(super) tokens: Option<TenantTokens>,
    pub(super) in_flight: usize,
    pub(super) peak: usize,
    pub(super) waiting: usize,
    /// Since when the tenant has been at its cap.
    pub(super) capped: Span,
    /// Since when the tenant has been out of tokens for its waiting calls.
    pub(super) out_of_tokens: Span,
    pub(super) lines: [Line; 3],
    configured: bool,
}

impl Tenant {
    pub(super) fn is_capped(&self) -> bool {
        self.in_flight >= self.cap
    }

    /// Returns the tokens that one call may take now of the tenant's own budget.
    pub(super) fn token_room(&self, now: Instant) -> u32 {
        self.tokens.as_ref().map_or(u32::MAX, |tenant_tokens| tenant_tokens.room(now))
    }

    fn is_idle(&self) -> bool {
        !self.configured && self.in_flight == 0 && self.waiting == 0
    }

    /// Returns `true` if forgetting the tenant would forgive more than its last charge.
    fn is_owing(&self, now: Instant, lanes: &Lanes) -> bool {
        self.tokens.as_ref().is_some_and(|tenant_tokens| tenant_tokens.debt(now) > 0)
            || Lane::ALL.iter().any(|lane| lanes.time(*lane).is_owed(&self.lines[*lane as usize].account))
    }
}

#[derive(Debug)]
pub(super) struct Tenants {
    table: Vec<Option<Tenant>>,
    free: Vec<usize>,
    ids: HashMap<Arc<str>, TenantId>,
    default: TenantConfig,
    queue: usize,
    burst: Duration,
    unconfigured: usize,
    /// The table entry that is checked next for an idle tenant.
    next_checked: usize,
    /// The tenant of the last lookup: a call that has to wait is looked up twice.
    last: Option<TenantId>,
}

impl Tenants {
    pub(super) fn new(settings: &Settings, now: Instant) -> Self {
        let mut tenants = Self {
            table: Vec::new(),
            free: Vec::new(),
            ids: HashMap::new(),
            default: settings.default_tenant.clone(),
            queue: settings.queue,
            burst: settings.burst,
            unconfigured: 0,
            next_checked: 0,
            last: None,
        };
        for (name, config) in &settings.tenants {
            tenants.insert(name.clone(), config, true, now);
        }
        tenants
    }

    /// Returns the tenant of that name, adding it if it is new.
    pub(super) fn find(&mut self, name: &Arc<str>, lanes: &Lanes, now: Instant) -> TenantId {
        let last = self.last.filter(|id| self.get(*id).is_some_and(|tenant| tenant.name == *name));
        let known = last.or_else(|| self.ids.get(name).copied());
        let id = known.unwrap_or_else(|| self.add(name, lanes, now));
        self.last = Some(id);
        id
    }

    fn add(&mut self, name: &Arc<str>, lanes: &Lanes, now: Instant) -> TenantId {
        if self.unconfigured >= REMEMBERED {
            self.forget(lanes, now);
        }
        self.unconfigured += 1;
        let config = self.default.clone();
        self.insert(name.clone(), &config, false, now)
    }

    fn insert(&mut self, name: Arc<str>, config: &TenantConfig, configured: bool, now: Instant) -> TenantId {
        let tenant = Tenant {
            name: name.clone(),
            weight: config.weight,
            cap: config.cap.unwrap_or(usize::MAX),
            queue: config.queue.unwrap_or(self.queue),
            floor: config.floor,
            shed: config.shed,
            tokens: config.tpm.map(|tpm| TenantTokens::new(tpm, self.burst, now)),
            in_flight: 0,
            peak: 0,
            waiting: 0,
            capped: Span::default(),
            out_of_tokens: Span::default(),
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

    /// Forgets some idle tenants, which forgives each of them at most its last charge.
    ///
    /// Tenants that owe more are kept until they have paid, unless there are so many that memory is
    /// at stake.
    fn forget(&mut self, lanes: &Lanes, now: Instant) {
        for _ in 0..LOOKS {
            self.next_checked = (self.next_checked + 1) % self.table.len().max(1);
            let Some(place) = self.table.get_mut(self.next_checked) else { return };
            let crowded = self.unconfigured >= MAX_REMEMBERED;
            let goes = place.as_ref().is_some_and(|t| t.is_idle() && (crowded || !t.is_owing(now, lanes)));
            if goes && let Some(tenant) = place.take() {
                self.ids.remove(&tenant.name);
                self.free.push(self.next_checked);
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

    /// Returns the size of the table.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.table.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        self.table.iter().enumerate().filter_map(|(id, tenant)| Some((TenantId(id), tenant.as_ref()?)))
    }
}
