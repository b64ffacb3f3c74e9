//! One group, one transaction.

use std::collections::BTreeMap;

use redb::{Database, Durability, WriteTransaction};
use subtend_session::index::Row;

use super::{DEF, EV_TABLE, HEAD, INFLIGHT, KID_TABLE, LOG, META, META_LSN, OUTBOX_TABLE, store};
use crate::engine::{Group, Result};
use crate::error::EngineError;
use crate::rows;
use crate::sorted::{Fate, Sorted};

/// Writes the group in one transaction, durable on return; an error leaves the store unchanged.
pub(super) fn write(db: &Database, durability: Durability, group: Group) -> Result<()> {
    let mut sorted = Sorted::of(group)?;
    let mut txn = db.begin_write().map_err(store("begin"))?;
    txn.set_durability(durability).map_err(store("set the durability"))?;
    // Opening after a crash then takes milliseconds; the frames' own checksums replace redb's.
    txn.set_quick_repair(true);
    write_log(&txn, &sorted)?;
    write_rows(&txn, &mut sorted)?;
    write_outbox(&txn, &sorted.outbox)?;
    {
        let mut meta = txn.open_table(META).map_err(store("open `meta`"))?;
        meta.insert(META_LSN, sorted.last.0).map_err(store("write `meta`"))?;
    }
    txn.commit().map_err(store("commit"))
}

fn write_log(txn: &WriteTransaction, sorted: &Sorted) -> Result<()> {
    if sorted.log.is_empty() {
        return Ok(());
    }
    let mut log = txn.open_table(LOG).map_err(store("open `log`"))?;
    for (lsn, bytes) in &sorted.log {
        if log.insert(lsn.0, bytes.as_slice()).map_err(store("write `log`"))?.is_some() {
            return Err(EngineError::Corrupt {
                table: "log",
                at: lsn.to_string(),
                why: "a frame is there already".into(),
            });
        }
    }
    let mut ev = txn.open_table(EV_TABLE).map_err(store("open `ev`"))?;
    for ((session, seq), lsn) in &sorted.ev {
        if ev.insert(&rows::ev_key(*session, *seq), lsn.0).map_err(store("write `ev`"))?.is_some() {
            return Err(EngineError::Overwrite { session: *session, seq: *seq });
        }
    }
    Ok(())
}

fn write_rows(txn: &WriteTransaction, sorted: &mut Sorted) -> Result<()> {
    if !sorted.heads.is_empty() {
        let mut table = txn.open_table(HEAD).map_err(store("open `head`"))?;
        for (session, head) in &sorted.heads {
            let key = rows::session_key(*session);
            let sealed = rows::seal_json("head", &key, head)?;
            table.insert(&key, sealed.as_slice()).map_err(store("write `head`"))?;
        }
    }
    if !sorted.inflight.is_empty() {
        let mut table = txn.open_table(INFLIGHT).map_err(store("open `inflight`"))?;
        for (session, row) in &sorted.inflight {
            let key = rows::session_key(*session);
            match row {
                Some(row) => {
                    let sealed = rows::seal_json("inflight", &key, row)?;
                    table.insert(&key, sealed.as_slice()).map_err(store("write `inflight`"))?;
                }
                None => {
                    table.remove(&key).map_err(store("write `inflight`"))?;
                }
            }
        }
    }
    if !sorted.kids.is_empty() {
        sorted.kids.sort_unstable();
        let mut table = txn.open_table(KID_TABLE).map_err(store("open `kid`"))?;
        for (parent, kid) in &sorted.kids {
            table.insert(&rows::kid_key(*parent, *kid), ()).map_err(store("write `kid`"))?;
        }
    }
    if !sorted.defs.is_empty() {
        let mut table = txn.open_table(DEF).map_err(store("open `def`"))?;
        for (hash, text) in &sorted.defs {
            table.insert(&hash.0, text.as_bytes()).map_err(store("write `def`"))?;
        }
    }
    Ok(())
}

fn write_outbox(txn: &WriteTransaction, outbox: &BTreeMap<Row, Fate>) -> Result<()> {
    if outbox.is_empty() {
        return Ok(());
    }
    let mut table = txn.open_table(OUTBOX_TABLE).map_err(store("open `outbox`"))?;
    for (row, fate) in outbox {
        let key = rows::outbox_key(row);
        match fate {
            Fate::Put(lsn) | Fate::Replace(lsn) => {
                let sealed = rows::seal("outbox", &key, &lsn.0.to_be_bytes());
                table.insert(&key, sealed.as_slice()).map_err(store("write `outbox`"))?;
            }
            Fate::Take => {
                table.remove(&key).map_err(store("write `outbox`"))?;
            }
        }
    }
    Ok(())
}
