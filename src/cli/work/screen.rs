//! Progress output on stderr: a live tree on a terminal, plain lines elsewhere, or nothing.

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

use super::super::notices::has_log;
use super::super::paint::{CAUTION, DIM, Styled, on_one_line};
use super::live::{ActivityUpdate, LiveTree};
use super::stream::Stream;
use super::view;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScreenMode {
    Tree,
    Lines,
    Silent,
}

#[derive(Debug)]
pub(crate) struct Screen {
    mode: ScreenMode,
    colours: bool,
    tools: Registry,
    live: Option<LiveTree>,
    /// Number of rows from the top of the drawn tree to the cursor.
    drawn: usize,
    /// Number of rows from the top of the prompt to the cursor.
    typed: usize,
    tick: usize,
    /// The last drawn frame, unless something was written after it.
    frame: Option<String>,
    quiet: bool,
    /// Typed text and the number of characters before the cursor; present while the terminal is in raw mode.
    prompt: Option<(String, usize)>,
    /// Warnings that were already printed, so that each is printed once.
    warned: BTreeSet<Text>,
    /// Sessions whose answers and calls are printed above the tree.
    followed: Vec<SessionId>,
    stream: Stream,
}

impl Screen {
    /// Creates a screen on stderr; with `quiet` only for alerts, with `machine` without progress: stdout has events.
    pub(crate) fn new(quiet: bool, machine: bool) -> Self {
        let stderr = std::io::stderr();
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let mode = match (quiet || machine, stderr.is_terminal() && !dumb) {
            (true, _) => ScreenMode::Silent,
            (false, true) => ScreenMode::Tree,
            (false, false) => ScreenMode::Lines,
        };
        let colours = !matches!(AutoStream::choice(&stderr), ColorChoice::Never);
        Self {
            mode,
            colours,
            tools: Registry::default(),
            live: None,
            drawn: 0,
            typed: 0,
            tick: 0,
            frame: None,
            quiet,
            prompt: None,
            followed: Vec::new(),
            warned: BTreeSet::new(),
            stream: Stream::default(),
        }
    }

    /// Prints answers of `session` as they arrive, and its calls, if stderr is a terminal.
    pub(crate) fn show_answers_of(&mut self, session: SessionId) {
        if self.is_drawn() && !self.followed.contains(&session) {
            self.followed.push(session);
        }
    }

    pub(crate) fn is_showing_answers_of(&self, session: SessionId) -> bool {
        self.followed.contains(&session)
    }

    pub(crate) fn has_printed(&self, text: &str) -> bool {
        self.stream.has_printed(text)
    }

    pub(crate) fn set_tools(&mut self, tools: Registry) {
        self.tools = tools;
    }

    pub(crate) fn tools(&self) -> &Registry {
        &self.tools
    }

    pub(crate) fn is_drawn(&self) -> bool {
        self.mode == ScreenMode::Tree
    }

    pub(crate) fn watch(&mut self, root: SessionId, agent: Text) {
        self.live = Some(LiveTree::new(root, agent, Instant::now(), self.tools.clone()));
        self.draw();
    }

    pub(crate) fn handle(&mut self, event: &Event) {
        self.warn(event);
        if self.mode == ScreenMode::Silent {
            return;
        }
        let now = Instant::now();
        let followed = self.is_showing_answers_of(event.session);
        if followed {
            self.answer(event);
        }
        let Some(live) = &mut self.live else { return };
        let Some((id, news)) = live.take(event, now) else { return };
        let Some(node) = live.node(id) else { return };
        let printed = match (self.mode, &news) {
            (ScreenMode::Lines, ActivityUpdate::Called(..)) | (ScreenMode::Silent, _) => false,
            (ScreenMode::Lines, _) => true,
            // Calls with effects are printed for all sessions, read-only calls for the followed ones.
            (ScreenMode::Tree, ActivityUpdate::Called(_, effect, ..)) => {
                !self.followed.is_empty() && (followed || *effect != ToolEffect::ReadOnly)
            }
            (ScreenMode::Tree, ActivityUpdate::Ended(_)) => !self.followed.is_empty() && node.depth == 1,
            (ScreenMode::Tree, ActivityUpdate::Failed(_) | ActivityUpdate::Compacted(_)) => followed,
            (ScreenMode::Tree, ActivityUpdate::Created | ActivityUpdate::Tool(_)) => false,
        };
        if printed {
            let line = view::paint(&view::activity_line(node, &news, now), self.colours);
            self.say(&line);
        }
    }

