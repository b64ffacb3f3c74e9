//! Parses a typed line into a message or a command.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChatLine {
    Empty,
    /// A message that opens a run if the session is idle, and steers the active run otherwise.
    Send(String),
    /// A message that is read at the next rest point.
    Queue(String),
    Agent(String),
    Command(ChatCommand),
    Unknown(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChatCommand {
    Help,
    Interrupt,
    Cancel,
    CancelTree,
    Regenerate,
    Previous,
    Next,
    Waiting,
    Clear,
    Condense,
    Uncondense,
    Usage,
    Quit,
}

pub(super) const HELP: &str = "\
a message     Enter sends it, Alt-Enter starts a new line; while the agent works, it steers at the next turn
/queue TEXT   sends TEXT when the agent has finished its answer
/agent NAME   another agent answers from the next line on
/interrupt    (Esc) stop the run and wait for the next line
/cancel       (Ctrl-C) end the run and its children
/cancel tree  end everything in the whole tree
/regenerate   answer the last message again; /previous and /next choose among the answers
/waiting      list queued inputs; /clear removes them
/condense     replace old messages by a summary in the model's context; /condense undo restores them
/usage        tokens and cost so far
/NAME TEXT    a command from a file, such as .claude/commands/NAME.md; `subtend agents commands` lists them
/quit         (Ctrl-D) leave; runs of this process are cancelled first, those of a host continue";

pub(super) fn parse(line: &str) -> ChatLine {
    let line = line.trim();
    if line.is_empty() {
        return ChatLine::Empty;
    }
    let Some(command) = line.strip_prefix('/') else { return ChatLine::Send(line.to_owned()) };
    let (word, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let rest = rest.trim();
    let plain = match (word, rest) {
        ("help" | "?", "") => ChatCommand::Help,
        ("interrupt", "") => ChatCommand::Interrupt,
        ("cancel", "") => ChatCommand::Cancel,
        ("cancel", "tree") => ChatCommand::CancelTree,
        ("regenerate", "") => ChatCommand::Regenerate,
        ("previous", "") => ChatCommand::Previous,
        ("next", "") => ChatCommand::Next,
        ("waiting" | "queue", "") => ChatCommand::Waiting,
        ("clear", "") => ChatCommand::Clear,
        ("condense", "") => ChatCommand::Condense,
        ("condense", "undo") => ChatCommand::Uncondense,
        ("usage", "") => ChatCommand::Usage,
        ("quit" | "exit", "") => ChatCommand::Quit,
        ("queue", text) => return ChatLine::Queue(text.to_owned()),
        ("agent", name) if !name.is_empty() => return ChatLine::Agent(name.to_owned()),
        // A text with several lines is a pasted message, whose first line may be a path.
        _ if line.contains('\n') => return ChatLine::Send(line.to_owned()),
        _ => return ChatLine::Unknown(command.to_owned()),
    };
    ChatLine::Command(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_parses_as_message_or_command() {
        let cases = [
            ("  ", ChatLine::Empty),
            (" hello ", ChatLine::Send("hello".into())),
            ("/cancel", ChatLine::Command(ChatCommand::Cancel)),
            ("/cancel  tree", ChatLine::Command(ChatCommand::CancelTree)),
            ("/queue and then\tthis", ChatLine::Queue("and then\tthis".into())),
            ("/queue", ChatLine::Command(ChatCommand::Waiting)),
            ("/condense undo", ChatLine::Command(ChatCommand::Uncondense)),
            ("/agent plan", ChatLine::Agent("plan".into())),
            ("/usr/lib\nis full", ChatLine::Send("/usr/lib\nis full".into())),
            ("/agent", ChatLine::Unknown("agent".into())),
            ("/dance now", ChatLine::Unknown("dance now".into())),
        ];
        for (line, expected) in cases {
            assert_eq!(parse(line), expected, "{line}");
        }
    }
}
