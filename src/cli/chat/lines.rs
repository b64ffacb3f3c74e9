//! The line editor of a chat: turns key events into lines.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

use crossterm::event::{
    DisableBracketedPaste, EnableBracketedPaste, Event, EventStream, KeyCode, KeyEventKind, KeyModifiers,
};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use tui_input::Input;
use tui_input::backend::crossterm::EventHandler as _;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TerminalInput {
    Line(String),
    Changed,
    Escape,
    Break,
    /// Ctrl-D on an empty line, or the end of the terminal's input.
    End,
}

/// Maximum number of events to take before a question. A program could write to the terminal endlessly.
const MAX_EARLY: usize = 1 << 16;

/// Line editor that keeps the terminal in raw mode.
pub(super) struct LineEditor {
    events: BoxStream<'static, std::io::Result<Event>>,
    /// What was typed before a question and does not answer it, such as Ctrl-C.
    early: VecDeque<TerminalInput>,
    input: Input,
    /// Text that waits for the next entered line.
    aside: Option<Input>,
    entered: Vec<String>,
    back: usize,
}

impl LineEditor {
    /// Switches the terminal to raw mode, and returns the editor.
    pub(super) fn open() -> std::io::Result<Self> {
        crossterm::terminal::enable_raw_mode()?;
        // Without bracketed paste, each line of a pasted text would be sent as a message.
        drop(crossterm::execute!(std::io::stderr(), EnableBracketedPaste));
        Ok(Self::new(EventStream::new().boxed()))
    }

    fn new(events: BoxStream<'static, std::io::Result<Event>>) -> Self {
        let (early, input) = (VecDeque::new(), Input::default());
        Self { events, early, input, aside: None, entered: Vec::new(), back: 0 }
    }

    pub(super) fn value_and_cursor(&self) -> (&str, usize) {
        (self.input.value(), self.input.cursor())
    }

    /// Clears the typed line; returns whether it had any text.
    pub(super) fn clear(&mut self) -> bool {
        let was = !self.input.value().is_empty();
        self.input.reset();
        self.back = 0;
        was
    }

    /// Sets all typed text aside until the next line is entered, so that it does not answer a question that appears now. This includes lines
    /// that were entered while nothing read them, for example while the question was fetched.
    pub(super) async fn set_aside(&mut self) {
        for _ in 0..MAX_EARLY {
            let read = poll_fn(|cx| Poll::Ready(self.events.poll_next_unpin(cx))).await;
            let Poll::Ready(Some(Ok(event))) = read else { break };
            match self.handle(&event) {
                Some(TerminalInput::Line(line)) if !line.trim_start().starts_with('/') => {
                    self.put_back(line);
                    self.keep_typed();
                }
                None | Some(TerminalInput::Changed) => {}
                Some(
                    input
                    @ (TerminalInput::Line(_) | TerminalInput::Escape | TerminalInput::Break | TerminalInput::End),
                ) => self.early.push_back(input),
            }
        }
        self.keep_typed();
    }

    fn keep_typed(&mut self) {
        let typed = std::mem::take(&mut self.input);
        if !typed.value().is_empty() {
            // A question that was closed without an answer left text aside.
            self.aside = Some(match self.aside.take() {
                Some(before) => Input::new(format!("{} {}", before.value(), typed.value())),
                None => typed,
            });
        }
    }

    pub(super) fn put_back(&mut self, line: String) {
        // The entered line restored the text that was set aside, and would replace it here.
        self.keep_typed();
        self.input = Input::new(line);
    }

