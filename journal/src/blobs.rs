//! Files for bodies that are too large for an engine. They are stored next to the store and named by their hash.
//!
//! A blob is durable before the row that names it. A row without its blob is damage. A blob without a row is a harmless leftover of a
//! crash: it is reused for the same body, and removed by a compaction.

use std::borrow::Cow;
#[cfg(feature = "disk")]
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use subtend_session::ids::{Hash, Lsn, Seq, SessionId, Text};
use subtend_session::index::{Head, Inflight, Row};

use crate::codec::{self, Reference};
use crate::engine::{Engine, Group, MAX_FRAME, Payload, Range, Result, ScanFlow, StoredFrame};
use crate::error::EngineError;
use crate::owner_only;
use crate::rows;

/// First character of a row of `def` whose text is in a blob, followed by the decimal length. JSON cannot start with it.
const IN_BLOB: char = '\u{1}';
/// Extension of a blob that is being written.
const MAKING: &str = "making";
/// Attempts to open a file while the process or the system has no file handles left, in addition to the one that is held in reserve. A failed
/// write would end the journal, and such a shortage usually passes.
const MAX_ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// Engine with a directory for large bodies.
pub struct Blobs {
    inner: Arc<dyn Engine>,
    dir: PathBuf,
    read_only: bool,
    /// A handle that is closed when no other is left, so that one file at a time can still be opened.
    reserve: Mutex<Option<File>>,
}

impl std::fmt::Debug for Blobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blobs").field("engine", &self.inner.name()).field("dir", &self.dir).finish()
    }
}

impl Blobs {
    /// Wraps `inner`. The first blob creates `dir`.
    pub fn new(inner: Arc<dyn Engine>, dir: PathBuf) -> Self {
        Self { inner, dir, read_only: false, reserve: Mutex::new(None) }.with_reserve()
    }

    /// Wraps `inner` read-only: writes fail.
    pub fn to_read(inner: Arc<dyn Engine>, dir: PathBuf) -> Self {
        Self { inner, dir, read_only: true, reserve: Mutex::new(None) }.with_reserve()
    }

    fn with_reserve(self) -> Self {
        self.refill();
        self
    }

    /// Opens the reserve again, if possible.
    fn refill(&self) {
        let mut reserve = self.reserve.lock().unwrap_or_else(PoisonError::into_inner);
        if reserve.is_none() {
            *reserve = File::open("/dev/null").ok();
        }
    }

    /// Repeats `attempt` while it fails because no file handle is left. It must hold at most one handle at a time.
    fn with_handle<T>(&self, attempt: impl Fn() -> io::Result<T>) -> io::Result<T> {
        let mut result = attempt();
        for _ in 0..MAX_ATTEMPTS {
            if !result.as_ref().is_err_and(is_out_of_handles) {
                break;
            }
            if self.reserve.lock().unwrap_or_else(PoisonError::into_inner).take().is_none() {
                std::thread::sleep(PAUSE);
            }
            result = attempt();
        }
        self.refill();
        result
    }

    /// Returns the directory and the path of a blob. Blobs are spread over 256 directories to keep each small.
    fn location(&self, hash: Hash) -> (PathBuf, PathBuf) {
        let name = hash.to_string();
        let subdir = self.dir.join(name.get(..2).unwrap_or_default());
        let file = subdir.join(name);
        (subdir, file)
    }

    /// Stores `content` in its blob. The file and its directory entries are durable on return.
    fn store(&self, hash: Hash, content: &[u8]) -> io::Result<()> {
        let (subdir, file) = self.location(hash);
        // An existing file may be unsynced after a crash, or damaged. A link or a pipe is replaced.
        let is_alike = is_file_of(&file, content.len() as u64) && fs::read(&file).is_ok_and(|found| found == content);
        if is_alike {
            File::open(&file)?.sync_all()?;
        } else {
            owner_only::create_dir_all(&subdir)?;
            let making = file.with_added_extension(MAKING);
            // A leftover may be a link, which must not be written through.
            match fs::remove_file(&making) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            let mut out = owner_only::file_options().write(true).create_new(true).open(&making)?;
            out.write_all(content)?;
            out.sync_all()?;
            fs::rename(&making, &file)?;
        }
        for dir in [Some(subdir.as_path()), Some(&*self.dir), self.dir.parent()].into_iter().flatten() {
            File::open(dir)?.sync_all()?;
        }
        Ok(())
    }

