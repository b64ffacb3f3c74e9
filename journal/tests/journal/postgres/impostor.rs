//! Impostors that have the port of a server.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use subtend_journal::postgres::nodes::Registry;
use subtend_journal::postgres::{Postgres, ShardAddress};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::scene::*;
use crate::server::target;

/// What an impostor does after the handshake.
#[derive(Clone, Copy, Debug)]
enum Answers {
    None,
    /// Refuses all statements with this message.
    Refusal(&'static str),
    /// Has no schema, and answers nothing else.
    NoSchema,
    /// Has the schema, and answers nothing else.
    Schema,
}

/// Starts an impostor. Returns its address, with a reply timeout of 1 s, and a message for each statement that it does not answer.
fn impostor(answers: Answers) -> (ShardAddress, UnboundedReceiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (silent, silences) = unbounded_channel();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let silent = silent.clone();
            std::thread::spawn(move || drop(serve(client, answers, &silent)));
        }
    });
    let address = format!("postgres://u@127.0.0.1:{port}/db?sslmode=disable&reply_timeout=1&shard=a");
    (target(&address), silences)
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len() + 4).unwrap();
    [&[tag][..], &len.to_be_bytes(), body].concat()
}

/// Returns a description of columns of these types.
fn columns(oids: &[u32]) -> Vec<u8> {
    let column = |oid: &u32| [b"c\0\0\0\0\0\0\0", &oid.to_be_bytes()[..], b"\xff\xff\xff\xff\xff\xff\0\0"].concat();
    let count = u16::try_from(oids.len()).unwrap().to_be_bytes();
    message(b'T', &[count.to_vec(), oids.iter().flat_map(column).collect()].concat())
}

fn row(values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut body = u16::try_from(values.len()).unwrap().to_be_bytes().to_vec();
    for value in values {
        let len = value.map_or(-1, |value| i32::try_from(value.len()).unwrap());
        body.extend([&len.to_be_bytes(), value.unwrap_or_default()].concat());
    }
    message(b'D', &body)
}

const BOOL: u32 = 16;
const INT: u32 = 23;
const TEXT: u32 = 25;

type RowValues = &'static [Option<&'static [u8]>];

/// Returns the answer to a statement about the schema: the types of its columns, and their values.
fn of_schema(answers: Answers, sql: &str) -> Option<(&'static [u32], RowValues)> {
    let parts = &[BOOL, TEXT, TEXT, TEXT, TEXT];
    match answers {
        Answers::NoSchema if sql.contains("pg_trigger") => Some((parts, &[Some(&[0]), None, None, Some(b"u"), None])),
        Answers::Schema if sql.contains("pg_trigger") => Some((parts, &[Some(&[1]), None, None, Some(b"u"), None])),
        // The newest version.
        Answers::Schema if sql.contains("max(version)") => Some((&[INT], &[Some(&[0, 0, 0, 2])])),
        Answers::None | Answers::Refusal(_) | Answers::NoSchema | Answers::Schema => None,
    }
}

fn serve(mut client: TcpStream, answers: Answers, silent: &UnboundedSender<()>) -> std::io::Result<()> {
    let ready = message(b'Z', b"I");
    let done = [message(b'C', b"SELECT 1\0"), ready.clone()].concat();
    let body_of = |client: &mut TcpStream| {
        let mut len = [0; 4];
        client.read_exact(&mut len)?;
        let mut body = vec![0; u32::from_be_bytes(len) as usize - 4];
        client.read_exact(&mut body).map(|()| String::from_utf8_lossy(&body).into_owned())
    };
    body_of(&mut client)?;
    client.write_all(&[message(b'R', &[0; 4]), ready.clone()].concat())?;
    let (mut tag, mut prepared, mut last) = ([0], None, String::new());
    loop {
        client.read_exact(&mut tag)?;
        let body = body_of(&mut client)?;
        let answer = match (tag[0], answers) {
            (b'Q', _) if body.contains("transaction_read_only") => {
                [columns(&[TEXT]), row(&[Some(b"off")]), done.clone()].concat()
            }
            (b'Q', _) => done.clone(),
            (b'P', _) => {
                prepared = Some(body);
                continue;
            }
            (b'S', Answers::Refusal(why)) => {
                let fields = format!("SERROR\0VERROR\0CXX000\0M{why}\0\0");
                [message(b'E', fields.as_bytes()), ready.clone()].concat()
            }
            (b'S', answers) => {
                let is_prepared = prepared.is_some();
                last = prepared.take().unwrap_or(last);
                let Some((oids, values)) = of_schema(answers, &last) else {
                    let _ = silent.send(());
                    continue;
                };
                match is_prepared {
                    true => [message(b'1', b""), message(b't', &[0; 2]), columns(oids), ready.clone()].concat(),
                    false => [message(b'2', b""), row(values), done.clone()].concat(),
                }
            }
            _ => continue,
        };
        client.write_all(&answer)?;
    }
}

