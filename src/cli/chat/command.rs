//! What a typed line means.

/// A line, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Nothing.
    Empty,
    /// Something to say: sent where the session is quiet, steering where it works.
    Say(String),
    /// Something to say at the next rest point.
    Queue(String),
    /// Who answers from here on.
    Agent(String),
    /// A command without more.
    Do(Word),
    /// None of these.
    Unknown(String),
}

/// Commands without more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Tell the commands.
    Help,
    /// Interrupt the run in flight.
    Interrupt,
    /// Cancel it, with all that it owns.
    Cancel,
    /// Cancel the whole tree.
    CancelTree,
    /// Answer the last message anew.
    Regenerate,
    /// See the alternative before.
    Previous,
    /// See the alternative after.
    Next,
    /// List inputs that wait.
    Waiting,
    /// Remove them.
    Clear,
    /// What it cost.
    Usage,
    /// Leave.
    Quit,
}

/// The commands, as they are told.
pub(super) const HELP: &str = "\
a message     is sent by Enter, Alt-Enter starts a line of it; while the agent works it steers, at its next turn
/queue TEXT   is sent at the next rest point
/agent NAME   another agent answers from the next line on
/interrupt    (Esc) stop what runs and wait for the next line
/cancel       (Ctrl-C) end the run and all that it started
/cancel tree  end everything in the whole tree
/regenerate   answer anew; /previous and /next choose among answers
/waiting      what waits to be taken; /clear removes it
/usage        what it cost
/quit         (Ctrl-D) leave; what still runs is cancelled first";

/// Reads a typed line.
pub(super) fn read(line: &str) -> Line {
    let line = line.trim();
    if line.is_empty() {
        return Line::Empty;
    }
    let Some(command) = line.strip_prefix('/') else { return Line::Say(line.to_owned()) };
    let (word, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let rest = rest.trim();
    let plain = match (word, rest) {
        ("help" | "?", "") => Word::Help,
        ("interrupt", "") => Word::Interrupt,
        ("cancel", "") => Word::Cancel,
        ("cancel", "tree") => Word::CancelTree,
        ("regenerate", "") => Word::Regenerate,
        ("previous", "") => Word::Previous,
        ("next", "") => Word::Next,
        ("waiting" | "queue", "") => Word::Waiting,
        ("clear", "") => Word::Clear,
        ("usage", "") => Word::Usage,
        ("quit" | "exit", "") => Word::Quit,
        ("queue", text) => return Line::Queue(text.to_owned()),
        ("agent", name) if !name.is_empty() => return Line::Agent(name.to_owned()),
        // A pasted text may begin with a path.
        _ if line.contains('\n') => return Line::Say(line.to_owned()),
        _ => return Line::Unknown(command.to_owned()),
    };
    Line::Do(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_something_to_say_or_a_command() {
        let cases = [
            ("  ", Line::Empty),
            (" hello ", Line::Say("hello".into())),
            ("/cancel", Line::Do(Word::Cancel)),
            ("/cancel  tree", Line::Do(Word::CancelTree)),
            ("/queue and then\tthis", Line::Queue("and then\tthis".into())),
            ("/queue", Line::Do(Word::Waiting)),
            ("/agent plan", Line::Agent("plan".into())),
            ("/usr/lib\nis full", Line::Say("/usr/lib\nis full".into())),
            ("/agent", Line::Unknown("agent".into())),
            ("/dance now", Line::Unknown("dance now".into())),
        ];
        for (line, expected) in cases {
            assert_eq!(read(line), expected, "{line}");
        }
    }
}
