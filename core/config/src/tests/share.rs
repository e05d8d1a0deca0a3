//! Tests of the keys of `share`.

use serde_json::json;

use super::super::{Config, RedisUrl, Share, ShareConfig, ShareStore};

fn read(share: serde_json::Value) -> Result<ShareConfig, String> {
    Config::from_json(json!({"share": share})).map(|config| config.share).map_err(|error| error.to_string())
}

fn url(text: &str) -> RedisUrl {
    match read(json!({"store": text, "password_env": "PASSWORD", "sentinel": "primary"})).unwrap().store {
        ShareStore::Redis(url) => url,
        other => panic!("{text} is {other:?}"),
    }
}

#[test]
fn bare_store_is_a_table_with_only_the_store() {
    for (store, expected) in
        [("auto", ShareStore::Auto), ("local", ShareStore::Local), ("off", ShareStore::Off)]
    {
        let short = Config::from_json(json!({"share": store})).unwrap();
        assert_eq!(short, Config::from_json(json!({"share": {"store": store}})).unwrap());
        assert_eq!(short.share.store, expected);
    }
    assert_eq!(Config::from_toml("share = \"local\"").unwrap().share.name.as_ref(), "default");
}

#[test]
fn share_that_is_off_may_keep_its_other_keys() {
    let off = json!({"store": "off", "name": "web", "strict": true, "cluster": true});
    assert_eq!(read(off).unwrap().store, ShareStore::Off);
}

#[test]
fn redis_urls_have_one_form() {
    let written = [
        ("redis://localhost", "redis://localhost"),
        ("valkey://localhost:6379/0", "redis://localhost:6379"),
        ("rediss://ann@10.0.0.1:80/3", "rediss://ann@10.0.0.1:80/3"),
        ("valkeys://[::1]:7000,b,[fe80::2]", "rediss://[::1]:7000,b,[fe80::2]"),
    ];
    for (text, expected) in written {
        assert_eq!(url(text).to_string(), expected);
        assert_eq!(url(expected), url(text));
    }
    assert_eq!(url("redis://a:1,b").nodes, [("a".into(), 1), ("b".into(), 0)]);
    let share = Config::builder().share(Share::redis("redis://a,b:1").cluster(true)).build().unwrap().share;
    assert_eq!(share.addresses(&url("redis://a,b:1")), [("a".into(), 6379), ("b".into(), 1)]);
}

#[test]
fn invalid_stores_say_what_to_do() {
    let cases = [
        (json!({"store": "redis"}), "expected \"auto\", \"off\", \"local\" or a URL such as"),
        (json!("http://localhost"), "the scheme must be redis, rediss, valkey or valkeys"),
        (json!("redis://ann:secret@localhost"), "name it with share.password_env"),
        (json!("redis://localhost/first"), "the number of a database, such as /0"),
        (json!("redis://localhost?protocol=resp3"), "remove the query"),
        (json!("redis://a,,b"), "an address must be host or host:port"),
        (json!("redis://"), "an address must be host or host:port"),
        (json!("redis://a,b"), "set cluster = true, or the name of the primary"),
        (json!("redis://ann@a"), "the environment variable with the password"),
        (json!({"store": "redis://a/1", "cluster": true}), "remove the path"),
        (json!({"store": "redis://a", "cluster": true, "sentinel": "p"}), "contradicts cluster = true"),
        (json!({"store": "local", "cluster": true}), "has no effect with store = \"local\""),
        (
            json!({"store": "redis://a", "password_env": "secret word"}),
            "such as \"REDIS_PASSWORD\", not the credential itself",
        ),
        (json!({"sentinel": "primary"}), "has no effect without a \"store\""),
    ];
    for (share, expected) in cases {
        let error = read(share.clone()).unwrap_err();
        assert!(error.contains(expected), "{share}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

/// A process asks for slots only while calls wait, so a tool that refuses calls would never get
/// one.
#[test]
fn refusing_tool_keeps_forked_processes_from_sharing() {
    let forked = |tool: serde_json::Value| {
        let mut config = Config::from_json(json!({"targets": {"llm": 4}, "tools": {"shell": tool}})).unwrap();
        config.share_among_forked("children");
        (config.share.store.clone(), config.unshareable().map(str::to_owned))
    };
    assert_eq!(forked(json!({"cap": 1})), (ShareStore::Local, None));
    let refusing = json!({"cap": 1, "on_full": "refuse"});
    assert_eq!(forked(refusing), (ShareStore::Auto, Some("shell".to_owned())));
}

#[test]
fn limits_of_what_refuses_calls_are_not_shared() {
    let error = |text: &str| Config::from_toml(text).map(drop).map_err(|error| error.to_string());
    let text = "\"refuse\" cannot be combined with \"share\", because a process gets its part of a limit \
                while calls wait; set on_full = \"wait\" and a short \"wait\", such as \"100ms\"";

    let all = "share = \"local\"\n[defaults]\non_full = \"refuse\"\n[targets]\nopenai = 4\n\
               [targets.llm]\nurl = \"http://h\"\non_full = \"refuse\"\n[tools.shell]\ncap = 1\non_full = \"refuse\"\n";
    let expected = format!(
        "line 5: targets.openai: on_full = {text}\nline 8: targets.llm.on_full: {text}\n\
         line 11: tools.shell.on_full: {text}"
    );
    assert_eq!(error(all), Err(expected));

    let pool = "pool.replicas = [\"http://h\"]\non_full = \"refuse\"\n";
    let rates = [
        format!("[targets.llm]\nrpm = 60\n{pool}"),
        format!("[budgets.account]\nrpm = 60\n[targets.llm]\nbudget = \"account\"\n{pool}"),
    ];
    for limited in rates {
        assert!(error(&format!("share = \"redis://h\"\n{limited}")).unwrap_err().contains(text), "{limited}");
        assert_eq!(error(&format!("share = \"off\"\n{limited}")), Ok(()));
        assert_eq!(error(&limited), Ok(()));
    }
    // Only where calls are sent is shared.
    assert_eq!(error(&format!("share = \"local\"\n[targets.llm]\n{pool}")), Ok(()));
}
