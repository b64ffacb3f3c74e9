//! A synchronous standby: an acknowledged record is on it, and the owner of a shard continues there when it is promoted.

use subtend_journal::Poisoned;
use subtend_session::ids::Lsn;

use super::{create_session, journal};
use crate::scene::problems;
use crate::server::{PASSWORD, Server, target};

/// The primary is lost between two records. The control: without the standby, nothing is acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn d1_promoted_standby_has_all_acknowledged_records() {
    let primary = Server::start(&[]);
    let standby = primary.standby();
    let both = format!("127.0.0.1:{},127.0.0.1:{}", primary.port(), standby.port());
    let shard = |shard: &str, reply: u32| {
        target(&format!(
            "postgres://subtend:{PASSWORD}@{both}/agents?shard={shard}&connect_timeout=2&reply_timeout={reply}"
        ))
    };
    let kept = journal(&shard("kept", 20));
    for n in 1..=5 {
        assert_eq!(create_session(&kept, n).await.unwrap(), Lsn(u64::try_from(n).unwrap()));
    }
    let refused = journal(&shard("refused", 2));
    standby.crash();
    let error: Poisoned = create_session(&refused, 1).await.unwrap_err();
    assert!(error.to_string().contains("no answer within 2 s"), "{error}");
    standby.up();
    create_session(&kept, 6).await.unwrap();
    primary.crash();
    standby.promote();
    assert_eq!(create_session(&kept, 7).await.unwrap(), Lsn(7));
    assert_eq!((kept.heads().unwrap().len(), problems(&kept)), (7, Vec::new()));
    assert_eq!(standby.sql("SELECT last_lsn FROM subtend.shard WHERE name = 'kept'"), "7");
}
