//! Violations by clients of a host: a good world with one change.

use super::scene::*;
use crate::observed::{ClientLog, KeyedCommand, Observed};
use crate::{InvariantId, always};

/// Returns the scene with a client that received everything, the root's records first.
fn with_reader(scene: &Scene) -> Scene {
    let lens = [(ROOT, scene.root.len()), (CHILD, scene.child.len())];
    let records = lens.into_iter().flat_map(|(session, len)| (1..=len as u64).map(move |seq| (session, Seq(seq))));
    let received = (1..).zip(records).map(|(frame, (session, seq))| ((frame, 1), session, seq)).collect();
    let mut scene = Scene::good();
    scene.observed.clients = vec![ClientLog { name: "reader".into(), received, complete: true }];
    scene
}

type Received = Vec<((u64, u32), SessionId, Seq)>;

/// Returns the invariant that is violated after `change` to what the client received.
fn violation_after(change: impl FnOnce(&mut Received)) -> Option<InvariantId> {
    let mut scene = with_reader(&Scene::good());
    change(&mut scene.observed.clients[0].received);
    scene.with(always).err().map(|violation| violation.id)
}

#[test]
fn client_receives_each_record_once_and_in_order() {
    assert_eq!(violation_after(|_| ()), None);
    let cases: [fn(&mut Received); 5] = [
        |log| log.insert(3, log[2]),
        |log| _ = log.remove(3),
        |log| log.swap(2, 3),
        |log| _ = log.pop(),
        |log| log[3].0 = (1, 1),
    ];
    assert_eq!(cases.map(violation_after), [Some(InvariantId::H1); 5]);
}

#[test]
fn keyed_command_makes_one_input() {
    let mut scene = Scene::good();
    let input = scene.root.iter().find_map(|record| {
        let Record::InputAccepted(input) = record else { return None };
        Some(input.clone())
    });
    // No other input has this text.
    let input = InputAccepted { text: "keyed".into(), ..*input.expect("the root has an input") };
    for record in &mut scene.root {
        if matches!(record, Record::InputAccepted(accepted) if accepted.id == input.id) {
            *record = Record::InputAccepted(Box::new(input.clone()));
        }
    }
    let violation_with = |replies: Vec<_>, scene: &mut Scene| {
        let command = KeyedCommand { text: input.text.clone(), replies };
        scene.observed = Observed { keyed: vec![command], ..Observed::default() };
        scene.with(crate::clients::one_effect_per_key).err().map(|violation| violation.id)
    };
    assert_eq!(violation_with(vec![(ROOT, input.id), (ROOT, input.id)], &mut scene), None);
    assert_eq!(violation_with(Vec::new(), &mut scene), None, "it was never answered");
    assert_eq!(violation_with(vec![(ROOT, input.id), (ROOT, id(99))], &mut scene), Some(InvariantId::H2));
    scene.root.push(Record::InputAccepted(Box::new(input.clone())));
    assert_eq!(violation_with(Vec::new(), &mut scene), Some(InvariantId::H2), "it took effect twice");
    scene.root.retain(|record| !matches!(record, Record::InputAccepted(_)));
    scene.child.retain(|record| !matches!(record, Record::InputAccepted(_)));
    assert_eq!(violation_with(vec![(ROOT, input.id)], &mut scene), Some(InvariantId::H2), "its receipt is lost");
}
