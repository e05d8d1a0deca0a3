//! The list of workloads. In each, calls are always waiting, so one tenant's gain is another's
//! loss.

use std::time::Duration;

use super::Who;
use super::server::Server;
use super::workload::Arrivals::{Flood, OnOff, Poisson};
use super::workload::Estimates::{Always, Drawn};
use super::workload::{Lengths, Tenant, Workload};
use crate::schedulers::Charging;
use crate::{Fallible, traces};

/// A server of 16 slots, each with 5,000 input and 50 output tokens per second.
pub(super) const SERVER: Server = Server { slots: 16, prefill: 5_000.0, decode: 50.0 };
const HORIZON: Duration = Duration::from_secs(1_800);

/// Lengths of chat turns, in tokens.
pub(super) const CHAT: Lengths = Lengths::Around { input: 500.0, output: 150.0 };
const LONG: Lengths = Lengths::Around { input: 5_000.0, output: 1_500.0 };

pub(super) fn all() -> Fallible<Vec<Workload>> {
    let chat = |arrivals| Tenant::new(CHAT, arrivals);
    let light = || chat(Poisson { share: 0.05 });
    let seen = |name| -> Fallible<Lengths> {
        let calls = traces::azure(name)?.into_iter();
        Ok(Lengths::From(calls.map(|call| (f64::from(call.input), f64::from(call.output))).collect()))
    };
    let (conversations, code) = (seen("conv")?, seen("code")?);
    let load = |name, tenants: Vec<Tenant>, light, without| Workload {
        name,
        server: SERVER,
        horizon: HORIZON,
        tenants,
        light,
        without,
    };
    let calls = Some(Who::Ours(Charging::Calls));
    let unsettled = Some(Who::Ours(Charging::Unsettled));
    Ok(vec![
        load(
            "hog and light",
            vec![chat(Poisson { share: 3.0 }), chat(Poisson { share: 0.6 }), light()],
            Some(2),
            None,
        ),
        load("10x lengths", vec![chat(Flood), Tenant::new(LONG, Flood), light()], Some(2), calls),
        load(
            "on and off",
            vec![
                chat(Flood),
                chat(OnOff { share: 0.5, phase: 20.0 }),
                chat(OnOff { share: 0.4, phase: 70.0 }),
                light(),
            ],
            Some(3),
            None,
        ),
        load(
            "weights 1:2:4",
            vec![chat(Flood), chat(Flood).weighs(2.0), chat(Flood).weighs(4.0)],
            None,
            Some(Who::Unweighted),
        ),
        load(
            "estimates drawn from 0.3 to 3",
            vec![
                chat(Flood).estimated(Drawn),
                chat(Flood).estimated(Drawn).weighs(2.0),
                light().estimated(Drawn),
            ],
            Some(2),
            None,
        ),
        load(
            "estimates always 0.3, 1 and 3",
            vec![chat(Flood).estimated(Always(0.3)), chat(Flood), chat(Flood).estimated(Always(3.0))],
            None,
            unsettled,
        ),
        load(
            "lengths of the Azure traces",
            vec![
                Tenant::new(conversations.clone(), Flood),
                Tenant::new(code, Flood),
                Tenant::new(conversations, Poisson { share: 0.05 }),
            ],
            Some(2),
            calls,
        ),
    ])
}
