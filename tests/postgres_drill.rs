//! `subtend drill` on shards of a PostgreSQL server.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

#[path = "kill_drill/command.rs"]
mod command;

use command::drill;

/// The same kills on shards of a PostgreSQL server that the drill starts.
#[test]
fn d1_kills_on_postgres_lose_and_repeat_nothing() {
    let (code, report) = drill(&["--store", "postgres", "--kills", "12"]);
    println!("{report}");
    assert_eq!((code, &report["verdict"]), (Some(0), &"sound".into()), "{report:#}");
    assert_eq!((&report["engine"], &report["violations"]), (&"postgres".into(), &0.into()), "{report:#}");
    assert!(report["acknowledged"].as_u64() > Some(300), "the drill hit nothing: {report:#}");
}

/// The drill searches the rows, because there is no file to search.
#[test]
fn d1_text_kept_by_postgres_is_caught() {
    let (code, report) = drill(&["--store", "postgres", "--kills", "60", "--sabotage", "no-erase"]);
    assert_eq!((code, &report["verdict"]), (Some(0), &"caught".into()), "{report:#}");
    assert!(report["kept_text"].as_u64() > Some(0), "{report:#}");
}
