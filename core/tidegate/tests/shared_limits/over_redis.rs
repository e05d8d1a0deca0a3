//! The store is a real Redis server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate::config::{Pool, Share, Target};
use tidegate::{Context, Gate, GateBuilder};
use tidegate_test_servers::{RedisServer, free_port};

use super::pools::check_selection;
use super::processes::Process;
use super::upstream::Upstream;
use super::{
    answer_of, call, check_adaptive_limit, check_announced_rates, check_cooldown, check_counted_calls,
    check_killed_leader, check_rates, gate, gate_of, start_calls, until,
};

/// More answers than a test needs.
const MANY: usize = usize::MAX >> 8;

fn server() -> RedisServer {
    RedisServer::start(&[]).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gates_share_a_cap() {
    let (server, upstream) = (server(), Upstream::start().await);
    let url = upstream.url();
    let (first, second) = (gate(&url, &server.url(), 4), gate(&url, &server.url(), 4));
    let mut calls = start_calls(&first, &url, 10);
    calls.extend(start_calls(&second, &url, 10));
    upstream.until(|seen| seen.in_flight == 4).await;
    for answered in 1..=20 {
        upstream.answer(1);
        upstream.until(|seen| seen.answered == answered && seen.in_flight == 4.min(20 - answered)).await;
    }
    for call in calls {
        assert_eq!(answer_of(call).await, "200");
    }
    assert_eq!(upstream.seen().peak, 4);
    let keys = server.command(&["keys", "*"]).unwrap();
    assert!(!keys.contains("llm") && !keys.contains("default"), "{keys}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gates_share_a_rate() {
    let server = server();
    check_rates(&server.url()).await;
    let keys = server.command(&["keys", "*"]).unwrap();
    assert!(!keys.contains("llm") && !keys.contains("default"), "{keys}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gates_share_a_rate_of_headers() {
    check_announced_rates(&server().url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rate_accrues_while_nobody_sends() {
    let (server, upstream) = (server(), Upstream::start().await);
    let url = upstream.url();
    let target = Target::new("llm").url(&url).cap(4).rpm(6);
    let gate = Gate::builder().target(target).share(Share::redis(server.url())).build().unwrap();
    upstream.answer(MANY);
    let answered = async || tokio::time::timeout(Duration::from_secs(2), call(&gate, &url)).await;
    assert_eq!(answered().await.expect("the first call need not wait"), "200");
    // A little longer than the time in which one request accrues.
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(answered().await.expect("the second call need not wait"), "200");
}

/// Other rates are announced, so that the process leaves those of before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn channel_of_left_rates_is_not_received_any_more() {
    let (server, upstream) = (server(), Upstream::start().await);
    let url = upstream.url();
    let gate = gate(&url, &server.url(), 4);
    upstream.answer(MANY);
    let channels = || -> BTreeSet<String> {
        server.command(&["pubsub", "shardchannels"]).unwrap().split_whitespace().map(str::to_owned).collect()
    };
    let mut before = BTreeSet::new();
    for rate in ["requests-day: 100", "tokens: 90000"] {
        let head = format!("HTTP/1.1 200 OK\r\nx-ratelimit-limit-{rate}\r\n");
        *upstream.head.lock() = Some(head);
        for _ in 0..2 {
            assert_eq!(call(&gate, &url).await, "200");
        }
        // One for the slots, and one for the rates.
        until(|| channels().len() == 2 && channels() != before).await;
        before = channels();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gates_share_an_adaptive_limit() {
    check_adaptive_limit(&server().url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_counts_the_calls_of_other_gates() {
    check_counted_calls(&server().url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_process_adapts_the_limit_when_its_leader_is_killed() {
    check_killed_leader(&server().url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_gate_returns_its_slots_at_once() {
    let (server, upstream) = (server(), Upstream::start().await);
    let url = upstream.url();
    upstream.answer(MANY);
    for _ in 0..20 {
        let gate = gate(&url, &server.url(), 4);
        assert_eq!(call(&gate, &url).await, "200");
        drop(gate);
        // Sooner than by the end of the lease.
        let is_empty = || server.command(&["keys", "*"]).unwrap().trim().is_empty();
        tokio::time::timeout(Duration::from_secs(4), until(is_empty)).await.expect("the slots are returned");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_of_killed_processes_are_free_after_a_lease() {
    let (server, upstream) = (server(), Upstream::start().await);
    let url = upstream.url();
    let mut processes: Vec<_> = (0..4).map(|_| Process::start(&url, &server.url(), 8, 10)).collect();
    upstream.until(|seen| seen.in_flight == 8).await;
    upstream.answer(100);
    upstream.until(|seen| seen.answered >= 100 && seen.in_flight == 8).await;
    drop(processes.drain(..2));
    upstream.answer(100);
    upstream.until(|seen| seen.answered >= 200 && seen.in_flight == 8).await;
    assert_eq!(upstream.seen().peak, 8);
    for process in &mut processes {
        while let Ok(outcome) = process.answers.try_recv() {
            assert_eq!(outcome, "200");
        }
    }
    upstream.answer(MANY);
    processes.iter_mut().for_each(Process::finish);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_process_admits_nothing_with_slots_of_others() {
    let (server, upstream) = (server(), Upstream::start().await);
    let url = upstream.url();
    let stopped = Process::start(&url, &server.url(), 4, 10);
    upstream.until(|seen| seen.in_flight == 4).await;
    let _other = Process::start(&url, &server.url(), 4, 10);
    stopped.signal("STOP");
    // Its four calls are answered. The other process gets the slots when the lease has ended.
    upstream.answer(4);
    upstream.until(|seen| seen.answered == 4 && seen.in_flight == 4).await;
    stopped.signal("CONT");
    for answered in 5..40 {
        upstream.answer(1);
        upstream.until(|seen| seen.answered == answered && seen.in_flight == 4).await;
    }
    assert_eq!(upstream.seen().peak, 4);
    upstream.answer(MANY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wiped_store_is_filled_again_by_its_members() {
    let (server, upstream) = (server(), Upstream::start().await);
    let url = upstream.url();
    let (first, second) = (gate(&url, &server.url(), 8), gate(&url, &server.url(), 8));
    let mut calls = start_calls(&first, &url, 100);
    calls.extend(start_calls(&second, &url, 100));
    upstream.until(|seen| seen.in_flight == 8).await;
    upstream.answer(20);
    upstream.until(|seen| seen.answered == 20 && seen.in_flight == 8).await;
    server.command(&["flushall"]).unwrap();
    upstream.answer(20);
    upstream.until(|seen| seen.answered == 40 && seen.in_flight == 8).await;
    server.command(&["script", "flush"]).unwrap();
    server.command(&["flushall"]).unwrap();
    upstream.answer(MANY);
    for call in calls {
        assert_eq!(answer_of(call).await, "200");
    }
    // A quarter more, until the members have claimed their slots.
    assert!(upstream.seen().peak <= 10, "{}", upstream.seen().peak);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_survive_a_server_that_is_killed_and_started_again() {
    let port = free_port().unwrap();
    let (server, upstream) = (RedisServer::start_on(port, &[]).unwrap(), Upstream::start().await);
    let (url, store) = (upstream.url(), server.url());
    let (first, second) = (gate(&url, &store, 8), gate(&url, &store, 8));
    let mut calls = start_calls(&first, &url, 60);
    calls.extend(start_calls(&second, &url, 60));
    upstream.until(|seen| seen.in_flight == 8).await;
    drop(server);
    upstream.answer(20);
    upstream.until(|seen| seen.answered == 20 && seen.in_flight == 8).await;
    // After the end of the leases, each of the two processes has half of the cap.
    until(|| {
        [&first, &second].iter().all(|gate| {
            let target = &gate.snapshot().targets["llm"];
            target.share.as_ref().is_some_and(|share| share.safe_mode && share.slots == 4)
        })
    })
    .await;
    upstream.answer(20);
    upstream.until(|seen| seen.answered == 40 && seen.in_flight == 8).await;
    let _server = RedisServer::start_on(port, &[]).unwrap();
    upstream.answer(MANY);
    for call in calls {
        assert_eq!(answer_of(call).await, "200");
    }
    assert!(upstream.seen().peak <= 10, "{}", upstream.seen().peak);
}

/// The server refuses changes, but passes on what the members of a pool publish.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_refuses_changes_is_reported_once_and_gets_few_connections() {
    let lines = Arc::new(Mutex::new(Vec::<String>::new()));
    let all = lines.clone();
    tidegate::forward_log_lines(move |_, line| all.lock().push(line));
    let logged = |text: &str| {
        let is_own = |line: &&String| line.contains("read-only-store") && line.contains(text);
        lines.lock().iter().filter(is_own).count()
    };
    let (server, upstream) = (server(), Upstream::start().await);
    let (url, pool_url) = (upstream.url(), "http://pool.test/v1");
    let pool = Pool::new([&url]).poll(None).health(None);
    let gate = Gate::builder()
        .target(Target::new("llm").url(&url).cap(4))
        .target(Target::new("pool").url(pool_url).pool(pool))
        .share(Share::redis(server.url()).name("read-only-store"))
        .build()
        .unwrap();
    upstream.answer(MANY);
    for url in [url.as_str(), pool_url] {
        assert_eq!(call(&gate, url).await, "200");
    }
    let allow_changes = |allow: bool| {
        let replicas = if allow { "0" } else { "1" };
        let answer = server.command(&["config", "set", "min-replicas-to-write", replicas]).unwrap();
        assert!(answer.contains("OK"), "{answer}");
    };
    let connections = || -> usize {
        let stats = server.command(&["info", "stats"]).unwrap();
        let count = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        count.unwrap().trim().parse().unwrap()
    };
    allow_changes(false);
    until(|| logged("store of shared limits is lost") == 1).await;
    let before = connections();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let more = connections() - before;
    assert!(more <= 8, "{more} connections in 3 s");
    assert_eq!((logged("is lost"), logged("shared again")), (1, 0));
    allow_changes(true);
    until(|| logged("shared again") == 1).await;
    assert_eq!(logged("is lost"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_server_ends_no_call_and_prolongs_no_lease() {
    let (server, upstream) = (server(), Upstream::start().await);
    let url = upstream.url();
    let strict = || Share::redis(server.url()).strict(true);
    let gate = gate_of(&url, strict(), 4);
    let calls = start_calls(&gate, &url, 40);
    upstream.until(|seen| seen.in_flight == 4).await;
    server.signal("STOP").unwrap();
    // In strict mode, nothing is admitted after the end of the lease.
    until(|| {
        upstream.answer(usize::from(upstream.seen().in_flight > 0));
        gate.snapshot().targets["llm"].share.as_ref().is_some_and(|share| share.slots == 0)
    })
    .await;
    server.signal("CONT").unwrap();
    upstream.answer(MANY);
    for call in calls {
        assert_eq!(answer_of(call).await, "200");
    }
    assert_eq!(upstream.seen().peak, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cooldown_reaches_the_other_gates() {
    let server = server();
    let upstream = Upstream::start().await;
    check_cooldown(&upstream, &server.url(), |gate| gate).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cooldown_survives_the_loss_of_all_data() {
    let (server, upstream) = (server(), Upstream::start().await);
    let lose = |first| {
        drop(first);
        server.command(&["flushall"]).unwrap();
    };
    check_cooldown(&upstream, &server.url(), lose).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_without_a_server_leaves_one_slot_to_each_process() {
    let upstream = Upstream::start().await;
    let (url, store) = (upstream.url(), format!("redis://127.0.0.1:{}", free_port().unwrap()));
    let gate = gate(&url, &store, 4);
    let calls = start_calls(&gate, &url, 4);
    upstream.answer(MANY);
    for call in calls {
        assert_eq!(answer_of(call).await, "200");
    }
    assert_eq!(upstream.seen().peak, 1);
}

/// The rights of a user that may do no more than share limits, as in the guide.
const RIGHTS: &str = "~tidegate:* resetchannels &tidegate:* -@all +@connection +evalsha +script|load +ssubscribe +sunsubscribe +spublish +get +hget +hset +hmget +hdel +zadd +zcard +zrem +zrangebyscore +pttl +set +pexpire +del +time";

/// The variable with the password of the user. Cargo sets it to the name of the package.
const PASSWORD_ENV: &str = "CARGO_PKG_NAME";

/// Returns the options of a server with a user that has the rights of the guide, and `more`.
fn user(more: &str) -> Vec<String> {
    let password = std::env::var(PASSWORD_ENV).unwrap();
    let rights = RIGHTS.split(' ').chain(more.split_whitespace()).map(str::to_owned);
    let name = ["--user", "tidegate", "on"].map(str::to_owned).into_iter();
    name.chain([format!(">{password}")]).chain(rights).collect()
}

/// Returns `options` and those of `user`, for [`RedisServer::start`].
fn with_user<'a>(options: &[&'a str], user: &'a [String]) -> Vec<&'a str> {
    options.iter().copied().chain(user.iter().map(String::as_str)).collect()
}

/// Returns the URL of a server for the user.
fn user_url(server: &RedisServer) -> String {
    format!("redis://tidegate@127.0.0.1:{}", server.port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_of_the_guide_has_all_rights_that_sharing_needs() {
    let guide = include_str!("../../../../docs/guide/many-processes.md");
    assert!(guide.contains(RIGHTS));
    assert!(guide.contains("`+cluster`") && guide.contains("`+role`"));
    let user = user("");
    let server = RedisServer::start(&with_user(&["--user", "default", "off"], &user)).unwrap();
    let upstream = Upstream::start().await;
    let url = upstream.url();
    let store = user_url(&server);
    let share = || Share::redis(store.as_str()).password_env(PASSWORD_ENV);
    let gate = || {
        let target = Target::new("llm").url(&url).cap(4).rpm(10_000);
        Gate::builder().target(target).share(share()).build().unwrap()
    };
    let (first, second) = (gate(), gate());
    let calls = start_calls(&first, &url, 10);
    upstream.until(|seen| seen.in_flight == 4).await;
    let others = start_calls(&second, &url, 10);
    *upstream.head.lock() = Some("HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\n".to_owned());
    upstream.answer(1);
    until(|| second.snapshot().targets["llm"].state == "cooling").await;
    *upstream.head.lock() = None;
    upstream.answer(MANY);
    for call in calls.into_iter().chain(others) {
        assert_eq!(answer_of(call).await, "200");
    }
    assert_eq!(upstream.seen().peak, 4);
    check_selection(share).await;
}

/// Starts a cluster of three servers with the user of the guide.
fn cluster() -> Vec<RedisServer> {
    let nodes: Vec<_> = (0..3)
        .map(|_| {
            let bus = free_port().unwrap().to_string();
            let options = ["--cluster-enabled", "yes", "--cluster-port", &bus];
            RedisServer::start(&with_user(&options, &user("+cluster"))).unwrap()
        })
        .collect();
    for (node, slots) in nodes.iter().zip([("0", "5460"), ("5461", "10922"), ("10923", "16383")]) {
        assert!(node.command(&["cluster", "addslotsrange", slots.0, slots.1]).unwrap().contains("OK"));
        let bus = nodes[0].command(&["config", "get", "cluster-port"]).unwrap();
        let bus = bus.lines().last().unwrap();
        let first = nodes[0].port().to_string();
        assert!(node.command(&["cluster", "meet", "127.0.0.1", &first, bus]).unwrap().contains("OK"));
    }
    for node in &nodes {
        node.until(&["cluster", "info"], |info| {
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        })
        .unwrap();
    }
    nodes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_and_pools_are_shared_over_a_cluster() {
    let (nodes, upstream) = (cluster(), Upstream::start().await);
    let url = upstream.url();
    // Several names, so that several nodes hold them.
    let mut gates = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let share = || Share::redis(user_url(&nodes[0])).password_env(PASSWORD_ENV).cluster(true).name(name);
        let (first, second) = (gate_of(&url, share(), 4), gate_of(&url, share(), 4));
        let before = upstream.seen().answered;
        let mut calls = start_calls(&first, &url, 6);
        calls.extend(start_calls(&second, &url, 6));
        upstream.until(|seen| seen.in_flight == 4).await;
        for answered in 1..=12 {
            upstream.answer(1);
            let in_flight = 4.min(12 - answered);
            upstream.until(|seen| seen.answered == before + answered && seen.in_flight == in_flight).await;
        }
        for call in calls {
            assert_eq!(answer_of(call).await, "200");
        }
        gates.extend([first, second]);
        check_selection(share).await;
    }
    assert_eq!(upstream.seen().peak, 4);
    let used = nodes.iter().filter(|node| node.command(&["keys", "*"]).unwrap().contains("tidegate")).count();
    assert!(used > 1, "{used}");
}

/// At least one of the servers has several channels of the gate, in different slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn channels_in_a_cluster_are_received_again_after_connections_were_closed() {
    let nodes = cluster();
    let names: Vec<String> = (0..8).map(|nth| format!("tool-{nth}")).collect();
    let share = Share::redis(user_url(&nodes[0])).password_env(PASSWORD_ENV).cluster(true);
    let with_tool = |builder: GateBuilder, name: &String| builder.tool(name.as_str(), 4);
    let gate = names.iter().fold(Gate::builder().share(share), with_tool).build().unwrap();
    for name in &names {
        drop(gate.acquire_tool(name, &Context::default()).await.unwrap());
    }
    let number =
        |node: &RedisServer| node.command(&["pubsub", "shardchannels"]).unwrap().split_whitespace().count();
    let has_all = || nodes.iter().map(number).sum::<usize>() == names.len();
    until(has_all).await;
    for _ in 0..2 {
        for node in &nodes {
            node.command(&["client", "kill", "type", "pubsub"]).unwrap();
        }
        until(has_all).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_follow_sentinels_to_the_next_primary() {
    let upstream = Upstream::start().await;
    let user = user("+role");
    let primary = RedisServer::start(&with_user(&[], &user)).unwrap();
    let port = primary.port().to_string();
    let replica =
        RedisServer::start(&with_user(&["--replicaof", &format!("127.0.0.1 {port}")], &user)).unwrap();
    replica.until(&["info", "replication"], |info| info.contains("master_link_status:up")).unwrap();
    let directory = std::env::temp_dir().join(format!("tidegate-sentinel-{}-{port}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let configuration = directory.join("sentinel.conf");
    let text = format!(
        "sentinel monitor main 127.0.0.1 {port} 1\nsentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n"
    );
    std::fs::write(&configuration, text).unwrap();
    let sentinel = RedisServer::start_sentinel(configuration.to_str().unwrap()).unwrap();
    sentinel.until(&["sentinel", "replicas", "main"], |replicas| replicas.contains("slave")).unwrap();
    let url = upstream.url();
    let share = || Share::redis(user_url(&sentinel)).password_env(PASSWORD_ENV).sentinel("main");
    let (first, second) = (gate_of(&url, share(), 4), gate_of(&url, share(), 4));
    let mut calls = start_calls(&first, &url, 50);
    calls.extend(start_calls(&second, &url, 50));
    upstream.until(|seen| seen.in_flight == 4).await;
    drop(primary);
    replica.until(&["info", "replication"], |info| info.contains("role:master")).unwrap();
    until(|| replica.command(&["pubsub", "shardchannels"]).unwrap().lines().count() >= 2).await;
    for answered in 1..=40 {
        upstream.answer(1);
        upstream.until(|seen| seen.answered == answered && seen.in_flight == 4).await;
    }
    upstream.answer(MANY);
    for call in calls {
        assert_eq!(answer_of(call).await, "200");
    }
    assert_eq!(upstream.seen().peak, 4);
    std::fs::remove_dir_all(&directory).unwrap();
}