    /// Returns `head` with the content of the blob, or a description of its damage.
    fn fetch(&self, head: &[u8], reference: Reference) -> std::result::Result<Vec<u8>, String> {
        let Reference { hash, len } = reference;
        // The author of the store chooses it, together with the size of the file.
        if len > MAX_FRAME {
            return Err(format!("the blob {hash} has {len} bytes, above the limit of {MAX_FRAME}"));
        }
        let (_, file) = self.location(hash);
        let read = || {
            // Checked before it is opened and read: a pipe would block, and a large file would fill the memory.
            let found = fs::symlink_metadata(&file)?;
            if !found.is_file() || found.len() != len {
                return Ok(Err(found.len()));
            }
            let bytes = usize::try_from(len).unwrap_or(usize::MAX);
            let mut out = Vec::new();
            out.try_reserve_exact(head.len().saturating_add(bytes))?;
            out.extend_from_slice(head);
            File::open(&file)?.take(len).read_to_end(&mut out).map(|_| Ok(out))
        };
        let whole = match self.with_handle(read) {
            Ok(Ok(whole)) => whole,
            Ok(Err(bytes)) => return Err(format!("the blob {hash} has {bytes} bytes instead of {len}")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(format!("the blob {hash} is missing")),
            Err(error) => return Err(format!("the blob {hash} cannot be read: {error}")),
        };
        let content = whole.get(head.len()..).unwrap_or_default();
        if content.len() as u64 != len {
            return Err(format!("the blob {hash} has {} bytes instead of {len}", content.len()));
        }
        if Hash::of(content) != hash {
            return Err(format!("the blob {hash} does not match its hash"));
        }
        Ok(whole)
    }

    fn with_body(&self, kept: StoredFrame) -> StoredFrame {
        let StoredFrame::Bytes(bytes) = &kept else { return kept };
        let head = bytes.get(..codec::HEADER).unwrap_or(bytes);
        match Reference::in_frame(bytes).map(|reference| self.fetch(head, reference)) {
            None => kept,
            Some(Ok(frame)) => StoredFrame::Bytes(codec::join(frame)),
            Some(Err(why)) => StoredFrame::Damaged(why),
        }
    }

    /// Returns the text of a row of `def`, from its blob if necessary.
    fn text(&self, hash: Hash, text: Text) -> Result<Text> {
        let Some(len) = text.strip_prefix(IN_BLOB) else { return Ok(text) };
        let bad = |why: String| rows::corrupt("def", &hash.0, &why);
        let len = len.parse().map_err(|_| bad(format!("{len:?} is not the length of a blob")))?;
        let content = self.fetch(&[], Reference { hash, len }).map_err(bad)?;
        String::from_utf8(content).map(Text::from).map_err(|error| bad(error.to_string()))
    }
}

fn is_file_of(path: &Path, len: u64) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.len() == len)
}

/// Returns whether the process (`EMFILE`) or the system (`ENFILE`) has no file handles left. These numbers are the same on all Unix systems.
fn is_out_of_handles(error: &io::Error) -> bool {
    cfg!(unix) && matches!(error.raw_os_error(), Some(23 | 24))
}

/// Returns the names of the blobs that rows of the bare `engine` refer to.
#[cfg(feature = "disk")]
pub(crate) fn named_blobs(engine: &dyn Engine) -> Result<BTreeSet<String>> {
    let mut named = BTreeSet::new();
    engine.frames(Lsn(0), &mut |_, kept| {
        if let StoredFrame::Bytes(bytes) = &kept {
            named.extend(Reference::in_frame(bytes).map(|reference| reference.hash.to_string()));
        }
        ScanFlow::Continue(())
    })?;
    let mut failed = None;
    engine.defs(&mut |hash, text| {
        match text {
            Ok(text) if text.starts_with(IN_BLOB) => drop(named.insert(hash.to_string())),
            Ok(_) => {}
            Err(error) => failed = Some(error),
        }
        if failed.is_some() { ScanFlow::Break(()) } else { ScanFlow::Continue(()) }
    })?;
    failed.map_or(Ok(named), Err)
}

