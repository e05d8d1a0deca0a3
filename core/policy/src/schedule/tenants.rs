//! The table of tenants. Tenants that are configured are kept; others are removed when they are
//! idle.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;

use super::{FitSet, Lanes, LinePosition, Requirements, SchedulerSettings, Span, TenantUse, WaiterId};
use crate::{Lane, budget::TokenBucket, fairness::Account};
use tidegate_config::TenantConfig;

/// If the table has this many tenants that are not configured, idle ones without debt are removed
/// when another is added.
const FORGET_IDLE_ABOVE: usize = 1024;
/// The number of table entries that are checked for an idle tenant when a tenant is added. More
/// than one, so that the table does not grow; few, so that adding stays cheap.
const IDLE_CHECKS: usize = 4;
/// If the table has this many tenants that are not configured, idle ones in debt are removed, too.
const FORGET_DEBTORS_ABOVE: usize = 65_536;

/// The maximum debt of a tenant, in minutes of its tokens. Limits how long one wrong token count
/// can block the tenant.
const MAX_DEBT_MINUTES: u64 = 10;

/// The index of a tenant in the table. Valid as long as the tenant is configured, or has a waiting
/// call or a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TenantId(pub(super) usize);

/// The sort key of a call in its [`Line`]: the time by which it is ordered, then its ID. See
/// [`Waiter::order`](super::Waiter::order).
pub(super) type CallKey = (Instant, WaiterId);

/// The waiting calls of one tenant in one lane, and the account of these calls in fair queueing.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The waiting calls with their requirements.
    pub(super) calls: FitSet<CallKey>,
    /// The number of waiting calls that are not retries.
    pub(super) fresh: usize,
    pub(super) account: Account,
    /// The position of the line among the ready lines of its lane. `None` if the line has no calls,
    /// or if its tenant is at its slot cap or out of its own tokens.
    pub(super) position: Option<LinePosition>,
    /// When the line becomes ready again because its tenant has enough tokens of its own, or `None`
    /// if the line is not parked.
    pub(super) parked: Option<Instant>,
    /// When a call of the line was last dispatched, or `None` if none was.
    pub(super) last_dispatch: Option<Instant>,
    /// The number of calls that the lane had dispatched when this line last dispatched a call or
    /// became ready.
    pub(super) passed_since: u64,
    /// Whether the line is listed in its lane as in debt in fair queueing.
    pub(super) is_debtor: bool,
}

/// The limits and the state of one tenant.
#[derive(Debug, Default)]
pub(super) struct Tenant {
    pub(super) name: Arc<str>,
    pub(super) weight: f64,
    /// The maximum number of slots, or `usize::MAX` if the tenant has no cap.
    pub(super) cap: usize,
    /// The maximum number of waiting calls. Retries are queued even if it is reached.
    pub(super) queue: usize,
    /// The share of the slots that is reserved for the tenant (0 to 1).
    pub(super) floor: f64,
    /// Whether waiting calls of the tenant may be shed for calls of higher lanes.
    pub(super) shed: bool,
    /// The tenant's own tokens per minute, or `None` if it has no such limit.
    pub(super) tokens: Option<TenantTokens>,
    pub(super) in_flight: usize,
    /// The maximum of `in_flight` so far.
    pub(super) peak: usize,
    pub(super) waiting: usize,
    /// The latest period in which the tenant used as many slots as its cap permits: when it began
    /// and, if it is over, when it ended.
    pub(super) capped: Span,
    /// The latest period in which the tenant had too few tokens of its own for its waiting calls:
    /// when it began and, if it is over, when it ended.
    pub(super) out_of_tokens: Span,
    /// The latest period in which the tenant was held: when it began and, if it is over, when it
    /// ended.
    pub(super) held: Span,
    pub(super) usage: TenantUse,
    pub(super) lines: [Line; 3],
    /// Whether the settings name the tenant. Other tenants are removed when they are idle.
    configured: bool,
}

impl Tenant {
    /// Returns `true` if no call of the tenant may be dispatched, because the tenant is at its slot
    /// cap or held.
    pub(super) fn is_barred(&self) -> bool {
        self.is_capped() || self.is_held()
    }

    pub(super) fn is_capped(&self) -> bool {
        self.in_flight >= self.cap
    }

    /// Returns how many of its own tokens one call of the tenant may take now, or `u32::MAX` if
    /// they are not limited.
    pub(super) fn token_room(&self, now: Instant) -> u32 {
        self.tokens.as_ref().map_or(u32::MAX, |tenant_tokens| tenant_tokens.room(now))
    }

    /// Returns when the tenant has enough tokens of its own for a call: `now` if it has them now,
    /// or if its tokens are not limited.
    pub(super) fn tokens_at(&self, now: Instant, needs: &Requirements) -> Instant {
        self.tokens.as_ref().map_or(now, |tokens| tokens.ready_at(now, needs.tenant_tokens))
    }

    /// Returns `true` if the tenant has overdrawn its own tokens, or is in debt in fair queueing by
    /// more than its last charge. Removing the tenant would forgive these debts.
    fn is_owing(&self, now: Instant, lanes: &Lanes) -> bool {
        self.tokens.as_ref().is_some_and(|tenant_tokens| tenant_tokens.bucket.debt(now) > 0)
            || Lane::ALL
                .iter()
                .any(|lane| lanes.lane(*lane).time.is_in_debt(&self.lines[*lane as usize].account))
    }
}

