//! Plans the next claims and releases of a node, as a pure function of the rows in the database.
//!
//! Every node computes the same shares from the same rows, so two nodes seldom claim the same shard. If they do, the database decides, and
//! the other node retries.

use std::collections::BTreeSet;

use subtend_journal::postgres::nodes::{Members, NodeLease, NodeRow, ShardRow};

/// The next claims and releases of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardPlan {
    /// Shards to claim, by name.
    pub claim: Vec<String>,
    /// Shards of which the least busy one should be handed over, because another node has fewer.
    pub hand_over: Vec<String>,
}

/// Plans for the node with `lease`. `open` names the shards that the node has open now, or had open when the rows were
/// read.
///
/// Nodes that may claim the same shards get shares that differ by at most one shard. Shards without a live owner are claimed first; a shard
/// is handed over only if none is free.
pub fn plan(members: &Members, lease: &NodeLease, open: &BTreeSet<String>) -> ShardPlan {
    let mut plan = ShardPlan::default();
    let labels: BTreeSet<Option<&str>> = members.shards.iter().map(|shard| shard.label.as_deref()).collect();
    for label in labels {
        let shards: Vec<&ShardRow> = members.shards.iter().filter(|shard| shard.label.as_deref() == label).collect();
        let nodes: Vec<&NodeRow> = members.nodes.iter().filter(|node| node.alive && has(node, label)).collect();
        plan_group(&shards, &nodes, (lease, open), &mut plan);
    }
    plan
}

fn has(node: &NodeRow, label: Option<&str>) -> bool {
    label.is_none_or(|label| node.labels.iter().any(|own| own == label))
}