    /// Returns the next input of the user.
    ///
    /// Cancel safe: typed text is kept.
    pub(super) async fn next(&mut self) -> TerminalInput {
        if let Some(early) = self.early.pop_front() {
            return early;
        }
        loop {
            let Some(Ok(event)) = self.events.next().await else { return TerminalInput::End };
            if let Some(key) = self.handle(&event) {
                return key;
            }
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all other keys edit the line")]
    fn handle(&mut self, event: &Event) -> Option<TerminalInput> {
        let key = match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => key,
            Event::Paste(text) => {
                self.insert(&text.replace("\r\n", "\n").replace('\r', "\n"));
                return Some(TerminalInput::Changed);
            }
            Event::Resize(..) => return Some(TerminalInput::Changed),
            Event::Key(_) | Event::FocusGained | Event::FocusLost | Event::Mouse(_) => return None,
        };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => Some(TerminalInput::Break),
            KeyCode::Char('d') if control && self.input.value().is_empty() => Some(TerminalInput::End),
            KeyCode::Esc => Some(TerminalInput::Escape),
            // Lines typed before raw mode end with a line feed.
            KeyCode::Char('j') if control => Some(self.enter()),
            KeyCode::Enter if key.modifiers.contains(KeyModifiers::ALT) => {
                self.insert("\n");
                Some(TerminalInput::Changed)
            }
            KeyCode::Enter => Some(self.enter()),
            KeyCode::Up => self.recall(self.back.saturating_add(1)),
            KeyCode::Down => self.recall(self.back.saturating_sub(1)),
            _ => self.input.handle_event(event).map(|_| TerminalInput::Changed),
        }
    }

    fn insert(&mut self, text: &str) {
        let (value, at) = (self.input.value(), self.input.cursor());
        let whole: String = value.chars().take(at).chain(text.chars()).chain(value.chars().skip(at)).collect();
        self.input = Input::new(whole).with_cursor(at.saturating_add(text.chars().count()));
    }

    fn enter(&mut self) -> TerminalInput {
        let line = self.input.value().to_owned();
        // A command leaves a question open.
        let restored = if line.trim_start().starts_with('/') { None } else { self.aside.take() };
        self.input = restored.unwrap_or_default();
        self.back = 0;
        if !line.trim().is_empty() && self.entered.last() != Some(&line) {
            self.entered.push(line.clone());
        }
        TerminalInput::Line(line)
    }

    fn recall(&mut self, back: usize) -> Option<TerminalInput> {
        let line = match back {
            0 => String::new(),
            back => self.entered.get(self.entered.len().checked_sub(back)?)?.clone(),
        };
        self.back = back;
        self.input = Input::new(line);
        Some(TerminalInput::Changed)
    }
}

impl Drop for LineEditor {
    fn drop(&mut self) {
        // Errors are ignored: the terminal may be closed.
        drop(crossterm::execute!(std::io::stderr(), DisableBracketedPaste));
        drop(crossterm::terminal::disable_raw_mode());
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::KeyEvent;
    use futures_util::stream;

    use super::*;

    fn editor(batches: &[&[KeyEvent]]) -> LineEditor {
        let key = |key: &KeyEvent| Some(Ok(Event::Key(*key)));
        // `None` is a moment without input.
        let events: Vec<_> = batches.iter().flat_map(|batch| batch.iter().map(key).chain([None])).collect();
        let mut events = events.into_iter();
        LineEditor::new(Box::pin(stream::poll_fn(move |cx| match events.next() {
            Some(Some(event)) => Poll::Ready(Some(event)),
            Some(None) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None => Poll::Ready(None),
        })))
    }

    /// The line comes back after the answer, and Ctrl-C is not lost. The control: the same line, typed after the question.
    #[tokio::test]
    async fn line_entered_before_a_question_does_not_answer_it() {
        let [y, no, enter] = [KeyCode::Char('y'), KeyCode::Char('n'), KeyCode::Enter].map(KeyEvent::from);
        let stop = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        let mut lines = editor(&[&[y, enter, stop], &[no, enter]]);
        lines.set_aside().await;
        assert_eq!(lines.value_and_cursor().0, "");
        assert_eq!(lines.next().await, TerminalInput::Break);
        assert_eq!([lines.next().await, lines.next().await], [TerminalInput::Changed, TerminalInput::Line("n".into())]);
        assert_eq!(lines.value_and_cursor().0, "y");

        let mut lines = editor(&[&[], &[y, enter]]);
        lines.set_aside().await;
        assert_eq!([lines.next().await, lines.next().await], [TerminalInput::Changed, TerminalInput::Line("y".into())]);
    }
}
