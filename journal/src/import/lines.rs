//! Reads lines of an export. Size, checksum and number are checked before the content is used.

use std::io::{BufRead, Read as _, Seek, SeekFrom};

use serde::Deserialize;

use super::ImportError;
use crate::codec::{self, FrameError};
use crate::export::line::{self, Line};

pub(super) struct Lines<'a, R> {
    file: &'a mut R,
    /// The number of the line that was read last, from 1.
    pub(super) n: u64,
    pub(super) offset: u64,
    next: u64,
    buffer: Vec<u8>,
    /// Maximum bytes of a line.
    most: u64,
}

impl<'a, R: BufRead + Seek> Lines<'a, R> {
    pub(super) fn new(file: &'a mut R, most: u64) -> Result<Self, ImportError> {
        file.seek(SeekFrom::Start(0))?;
        Ok(Self { file, n: 0, offset: 0, next: 0, buffer: Vec::new(), most })
    }

    pub(super) fn seek_line(&mut self, n: u64, offset: u64) -> Result<(), ImportError> {
        // A relative seek within the buffer does not need a system call.
        let way =
            i64::try_from(offset).ok().zip(i64::try_from(self.next).ok()).map(|(to, from)| to.saturating_sub(from));
        match way {
            Some(0) => {}
            Some(way) => self.file.seek_relative(way)?,
            None => drop(self.file.seek(SeekFrom::Start(offset))?),
        }
        self.n = n.saturating_sub(1);
        self.next = offset;
        Ok(())
    }

    pub(super) fn read(&mut self) -> Result<&[u8], ImportError> {
        self.buffer.clear();
        let read = self.file.by_ref().take(self.most).read_until(b'\n', &mut self.buffer)?;
        let line = self.n.saturating_add(1);
        if self.buffer.last() != Some(&b'\n') {
            if read as u64 >= self.most {
                let rest = self.file.skip_until(b'\n')?;
                let bytes = (read as u64).saturating_add(rest as u64);
                return Err(ImportError::TooLarge { line, bytes, limit: self.most });
            }
            return Err(ImportError::Truncated { line: if read == 0 { self.n } else { line } });
        }
        self.offset = self.next;
        self.next = self.next.saturating_add(read as u64);
        self.n = line;
        let sealed = self.buffer.split_last().map(|(_, line)| line).unwrap_or_default();
        line::check(sealed).map_err(|why| ImportError::Damaged { line, why })?;
        Ok(&self.buffer)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Parses the last line.
    pub(super) fn parse<T: for<'de> Deserialize<'de>>(&self) -> Result<Line<T>, ImportError> {
        let line: Line<T> = self.json()?;
        if line.n != self.n {
            let why = format!("it was line {} of the export: lines are missing, repeated or moved", line.n);
            return Err(self.damage_error(why));
        }
        Ok(line)
    }

    pub(super) fn json<T: for<'de> Deserialize<'de>>(&self) -> Result<T, ImportError> {
        serde_json::from_slice(&self.buffer).map_err(|error| match codec::classify_json_error(&error) {
            FrameError::Corrupt(why) => self.damage_error(why),
            FrameError::Newer(why) => ImportError::Newer { line: self.n, why },
        })
    }

    pub(super) fn damage_error(&self, why: impl Into<String>) -> ImportError {
        ImportError::Damaged { line: self.n, why: why.into() }
    }

    pub(super) fn is_at_end(&mut self) -> Result<bool, ImportError> {
        Ok(self.file.fill_buf()?.is_empty())
    }
}