#[cfg(feature = "disk")]
fn is_hex(name: &str, len: usize) -> bool {
    name.len() == len && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns whether a file has the name of a blob, or of one that was being written.
#[cfg(feature = "disk")]
fn is_blob(name: &str) -> bool {
    is_hex(name.split_once('.').filter(|(_, extension)| *extension == MAKING).map_or(name, |(hash, _)| hash), 32)
}

/// Removes the blobs below `dir` that are not `named`, durably. Calls `swept` for each. Other files remain.
#[cfg(feature = "disk")]
pub(crate) fn sweep(dir: &Path, named: &BTreeSet<String>, swept: &mut dyn FnMut()) -> io::Result<()> {
    let subdirs = match fs::read_dir(dir) {
        Ok(subdirs) => subdirs,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for subdir in subdirs {
        let subdir = subdir?;
        if !subdir.file_type()?.is_dir() || !subdir.file_name().to_str().is_some_and(|name| is_hex(name, 2)) {
            continue;
        }
        for blob in fs::read_dir(subdir.path())? {
            let blob = blob?;
            let name = blob.file_name();
            let Some(name) = name.to_str().filter(|name| is_blob(name)) else { continue };
            if blob.file_type()?.is_file() && !named.contains(name) {
                fs::remove_file(blob.path())?;
                swept();
            }
        }
        File::open(subdir.path())?.sync_all()?;
    }
    Ok(())
}

impl Engine for Blobs {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn durability(&self) -> Cow<'static, str> {
        self.inner.durability()
    }

    fn write(&self, mut group: Group) -> Result<()> {
        if self.read_only {
            let why = "the store was opened read-only".to_owned();
            return Err(EngineError::Store { what: "write", why });
        }
        let most = self.inner.max_body();
        let failed = |source| EngineError::Io { what: "write a blob", source };
        for frame in &mut group.frames {
            if let Payload::Bytes(bytes) = &mut frame.payload
                && bytes.len() as u64 > most
            {
                let (named, reference, body) = codec::split(bytes);
                self.with_handle(|| self.store(reference.hash, body)).map_err(failed)?;
                *bytes = named;
            }
            for (hash, text) in frame.changes.defs.iter_mut().filter(|(_, text)| text.len() as u64 > most) {
                self.with_handle(|| self.store(*hash, text.as_bytes())).map_err(failed)?;
                *text = format!("{IN_BLOB}{}", text.len()).into();
            }
        }
        self.inner.write(group)
    }

    crate::engine::delegate! { inner }
    crate::engine::delegate! { inner:
        children(parent: SessionId) -> Result<Vec<SessionId>>;
        head(session: SessionId) -> Result<Option<Head>>;
    }

    fn max_body(&self) -> u64 {
        self.inner.max_body().max(MAX_FRAME)
    }

    fn frame(&self, lsn: Lsn) -> Result<Option<StoredFrame>> {
        Ok(self.inner.frame(lsn)?.map(|kept| self.with_body(kept)))
    }

    fn frame_of(&self, lsn: Lsn, is_wanted: &mut dyn FnMut(SessionId, u64) -> bool) -> Result<Option<StoredFrame>> {
        Ok(self.inner.frame_of(lsn, is_wanted)?.map(|kept| self.with_body(kept)))
    }

    fn frames(&self, from: Lsn, visit: &mut dyn FnMut(Lsn, StoredFrame) -> ScanFlow) -> Result<()> {
        self.inner.frames(from, &mut |lsn, kept| visit(lsn, self.with_body(kept)))
    }

    fn range(&self, session: SessionId, from: Seq, until: Seq, max_bytes: u64) -> Result<Range> {
        let mut range = self.inner.range(session, from, until, max_bytes)?;
        let (mut count, mut bytes) = (0_usize, 0_u64);
        for (_, _, frame) in &mut range.frames {
            *frame = frame.take().map(|kept| self.with_body(kept));
            bytes = bytes.saturating_add(frame.as_ref().map_or(0, StoredFrame::bytes));
            count = count.saturating_add(1);
            if bytes >= max_bytes {
                break;
            }
        }
        range.frames.truncate(count);
        Ok(range)
    }

    fn def(&self, hash: Hash) -> Result<Option<Text>> {
        self.inner.def(hash)?.map(|text| self.text(hash, text)).transpose()
    }

    fn def_bytes(&self, hash: Hash) -> Result<u64> {
        let named = |text: &Text| text.strip_prefix(IN_BLOB).and_then(|len| len.parse::<u64>().ok());
        Ok(self.inner.def(hash)?.map_or(0, |text| named(&text).unwrap_or(text.len() as u64)))
    }

    fn defs(&self, visit: &mut dyn FnMut(Hash, Result<Text>) -> ScanFlow) -> Result<()> {
        self.inner.defs(&mut |hash, text| visit(hash, text.and_then(|text| self.text(hash, text))))
    }
}