fn plan_group(
    shards: &[&ShardRow],
    nodes: &[&NodeRow],
    (lease, open): (&NodeLease, &BTreeSet<String>),
    plan: &mut ShardPlan,
) {
    let owner = |shard: &ShardRow| shard.lease.as_ref().and_then(|of| nodes.iter().position(|node| node.lease == *of));
    let Some(me) = nodes.iter().position(|node| node.lease == *lease) else { return };
    let mut held = vec![0_usize; nodes.len()];
    let mut free = Vec::new();
    for shard in shards {
        match owner(shard) {
            // This node claimed the shard, but it is not open. No other node can claim it during this node's lease.
            Some(at) if at == me && !open.contains(&shard.name) => {
                held.iter_mut().skip(at).take(1).for_each(|held| *held += 1);
                plan.claim.push(shard.name.clone());
            }
            Some(at) => held.iter_mut().skip(at).take(1).for_each(|held| *held += 1),
            None => free.push(&shard.name),
        }
    }
    let (least, more) = (shards.len() / nodes.len(), shards.len() % nodes.len());
    let mut free = free.into_iter();
    // Nodes with the fewest shards claim first, and nodes with equal shares in the order of their names.
    while free.len() > 0 {
        let Some((at, has)) = held.iter_mut().enumerate().min_by_key(|(at, has)| (**has, *at)) else { return };
        *has += 1;
        let shard = free.next();
        if at == me {
            plan.claim.extend(shard.cloned());
        }
    }
    let most = if more == 0 { least } else { least + 1 };
    let mine = held.get(me).copied().unwrap_or(0);
    let needed = held.iter().any(|held| *held < least) || (mine > most && held.iter().any(|held| *held < most));
    // Only one of several nodes with the same surplus hands over at a time, so that the receiver does not get two shards.
    let giver = held.iter().enumerate().max_by_key(|(at, held)| (**held, usize::MAX - at)).map(|(at, _)| at);
    if needed && plan.claim.is_empty() && mine > least && giver == Some(me) {
        let own = shards.iter().filter(|shard| owner(shard) == Some(me) && open.contains(&shard.name));
        plan.hand_over.extend(own.map(|shard| shard.name.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, labels: &[&str]) -> NodeRow {
        NodeRow {
            name: name.to_owned(),
            lease: NodeLease::with_id(name),
            address: String::new(),
            version: String::new(),
            labels: labels.iter().map(ToString::to_string).collect(),
            alive: true,
            left_ms: 1,
        }
    }

    /// `owners` names the node of each shard; an empty name means no node.
    fn members(nodes: &[NodeRow], owners: &[&str]) -> Members {
        let shard = |(id, owner): (i32, &&str)| ShardRow {
            id,
            name: format!("s{id}"),
            lease: (!owner.is_empty()).then(|| NodeLease::with_id(*owner)),
            last_lsn: 0,
            label: None,
        };
        Members { nodes: nodes.to_vec(), shards: (1..).zip(owners).map(shard).collect(), time_ms: 0 }
    }

    fn plan_of(members: &Members, me: &str) -> ShardPlan {
        let own = members.shards.iter().filter(|shard| shard.lease.as_ref().is_some_and(|lease| lease.id() == me));
        let open = own.map(|shard| shard.name.clone()).collect();
        plan(members, &NodeLease::with_id(me), &open)
    }

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn d2_free_shards_are_shared_evenly() {
        let all = members(&[node("a", &[]), node("b", &[])], &["", "", "", "", ""]);
        assert_eq!(plan_of(&all, "a").claim, names(&["s1", "s3", "s5"]));
        assert_eq!(plan_of(&all, "b").claim, names(&["s2", "s4"]));
    }

    #[test]
    fn d2_shards_of_a_dead_node_go_to_those_with_fewest() {
        let mut dead = node("c", &[]);
        dead.alive = false;
        let all = members(&[node("a", &[]), node("b", &[]), dead], &["a", "a", "c", "c", "b", "c"]);
        assert_eq!(plan_of(&all, "b").claim, names(&["s3", "s6"]));
        assert_eq!(plan_of(&all, "a"), ShardPlan { claim: names(&["s4"]), hand_over: vec![] });
    }

    #[test]
    fn d2_joining_node_gets_one_shard_at_a_time() {
        let all = members(&[node("a", &[]), node("b", &[]), node("c", &[])], &["a", "a", "a", "b", "b", "b"]);
        assert_eq!(plan_of(&all, "a").hand_over, names(&["s1", "s2", "s3"]), "one of these");
        assert_eq!(plan_of(&all, "b"), ShardPlan::default());
        assert_eq!(plan_of(&all, "c"), ShardPlan::default());
        let given = members(&all.nodes, &["c", "a", "a", "b", "b", "b"]);
        assert_eq!((plan_of(&given, "a"), plan_of(&given, "b").hand_over.len()), (ShardPlan::default(), 3));
    }

    #[test]
    fn d2_even_shares_do_not_change() {
        for owners in [&["a", "b", "a"], &["b", "b", "a"]] {
            let all = members(&[node("a", &[]), node("b", &[])], owners);
            assert_eq!(
                (plan_of(&all, "a"), plan_of(&all, "b")),
                (ShardPlan::default(), ShardPlan::default()),
                "{owners:?}"
            );
        }
    }

    #[test]
    fn d2_claimed_shard_that_is_not_open_is_reclaimed() {
        let all = members(&[node("a", &[])], &["a", "a"]);
        let open = BTreeSet::from(["s2".to_owned()]);
        assert_eq!(plan(&all, &NodeLease::with_id("a"), &open).claim, names(&["s1"]));
    }

    /// Node b has fewer shards, but cannot claim shard s2 while the lease of node a lasts. Node a hands a shard over
    /// once all are open.
    #[test]
    fn d2_unopened_shard_is_reclaimed_by_the_node_with_more() {
        let all = members(&[node("a", &[]), node("b", &[])], &["a", "a", "a"]);
        let open = BTreeSet::from(["s1".to_owned(), "s3".to_owned()]);
        let plan_with = |open: &BTreeSet<String>| plan(&all, &NodeLease::with_id("a"), open);
        assert_eq!(plan_with(&open), ShardPlan { claim: names(&["s2"]), hand_over: vec![] });
        assert_eq!(plan_of(&all, "b"), ShardPlan::default());
        let all_open = open.into_iter().chain(["s2".to_owned()]).collect();
        assert_eq!(plan_with(&all_open), ShardPlan { claim: vec![], hand_over: names(&["s1", "s2", "s3"]) });
    }

    #[test]
    fn d2_shards_with_a_label_go_to_nodes_that_have_it() {
        let mut all = members(&[node("a", &[]), node("b", &["gpu"])], &["", "", "", ""]);
        for shard in all.shards.iter_mut().skip(2) {
            shard.label = Some("gpu".to_owned());
        }
        assert_eq!(plan_of(&all, "a").claim, names(&["s1"]));
        assert_eq!(plan_of(&all, "b").claim, names(&["s2", "s3", "s4"]));
        all.nodes.pop();
        assert_eq!(plan_of(&all, "a").claim, names(&["s1", "s2"]), "a node without the label claimed labelled shards");
    }

    #[test]
    fn d2_node_without_a_live_lease_has_an_empty_plan() {
        let mut all = members(&[node("a", &[]), node("b", &[])], &["a", ""]);
        all.nodes.iter_mut().take(1).for_each(|node| node.alive = false);
        assert_eq!(plan_of(&all, "a"), ShardPlan::default());
    }

    /// From any state, shares differ by at most one after the plans were carried out.
    #[test]
    fn d2_shares_become_even_from_any_state() {
        let nodes = [node("a", &[]), node("b", &[]), node("c", &[])];
        for state in 0..4_usize.pow(5) {
            let owners: Vec<&str> = (0..5).map(|at| ["", "a", "b", "c"][state / 4_usize.pow(at) % 4]).collect();
            let mut all = members(&nodes, &owners);
            for _ in 0..20 {
                for me in ["a", "b", "c"] {
                    let plan = plan_of(&all, me);
                    let given = plan.hand_over.first();
                    for shard in &mut all.shards {
                        if plan.claim.contains(&shard.name) && shard.lease.is_none() {
                            shard.lease = Some(NodeLease::with_id(me));
                        } else if Some(&shard.name) == given {
                            shard.lease = None;
                        }
                    }
                }
            }
            let count =
                |me: &str| all.shards.iter().filter(|shard| shard.lease == Some(NodeLease::with_id(me))).count();
            let mut counts = ["a", "b", "c"].map(count);
            counts.sort_unstable();
            assert_eq!(counts, [1, 2, 2], "{owners:?}");
        }
    }
}