    /// Prints parts of an answer as they arrive: complete lines at once, the rest when the answer ends.
    fn answer(&mut self, event: &Event) {
        let id = event.session;
        let text = match &event.what {
            EventKind::Delta { turn, attempt, offset, delta: Delta::Text(text), .. } => {
                self.stream.push_piece((id, *turn, *attempt), *offset, text)
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

    /// Holds back text of models while a question is open: below the question, the text could imitate another one.
    pub(crate) fn hold_text(&mut self, is_open: bool) {
        if let Some(text) = self.stream.hold_back(is_open) {
            self.say(&text);
        }
    }

    /// Prints warnings about omitted parts of a child's prompt.
    fn warn(&mut self, event: &Event) {
        let EventKind::Record { record, .. } = &event.what else { return };
        let Record::ChildSpawned(spawned) = &**record else { return };
        for warning in &spawned.warnings {
            if !self.quiet && self.warned.insert(Text::clone(warning)) {
                self.alert(&format!("warning: {}", on_one_line(warning)));
            }
        }
    }

    pub(crate) fn count_missed_events(&mut self, events: u64) {
        if let Some(live) = &mut self.live {
            live.missed = live.missed.saturating_add(events);
        }
    }

    pub(crate) fn draw(&mut self) {
        if !self.is_drawn() {
            return;
        }
        let size = terminal_size::terminal_size_of(std::io::stderr());
        let size = size.map_or((24, 80), |(columns, rows)| (usize::from(rows.0), usize::from(columns.0)));
        if let Some((frame, text)) = self.frame(size) {
            self.put(&text);
            self.frame = Some(frame);
        }
    }

    /// Returns the current frame, and the text that draws it over the previous one; `None` if they are equal.
    fn frame(&mut self, (rows, columns): (usize, usize)) -> Option<(String, String)> {
        let (ScreenMode::Tree, Some(live)) = (self.mode, &self.live) else { return None };
        // One row stays free for the cursor. In a conversation, most rows are left to messages.
        let left = if self.prompt.is_some() { (rows / 3).max(3) } else { rows.saturating_sub(1) };
        let (most, wide) = (left / 2, columns.saturating_sub(1).max(1));
        let pending = rows_of(&self.stream.pending(most, wide), wide, most);
        let tick = self.tick.wrapping_add(1);
        let lines = view::tree(live, Instant::now(), (left.saturating_sub(pending.len()), columns), tick);
        let tree = lines.iter().map(|line| view::paint(line, self.colours));
        let mut frame = String::new();
        pending.iter().cloned().chain(tree).for_each(|line| frame.push_str(&format!("{line}\u{1b}[K\n")));
        let (mut drawn, mut typed_rows) = (pending.len().saturating_add(lines.len()), 0);
        if let Some((typed, cursor)) = &self.prompt {
            let (rows, row, column) = prompt_rows(typed, *cursor, ((rows / 3).max(1), columns.saturating_sub(4)));
            frame.push_str(&rows.iter().map(|row| format!("{row}\u{1b}[K")).collect::<Vec<_>>().join("\n"));
            frame.push_str("\u{1b}[J\r");
            let below = rows.len().saturating_sub(1).saturating_sub(row);
            if below > 0 {
                frame.push_str(&format!("\u{1b}[{below}A"));
            }
            frame.push_str(&format!("\u{1b}[{}C", column.saturating_add(2)));
            (drawn, typed_rows) = (drawn.saturating_add(row), row);
        } else {
            frame.push_str("\u{1b}[J");
        }
        self.tick = tick;
        if self.frame.as_ref() == Some(&frame) {
            return None;
        }
        // Draw over the old frame without clearing it, so that a half-written frame leaves no gap.
        let text = format!("{}{frame}", self.cursor_to_start());
        (self.drawn, self.typed) = (drawn, typed_rows);
        Some((frame, text))
    }

    /// Sets the typed text below the tree, with the number of characters before the cursor; `None` removes the prompt.
    pub(crate) fn prompt(&mut self, typed: Option<(&str, usize)>) {
        if typed.is_none() && self.prompt.is_some() {
            // Clear the prompt; the tree is drawn again without it.
            let up = if self.typed > 0 { format!("\u{1b}[{}A", self.typed) } else { String::new() };
            self.put(&format!("{up}\r\u{1b}[J"));
            self.drawn = self.drawn.saturating_sub(std::mem::take(&mut self.typed));
        }
        self.prompt = typed.map(|(text, cursor)| (text.to_owned(), cursor));
    }

    /// Writes to stderr in one call, so that frames do not flicker.
    fn put(&mut self, text: &str) {
        // The cursor moves, so the next frame must be drawn even if it is unchanged.
        self.frame = None;
        // In raw mode a line feed does not return the cursor to the left edge.
        if self.prompt.is_some() { put(&text.replace('\n', "\r\n")) } else { put(text) }
    }

    pub(crate) fn note(&mut self, text: &str) {
        if has_log() {
            return tracing::info!("{text}");
        }
        if self.quiet {
            return;
        }
        let text = if self.colours { Styled(DIM, text).to_string() } else { text.to_owned() };
        self.say(&text);
    }

    /// Prints a warning or an error, even with `--quiet`.
    pub(crate) fn alert(&mut self, text: &str) {
        if has_log() {
            return tracing::warn!("{text}");
        }
        let text = if self.colours { Styled(CAUTION, text).to_string() } else { text.to_owned() };
        self.say(&text);
    }

    fn say(&mut self, text: &str) {
        let cursor_to_start = self.cursor_to_start();
        let clear = if self.drawn > 0 || self.prompt.is_some() { "\u{1b}[J" } else { "" };
        (self.drawn, self.typed) = (0, 0);
        self.put(&format!("{cursor_to_start}{clear}{text}\n"));
        self.draw();
    }

    /// Draws the final tree, which stays on the screen above later output.
    pub(crate) fn close(&mut self) {
        self.hold_text(false);
        match self.stream.end() {
            Some(text) => self.say(&text),
            None => self.draw(),
        }
        if let Some(live) = self.live.take().filter(|live| live.missed > 0 && self.mode != ScreenMode::Silent) {
            let missed = live.missed;
            put(&format!(
                "progress was too fast to follow: {missed} events are not shown above; `subtend show` prints what was recorded\n"
            ));
        }
        (self.drawn, self.frame) = (0, None);
    }

    /// Returns the escape sequence that moves the cursor to the first line of the drawn tree.
    fn cursor_to_start(&self) -> String {
        match self.drawn {
            0 if self.prompt.is_some() => "\r".to_owned(),
            0 => String::new(),
            lines => format!("\u{1b}[{lines}A\r"),
        }
    }
}

/// Wraps `text` to `columns`, and returns the last `most` rows.
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

/// Returns the rows of a prompt around its cursor, at most `most`, and the cursor's row and column.
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

/// Returns the part of a typed line that fits into `columns` around the cursor, and the cursor's column.
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
        screen.mode = ScreenMode::Tree;
        screen.prompt(Some(("", 0)));
        screen.watch(SessionId(uuid::Uuid::from_u128(7)), "general".into());
        // The calls above may already have drawn the frame.
        screen.frame = None;
        let drawn = |screen: &mut Screen| {
            let frame = screen.frame((24, 80));
            let is_drawn = frame.is_some();
            screen.frame = frame.map_or_else(|| screen.frame.take(), |(frame, _)| Some(frame));
            is_drawn
        };
        assert_eq!([drawn(&mut screen), drawn(&mut screen), drawn(&mut screen)], [true, false, false]);
        screen.prompt(Some(("a", 1)));
        assert_eq!([drawn(&mut screen), drawn(&mut screen)], [true, false], "typed text is drawn");
        // As if a line had been printed above the tree.
        screen.frame = None;
        assert!(drawn(&mut screen), "positive control: without a previous frame, it is drawn");
    }

    #[test]
    fn u1_pending_line_is_wrapped_into_rows() {
        assert_eq!(rows_of("abcdefg", 3, 9), ["abc", "def", "g"]);
        assert_eq!(rows_of("漢字漢", 4, 1), ["漢"]);
        assert!(rows_of("", 3, 9).is_empty());
    }
}
