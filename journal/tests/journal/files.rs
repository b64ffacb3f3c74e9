//! Files of a store, saved and restored: whole, truncated, flipped.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A file's start and length; the rest is preallocated zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileImage {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
    pub(crate) len: usize,
}

impl FileImage {
    pub(crate) fn cut(&self, len: usize) -> Self {
        let mut cut = self.clone();
        cut.bytes.truncate(len);
        Self { len, ..cut }
    }

    pub(crate) fn with_flipped_bit(&self, at: usize, bit: usize) -> Self {
        let mut flipped = self.clone();
        flipped.bytes[at] ^= 1 << bit;
        flipped
    }
}

pub(crate) fn take(dir: &Path) -> Vec<FileImage> {
    let mut files = Vec::new();
    walk(dir, dir, &mut files);
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

fn walk(top: &Path, dir: &Path, files: &mut Vec<FileImage>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(top, &path, files);
            continue;
        }
        let mut bytes = fs::read(&path).unwrap();
        let len = bytes.len();
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        files.push(FileImage { path: path.strip_prefix(top).unwrap().to_owned(), bytes, len });
    }
}

pub(crate) fn put<'a>(dir: &Path, files: impl IntoIterator<Item = &'a FileImage>) {
    for kept in files {
        let path = dir.join(&kept.path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = File::create(path).unwrap();
        file.write_all(&kept.bytes).unwrap();
        file.set_len(kept.len as u64).unwrap();
    }
}
