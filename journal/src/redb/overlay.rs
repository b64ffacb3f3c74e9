//! A redb file opened read-only: writes by redb stay in memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

const PAGE: u64 = 4096;

#[derive(Debug)]
pub(super) struct Overlay {
    state: Mutex<OverlayState>,
}

#[derive(Debug)]
struct OverlayState {
    file: File,
    /// Number of bytes of the file that still count: after a truncation, the rest reads as zeros.
    base: u64,
    len: u64,
    /// Written pages by number.
    written: BTreeMap<u64, Vec<u8>>,
}

impl Overlay {
    pub(super) fn over_file(file: &Path) -> io::Result<Self> {
        let file = File::open(file)?;
        let len = file.metadata()?.len();
        Ok(Self { state: Mutex::new(OverlayState { file, base: len, len, written: BTreeMap::new() }) })
    }

    fn state(&self) -> MutexGuard<'_, OverlayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns up to `most` bytes from `from`.
fn part_from(bytes: &mut [u8], from: u64, most: u64) -> &mut [u8] {
    let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let (from, to) = (at(from), at(from.saturating_add(most)));
    bytes.get_mut(from..to).unwrap_or_default()
}

impl OverlayState {
    /// Reads the file at `offset`, with zeros beyond its end.
    fn read_file(&mut self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let base_len = self.base.saturating_sub(offset);
        let held = part_from(out, 0, base_len);
        if !held.is_empty() {
            self.file.seek(SeekFrom::Start(offset))?;
            self.file.read_exact(held)?;
        }
        part_from(out, base_len, u64::MAX).fill(0);
        Ok(())
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset.saturating_add(out.len() as u64);
        if end > self.len {
            let why = format!("{end} is beyond the end of the file, {}", self.len);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        self.read_file(offset, out)?;
        for (number, page) in self.written.range(offset / PAGE..end.div_ceil(PAGE)) {
            let start = number.saturating_mul(PAGE);
            let mut page = page.clone();
            let over = part_from(&mut page, offset.saturating_sub(start), end.saturating_sub(start.max(offset)));
            part_from(out, start.saturating_sub(offset), over.len() as u64).copy_from_slice(over);
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut rest = data;
        let mut at = offset;
        while !rest.is_empty() {
            let (number, within) = (at / PAGE, at % PAGE);
            if !self.written.contains_key(&number) {
                let mut page = vec![0; PAGE as usize];
                self.read_file(number.saturating_mul(PAGE), &mut page)?;
                self.written.insert(number, page);
            }
            let page = self.written.get_mut(&number).map(Vec::as_mut_slice).unwrap_or_default();
            let into = part_from(page, within, rest.len() as u64);
            let (now, later) = rest.split_at(into.len().min(rest.len()));
            into.copy_from_slice(now);
            at = at.saturating_add(now.len() as u64);
            rest = later;
        }
        self.len = self.len.max(at);
        Ok(())
    }

    fn set_len(&mut self, len: u64) {
        self.written.split_off(&len.div_ceil(PAGE));
        if let Some(last) = self.written.get_mut(&(len / PAGE)) {
            part_from(last, len % PAGE, PAGE).fill(0);
        }
        self.base = self.base.min(len);
        self.len = len;
    }
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.state().read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.state().set_len(len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.state().write(offset, data)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, Vec<u8>),
        Resize(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let far = 0_u64..20_000;
        prop_oneof![
            3 => (far.clone(), vec(1_u8.., 1..9_000)).prop_map(|(at, bytes)| Step::Write(at, bytes)),
            1 => far.prop_map(Step::Resize),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn overlay_acts_like_a_file_and_keeps_the_original(
            below in vec(any::<u8>(), 0..20_000),
            steps in vec(step(), 0..12),
            at in 0_usize..20_000,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("file");
            std::fs::write(&path, &below).unwrap();
            let overlay = Overlay::over_file(&path).unwrap();
            let mut plain = below.clone();
            for step in steps {
                match step {
                    Step::Write(at, bytes) => {
                        let end = usize::try_from(at).unwrap() + bytes.len();
                        plain.resize(plain.len().max(end), 0);
                        plain[end - bytes.len()..end].copy_from_slice(&bytes);
                        overlay.write(at, &bytes).unwrap();
                    }
                    Step::Resize(len) => {
                        plain.resize(usize::try_from(len).unwrap(), 0);
                        overlay.set_len(len).unwrap();
                    }
                }
            }
            prop_assert_eq!(overlay.len().unwrap(), plain.len() as u64);
            let at = at.min(plain.len());
            let mut read = vec![7; plain.len() - at];
            overlay.read(at as u64, &mut read).unwrap();
            prop_assert!(read == plain[at..]);
            prop_assert!(overlay.read(at as u64 + 1, &mut vec![0; plain.len() - at]).is_err());
            prop_assert!(std::fs::read(&path).unwrap() == below);
        }
    }
}
