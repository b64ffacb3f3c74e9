//! Where progress is told: a live tree on a terminal, plain lines elsewhere, or nowhere.

use std::io::{IsTerminal as _, Write as _};

use anstream::{AutoStream, ColorChoice};
use subtend_actors::event::Event;
use subtend_session::ids::{SessionId, Text};
use subtend_tools::registry::Registry;
use tokio::time::Instant;
use unicode_width::UnicodeWidthChar as _;

use super::super::paint::{DIM, In, ODD};
use super::live::Live;
use super::view;

/// How progress is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// A tree that is drawn over itself.
    Tree,
    /// One line for each piece of news.
    Lines,
    /// Not at all.
    Silent,
}

/// Stderr, and the tree as it is known.
#[derive(Debug)]
pub(crate) struct Screen {
    manner: Manner,
    colours: bool,
    /// How calls are shown.
    tools: Registry,
    live: Option<Live>,
    /// Lines of the tree that are on the terminal.
    drawn: usize,
    beat: usize,
    quiet: bool,
    /// The line that a person is typing, and the column of its cursor: the terminal is in raw mode then.
    prompt: Option<(String, usize)>,
}

impl Screen {
    /// A screen on stderr: `quiet` tells nothing, `machine` leaves progress to the events on stdout.
    pub(crate) fn new(quiet: bool, machine: bool) -> Self {
        let stderr = std::io::stderr();
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let manner = match (quiet || machine, stderr.is_terminal() && !dumb) {
            (true, _) => Manner::Silent,
            (false, true) => Manner::Tree,
            (false, false) => Manner::Lines,
        };
        let colours = !matches!(AutoStream::choice(&stderr), ColorChoice::Never);
        Self { manner, colours, tools: Registry::default(), live: None, drawn: 0, beat: 0, quiet, prompt: None }
    }

    /// Shows calls from here on as the tools say.
    pub(crate) fn show_calls_by(&mut self, tools: Registry) {
        self.tools = tools;
    }

    /// Whether there is a terminal to draw on.
    pub(crate) fn is_drawn(&self) -> bool {
        self.manner == Manner::Tree
    }

    /// Shows the tree below `root` from here on.
    pub(crate) fn watch(&mut self, root: SessionId, agent: Text) {
        self.live = Some(Live::new(root, agent, Instant::now(), self.tools.clone()));
        self.draw();
    }

    /// Takes one event.
    pub(crate) fn take(&mut self, event: &Event) {
        if self.manner == Manner::Silent {
            return;
        }
        let now = Instant::now();
        let Some(live) = &mut self.live else { return };
        let Some((id, news)) = live.take(event, now) else { return };
        if self.manner == Manner::Lines
            && let Some(node) = live.node(id)
        {
            let line = view::paint(&view::news(node, &news, now), self.colours);
            put(&format!("{line}\n"));
        }
    }

    /// Takes note of events that were missed.
    pub(crate) fn missed(&mut self, events: u64) {
        if let Some(live) = &mut self.live {
            live.missed = live.missed.saturating_add(events);
        }
    }

    /// Draws the tree anew, where there is one.
    pub(crate) fn draw(&mut self) {
        let (Manner::Tree, Some(live)) = (self.manner, &self.live) else { return };
        let size = terminal_size::terminal_size_of(std::io::stderr());
        let (rows, columns) = size.map_or((24, 80), |(columns, rows)| (usize::from(rows.0), usize::from(columns.0)));
        self.beat = self.beat.wrapping_add(1);
        // One row stays free for the cursor.
        // A conversation keeps most of the terminal for what was said.
        let rows = if self.prompt.is_some() { (rows / 3).max(3) } else { rows.saturating_sub(1) };
        let lines = view::tree(live, Instant::now(), (rows, columns), self.beat);
        // Drawn over, not cleared first: a terminal that shows half a frame shows nothing missing.
        let mut text = self.back();
        for line in &lines {
            text.push_str(&view::paint(line, self.colours));
            text.push_str("\u{1b}[K\n");
        }
        if let Some((line, cursor)) = &self.prompt {
            let (shown, column) = tail(line, *cursor, columns.saturating_sub(4));
            text.push_str(&format!("> {shown}\u{1b}[K\u{1b}[J\r\u{1b}[{}C", column.saturating_add(2)));
        } else {
            text.push_str("\u{1b}[J");
        }
        self.drawn = lines.len();
        self.put(&text);
    }

    /// The line that a person is typing from here on, below the tree; `None` where nobody types.
    pub(crate) fn prompt(&mut self, line: Option<(&str, usize)>) {
        if line.is_none() && self.prompt.is_some() {
            // The tree is drawn once more where it stands, without the line below it.
            self.put("\r\u{1b}[J");
        }
        self.prompt = line.map(|(text, cursor)| (text.to_owned(), cursor));
    }

    /// Text above the tree, as it is.
    pub(crate) fn print(&mut self, text: &str) {
        self.say(text);
    }

    /// Writes to stderr in one piece, so that a frame does not flicker.
    fn put(&self, text: &str) {
        // In raw mode a new line does not begin at its left edge by itself.
        if self.prompt.is_some() { put(&text.replace('\n', "\r\n")) } else { put(text) }
    }

    /// A line for people, above the tree.
    pub(crate) fn note(&mut self, text: &str) {
        if self.quiet {
            return;
        }
        let text = if self.colours { In(DIM, text).to_string() } else { text.to_owned() };
        self.say(&text);
    }

    /// A line for people that is said also when all else is silent.
    pub(crate) fn alert(&mut self, text: &str) {
        let text = if self.colours { In(ODD, text).to_string() } else { text.to_owned() };
        self.say(&text);
    }

    fn say(&mut self, text: &str) {
        let back = self.back();
        let clear = if self.drawn > 0 || self.prompt.is_some() { "\u{1b}[J" } else { "" };
        self.drawn = 0;
        self.put(&format!("{back}{clear}{text}\n"));
        self.draw();
    }

    /// Ends the tree: it stays as it is, and what follows is written below.
    pub(crate) fn close(&mut self) {
        self.draw();
        if let Some(live) = self.live.take().filter(|live| live.missed > 0 && self.manner != Manner::Silent) {
            let missed = live.missed;
            put(&format!(
                "progress was too fast to follow: {missed} events are not shown above, all are in the journal\n"
            ));
        }
        self.drawn = 0;
    }

    /// What takes the cursor back to the first line of the drawn tree.
    fn back(&self) -> String {
        match self.drawn {
            0 if self.prompt.is_some() => "\r".to_owned(),
            0 => String::new(),
            lines => format!("\u{1b}[{lines}A\r"),
        }
    }
}

/// The part of a typed line around its cursor that fits into `columns`, and the cursor's column there.
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

/// Writes to stderr in one piece. Without a stderr there is nobody to tell.
fn put(text: &str) {
    drop(std::io::stderr().lock().write_all(text.as_bytes()));
}
