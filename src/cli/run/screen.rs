//! Where progress is told: a live tree on a terminal, plain lines elsewhere, or nowhere.

use std::io::{IsTerminal as _, Write as _};

use anstream::{AutoStream, ColorChoice};
use subtend_actors::event::Event;
use subtend_session::ids::{SessionId, Text};
use tokio::time::Instant;

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
pub(super) struct Screen {
    manner: Manner,
    colours: bool,
    live: Option<Live>,
    /// Lines of the tree that are on the terminal.
    drawn: usize,
    beat: usize,
    quiet: bool,
}

impl Screen {
    /// A screen on stderr: `quiet` tells nothing, `machine` leaves progress to the events on stdout.
    pub(super) fn new(quiet: bool, machine: bool) -> Self {
        let stderr = std::io::stderr();
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let manner = match (quiet || machine, stderr.is_terminal() && !dumb) {
            (true, _) => Manner::Silent,
            (false, true) => Manner::Tree,
            (false, false) => Manner::Lines,
        };
        let colours = !matches!(AutoStream::choice(&stderr), ColorChoice::Never);
        Self { manner, colours, live: None, drawn: 0, beat: 0, quiet }
    }

    /// Shows the tree below `root` from here on.
    pub(super) fn watch(&mut self, root: SessionId, agent: Text) {
        self.live = Some(Live::new(root, agent, Instant::now()));
        self.draw();
    }

    /// Takes one event.
    pub(super) fn take(&mut self, event: &Event) {
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
    pub(super) fn missed(&mut self, events: u64) {
        if let Some(live) = &mut self.live {
            live.missed = live.missed.saturating_add(events);
        }
    }

    /// Draws the tree anew, where there is one.
    pub(super) fn draw(&mut self) {
        let (Manner::Tree, Some(live)) = (self.manner, &self.live) else { return };
        let size = terminal_size::terminal_size_of(std::io::stderr());
        let (rows, columns) = size.map_or((24, 80), |(columns, rows)| (usize::from(rows.0), usize::from(columns.0)));
        self.beat = self.beat.wrapping_add(1);
        // One row stays free for the cursor.
        let lines = view::tree(live, Instant::now(), (rows.saturating_sub(1), columns), self.beat);
        // Drawn over, not cleared first: a terminal that shows half a frame shows nothing missing.
        let mut text = self.back();
        for line in &lines {
            text.push_str(&view::paint(line, self.colours));
            text.push_str("\u{1b}[K\n");
        }
        text.push_str("\u{1b}[J");
        self.drawn = lines.len();
        put(&text);
    }

    /// A line for people, above the tree.
    pub(super) fn note(&mut self, text: &str) {
        if self.quiet {
            return;
        }
        let text = if self.colours { In(DIM, text).to_string() } else { text.to_owned() };
        self.say(&text);
    }

    /// A line for people that is said also when all else is silent.
    pub(super) fn alert(&mut self, text: &str) {
        let text = if self.colours { In(ODD, text).to_string() } else { text.to_owned() };
        self.say(&text);
    }

    fn say(&mut self, text: &str) {
        let back = self.back();
        let clear = if self.drawn > 0 { "\u{1b}[J" } else { "" };
        self.drawn = 0;
        put(&format!("{back}{clear}{text}\n"));
        self.draw();
    }

    /// Ends the tree: it stays as it is, and what follows is written below.
    pub(super) fn close(&mut self) {
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
            0 => String::new(),
            lines => format!("\u{1b}[{lines}A\r"),
        }
    }
}

/// Writes to stderr in one piece, so that a frame does not flicker. Without a stderr there is nobody to tell.
fn put(text: &str) {
    drop(std::io::stderr().lock().write_all(text.as_bytes()));
}