/// The table of tenants.
#[derive(Debug)]
pub(super) struct Tenants {
    table: Slab<Tenant>,
    /// The number of entries of the table, including those that are not in use.
    pub(super) table_size: usize,
    ids: HashMap<Arc<str>, TenantId>,
    /// The settings of tenants that are not configured.
    default: TenantConfig,
    /// The maximum number of waiting calls of each tenant that does not configure its own.
    queue: usize,
    /// See [`SchedulerSettings::burst`].
    burst: Duration,
    /// The number of tenants in the table that are not configured.
    unconfigured: usize,
    /// The index that is checked next for an idle tenant.
    next_checked: usize,
    /// The tenant that the last lookup found, or `None` if there was no lookup. Kept because a call
    /// that has to wait is looked up twice.
    last: Option<TenantId>,
}

impl Tenants {
    pub(super) fn new(settings: &SchedulerSettings, now: Instant) -> Self {
        let mut tenants = Self {
            table: Slab::new(),
            table_size: 0,
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

    /// Returns the ID of the tenant with this name. Adds the tenant if it is not in the table.
    pub(super) fn find(&mut self, name: &Arc<str>, lanes: &Lanes, now: Instant) -> TenantId {
        let last = self.last.filter(|id| self.get(*id).is_some_and(|tenant| tenant.name == *name));
        let known = last.or_else(|| self.ids.get(name).copied());
        let id = known.unwrap_or_else(|| {
            if self.unconfigured >= FORGET_IDLE_ABOVE {
                self.forget(lanes, now);
            }
            self.unconfigured += 1;
            let config = self.default.clone();
            self.insert(name.clone(), &config, false, now)
        });
        self.last = Some(id);
        id
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
            configured,
            ..Tenant::default()
        };
        let id = TenantId(self.table.insert(tenant));
        self.table_size = self.table_size.max(id.0 + 1);
        self.ids.insert(name, id);
        id
    }

    /// Checks [`IDLE_CHECKS`] table entries, and removes those of idle tenants that are not
    /// configured. This forgives each of them at most its last charge.
    ///
    /// Tenants that owe more are kept until they have paid, unless the table has
    /// [`FORGET_DEBTORS_ABOVE`] or more tenants that are not configured.
    fn forget(&mut self, lanes: &Lanes, now: Instant) {
        for _ in 0..IDLE_CHECKS {
            self.next_checked = (self.next_checked + 1) % self.table_size.max(1);
            let Some(tenant) = self.table.get(self.next_checked) else { continue };
            let crowded = self.unconfigured >= FORGET_DEBTORS_ABOVE;
            let is_idle = !tenant.configured && tenant.in_flight == 0 && tenant.waiting == 0;
            if is_idle && (crowded || !tenant.is_owing(now, lanes)) {
                self.ids.remove(&tenant.name);
                self.table.remove(self.next_checked);
                self.unconfigured -= 1;
            }
        }
    }

    pub(super) fn get(&self, id: TenantId) -> Option<&Tenant> {
        self.table.get(id.0)
    }

    pub(super) fn get_mut(&mut self, id: TenantId) -> Option<&mut Tenant> {
        self.table.get_mut(id.0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        self.table.iter().map(|(id, tenant)| (TenantId(id), tenant))
    }
}

/// A tenant's own limit of tokens per minute. Calls can overdraw it, which leaves the tenant in
/// debt.
#[derive(Debug)]
pub(super) struct TenantTokens {
    pub(super) bucket: TokenBucket,
    /// The maximum debt in tokens.
    max_debt: u64,
}

impl TenantTokens {
    pub(super) fn new(tpm: u64, burst: Duration, now: Instant) -> Self {
        Self {
            bucket: TokenBucket::per_minute(tpm, burst, now),
            max_debt: tpm.saturating_mul(MAX_DEBT_MINUTES),
        }
    }

    /// Returns how many tokens one call of the tenant may take now.
    pub(super) fn room(&self, now: Instant) -> u32 {
        u32::try_from(self.bucket.available(now)).unwrap_or(u32::MAX)
    }

    /// Returns when one call may take `tokens` tokens: `now` if it may take them now.
    pub(super) fn ready_at(&self, now: Instant, tokens: u32) -> Instant {
        self.bucket.ready_at(now, u64::from(tokens))
    }

    /// Replaces the `charged` tokens of a call by the `used` ones, as far as the debt stays within
    /// its maximum. Returns the tokens that the call is charged now.
    pub(super) fn settle(&mut self, now: Instant, charged: u64, used: u64) -> u64 {
        let used = used.min(charged.saturating_add(self.max_debt.saturating_sub(self.bucket.debt(now))));
        self.bucket.settle(now, charged, used);
        used
    }

    /// Returns how long it takes to pay the debt, if there is one, and then to accrue `tokens`
    /// tokens.
    pub(super) fn time_for(&self, now: Instant, tokens: u64) -> Duration {
        self.bucket.time_for(tokens.saturating_add(self.bucket.debt(now)))
    }
}
