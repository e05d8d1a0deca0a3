//! Renders the result of a check of a pool as text: its replicas, their health and their models.

use std::fmt::Write as _;

use tidegate::{PoolCheck, ReplicaCheck};

/// Returns the text, and the number of problems in it.
pub(super) fn render_pool(pool: &PoolCheck) -> (String, usize) {
    let mut text = format!("target {}\n", pool.target);
    let mut problems = 0;
    let mut problem = |text: &mut String, line: &str| {
        let _ = writeln!(text, "    problem: {line}");
        problems += 1;
    };
    match &pool.problem {
        Some(why) => problem(&mut text, why),
        None if pool.replicas.is_empty() => problem(&mut text, "the pool has no replica"),
        None => {}
    }
    for ReplicaCheck { url, problem: unhealthy, models } in &pool.replicas {
        let _ = writeln!(text, "  {url}");
        match unhealthy {
            Some(why) => problem(&mut text, why),
            None => text.push_str("    healthy\n"),
        }
        match models {
            Ok(models) if models.is_empty() => problem(&mut text, "/v1/models lists no model"),
            Ok(models) => drop(writeln!(text, "    models: {}", models.join(", "))),
            // A replica that refuses connections has one problem.
            Err(_) if unhealthy.is_some() => {}
            Err(why) => problem(&mut text, why),
        }
    }
    (text, problems)
}
