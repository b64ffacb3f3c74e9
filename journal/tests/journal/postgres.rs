//! Tests of PostgreSQL that the conformance suite cannot share, such as failures of a server.

mod crashing;
mod damage;
mod erasing;
mod fencing;
mod hostile;
mod impostor;
mod interruption;
mod nodes;
mod power;
mod proxy;
mod schema;
mod secrets;
mod standby;
mod weak;

use std::sync::atomic::{AtomicU32, Ordering};

use crate::scene::*;
use subtend_journal::Poisoned;
use subtend_journal::postgres::{Postgres, ShardAddress};

/// Returns parameters for a shard that no other test uses.
fn unused_shard() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("shard=own-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

fn journal(target: &ShardAddress) -> Journal {
    Journal::open(Box::new(Postgres::open(target).unwrap()), Options::default()).unwrap()
}

/// Creates a session and waits until it is durable.
async fn create_session(journal: &Journal, n: u128) -> Result<Lsn, Poisoned> {
    let last = match journal.append(one(created_session(&mut SessionWriter::new(id(n)), None, true))) {
        Ok(appended) => appended.last,
        Err(subtend_journal::AppendError::Poisoned(poisoned)) => return Err(poisoned),
        Err(error) => panic!("{error}"),
    };
    journal.wait(last).await.map(|()| last)
}
