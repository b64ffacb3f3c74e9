//! Bodies too large for an engine.

use crate::scene::*;
use subtend_session::ids::Interned;
use subtend_session::index;

use crate::engines::{Kind, for_each_engine};
use crate::files;

fn input_record(writer: &SessionWriter, bytes: usize) -> Record {
    let n = writer.records.len() as u128;
    record(json!({"input_accepted": {
        "id": uuid::Uuid::from_u128(writer.id.0.as_u128() * 1_000 + n), "from": "person", "lane": "send",
        "text": "x".repeat(bytes), "as_owner": "person",
    }}))
}

pub(crate) fn input_frame(writer: &mut SessionWriter, bytes: usize) -> Frame {
    let record = input_record(writer, bytes);
    writer.frame_of(vec![record])
}

/// A size that the engine accepts, and a larger one.
pub(crate) fn sizes(kind: Kind) -> (usize, usize) {
    let limit = match kind {
        Kind::Redb => 1 << 20,
        Kind::Sled => 48 << 10,
        Kind::Postgres => kind.has_no_directory(),
    };
    (limit / 2, limit + 10)
}

pub(crate) fn blobs(store: &Path) -> Vec<PathBuf> {
    let dir = store.join("blobs");
    if dir.exists() { files::take(&dir).into_iter().map(|file| dir.join(file.path)).collect() } else { Vec::new() }
}

/// Sessions 1 and 2, each with a small and a large input, in that order.
pub(crate) fn stored(kind: Kind, store: &Path) -> [SessionWriter; 2] {
    let journal = kind.open(store);
    let (small, large) = sizes(kind);
    [1, 2].map(|n| {
        let mut writer = SessionWriter::new(id(n));
        writer.opened_lsn = journal.append(one(created_session(&mut writer, None, true))).unwrap().last;
        for bytes in [small, large + n as usize] {
            let frame = input_frame(&mut writer, bytes);
            journal.append(one(frame)).unwrap();
        }
        writer
    })
}

pub(crate) fn records(journal: &Journal, session: SessionId) -> Result<Vec<Record>, String> {
    let records = journal.records(session).map_err(|error| error.to_string())?;
    Ok(records.into_iter().map(|stored| stored.record).collect())
}

async fn body_above_the_limit_is_read_back_like_any_other(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let writers = stored(kind, dir.path());
    assert_eq!(blobs(dir.path()).len(), 2);
    let journal = kind.open(dir.path());
    for writer in &writers {
        assert_eq!(records(&journal, writer.id).as_ref(), Ok(&writer.records));
        let page = journal.records_from(writer.id, subtend_session::ids::Seq(5), 1).unwrap();
        assert_eq!(page.into_iter().map(|stored| stored.record).collect::<Vec<_>>(), writer.records[4..]);
        // A page counts the bytes of files.
        let most = sizes(kind).0 as u64 * 2;
        let (page, more) = journal.page_from(writer.id, subtend_session::ids::Seq(1), 100, most).unwrap();
        assert_eq!((page.len(), more), (writer.records.len(), true));
    }
    let (session, frame) = journal.frame_at(Lsn(3)).unwrap().unwrap();
    assert_eq!((session, &frame[0].record), (id(1), &writers[0].records[4]));
    assert_eq!(problems(&journal), Vec::<String>::new());
}

/// Sizes are read to find out which sessions are large, by many requests at once: none of them reads a file. The control:
/// the sizes are those of the frames with their files.
async fn size_of_a_session_is_read_without_its_blobs(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let writers = stored(kind, dir.path());
    let (small, large) = sizes(kind);
    let journal = kind.open(dir.path());
    let sizes_of = |session| {
        let from = |seq, most| journal.bytes_from(session, Seq(seq), most).unwrap();
        [journal.bytes_of(session).unwrap(), from(1, u64::MAX), from(5, u64::MAX), from(1, small as u64)]
    };
    let before = writers.each_ref().map(|writer| sizes_of(writer.id));
    for path in blobs(dir.path()) {
        std::fs::remove_file(path).unwrap();
    }
    assert_eq!(writers.each_ref().map(|writer| sizes_of(writer.id)), before);
    for (writer, [all, from_first, last, at_least_small]) in writers.iter().zip(before) {
        assert!(all == from_first && last > large as u64 && at_least_small < all, "{before:?}");
        assert!(all > (small + large) as u64 && at_least_small >= small as u64, "{}: {before:?}", writer.id);
    }
}

