//! The password of a database, and encrypted connections.

use crate::scene::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use subtend_journal::postgres::Postgres;

use super::{create_session, unused_shard};
use crate::server::{PASSWORD, Server, shared, target};

fn hides(text: &str) {
    assert!(!text.contains("s3cret") && !text.contains("wr0ng"), "{text}");
}

#[tokio::test]
async fn d1_password_is_in_no_error_or_description() {
    let address = format!("{}&{}", shared().address(), unused_shard());
    let spec = StoreSpec::parse(&address).unwrap();
    hides(&format!("{spec} {spec:?}"));
    let journal = subtend_journal::open_store(&spec).unwrap();
    hides(&format!("{journal:?} {:?}", journal.info()));
    let held = subtend_journal::open_store(&spec).unwrap_err();
    hides(&format!("{held} {held:?}"));
    for wrong in [
        address.replace(PASSWORD, "wr0ng"),
        address.replace("127.0.0.1", "s3cret@127.0.0.1"),
        address.replace(&shared().port().to_string(), "1"),
        format!("{address}&s3cret=s3cret"),
        format!("{address}&password=s3cret"),
        "postgres:s3cret".to_owned(),
        "postgresql:/user:s3cret@host".to_owned(),
    ] {
        let error = StoreSpec::parse(&wrong).and_then(|spec| subtend_journal::open_store(&spec)).unwrap_err();
        hides(&format!("{error} {error:?}"));
    }
    hides(&shared().log());
}

/// Starts a server with a certificate for `localhost` that is signed by an authority whose certificate is in a file.
fn with_tls() -> (Server, std::path::PathBuf) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let server = Server::start(&[]);
    let data = server.dir().join("data");
    std::fs::write(data.join("server.crt"), certificate.pem()).unwrap();
    std::fs::write(data.join("server.key"), key.serialize_pem()).unwrap();
    let roots = server.dir().join("roots.pem");
    std::fs::write(&roots, authority.pem()).unwrap();
    let owned = format!("chown --reference={0} {0}/server.key && chmod 600 {0}/server.key", data.display());
    assert!(Command::new("sh").args(["-c", &owned]).status().unwrap().success());
    server.sql("ALTER SYSTEM SET ssl = on");
    server.reload();
    (server, roots)
}

#[tokio::test]
async fn d1_tls_checks_the_certificate_and_its_name() {
    let (server, roots) = with_tls();
    let address = server.address().replace("127.0.0.1", "localhost");
    let trusted = format!("sslmode=verify-full&sslrootcert={}", roots.display());
    let engine = Postgres::open(&target(&format!("{address}&{trusted}"))).unwrap();
    let journal = Journal::open(Box::new(engine), Options::default()).unwrap();
    create_session(&journal, 1).await.unwrap();
    let sql = "SELECT count(*), bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name LIKE 'subtend%'";
    let encrypted = server.sql(sql);
    assert!(encrypted.ends_with("|t") && !encrypted.starts_with('0'), "{encrypted}");
    drop(journal);
    let refused = |address: &str| Postgres::open(&target(address)).unwrap_err().to_string();
    // The system does not trust the authority of the certificate.
    assert!(refused(&format!("{address}&sslmode=verify-full")).contains("error performing TLS handshake"));
    // The certificate is for another name.
    let elsewhere = server.address();
    assert!(refused(&format!("{elsewhere}&{trusted}")).contains("error performing TLS handshake"));
    // Control: without TLS the same server answers.
    drop(Postgres::open(&target(&format!("{elsewhere}&sslmode=disable"))).unwrap());
}

#[test]
fn d1_server_without_tls_is_refused_if_tls_is_required() {
    let address = shared().address().replace("127.0.0.1", "localhost");
    let refused = Postgres::open(&target(&format!("{address}&sslmode=require"))).unwrap_err().to_string();
    assert!(refused.contains("server does not support TLS"), "{refused}");
}
