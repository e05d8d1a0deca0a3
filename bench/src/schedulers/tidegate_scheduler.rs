//! Tidegate's scheduler, called in the same way as by the gate: admit, queue, dispatch, settle,
//! release.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::config::{LimitConfig, Predict, TargetConfig, TenantConfig};
use tidegate::policy::schedule::{Grant, Scheduler, SchedulerSettings, Settled, Ticket};
use tidegate::protocol::Usage;

use super::{Call, Policy};
use crate::virtual_time;

/// The charge of a tenant for a dispatched call. The scheduler divides the slots among the tenants
/// by these charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charging {
    /// The estimated tokens, corrected to the true tokens when the call ends. This is the default.
    Tokens,
    /// The estimated tokens, never corrected. Shows the effect of the correction.
    Unsettled,
    /// A charge of 1 for each call (`cost = "calls"`). Shows the effect of charging tokens.
    Calls,
}

pub(crate) struct Ours {
    scheduler: Scheduler<usize>,
    began: Instant,
    charging: Charging,
    names: Vec<Arc<str>>,
    /// Indices of the calls that were admitted on arrival and that [`Policy::next`] has not
    /// returned yet.
    ready: VecDeque<usize>,
    grants: HashMap<usize, Box<Grant>>,
}

impl Ours {
    pub(crate) fn new(slots: usize, weights: &[f64], bounds: &[usize], charging: Charging) -> Self {
        let names: Vec<Arc<str>> = (0..weights.len()).map(|number| format!("t{number}").into()).collect();
        let mut target = TargetConfig {
            cap: slots,
            limit: LimitConfig::Fixed,
            backlog: 1_000_000,
            predict: Predict::Off,
            ..TargetConfig::new("bench")
        };
        for ((name, weight), queue) in names.iter().zip(weights).zip(bounds) {
            let tenant = TenantConfig { weight: *weight, queue: Some(*queue), ..TenantConfig::default() };
            target.tenants.insert(name.clone(), tenant);
        }
        let began = virtual_time::time_origin();
        Self {
            scheduler: Scheduler::new(&SchedulerSettings::from(&target), began),
            began,
            charging,
            names,
            ready: VecDeque::new(),
            grants: HashMap::new(),
        }
    }

    fn admitted(&mut self, id: usize, mut grant: Box<Grant>) {
        grant.sent = true;
        self.grants.insert(id, grant);
    }
}

impl Policy for Ours {
    fn arrive(&mut self, now: Duration, id: usize, call: &Call) -> bool {
        let now = self.began + now;
        let ticket = Ticket {
            cost: if self.charging == Charging::Calls { 1.0 } else { call.estimate },
            ..Ticket::new(
                self.names.get(call.tenant).cloned().unwrap_or_default(),
                now,
                now + Duration::from_secs(24 * 3600),
            )
        };
        match self.scheduler.try_admit(now, &ticket) {
            Ok(Some(grant)) => {
                self.admitted(id, grant);
                self.ready.push_back(id);
            }
            Ok(None) => drop(self.scheduler.enqueue(now, ticket, id)),
            Err(_) => return false,
        }
        true
    }

    fn next(&mut self, now: Duration) -> Option<usize> {
        if let Some(id) = self.ready.pop_front() {
            return Some(id);
        }
        let (id, grant) = self.scheduler.next(self.began + now)?;
        self.admitted(id, grant);
        Some(id)
    }

    fn ended(&mut self, now: Duration, id: usize, call: &Call) {
        let now = self.began + now;
        let Some(mut grant) = self.grants.remove(&id) else { return };
        if self.charging == Charging::Tokens {
            let usage = Usage { input: call.input as u64, output: call.output as u64, cached_input: 0 };
            self.scheduler.settle(now, &mut grant, &Settled { usage, cost: call.cost() });
        }
        self.scheduler.on_success(now, &mut grant);
        self.scheduler.release(now, grant);
    }
}