/// Streams of one tree pass over the frames of all others. The control: a wanted frame needs its blob.
async fn frame_of_another_session_is_passed_over_without_its_blob(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    stored(kind, dir.path());
    let journal = kind.open(dir.path());
    for path in blobs(dir.path()) {
        std::fs::remove_file(path).unwrap();
    }
    let mut seen = Vec::new();
    let mut passed = |lsn| {
        let not_wanted = |session, bytes| {
            seen.push((session, bytes));
            false
        };
        journal.frame_of(Lsn(lsn), not_wanted).unwrap()
    };
    assert!((1..=6).all(|lsn| passed(lsn).is_none()));
    assert_eq!(seen.iter().map(|(session, _)| *session).collect::<Vec<_>>(), [1, 1, 1, 2, 2, 2].map(id));
    let (small, _) = sizes(kind);
    assert_eq!(seen.iter().map(|(_, bytes)| *bytes > small as u64).collect::<Vec<_>>(), [false, true, false].repeat(2));
    let is_wanted = |session, _| session == id(2);
    assert_eq!(journal.frame_of(Lsn(2), is_wanted).unwrap(), None);
    let (session, records) = journal.frame_of(Lsn(5), is_wanted).unwrap().unwrap();
    assert_eq!((session, records.len()), (id(2), 1));
    assert!(journal.frame_of(Lsn(6), is_wanted).unwrap_err().to_string().contains("is missing"));
}

async fn missing_or_damaged_blob_is_damage_to_its_session_alone(kind: Kind) {
    for (harm, why) in [("remove", "is missing"), ("cut", "bytes instead of"), ("flip", "does not match its hash")] {
        let dir = tempfile::tempdir().unwrap();
        let writers = stored(kind, dir.path());
        // The blob of the second session is longer.
        let blob = blobs(dir.path()).into_iter().max_by_key(|blob| std::fs::metadata(blob).unwrap().len()).unwrap();
        let bytes = std::fs::read(&blob).unwrap();
        match harm {
            "remove" => std::fs::remove_file(&blob).unwrap(),
            "cut" => std::fs::write(&blob, &bytes[..bytes.len() - 1]).unwrap(),
            _ => {
                let mut flipped = bytes.clone();
                flipped[bytes.len() / 2] ^= 1;
                std::fs::write(&blob, flipped).unwrap();
            }
        }
        let name = blob.file_name().unwrap().to_string_lossy().into_owned();
        let journal = kind.open(dir.path());
        assert_eq!(records(&journal, id(1)).as_ref(), Ok(&writers[0].records));
        let error = journal.records(id(2)).unwrap_err();
        assert!(matches!(error, ReadError::Damaged { .. }), "{error:?}");
        let text = format!("session {} is damaged at record 5 (lsn 6): the blob {name}", id(2));
        assert!(error.to_string().starts_with(&text) && error.to_string().contains(why), "{error}");
        let messages = problems(&journal);
        assert!(
            messages
                .iter()
                .any(|message| message.starts_with("lsn 6: ") && message.contains(&name) && message.contains(why))
        );
        assert!(messages.iter().all(|message| !message.contains(&id(1).to_string())), "{messages:#?}");
        journal.close().await.unwrap();
        std::fs::write(&blob, &bytes).unwrap();
        assert_eq!(problems(&kind.open(dir.path())), Vec::<String>::new(), "{harm}");
    }
}