/// Runs a blocking operation for at most 20 s of real time.
fn outcome<T: Send + 'static>(
    of: &ShardAddress,
    run: fn(&ShardAddress) -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let (done, outcome) = std::sync::mpsc::channel();
    let of = of.clone();
    std::thread::spawn(move || drop(done.send(run(&of))));
    outcome.recv_timeout(Duration::from_secs(20)).unwrap()
}

/// The reply timeout applies to the first statements, and to those after the check of the schema. The control: the impostor got a statement
/// of each operation.
#[tokio::test]
async fn d1_server_that_falls_silent_is_given_up() {
    for answers in [Answers::None, Answers::Schema] {
        let (target, mut silences) = impostor(answers);
        let registry = tokio::time::timeout(Duration::from_secs(20), Registry::connect(&target)).await;
        let mut refused = vec![registry.expect("the operation ends").unwrap_err().to_string()];
        refused.push(outcome(&target, Postgres::exists).unwrap_err().to_string());
        if matches!(answers, Answers::None) {
            refused.push(outcome(&target, Postgres::open).unwrap_err().to_string());
            refused.push(outcome(&target, Postgres::open_to_read).unwrap_err().to_string());
        }
        for refused in refused {
            let why = format!("{target} cannot be reached: no answer within 1 s.");
            assert!(refused.starts_with(&why), "{refused}");
            assert_eq!(silences.try_recv(), Ok(()));
        }
    }
}

/// The impostor answers until the migration. The control: the time limit is that of a migration, not that of a reply.
#[tokio::test]
async fn d1_migration_that_never_ends_is_given_up() {
    let (target, mut silences) = impostor(Answers::NoSchema);
    let connecting = tokio::spawn(async move { Registry::connect(&target).await.map(drop) });
    silences.recv().await.unwrap();
    // From now on there is nothing else to wait for.
    tokio::time::pause();
    let refused = tokio::time::timeout(Duration::from_secs(3_600), connecting).await.expect("the migration ends");
    let refused = refused.unwrap().unwrap_err().to_string();
    assert!(refused.contains(" cannot be reached: no migration within 600 s."), "{refused}");
}

/// The control: the text of the error is shown.
#[tokio::test]
async fn u4_errors_of_a_server_are_one_short_line() {
    const ATTACK: &str = "gone \u{1b}[2J\nsubtend: forged line\u{202e}";
    let long: &'static str = format!("{ATTACK}{}", "x".repeat(5_000)).leak();
    let shown = "gone <U+001B>[2J<U+000A>subtend: forged line<U+202E>";
    for (sent, shown) in [(ATTACK, shown.to_owned()), (long, format!("{shown}{}…", "x".repeat(1_000 - ATTACK.len())))]
    {
        let (target, _silences) = impostor(Answers::Refusal(sent));
        let expected = format!(
            "{target} cannot be reached: {shown} (SQLSTATE XX000). Check the address, and that the server runs and admits this user"
        );
        assert_eq!(outcome(&target, Postgres::exists).unwrap_err().to_string(), expected);
        assert_eq!(Registry::connect(&target).await.unwrap_err().to_string(), expected);
    }
}
