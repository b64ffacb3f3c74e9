//! Progress output: a live tree on a terminal, plain lines elsewhere, or nothing.

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write as _};

use anstream::{AutoStream, ColorChoice};
use subtend_actors::event::{Event, EventKind};
use subtend_models::model::Delta;
use subtend_session::call::ToolEffect;
use subtend_session::ids::{SessionId, Text};
use subtend_session::record::Record;
use subtend_tools::registry::Registry;
use tokio::time::Instant;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::super::paint::{DIM, In, ODD, harmless};
use super::live::{LiveTree, News};
use super::stream::Stream;
use super::view;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Tree,
    Lines,
    Silent,
}

#[derive(Debug)]
pub(crate) struct Screen {
    manner: Manner,
    colours: bool,
    tools: Registry,
    live: Option<LiveTree>,
    drawn: usize,
    typed: usize,
    beat: usize,
    /// The last drawn frame, if nothing was written since.
    frame: Option<String>,
    quiet: bool,
    /// The typed text, and the number of characters before the cursor. The terminal is in raw mode then.
    prompt: Option<(String, usize)>,
    /// Warnings that were printed: each once, however many children it is about.
    warned: BTreeSet<Text>,
    /// Sessions whose answers and calls are printed above the tree.
    audible: Vec<SessionId>,
    stream: Stream,
}

impl Screen {
    /// Returns a screen on stderr. `quiet` prints nothing, `machine` leaves progress to the events on stdout.
    pub(crate) fn new(quiet: bool, machine: bool) -> Self {
        let stderr = std::io::stderr();
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let manner = match (quiet || machine, stderr.is_terminal() && !dumb) {
            (true, _) => Manner::Silent,
            (false, true) => Manner::Tree,
            (false, false) => Manner::Lines,
        };
        let colours = !matches!(AutoStream::choice(&stderr), ColorChoice::Never);
        Self {
            manner,
            colours,
            tools: Registry::default(),
            live: None,
            drawn: 0,
            typed: 0,
            beat: 0,
            frame: None,
            quiet,
            prompt: None,
            audible: Vec::new(),
            warned: BTreeSet::new(),
            stream: Stream::default(),
        }
    }

    /// Prints what `session` answers, as it arrives, and its calls, where there is a terminal.
    pub(crate) fn hear(&mut self, session: SessionId) {
        if self.is_drawn() && !self.audible.contains(&session) {
            self.audible.push(session);
        }
    }

    pub(crate) fn hears(&self, session: SessionId) -> bool {
        self.audible.contains(&session)
    }

    pub(crate) fn has_printed(&self, text: &str) -> bool {
        self.stream.has_printed(text)
    }

    pub(crate) fn show_calls_by(&mut self, tools: Registry) {
        self.tools = tools;
    }

    pub(crate) fn tools(&self) -> &Registry {
        &self.tools
    }

    pub(crate) fn is_drawn(&self) -> bool {
        self.manner == Manner::Tree
    }

    pub(crate) fn watch(&mut self, root: SessionId, agent: Text) {
        self.live = Some(LiveTree::new(root, agent, Instant::now(), self.tools.clone()));
        self.draw();
    }

    pub(crate) fn take(&mut self, event: &Event) {
        self.warn(event);
        if self.manner == Manner::Silent {
            return;
        }
        let now = Instant::now();
        let audible = self.hears(event.session);
        if audible {
            self.answer(event);
        }
        let Some(live) = &mut self.live else { return };
        let Some((id, news)) = live.take(event, now) else { return };
        let Some(node) = live.node(id) else { return };
        let printed = match (self.manner, &news) {
            (Manner::Lines, News::Called(..)) | (Manner::Silent, _) => false,
            (Manner::Lines, _) => true,
            // Calls with effects are printed for all sessions, read-only calls for the followed ones.
            (Manner::Tree, News::Called(_, effect, ..)) => {
                !self.audible.is_empty() && (audible || *effect != ToolEffect::ReadOnly)
            }
            (Manner::Tree, News::Ended(_)) => !self.audible.is_empty() && node.depth == 1,
            (Manner::Tree, News::Failed(_) | News::Compacted(_)) => audible,
            (Manner::Tree, News::Born | News::Tool(_)) => false,
        };
        if printed {
            let line = view::paint(&view::news(node, &news, now), self.colours);
            self.say(&line);
        }
    }