/// A crash between blob and row leaves an unreferenced blob, which the same body reuses.
async fn blob_exists_before_the_row_that_names_it(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let (_, large) = sizes(kind);
    let mut writer = SessionWriter::new(id(1));
    let creation = created_session(&mut writer, None, true);
    let frame = input_frame(&mut writer, large);
    let open = || {
        let (engine, faults) = Faulty::new(kind.engine(dir.path()));
        let blobs = Blobs::new(std::sync::Arc::new(engine), dir.path().join("blobs"));
        (Journal::open(Box::new(blobs), Options::default()).unwrap(), faults)
    };
    let (journal, faults) = open();
    faults.fail_write(2);
    journal.append(one(creation)).unwrap();
    journal.settled().await.unwrap();
    journal.append(one(frame.clone())).unwrap();
    assert!(journal.settled().await.is_err());
    drop(journal);
    let left = blobs(dir.path());
    assert_eq!(left.len(), 1, "{left:?}");
    // A crash before the sync of the file may leave it like this.
    std::fs::write(&left[0], b"half").unwrap();

    let (journal, _) = open();
    assert_eq!(problems(&journal), Vec::<String>::new());
    journal.activate(id(1)).unwrap();
    let again = Frame { epoch: subtend_session::ids::Epoch(2), ..frame };
    journal.append(one(again)).unwrap();
    journal.settled().await.unwrap();
    assert_eq!(records(&journal, id(1)).as_ref(), Ok(&writer.records));
    assert_eq!(blobs(dir.path()), left);
}

/// Set in the child process, which uses up its handles.
const NO_HANDLES: &str = "SUBTEND_TEST_NO_HANDLES";

/// Other parts of the process may use up its handles for a while, for example connections. The control is a read of the same store
/// without the journal: it fails there.
#[test]
fn large_body_is_stored_and_read_without_free_handles() {
    let Some(dir) = std::env::var_os(NO_HANDLES).map(PathBuf::from) else {
        let dir = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "ulimit -n 100; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "blobs::large_body_is_stored_and_read_without_free_handles"]);
        let out = command.env(NO_HANDLES, dir.path()).output().unwrap();
        assert!(out.status.success(), "{out:?}");
        return;
    };
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        let (_, large) = sizes(Kind::Redb);
        let journal = Kind::Redb.open(&dir);
        let mut writer = SessionWriter::new(id(1));
        writer.opened_lsn = journal.append(one(created_session(&mut writer, None, true))).unwrap().last;
        journal.settled().await.unwrap();
        let all: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        for more in 0..2 {
            let frame = input_frame(&mut writer, large + more);
            journal.append(one(frame)).unwrap();
            journal.settled().await.unwrap();
            assert_eq!(records(&journal, id(1)).as_ref(), Ok(&writer.records));
            assert_eq!(std::fs::read(dir.join("WATERMARK")).unwrap_err().raw_os_error(), Some(24));
        }
        drop(all);
        assert_eq!(blobs(&dir).len(), 2);
    });
}

async fn bodies_that_sessions_share_may_be_large_too(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let text = format!("\"{}\"", "be brief ".repeat(sizes(kind).1 / 8));
    let hash = Hash::of(text.as_bytes());
    let journal = kind.open(dir.path());
    let mut writer = SessionWriter::new(id(1));
    let mut frame = created_session(&mut writer, None, true);
    frame.changes.defs.push((hash, text.as_str().into()));
    journal.append(one(frame)).unwrap();
    journal.close().await.unwrap();
    let journal = kind.open(dir.path());
    assert_eq!(journal.def(hash).unwrap().as_deref(), Some(&*text));
    assert_eq!(problems(&journal), Vec::<String>::new());
    drop(journal);
    std::fs::remove_file(&blobs(dir.path())[0]).unwrap();
    let journal = kind.open(dir.path());
    let why = format!("table `def` is corrupt at {hash}: the blob {hash} is missing");
    assert_eq!(journal.def(hash).unwrap_err().to_string(), why);
    assert_eq!(problems(&journal), vec![why]);
}

