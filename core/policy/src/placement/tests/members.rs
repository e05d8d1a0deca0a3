use super::*;
use tidegate_config::ReplicaConfig;

fn serving(names: &[&str]) -> Observation {
    let longest = Some(1_000);
    Observation::Models(
        names.iter().map(|name| Model { name: (*name).into(), max_tokens: longest, parent: None }).collect(),
    )
}

fn asking(model: &str) -> Wants {
    Wants { model: Some(model.into()), ..Wants::default() }
}

#[test]
fn removed_replica_finishes_its_calls() {
    let (mut pool, now) = pool(3);
    let call = pool.on_sent(now, 1, None, work(1)).unwrap();
    let all = members(3);
    assert!(pool.set_members(now, &[all[0].clone()]).is_empty());
    assert_eq!(pool.eligible(now), ReplicaSet::one(0));
    assert_eq!(pool.view(now).len(), 2, "the one without calls is gone");
    assert_eq!(pool.view(now)[1].state, ReplicaState::Draining);
    assert_eq!(pool.on_ended(call), Some(1));
    assert_eq!(pool.view(now).len(), 1);
    // The index is free for the next replica.
    assert_eq!(pool.set_members(now, &all), [1, 2].into_iter().collect());
    let ids: Vec<u64> = pool.view(now).iter().map(|replica| replica.id.0).collect();
    assert_eq!(ids, [1, 4, 5], "with another name");
}

#[test]
fn draining_replica_that_is_listed_again_continues() {
    let (mut pool, now) = pool(2);
    let call = pool.on_sent(now, 1, None, work(1)).unwrap();
    let mut all = members(2);
    pool.set_members(now, &all[..1]);
    all[1].weight = 2.0;
    assert!(pool.set_members(now, &all).is_empty());
    assert_eq!(pool.eligible(now).len(), 2);
    assert_eq!(pool.view(now)[1].weight, 2.0);
    assert_eq!(pool.on_ended(call), None);
}

#[test]
fn replica_that_joins_running_ones_starts_slowly() {
    let (mut pool, now) = pool(2);
    pool.observe_at(now, 0, Observation::ProbeOk);
    assert_eq!(pool.set_members(now, &members(3)), ReplicaSet::one(2));
    assert_eq!(pool.state(now, 2), "starting");
    assert!(pool.eligible(now).contains(2), "nothing speaks against it");
    assert!(pool.share(now, 2) <= 0.1);
    assert_eq!(pool.share(now, 0), 1.0);
}

#[test]
fn calls_go_where_their_model_is_served() {
    let (mut pool, now) = pool(4);
    pool.observe_at(now, 0, serving(&["base", "adapter"]));
    pool.observe_at(now, 1, serving(&["base"]));
    pool.observe_at(now, 2, serving(&["base"]));
    let some = |places: &[usize]| places.iter().copied().collect::<ReplicaSet>();
    assert_eq!(pool.serving(Some(&asking("adapter")), 1), some(&[0]), "of the last nothing is known");
    assert_eq!(pool.serving(Some(&asking("base")), 1), some(&[0, 1, 2]));
    assert_eq!(pool.serving(Some(&asking("other")), 1), some(&[3]));
    pool.observe_at(now, 3, serving(&[]));
    assert_eq!(pool.serving(Some(&asking("other")), 1), some(&[3]), "it loads yet");
    pool.observe_at(now, 3, serving(&["base"]));
    assert_eq!(pool.serving(Some(&asking("other")), 1).len(), 4, "the replica is the source of truth");
    assert_eq!(pool.serving(None, 1).len(), 4);
    // A replica with configured models is not asked for them.
    let mut told = members(4);
    told[2].models = Some([std::sync::Arc::from("other")].into());
    pool.set_members(now, &told);
    assert_eq!(pool.serving(Some(&asking("other")), 1), some(&[2]));
}

#[test]
fn long_prompts_go_where_they_fit() {
    let (mut pool, now) = pool(2);
    pool.observe_at(now, 0, serving(&["base"]));
    let model = |name: &str, longest, parent: Option<&str>| Model {
        name: name.into(),
        max_tokens: longest,
        parent: parent.map(Into::into),
    };
    let models = vec![model("base", Some(100_000), None), model("adapter", None, Some("base"))];
    pool.observe_at(now, 1, Observation::Models(models));
    assert_eq!(pool.serving(Some(&asking("base")), 999).len(), 2);
    assert_eq!(pool.serving(Some(&asking("base")), 1_000), ReplicaSet::one(1), "an answer has a token");
    assert_eq!(pool.serving(Some(&asking("adapter")), 99_999), ReplicaSet::one(1));
    assert_eq!(pool.serving(Some(&asking("base")), 200_000).len(), 2, "let the replica say so");
    assert_eq!(pool.serving(None, 50_000), ReplicaSet::one(1));
    pool.observe_at(
        now,
        0,
        Observation::Models(vec![model("base", Some(1_000), None), model("other", None, None)]),
    );
    assert_eq!(pool.serving(None, 50_000).len(), 2, "of one of its models it is not known");
}

#[test]
fn replicas_that_failed_a_call_are_avoided() {
    let (pool, now) = pool(3);
    let ids: Vec<ReplicaId> = pool.view(now).iter().map(|replica| replica.id).collect();
    let avoiding = |ids: &[ReplicaId]| Wants { avoid: ids.to_vec(), ..Wants::default() };
    assert_eq!(pool.serving(Some(&avoiding(&ids[..1])), 1), [1, 2].into_iter().collect());
    assert_eq!(pool.serving(Some(&avoiding(&ids)), 1).len(), 3);
    assert_eq!(pool.serving(Some(&avoiding(&[ReplicaId(99)])), 1).len(), 3);
}

