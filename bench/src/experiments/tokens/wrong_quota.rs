//! Counts the answers that the gate needs to learn the true quota from headers, if the configured
//! quota is wrong or missing.

use std::sync::Arc;

use http_body_util::BodyExt;
use tidegate::Gate;
use tidegate::config::{Config, Target};
use tower::ServiceExt;

use super::load::Load;
use super::{TERMS, TPM};
use crate::Fallible;
use crate::client_call::URL;
use crate::quota_provider::{Provider, Terms};
use crate::report::{Op, Report};
use crate::seeds::Seeds;
use crate::virtual_time;

/// The maximum number of answers after which the gate must know the quota, for the experiment to
/// pass.
const ANSWERS: usize = 3;

/// Simulates the cases on `seeds`, and records pass criteria in `report`.
pub(super) fn measure(report: &mut Report, seeds: Seeds) -> Fallible<()> {
    for (name, configured) in [("half", Some(TPM / 2)), ("double", Some(TPM * 2)), ("absent", None)] {
        let needed = virtual_time::each(seeds, |seed| {
            let load = Arc::new(Load::new("conv", seed)?);
            virtual_time::run(seed, answers(TERMS, configured, load))
        })?;
        let worst = needed.iter().copied().fold(0.0, f64::max);
        report.bar(
            format!("configured {name}: answers until the quota is known"),
            worst,
            Op::AtMost,
            ANSWERS as f64,
        );
    }
    Ok(())
}

/// Returns the number of answers until the gate knows the quota. Infinite if it does not know the
/// quota after ten.
async fn answers(terms: Terms, configured: Option<u64>, load: Arc<Load>) -> Fallible<f64> {
    let provider = Provider::new(terms);
    let mut target = Target::new("provider").url(URL);
    if let Some(tpm) = configured {
        target = target.tpm(tpm);
    }
    let gate = Gate::over(Config::builder().target(target).build()?, provider.transport())?;
    for (count, request) in load.requests(10).enumerate() {
        let response = gate.client().oneshot(request).await?;
        let _ = response.into_body().collect().await;
        let snapshot = gate.snapshot();
        let known = snapshot
            .targets
            .get("provider")
            .and_then(|target| target.budgets.get("tokens"))
            .map(|budget| budget.limit);
        if known == Some(TPM) {
            return Ok((count + 1) as f64);
        }
    }
    Ok(f64::INFINITY)
}
