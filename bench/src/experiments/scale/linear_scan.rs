//! A peer of `scale`: a policy that reads the counter of each tenant for each decision, like the
//! published code of VTC.

use std::time::Duration;

use crate::schedulers::{Call, Policy, Vtc};

pub(super) struct Linear {
    vtc: Vtc,
    calls: Vec<Call>,
}

impl Linear {
    pub(super) fn new(tenants: usize, waiting: usize) -> Self {
        let call =
            |tenant| Call { tenant, arrives: Duration::ZERO, input: 100.0, output: 0.0, estimate: 100.0 };
        let calls: Vec<_> = (0..waiting).map(|number| call(number % tenants)).collect();
        let inputs = calls.iter().map(|call| call.input).collect();
        let mut vtc = Vtc::new(vec![1.0; tenants], vec![waiting; tenants], inputs);
        for (id, call) in calls.iter().enumerate() {
            vtc.arrive(Duration::ZERO, id, call);
        }
        Self { vtc, calls }
    }

    /// Dispatches a call and queues it again, `times` times. Returns the number of dispatched
    /// calls, or 0 if no call was waiting.
    pub(super) fn hand_on(&mut self, times: usize) -> usize {
        for _ in 0..times {
            let Some(id) = self.vtc.next(Duration::ZERO) else { return 0 };
            if let Some(call) = self.calls.get(id) {
                self.vtc.arrive(Duration::ZERO, id, call);
            }
        }
        times
    }
}