    /// Prints what arrives of an answer: whole lines at once, the rest with the end of the answer.
    fn answer(&mut self, event: &Event) {
        let id = event.session;
        let text = match &event.what {
            EventKind::Delta { turn, attempt, offset, delta: Delta::Text(text), .. } => {
                self.stream.piece((id, *turn, *attempt), *offset, text)
            }
            EventKind::Delta { .. } | EventKind::Progress { .. } | EventKind::Queue { .. } => None,
            EventKind::Record { record, .. } => {
                if let Record::TurnStarted { turn, attempt, .. } = &**record {
                    self.stream.start((id, *turn, *attempt))
                } else if let Record::TurnAnswered(answered) = &**record {
                    let text = answered.text.as_deref().unwrap_or_default();
                    self.stream.answer((id, answered.turn, answered.attempt), text)
                } else if matches!(&**record, Record::AttemptDiscarded(_) | Record::RunEnded(_)) {
                    self.stream.end()
                } else {
                    None
                }
            }
        };
        if let Some(text) = text {
            self.say(&text);
        }
    }

    /// Holds back text of models while a question `is_open`, since below it the text could imitate another question.
    pub(crate) fn hold(&mut self, is_open: bool) {
        if let Some(text) = self.stream.hold(is_open) {
            self.say(&text);
        }
    }

    /// Prints the omitted parts of a child's prompt (S3).
    fn warn(&mut self, event: &Event) {
        let EventKind::Record { record, .. } = &event.what else { return };
        let Record::ChildSpawned(spawned) = &**record else { return };
        for warning in &spawned.warnings {
            if !self.quiet && self.warned.insert(Text::clone(warning)) {
                self.alert(&format!("warning: {}", harmless(warning)));
            }
        }
    }

    pub(crate) fn missed(&mut self, events: u64) {
        if let Some(live) = &mut self.live {
            live.missed = live.missed.saturating_add(events);
        }
    }

    pub(crate) fn draw(&mut self) {
        let size = terminal_size::terminal_size_of(std::io::stderr());
        let size = size.map_or((24, 80), |(columns, rows)| (usize::from(rows.0), usize::from(columns.0)));
        if let Some((frame, text)) = self.frame(size) {
            self.put(&text);
            self.frame = Some(frame);
        }
    }

    /// Returns the frame that is drawn now, and the text that draws it over the one before; `None` where they are the same.
    fn frame(&mut self, (rows, columns): (usize, usize)) -> Option<(String, String)> {
        let (Manner::Tree, Some(live)) = (self.manner, &self.live) else { return None };
        // One row stays free for the cursor. A conversation keeps most of the terminal for what was said.
        let left = if self.prompt.is_some() { (rows / 3).max(3) } else { rows.saturating_sub(1) };
        let at_hand = rows_of(&self.stream.at_hand(), columns.saturating_sub(1).max(1), left / 2);
        let beat = self.beat.wrapping_add(1);
        let lines = view::tree(live, Instant::now(), (left.saturating_sub(at_hand.len()), columns), beat);
        let tree = lines.iter().map(|line| view::paint(line, self.colours));
        let mut frame = String::new();
        at_hand.iter().cloned().chain(tree).for_each(|line| frame.push_str(&format!("{line}\u{1b}[K\n")));
        let (mut drawn, mut above) = (at_hand.len().saturating_add(lines.len()), 0);
        if let Some((typed, cursor)) = &self.prompt {
            let (rows, row, column) = prompt_rows(typed, *cursor, ((rows / 3).max(1), columns.saturating_sub(4)));
            frame.push_str(&rows.iter().map(|row| format!("{row}\u{1b}[K")).collect::<Vec<_>>().join("\n"));
            frame.push_str("\u{1b}[J\r");
            let below = rows.len().saturating_sub(1).saturating_sub(row);
            if below > 0 {
                frame.push_str(&format!("\u{1b}[{below}A"));
            }
            frame.push_str(&format!("\u{1b}[{}C", column.saturating_add(2)));
            (drawn, above) = (drawn.saturating_add(row), row);
        } else {
            frame.push_str("\u{1b}[J");
        }
        self.beat = beat;
        if self.frame.as_ref() == Some(&frame) {
            return None;
        }
        // Drawn over the old frame without clearing it, so that a half-written frame leaves no gap.
        let text = format!("{}{frame}", self.back());
        (self.drawn, self.typed) = (drawn, above);
        Some((frame, text))
    }

