use super::*;
use crate::config::{Config, LimitSettings};

fn tools(caps: &[(&str, usize)]) -> Arc<Tools> {
    let mut config = Config::default();
    for (name, cap) in caps {
        config.tools.insert((*name).to_owned(), ToolConfig::with_cap(*cap));
    }
    Arc::new(Tools::new(&config.tools, &Metrics::new().expect("series"), None))
}

async fn take(tools: &Arc<Tools>, name: &str, holds: Option<Chain>) -> Result<ToolPermit, Error> {
    let context = Context { holds, ..Context::default() };
    tools.ask(name, "t".into(), &context, Mode::Enforce, false)?.granted().await
}

/// Takes a slot of the tool `name` in another task, which holds the slot `held`.
fn spawn_take(
    tools: &Arc<Tools>,
    name: &'static str,
    held: &ToolPermit,
) -> tokio::task::JoinHandle<Result<ToolPermit, Error>> {
    let (tools, holds) = (tools.clone(), held.chain());
    tokio::spawn(async move { take(&tools, name, Some(holds)).await })
}

#[tokio::test(start_paused = true)]
async fn task_that_requests_a_tool_that_it_holds_is_rejected() {
    let tools = tools(&[("db", 1)]);
    let db = take(&tools, "db", None).await.expect("free");
    let error = take(&tools, "db", Some(db.chain())).await.expect_err("itself");
    assert_eq!(error.reason(), Some(Reason::Deadlock));
    assert!(error.message().contains("db"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn cycle_of_two_tasks_rejects_one_and_serves_the_other() {
    let tools = tools(&[("db", 1), ("search", 1)]);
    let db = take(&tools, "db", None).await.expect("free");
    let search = take(&tools, "search", None).await.expect("free");
    let first = spawn_take(&tools, "search", &db);
    tokio::task::yield_now().await;
    let error = take(&tools, "db", Some(search.chain())).await.expect_err("a cycle");
    assert_eq!(error.reason(), Some(Reason::Deadlock));
    drop(search);
    let got = first.await.expect("no panic").expect("the other one gets its slot");
    drop((got, db));
    assert_eq!(tools.snapshot(&[], clock::now()).values().map(|tool| tool.in_flight).sum::<usize>(), 0);
}

/// `db` has one slot in force, although its cap is 8.
#[tokio::test(start_paused = true)]
async fn cycle_over_a_tool_with_an_adaptive_limit_is_rejected() {
    let limit = LimitSettings::new().start(1).min(1);
    let db = crate::config::Tool::new(8).latency(Duration::from_secs(1)).limit(limit);
    let config = Config::builder().tool("db", db).tool("search", 1).build().expect("valid");
    let tools = Arc::new(Tools::new(&config.tools, &Metrics::new().expect("series"), None));
    let db = take(&tools, "db", None).await.expect("free");
    let search = take(&tools, "search", None).await.expect("free");
    let first = spawn_take(&tools, "search", &db);
    tokio::task::yield_now().await;
    let error = take(&tools, "db", Some(search.chain())).await.expect_err("a cycle");
    assert_eq!(error.reason(), Some(Reason::Deadlock));
    drop(search);
    drop(first.await.expect("no panic").expect("the other one gets its slot"));
}

/// While two tasks wait, the limit of `db` falls, and the only holder that does not wait releases
/// its slot.
#[tokio::test(start_paused = true)]
async fn cycle_that_a_falling_limit_closes_rejects_one_and_serves_the_other() {
    let tools = tools(&[("db", 2), ("search", 1)]);
    let search = take(&tools, "search", None).await.expect("free");
    let db = take(&tools, "db", None).await.expect("free");
    let busy = take(&tools, "db", None).await.expect("free");
    let first = spawn_take(&tools, "search", &db);
    // The wait that began first is checked first.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let second = spawn_take(&tools, "db", &search);
    tokio::task::yield_now().await;
    tools.tools["db"].admission.set_limit(1);
    drop(busy);
    let error = first.await.expect("no panic").expect_err("the cycle is closed");
    assert_eq!(error.reason(), Some(Reason::Deadlock));
    drop(db);
    drop(second.await.expect("no panic").expect("the other one gets its slot"));
}

#[tokio::test(start_paused = true)]
async fn limit_below_the_cap_may_have_fallen() {
    let tools = tools(&[("db", 2), ("search", 1)]);
    assert!(!tools.has_reduced_limit());
    tools.tools["db"].admission.set_limit(1);
    assert!(tools.has_reduced_limit());
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_busy_tool_is_not_a_deadlock() {
    let tools = tools(&[("db", 1), ("search", 2)]);
    let db = take(&tools, "db", None).await.expect("free");
    let busy = [
        take(&tools, "search", None).await.expect("free"),
        take(&tools, "search", None).await.expect("free"),
    ];
    // One holder of `search` waits for `db`, which this task holds. The other will release its
    // slot.
    let waiting = spawn_take(&tools, "db", &busy[0]);
    tokio::task::yield_now().await;
    let wanted = spawn_take(&tools, "search", &db);
    tokio::task::yield_now().await;
    let [first, second] = busy;
    drop(second);
    let search = wanted.await.expect("no panic").expect("waits and gets it");
    drop((search, db));
    drop(waiting.await.expect("no panic").expect("waits and gets it"));
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn unknown_tool_is_rejected_with_a_suggestion() {
    let error = take(&tools(&[("search", 1)]), "serach", None).await.expect_err("unknown");
    assert_eq!(error.kind(), ErrorKind::Unknown);
    assert!(error.message().contains("search"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn rejections_are_counted_by_reason() {
    let tools = tools(&[("db", 1)]);
    let db = take(&tools, "db", None).await.expect("free");
    take(&tools, "db", Some(db.chain())).await.expect_err("itself");
    let seen = &tools.snapshot(&[], clock::now())["db"];
    assert_eq!((seen.refused["deadlock"], seen.wait.count, seen.in_flight), (1, 1, 1));
}

/// The rate lets the second slot of `db` go soon, so the wait for it ends although the only holder
/// waits.
#[tokio::test(start_paused = true)]
async fn wait_for_a_rate_is_not_a_deadlock() {
    let mut config = Config::default();
    config.tools.insert("db".to_owned(), ToolConfig { rps: Some(1.0), ..ToolConfig::with_cap(2) });
    config.tools.insert("search".to_owned(), ToolConfig::with_cap(1));
    let tools = Arc::new(Tools::new(&config.tools, &Metrics::new().expect("series"), None));
    let search = take(&tools, "search", None).await.expect("free");
    let db = take(&tools, "db", None).await.expect("free");
    let waiting = spawn_take(&tools, "search", &db);
    tokio::task::yield_now().await;
    drop(take(&tools, "db", Some(search.chain())).await.expect("after a second"));
    drop(search);
    drop(waiting.await.expect("no panic").expect("free again"));
}
