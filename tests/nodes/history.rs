//! The history of the shards: each change of a shard's row, recorded by a trigger.

use std::collections::BTreeMap;

use subtend_journal::postgres::Postgres;
use subtend_journal::{Journal, Options, audit};

use crate::server::Server;

/// Records each change of a shard's row from now on.
pub(crate) fn record(server: &Server) {
    server.sql(
        "CREATE TABLE public.history (n bigserial, shard int, epoch bigint, owner uuid, last_lsn bigint); \
         CREATE FUNCTION public.keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         INSERT INTO public.history (shard, epoch, owner, last_lsn) VALUES (NEW.id, NEW.epoch, NEW.owner, NEW.last_lsn); RETURN NEW; END $$; \
         CREATE TRIGGER keep AFTER UPDATE ON subtend.shard FOR EACH ROW EXECUTE FUNCTION public.keep()",
    );
}

/// Checks that each epoch of a shard had one owner, and epochs and LSNs never decreased; returns the number of claims.
pub(crate) fn check(server: &Server) -> usize {
    let rows = server.sql("SELECT shard, epoch, owner, last_lsn FROM public.history ORDER BY n");
    let mut shards: BTreeMap<&str, (i64, &str, i64)> = BTreeMap::new();
    let mut claims = 0;
    for row in rows.lines() {
        let [shard, epoch, owner, last] = row.split('|').collect::<Vec<_>>()[..] else { panic!("{row}") };
        let (epoch, last): (i64, i64) = (epoch.parse().unwrap(), last.parse().unwrap());
        let before = shards.insert(shard, (epoch, owner, last));
        let Some((epoch_before, owner_before, last_before)) = before else { continue };
        assert!(epoch >= epoch_before && last >= last_before, "shard {shard} went back: {row}");
        assert!(epoch > epoch_before || owner == owner_before, "two owners in one epoch of shard {shard}: {row}");
        claims += usize::from(owner != owner_before);
    }
    claims
}

/// Opens each shard, checks that its journal is sound, and returns the journals.
pub(crate) fn journals(server: &Server) -> Vec<Journal> {
    let names = server.sql("SELECT name FROM subtend.shard WHERE shared ORDER BY id");
    let open = |name: &str| {
        let engine = Postgres::open(&server.target(&format!("shard={name}"))).unwrap();
        let journal = Journal::open(Box::new(engine), Options::default()).unwrap();
        let problems: Vec<String> =
            journal.verify(&mut |_| {}).unwrap().problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems, Vec::<String>::new(), "{name}");
        audit(&journal, false).unwrap_or_else(|error| panic!("{name}: {error}"));
        journal
    };
    names.lines().map(open).collect()
}