    /// Sets the typed text below the tree, and the number of characters before the cursor; `None` without a prompt.
    pub(crate) fn prompt(&mut self, typed: Option<(&str, usize)>) {
        if typed.is_none() && self.prompt.is_some() {
            // The tree is drawn once more in its place, without the prompt below it.
            let up = if self.typed > 0 { format!("\u{1b}[{}A", self.typed) } else { String::new() };
            self.put(&format!("{up}\r\u{1b}[J"));
            self.drawn = self.drawn.saturating_sub(std::mem::take(&mut self.typed));
        }
        self.prompt = typed.map(|(text, cursor)| (text.to_owned(), cursor));
    }

    /// Writes to stderr in one piece, so that a frame does not flicker.
    fn put(&mut self, text: &str) {
        // The cursor has moved, so the next frame must be drawn even if it is unchanged.
        self.frame = None;
        // In raw mode a line feed does not return the cursor to the left edge.
        if self.prompt.is_some() { put(&text.replace('\n', "\r\n")) } else { put(text) }
    }

    pub(crate) fn note(&mut self, text: &str) {
        if self.quiet {
            return;
        }
        let text = if self.colours { In(DIM, text).to_string() } else { text.to_owned() };
        self.say(&text);
    }

    /// Prints a line for people, even with `--quiet`.
    pub(crate) fn alert(&mut self, text: &str) {
        let text = if self.colours { In(ODD, text).to_string() } else { text.to_owned() };
        self.say(&text);
    }

    fn say(&mut self, text: &str) {
        let back = self.back();
        let clear = if self.drawn > 0 || self.prompt.is_some() { "\u{1b}[J" } else { "" };
        (self.drawn, self.typed) = (0, 0);
        self.put(&format!("{back}{clear}{text}\n"));
        self.draw();
    }

    /// Ends the tree: it stays on the screen, and later output is written below.
    pub(crate) fn close(&mut self) {
        self.hold(false);
        match self.stream.end() {
            Some(text) => self.say(&text),
            None => self.draw(),
        }
        if let Some(live) = self.live.take().filter(|live| live.missed > 0 && self.manner != Manner::Silent) {
            let missed = live.missed;
            put(&format!(
                "progress was too fast to follow: {missed} events are not shown above, all are in the journal\n"
            ));
        }
        (self.drawn, self.frame) = (0, None);
    }

    /// Returns what takes the cursor back to the first line of the drawn tree.
    fn back(&self) -> String {
        match self.drawn {
            0 if self.prompt.is_some() => "\r".to_owned(),
            0 => String::new(),
            lines => format!("\u{1b}[{lines}A\r"),
        }
    }
}

