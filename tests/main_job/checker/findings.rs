//! Checks the findings that one explorer returns to its owner.

use super::{AnswerCheck, Checked};
use crate::main_job::read::Rest;
use crate::main_job::truth::{Area, Truth, Word};

pub(crate) fn findings(text: &str, truth: &Truth, words: &[Word]) -> Checked {
    let mut check = AnswerCheck::new(truth, words);
    match check.block(text) {
        Some(()) => {}
        None => check.done.wrong.push(format!("no findings that can be read: {text}")),
    }
    check.done
}

impl AnswerCheck<'_> {
    fn block(&mut self, text: &str) -> Option<()> {
        let (_, block) = text.split_once("```findings\narea: ")?;
        let (path, block) = block.split_once("\ndepth: ")?;
        let (depth, block) = block.split_once('\n')?;
        let area = Area { path: path.to_owned(), shallow: depth == "own files" };
        let block = block.strip_suffix("\nend\n```")?;
        for line in block.lines() {
            if self.finding(line, &area).is_none() {
                self.done.wrong.push(format!("not understood: {line}"));
            }
        }
        Some(())
    }

    fn finding(&mut self, line: &str, area: &Area) -> Option<()> {
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        let number = |text: &str| {
            let mut rest = Rest(text);
            let reported = rest.number()?;
            rest.end().map(|()| reported)
        };
        match key {
            "files" => self.number(number(value)?, self.truth.count_files(area), "files"),
            "kind" => self.kind(area, &value.replace(": ", " "))?,
            "word" => self.word = Some(*self.words.iter().find(|word| word.label == value)?),
            "pattern" => self.pattern(value),
            "matching lines" => self.number(number(value)?, self.truth.count_matches(area, &self.word?).0, line),
            "matching files" => self.number(number(value)?, self.truth.count_matches(area, &self.word?).1, line),
            "note" => {}
            "begins" => self.found(value, area)?,
            _ => {
                self.found(line, area)?;
            }
        }
        Some(())
    }

    fn found(&mut self, line: &str, area: &Area) -> Option<()> {
        let mut places = line.match_indices(':').filter_map(|(at, _)| {
            let after = &line[at + 1..];
            let (number, text) = after.split_once(": ").or_else(|| Some((after.strip_suffix(':')?, "")))?;
            Some((&line[..at], number.parse::<usize>().ok()?, text))
        });
        let (path, number, text) = places.find(|(path, _, _)| self.truth.files.contains_key(*path))?;
        self.place(path, number, text, area);
        Some(())
    }
}
