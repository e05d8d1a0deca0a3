//! Tests of the discovery of replicas by DNS and by a file, and of how long the replica monitor's
//! task runs.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::support::{Folder, PoolFixture, Script, pass};
use crate::pool::dns::System;

#[tokio::test(start_paused = true)]
async fn each_resolved_address_is_a_replica() {
    let script = Script::of([
        Ok(&["10.0.0.2", "10.0.0.1", "10.0.0.2"]),
        Err("SERVFAIL"),
        Ok(&[]),
        Ok(&["10.0.0.3", "fd00::3", "10.0.0.1"]),
        Ok(&["fd00::3"]),
    ]);
    let pool = PoolFixture::of_dns(&script);
    pass(60.0).await;
    assert_eq!(script.asked(), 0, "nobody is_looking_up before somebody calls");
    pool.checker.on_call();
    pass(0.1).await;
    assert_eq!(pool.replicas(), ["10.0.0.1:8000", "10.0.0.2:8000"], "sorted, each once");
    pool.checker.on_call();
    pass(5.0).await;
    assert_eq!(pool.checker.problem().as_deref(), Some("the lookup of vllm.svc failed: SERVFAIL"));
    assert_eq!(pool.replicas(), ["10.0.0.1:8000", "10.0.0.2:8000"], "a failure changes nothing");
    pool.checker.on_call();
    pass(5.0).await;
    assert_eq!(pool.checker.problem().as_deref(), Some("vllm.svc has no address"));
    assert_eq!(pool.replicas().len(), 2);
    pool.checker.on_call();
    pass(5.0).await;
    assert_eq!(pool.checker.problem(), None);
    assert_eq!(
        pool.replicas(),
        ["10.0.0.1:8000", "10.0.0.3:8000"],
        "of both families one, not one replica twice"
    );
    pool.checker.on_call();
    pass(5.0).await;
    assert_eq!(pool.replicas(), ["[fd00::3]:8000"]);
}

#[tokio::test(start_paused = true)]
async fn lookup_that_times_out_is_repeated() {
    struct Never;
    impl crate::pool::dns::Resolve for Never {
        fn addresses(&self, _: &str) -> crate::pool::dns::Addresses {
            Box::pin(std::future::pending())
        }
    }
    let source = crate::config::ReplicaSource::Dns {
        url: "http://vllm.svc:8000".into(),
        every: std::time::Duration::from_secs(5),
    };
    let pool = PoolFixture::new(source, super::support::well(), Arc::new(Never));
    pool.checker.on_call();
    pass(5.2).await;
    assert_eq!(pool.checker.problem().as_deref(), Some("the lookup of vllm.svc timed out"));
}

#[tokio::test(start_paused = true)]
async fn lookup_continues_after_a_panic() {
    struct PanickingResolver(std::sync::atomic::AtomicUsize);
    impl crate::pool::dns::Resolve for PanickingResolver {
        fn addresses(&self, _: &str) -> crate::pool::dns::Addresses {
            let nth = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Box::pin(async move {
                assert!(nth > 0, "a resolver that breaks once");
                Ok(vec![std::net::Ipv4Addr::LOCALHOST.into()])
            })
        }
    }
    let source = crate::config::ReplicaSource::Dns {
        url: "http://vllm.svc:8000".into(),
        every: std::time::Duration::from_secs(5),
    };
    let pool = PoolFixture::new(source, super::support::well(), Arc::new(PanickingResolver(0.into())));
    pool.checker.on_call();
    pool.checker.first_lookup(std::time::Duration::from_secs(3600)).await;
    pass(5.2).await;
    assert_eq!(pool.replicas(), ["127.0.0.1:8000"]);
}