/// Returns the last `most` rows that `text` fills, `columns` wide.
fn rows_of(text: &str, columns: usize, most: usize) -> Vec<String> {
    let (mut rows, mut row, mut width) = (Vec::new(), String::new(), 0_usize);
    for c in text.chars().map(|c| if c == '\t' { ' ' } else { c }) {
        let wide = c.width().unwrap_or(0);
        if width.saturating_add(wide) > columns {
            rows.push(std::mem::take(&mut row));
            width = 0;
        }
        row.push(c);
        width = width.saturating_add(wide);
    }
    if !row.is_empty() {
        rows.push(row);
    }
    rows.split_off(rows.len().saturating_sub(most))
}

/// Returns the rows of a prompt, at most `most` around its cursor, each with its margin; and the cursor's row and column.
fn prompt_rows(typed: &str, cursor: usize, (most, columns): (usize, usize)) -> (Vec<String>, usize, usize) {
    let before: String = typed.chars().take(cursor).collect();
    let row = before.matches('\n').count();
    let at = before.rsplit('\n').next().unwrap_or_default().width();
    let from = row.saturating_add(1).saturating_sub(most);
    let mut column = at;
    let rows = typed.split('\n').enumerate().skip(from).take(most).map(|(no, line)| {
        let (shown, shown_at) = tail(line, if no == row { at } else { 0 }, columns);
        if no == row {
            column = shown_at;
        }
        format!("{}{shown}", if no == 0 { "> " } else { "  " })
    });
    let rows = rows.collect();
    (rows, row.saturating_sub(from), column)
}

/// Returns the part of a typed line around its cursor that fits into `columns`, and the cursor's column there.
fn tail(line: &str, cursor: usize, columns: usize) -> (String, usize) {
    let skip = cursor.saturating_sub(columns);
    let (mut at, mut out) = (0_usize, String::new());
    for c in line.chars() {
        let width = c.width().unwrap_or(0);
        if at >= skip && at.saturating_add(width) <= skip.saturating_add(columns) {
            out.push(if c.is_control() { ' ' } else { c });
        }
        at = at.saturating_add(width);
    }
    (out, cursor.saturating_sub(skip))
}

fn put(text: &str) {
    drop(std::io::stderr().lock().write_all(text.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u5_prompt_of_many_lines_keeps_its_cursor() {
        let rows = |typed: &str, cursor| prompt_rows(typed, cursor, (2, 20));
        assert_eq!(rows("one", 3), (vec!["> one".into()], 0, 3));
        assert_eq!(rows("one\ntwo", 5), (vec!["> one".into(), "  two".into()], 1, 1));
        assert_eq!(rows("one\ntwo\nthree", 13), (vec!["  two".into(), "  three".into()], 1, 5));
        assert_eq!(rows("one\n", 4), (vec!["> one".into(), "  ".into()], 1, 0));
    }

    #[test]
    fn idle_frame_is_drawn_once() {
        let mut screen = Screen::new(true, false);
        screen.manner = Manner::Tree;
        screen.prompt(Some(("", 0)));
        screen.watch(SessionId(uuid::Uuid::from_u128(7)), "general".into());
        // It may have been drawn by that.
        screen.frame = None;
        let drawn = |screen: &mut Screen| {
            let frame = screen.frame((24, 80));
            let is_drawn = frame.is_some();
            screen.frame = frame.map_or_else(|| screen.frame.take(), |(frame, _)| Some(frame));
            is_drawn
        };
        assert_eq!([drawn(&mut screen), drawn(&mut screen), drawn(&mut screen)], [true, false, false]);
        screen.prompt(Some(("a", 1)));
        assert_eq!([drawn(&mut screen), drawn(&mut screen)], [true, false], "what is typed is drawn");
        // As a line above the tree leaves it.
        screen.frame = None;
        assert!(drawn(&mut screen), "the control: without the frame before, it is drawn");
    }

    #[test]
    fn u1_line_at_hand_is_cut_into_rows() {
        assert_eq!(rows_of("abcdefg", 3, 9), ["abc", "def", "g"]);
        assert_eq!(rows_of("漢字漢", 4, 1), ["漢"]);
        assert!(rows_of("", 3, 9).is_empty());
    }
}
