//! The tenants that a scheduler knows: the configured ones for ever, others while they have something going on.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::fit_set::FitSet;
use super::ids::{TenantId, WaiterId};
use super::lanes::{Lanes, LinePosition};
use super::settings::Settings;
use super::span::Span;
use super::tenant_tokens::TenantTokens;
use crate::config::TenantConfig;
use crate::context::Lane;
use crate::fairness::Account;

/// How many tenants that nobody configured are remembered before idle ones are forgotten.
const REMEMBERED: usize = 1024;
/// How many places are looked at for idle tenants each time a new one comes. More than one, so that forgetting keeps ahead of coming; a few,
/// so that no call pays for the rest.
const LOOKS: usize = 4;
/// How many are remembered though they owe something.
const MAX_REMEMBERED: usize = 65_536;

/// A call's place in its tenant's queue: when it was queued, shifted by its length where short ones are preferred.
pub(super) type Place = (Instant, WaiterId);

/// A tenant's queue in one lane.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) calls: FitSet<Place>,
    /// How many of them are no retries.
    pub(super) fresh: usize,
    pub(super) account: Account,
    /// Where the line stands among those that could go now.
    pub(super) position: Option<LinePosition>,
    /// Until when it is out of them, for want of the tenant's own tokens.
    pub(super) parked: Option<Instant>,
    /// When a call of it last went.
    pub(super) last_dispatch: Option<Instant>,
    /// How many calls its lane had dispatched when it last went or came to stand.
    pub(super) passed_since: u64,
    /// Whether it stands among its lane's debtors.
    pub(super) is_debtor: bool,
}

#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) name: Arc<str>,
    pub(super) weight: f64,
    pub(super) cap: usize,
    pub(super) queue: usize,
    /// The share of the slots that is its own.
    pub(super) floor: f64,
    /// Whether its waiting calls may be refused for more urgent ones.
    pub(super) shed: bool,
    pub(super) tokens: Option<TenantTokens>,
    pub(super) in_flight: usize,
    pub(super) peak: usize,
    pub(super) waiting: usize,
    /// Since when it has been at its cap.
    pub(super) capped: Span,
    /// Since when it has had no tokens of its own for what waits.
    pub(super) out_of_tokens: Span,
    pub(super) lines: [Line; 3],
    configured: bool,
}

impl Tenant {
    pub(super) fn is_capped(&self) -> bool {
        self.in_flight >= self.cap
    }

    /// The most of its own tokens that one call may take now.
    pub(super) fn token_room(&self, now: Instant) -> u32 {
        self.tokens.as_ref().map_or(u32::MAX, |tenant_tokens| tenant_tokens.room(now))
    }

    fn is_idle(&self) -> bool {
        !self.configured && self.in_flight == 0 && self.waiting == 0
    }

    /// Whether forgetting it would forgive more than what it was charged for its last call, and what its bucket holds at most.
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
    /// The place that is looked at next for an idle tenant.
    next_checked: usize,
    /// Who was found last: a call that is to wait is looked for twice.
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

    /// The tenant of that name, made where it is new.
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

    /// Forgets some who are idle. That forgives each of them the charge of its last call at most; who owes more is remembered until it is
    /// paid, unless there are so many of them that memory is at stake.
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

    /// How many places the table has.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.table.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        self.table.iter().enumerate().filter_map(|(id, tenant)| Some((TenantId(id), tenant.as_ref()?)))
    }
}