#[tokio::test]
async fn system_resolver_finds_localhost() {
    use crate::pool::dns::Resolve as _;
    let found = System.addresses("localhost").await.unwrap();
    assert!(!found.is_empty() && found.iter().all(std::net::IpAddr::is_loopback), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn lookups_end_some_seconds_after_the_last_call() {
    let script = Script::of([Ok(&["10.0.0.1"])]);
    let pool = PoolFixture::of_dns(&script);
    for _ in 0..4 {
        pool.checker.on_call();
        pass(5.05).await;
    }
    assert_eq!(script.asked(), 5, "at once, and every five seconds");
    pass(3_600.0).await;
    let asked = script.asked();
    assert!(asked <= 7, "and ten seconds longer: {asked}");
    pool.checker.on_call();
    pass(0.1).await;
    assert_eq!(script.asked(), asked + 1, "who comes after a pause finds it looking at once");
}

#[tokio::test(start_paused = true)]
async fn dropped_checker_leaves_no_task() {
    let script = Script::of([Ok(&["10.0.0.1"])]);
    let pool = PoolFixture::of_dns(&script);
    pool.checker.on_call();
    pass(1.0).await;
    let admission = Arc::downgrade(&pool.admission);
    drop(pool);
    tokio::task::yield_now().await;
    assert!(admission.upgrade().is_none(), "it keeps no admission alive");
    assert_eq!(Arc::strong_count(&script), 1, "and its task has ended");
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[test]
fn call_on_another_runtime_starts_the_task_there() {
    let script = Script::of([Ok(&["10.0.0.1"])]);
    let pool = PoolFixture::of_dns(&script);
    pool.checker.on_call();
    assert_eq!(script.asked(), 0, "without a runtime nothing is pool");
    for expected in 1..=3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(async {
            pool.checker.on_call();
            pass(0.1).await;
        });
        assert_eq!(script.asked(), expected);
    }
}

fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

#[tokio::test(start_paused = true)]
async fn file_is_read_at_once_and_after_each_change() {
    let folder = Folder::new();
    let path = folder.0.join("replicas.toml");
    fs::write(&path, "# two\nhttp://10.0.0.1:8000/v1\n\nhttp://10.0.0.2:8000\n").unwrap();
    let pool = PoolFixture::of_file(&path);
    assert_eq!(pool.replicas(), ["10.0.0.1:8000", "10.0.0.2:8000"], "before any call");
    pool.checker.on_call();
    pass(2.0).await;
    // Written in place and by a rename, in three formats.
    for (text, expected) in [
        (
            "replicas = [\"http://10.0.0.3:8000\", { url = \"http://10.0.0.1:8000\", weight = 2 }]",
            "10.0.0.1:8000 10.0.0.3:8000",
        ),
        (r#"{"replicas": [{"url": "http://10.0.0.4:8000"}]}"#, "10.0.0.4:8000"),
        (r#"["http://10.0.0.5:8000"]"#, "10.0.0.5:8000"),
        ("[[replicas]]\nurl = \"http://10.0.0.6:8000\"\nmodels = \"m\"\n", "10.0.0.6:8000"),
        ("replicas = []", ""),
        ("http://10.0.0.7:8000", "10.0.0.7:8000"),
    ] {
        for write in [|path: &Path, text: &str| fs::write(path, text).unwrap(), replace] {
            write(&path, text);
            pool.checker.on_call();
            pass(1.2).await;
            let mut replicas = pool.replicas();
            replicas.sort();
            assert_eq!(replicas.join(" "), expected, "{text}");
            assert_eq!(pool.checker.problem(), None);
            fs::write(&path, "http://10.0.0.9:1").unwrap();
            pool.checker.on_call();
            pass(1.2).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_file_keeps_the_replicas_and_reports_the_problem() {
    let folder = Folder::new();
    let path = folder.0.join("replicas");
    fs::write(&path, "http://10.0.0.1:8000").unwrap();
    let pool = PoolFixture::of_file(&path);
    for (text, problem) in [
        ("", "the file is empty"),
        ("replicas = [", "not valid TOML"),
        ("{\"replicas\": [", "line 1: column 14: not valid JSON"),
        ("url = \"http://10.0.0.2:8000\"", "url: unknown key; it belongs in one of \"replicas\""),
        ("http://10.0.0.2:8000\nhttps://u:secret@10.0.0.3", "replicas[1]: "),
        ("replicas = [{ url = \"http://10.0.0.2:8000\", wieght = 2 }]", "did you mean \"weight\"?"),
        ("http://10.0.0.2:8000\nhttp://10.0.0.2:8000/v1", "is the same replica as one above"),
    ] {
        replace(&path, text);
        pool.checker.on_call();
        pass(1.2).await;
        let told = pool.checker.problem().unwrap();
        assert!(told.contains(problem) || told.contains(&problem.replace("line 1: ", ":1: ")), "{told}");
        assert!(told.contains(&path.display().to_string()) && !told.contains("secret"), "{told}");
        assert_eq!(pool.replicas(), ["10.0.0.1:8000"], "{text}");
    }
    fs::remove_file(&path).unwrap();
    pool.checker.on_call();
    pass(1.2).await;
    assert!(pool.checker.problem().unwrap().contains("cannot be read"));
    assert_eq!(pool.replicas(), ["10.0.0.1:8000"]);
    replace(&path, "http://10.0.0.2:8000");
    pool.checker.on_call();
    pass(1.2).await;
    assert_eq!((pool.checker.problem(), pool.replicas()), (None, vec!["10.0.0.2:8000".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn missing_file_is_read_once_it_exists() {
    let folder = Folder::new();
    let path = folder.0.join("late");
    let pool = PoolFixture::of_file(&path);
    assert!(pool.replicas().is_empty() && pool.checker.problem().is_some());
    pool.checker.on_call();
    pass(1.0).await;
    let many: Vec<String> = (0..200).map(|at| format!("http://10.0.0.1:{}", 8000 + at)).collect();
    fs::write(&path, many.join("\n")).unwrap();
    pass(1.2).await;
    let replicas = pool.replicas();
    assert_eq!((replicas.len(), &*replicas[127]), (128, "10.0.0.1:8127"), "the first, in order");
}

/// Changes the file as Kubernetes changes a mounted ConfigMap. The path of the file is a symbolic
/// link through a folder that is itself a link, and the link of the folder is replaced.
#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn changed_symlink_is_a_change_of_the_file() {
    use std::os::unix::fs::symlink;
    let folder = Folder::new();
    for (version, text) in [("v1", "http://10.0.0.1:8000"), ("v2", "http://10.0.0.2:8000")] {
        fs::create_dir(folder.0.join(version)).unwrap();
        fs::write(folder.0.join(version).join("replicas"), text).unwrap();
    }
    symlink("v1", folder.0.join("..data")).unwrap();
    let path = folder.0.join("replicas");
    symlink("..data/replicas", &path).unwrap();
    let pool = PoolFixture::of_file(&path);
    assert_eq!(pool.replicas(), ["10.0.0.1:8000"]);
    symlink("v2", folder.0.join("..data_tmp")).unwrap();
    fs::rename(folder.0.join("..data_tmp"), folder.0.join("..data")).unwrap();
    pool.checker.on_call();
    pass(1.2).await;
    assert_eq!(pool.replicas(), ["10.0.0.2:8000"]);
}