#[test]
fn members_beyond_the_maximum_do_not_join() {
    let now = crate::testing::epoch();
    let mut pool = Placement::new(&PoolConfig::default(), 1);
    let many: Vec<ReplicaConfig> = (0..200).map(|n| ReplicaConfig::new(&format!("http://r{n}"))).collect();
    assert_eq!(pool.set_members(now, &many).len(), MAX_REPLICAS);
    assert_eq!(pool.eligible(now).len(), MAX_REPLICAS);
}

#[test]
fn member_without_an_index_joins_when_one_is_free() {
    let now = crate::testing::epoch();
    let mut pool = Placement::new(&PoolConfig::default(), 1);
    let some = |from: usize, to: usize| -> Vec<ReplicaConfig> {
        (from..to).map(|n| ReplicaConfig::new(&format!("http://r{n}"))).collect()
    };
    pool.set_members(now, &some(0, 70));
    let mut calls: Vec<PlacedCall> = (0..70).filter_map(|at| pool.on_sent(now, at, None, work(1))).collect();
    // All others instead, except the last, whose weight changes.
    let mut next = some(100, 170);
    next.push(ReplicaConfig { weight: 2.0, ..ReplicaConfig::new("http://r69") });
    assert_eq!(pool.set_members(now, &next).len(), MAX_REPLICAS - 70);
    assert_eq!(pool.view(now)[69].weight, 2.0, "who is known already is not forgotten for who is not");
    assert!(pool.take_pending().is_none(), "there is no place yet");
    for _ in 0..12 {
        let left = pool.on_ended(calls.remove(0)).unwrap();
        let members = pool.take_pending().expect("there is one");
        assert_eq!(pool.set_members(now, &members), ReplicaSet::one(left));
    }
    assert!(pool.on_ended(calls.remove(0)).is_some());
    assert!(pool.take_pending().is_none(), "all are in");
    assert_eq!(pool.eligible(now).len(), 71);
    assert!(calls.into_iter().filter_map(|call| pool.on_ended(call)).count() > 0);
}

#[test]
fn replicas_that_refuse_connections_are_not_assumed_to_serve_a_model() {
    let (mut pool, now) = pool(2);
    pool.take_down(now, 0);
    pool.fault(now, 0, Fault::ConnectRefused);
    pool.observe_at(now, 1, serving(&["base"]));
    assert_eq!(pool.serving(Some(&asking("other")), 1).len(), 2, "the first has never listed its models");
    let call = pool.on_sent(now, 1, Some(&asking("other")), work(1)).unwrap();
    pool.on_failed(now, &call, Fault::NoModel);
    assert!(pool.replicas_to_try(&call).is_empty());
    pool.on_ended(call);
    // A replica that is known to serve the model returns, unless another may serve it.
    let (mut pool, now) = with(3, PoolConfig::default());
    pool.probe_all_ok(now);
    pool.observe_at(now, 0, serving(&["other"]));
    pool.observe_at(now, 1, serving(&["base"]));
    pool.take_down(now, 0);
    assert_eq!(pool.serving(Some(&asking("other")), 1), ReplicaSet::one(2));
    pool.observe_at(now, 2, serving(&["base"]));
    assert_eq!(pool.serving(Some(&asking("other")), 1), ReplicaSet::one(0), "calls wait for it");
}

/// A model or adapter may have been loaded since the replicas listed their models.
#[test]
fn replicas_whose_lists_lack_a_model_are_each_asked_for_it_once() {
    let (mut pool, now) = pool(2);
    (0..2).for_each(|at| pool.observe_at(now, at, serving(&["base"])));
    let mut ask = |at| {
        let call = pool.on_sent(now, at, Some(&asking("adapter")), work(1)).unwrap();
        pool.on_failed(now, &call, Fault::NoModel);
        let next = pool.replicas_to_try(&call);
        pool.on_ended(call);
        next
    };
    assert_eq!(ask(0), ReplicaSet::one(1));
    assert!(ask(1).is_empty());
    (0..2).for_each(|at| pool.observe_at(now, at, serving(&["base"])));
    let mut call = pool.on_sent(now, 0, Some(&asking("adapter")), work(1)).unwrap();
    assert!(pool.replicas_to_try(&call).is_empty(), "the lists still lack it");
    pool.on_accepted(now, &mut call);
    assert_eq!(pool.replicas_to_try(&call), ReplicaSet::one(0));
    pool.on_ended(call);
}

#[test]
fn configured_model_that_a_replica_lacks_is_not_asked_for_again() {
    let (mut pool, now) = pool(2);
    let mut told = members(2);
    told.iter_mut().for_each(|member| member.models = Some([std::sync::Arc::from("base")].into()));
    pool.set_members(now, &told);
    let call = pool.on_sent(now, 0, Some(&asking("base")), work(1)).unwrap();
    pool.on_failed(now, &call, Fault::NoModel);
    pool.on_ended(call);
    let of = |pool: &Placement| pool.serving(Some(&asking("base")), 1);
    pool.observe_at(now, 0, serving(&["other"]));
    assert_eq!(of(&pool), ReplicaSet::one(1));
    pool.observe_at(now, 0, serving(&["other", "base"]));
    assert_eq!(of(&pool).len(), 2);
}
