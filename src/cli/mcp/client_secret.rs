//! Reads the secret of a registered client from a variable, or from the terminal without echo. It is never an argument.

use std::io::{IsTerminal as _, Write as _};

use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};

use super::super::fail::Fail;
use super::super::paint::harmless;

/// Maximum bytes of a secret.
const MAX_BYTES: usize = 4 << 10;

/// Returns the secret; `None` if the options request none.
///
/// # Errors
/// [`Fail::Usage`] if the variable is not set, if there is no terminal, or if the secret cannot be used.
pub(super) fn read(variable: Option<&str>, prompts: bool) -> Result<Option<String>, Fail> {
    let secret = match variable {
        Some(name) => {
            let unset = |_| format!("the variable `{}` is not set, or not UTF-8: set it to the secret", harmless(name));
            std::env::var(name).map_err(unset).map_err(Fail::Usage)?
        }
        None if prompts => ask()?,
        None => return Ok(None),
    };
    let secret = secret.trim();
    if secret.is_empty() || secret.len() > MAX_BYTES || secret.contains(char::is_control) {
        let why = format!("the client secret must have 1 to {MAX_BYTES} bytes, without control characters");
        return Err(Fail::Usage(why));
    }
    Ok(Some(secret.to_owned()))
}

fn ask() -> Result<String, Fail> {
    let mut err = std::io::stderr();
    if !(std::io::stdin().is_terminal() && err.is_terminal()) {
        let why = "there is no terminal to ask for the client secret: set it in a variable and name that with `--client-secret-env`";
        return Err(Fail::Usage(why.to_owned()));
    }
    // Enter raw mode first, because the user may type as soon as the question appears.
    let terminal = SilentTerminal::take()?;
    write!(err, "secret of the client (not shown): ")?;
    err.flush()?;
    let typed = terminal.line();
    writeln!(err)?;
    typed?.ok_or_else(|| Fail::Other("the login is cancelled".to_owned()))
}

/// The terminal in raw mode, without echo.
struct SilentTerminal;

impl SilentTerminal {
    fn take() -> std::io::Result<Self> {
        crossterm::terminal::enable_raw_mode().map(|()| Self)
    }

    /// Returns the typed line; `None` if the user cancelled.
    #[expect(clippy::wildcard_enum_match_arm, reason = "all other keys and events add nothing to the line")]
    fn line(self) -> std::io::Result<Option<String>> {
        let mut line = String::new();
        loop {
            let key = match crossterm::event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => key,
                Event::Paste(text) => {
                    line.push_str(&text);
                    continue;
                }
                _ => continue,
            };
            let control = key.modifiers.contains(KeyModifiers::CONTROL);
            match key.code {
                KeyCode::Char('c' | 'd') if control => return Ok(None),
                // A line typed before raw mode ends with a line feed.
                KeyCode::Char('j') if control => return Ok(Some(line)),
                KeyCode::Enter => return Ok(Some(line)),
                KeyCode::Backspace => drop(line.pop()),
                KeyCode::Char(typed) if !control => line.push(typed),
                _ => {}
            }
            if line.len() > MAX_BYTES {
                return Ok(Some(line));
            }
        }
    }
}

impl Drop for SilentTerminal {
    fn drop(&mut self) {
        // Otherwise the shell would not echo typed text.
        drop(crossterm::terminal::disable_raw_mode());
    }
}