/// The frame that defines a body also contains it. Later sessions read it from the blob.
async fn missing_body_damages_later_sessions_only(kind: Kind) {
    for harm in ["remove", "flip"] {
        let dir = tempfile::tempdir().unwrap();
        let journal = kind.open(dir.path());
        let system: Interned<str> = Interned::new("be brief ".repeat(sizes(kind).1 / 8).into()).unwrap();
        let briefed = |n: u128, defines: bool| {
            let mut records = creation(id(n), None);
            let Some(Record::SessionCreated(created)) = records.first_mut() else { panic!("no creation") };
            created.system = system.clone();
            let defs = index::defs(created).unwrap();
            let mut frame = SessionWriter::new(id(n)).frame_of(records);
            frame.changes.defs = if defines { defs } else { Vec::new() };
            frame
        };
        for frame in [briefed(1, true), briefed(2, false), created_session(&mut SessionWriter::new(id(3)), None, true)]
        {
            journal.append(one(frame)).unwrap();
        }
        journal.close().await.unwrap();
        let blob = blobs(dir.path()).into_iter().find(|blob| blob.ends_with(system.hash.to_string())).unwrap();
        let mut bytes = std::fs::read(&blob).unwrap();
        if harm == "flip" {
            bytes[7] ^= 1;
            std::fs::write(&blob, bytes).unwrap();
        } else {
            std::fs::remove_file(&blob).unwrap();
        }
        let journal = kind.open(dir.path());
        // The size of a body is read without its blob, by many requests at once.
        assert!(journal.body_bytes(id(2)).unwrap() > sizes(kind).1 as u64);
        let error = journal.records(id(2)).unwrap_err();
        let text = format!("session {} is damaged at record 1 (lsn 2): table `def`", id(2));
        assert!(matches!(error, ReadError::Damaged { .. }) && error.to_string().starts_with(&text), "{error}");
        assert!(records(&journal, id(1)).is_ok() && records(&journal, id(3)).is_ok());
        let messages = problems(&journal);
        assert!(
            messages
                .iter()
                .any(|message| message.starts_with("table `def`") && message.contains(&system.hash.to_string()))
        );
        assert!(messages.iter().any(|message| message.contains(&text)), "{messages:#?}");
        // The first frame still has the body: the whole store can be exported, but not the second session alone.
        let export = |what| journal.export(what, &mut std::io::sink(), &mut |_| {}).map(|tally| tally.sessions);
        assert_eq!(export(Scope::Store).unwrap(), 3);
        assert!(export(Scope::Tree(id(2))).unwrap_err().to_string().contains("table `def` is corrupt"));
    }
}

async fn body_above_the_limit_is_refused_without_a_directory(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(kind.engine(dir.path()), Options::default()).unwrap();
    let mut writer = SessionWriter::new(id(1));
    journal.append(one(created_session(&mut writer, None, true))).unwrap();
    let refused = journal.append(one(input_frame(&mut writer, sizes(kind).1)));
    assert!(matches!(refused, Err(AppendError::TooLarge { .. })), "{refused:?}");
}

for_each_engine!(
    body_above_the_limit_is_read_back_like_any_other,
    size_of_a_session_is_read_without_its_blobs,
    frame_of_another_session_is_passed_over_without_its_blob,
    missing_or_damaged_blob_is_damage_to_its_session_alone,
    blob_exists_before_the_row_that_names_it,
    bodies_that_sessions_share_may_be_large_too,
    missing_body_damages_later_sessions_only,
    body_above_the_limit_is_refused_without_a_directory,
);

/// sled never syncs its files for pages above a quarter of a segment, so no page may be that large.
#[test]
fn no_page_of_sled_is_too_large_for_its_log() {
    let largest = (48 << 10) - 600;
    let dir = tempfile::tempdir().unwrap();
    let journal = Kind::Sled.open(dir.path());
    let mut writer = SessionWriter::new(id(1));
    journal.append(one(created_session(&mut writer, None, true))).unwrap();
    for _ in 0..40 {
        let frame = input_frame(&mut writer, largest);
        journal.append(one(frame)).unwrap();
    }
    drop(journal);
    assert_eq!(blobs(dir.path()), Vec::<PathBuf>::new());
    let blob_count = |entry: &Path| std::fs::read_dir(entry.join("blobs")).unwrap().count();
    assert_eq!(blob_count(&dir.path().join("sled-0.34")), 0);

    // Negative control: with sled's default segments, such rows get into separate files.
    let entry = dir.path().join("plain");
    let db = ::sled::Config::new().path(&entry).flush_every_ms(None).open().unwrap();
    for n in 0..40_u64 {
        db.insert(n.to_be_bytes(), vec![b'x'; largest]).unwrap();
    }
    db.flush().unwrap();
    assert!(blob_count(&entry) > 0);
}
