use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use subtend::agents::front_matter;
use subtend::config::{
    self as configuration, Key, Loaded, MAX_FILE_BYTES, Origin, Setting, Warning, format_for_file, schema,
};

use super::fail::{Code, Fail};
use super::paint::{BOLD, DIM, Styled, clip, fill};
use super::trust::{Trust, TrustedFiles};
use super::written_file::{write, write_private};
use super::{settings, work, workspace};
use crate::cli::json;

mod options;

const AFTER_HELP: &str = "\
Sources of a value, from weakest to strongest: its default, your own file, the workspace's file, an environment variable, an option of the command.

Examples:
  subtend config show limits.turns
  subtend config set limits.turns 20
  subtend config set llm.pools.cheap '[anthropic/claude-haiku-4-5, offline]'
  SUBTEND_MAX_CONCURRENT=8 subtend config show";

/// Shows and changes the configuration: `subtend.yaml` of the workspace, your own, and environment variables.
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigCommand {
    /// Prints all values, or one, with the source of each
    Show {
        /// Key, such as `limits.turns`, or a group of keys, such as `limits` [default: all]
        key: Option<String>,

        /// Workspace whose file applies
        #[arg(long, value_name = "DIR", default_value = ".")]
        workspace: PathBuf,

        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Writes a value into subtend.yaml of the workspace, and keeps comments and all other lines
    ///
    /// If a value cannot be changed without touching others, the file is not changed, and the error names the line to write.
    Set {
        /// Key, such as `limits.turns`; a name with a dot is quoted
        key: String,

        /// Value; a list as `[a, b]`
        #[arg(allow_negative_numbers = true)]
        value: String,

        /// Workspace whose file is written
        #[arg(long, value_name = "DIR", default_value = ".")]
        workspace: PathBuf,

        /// Write your own file instead, which applies to all workspaces
        #[arg(long, conflicts_with = "workspace")]
        user: bool,
    },
    /// Prints a JSON Schema, for editors: of `subtend.yaml`, or of the front matter of agent files
    Schema {
        /// Subject of the schema
        subject: SchemaSubject,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum SchemaSubject {
    /// `subtend.yaml`
    Config,
    /// The front matter of agent files
    Agent,
}

#[derive(Serialize)]
struct ConfigOutput<'a> {
    values: &'a [Setting],
    warnings: &'a [Warning],
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    match &args.command {
        ConfigCommand::Show { key, workspace, json } => show(key.as_deref(), workspace, *json),
        ConfigCommand::Set { key, value, workspace, user } => set(key, value, workspace, *user),
        ConfigCommand::Schema { subject } => {
            let schema = match subject {
                SchemaSubject::Config => schema(),
                SchemaSubject::Agent => front_matter(),
            };
            write!(anstream::stdout(), "{}", format_for_file(&schema))?;
            Ok(Code::Done)
        }
    }
}

fn show(key: Option<&str>, folder: &Path, json: bool) -> Result<Code, Fail> {
    let refused = |error: configuration::BadKey| Fail::Usage(error.to_string());
    // Parse the key before reading the files: an error in a file must not hide an error in the key.
    let key = key.map(str::parse::<Key>).transpose().map_err(refused)?;
    let workspace = workspace::open(folder)?;
    let loaded = settings::load(&workspace, Trust::decide_and_warn(&workspace)?)?;
    let values = key.map_or_else(|| Ok(loaded.values.clone()), |key| loaded.at(&key)).map_err(refused)?;
    let mut out = anstream::stdout().lock();
    if json {
        json::write_line(&mut out, &ConfigOutput { values: &values, warnings: &loaded.warnings })?;
        return Ok(Code::Done);
    }
    let rows: Vec<_> = values.iter().map(|one| (one.key.to_string(), text(&one.value), &one.origin)).collect();
    let width = |lengths: &mut dyn Iterator<Item = usize>, most: usize| lengths.max().unwrap_or(0).min(most);
    let keys = width(&mut rows.iter().map(|(key, ..)| key.chars().count()), 48);
    let values = width(&mut rows.iter().map(|(_, value, _)| value.chars().count()), 32);
    for (key, value, origin) in &rows {
        let (key, value) = (clip(key, 200), clip(value, 400));
        let (gap, space) = (fill(&key, keys), fill(&value, values));
        let source = clip(&origin.to_string(), 400);
        match origin {
            Origin::Default => writeln!(out, "{key}{gap}  {value}{space}  {}", Styled(DIM, source))?,
            Origin::User(_) | Origin::Project(_) | Origin::Variable(_) => {
                writeln!(out, "{}{gap}  {value}{space}  {source}", Styled(BOLD, key))?;
            }
        }
    }
    drop(out);
    settings::warn(&loaded)
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(item_text).collect::<Vec<_>>().join(", ")),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Object(_)) => other.to_string(),
    }
}

fn item_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(crate) fn set(key: &str, value: &str, folder: &Path, user: bool) -> Result<Code, Fail> {
    let refused = |error: &dyn std::fmt::Display| Fail::Usage(error.to_string());
    let key: Key = key.parse().map_err(|error| refused(&error))?;
    let text = value;
    let value = key.value(text).map_err(|error| refused(&error))?.map_err(|error| refused(&error))?;
    let tools = work::setup::tools(&configuration::Config::default())?;
    let value = options::check_value(&key, value, text, &tools)?;
    let workspace = workspace::open(folder)?;
    // Found before the file is read: what a command of an agent puts there meanwhile is not trusted by this change.
    let trusted = if user { None } else { TrustedFiles::of(&workspace)? };
    let (path, written) = if user {
        let path = settings::user_path_to_write(configuration::FILE, "the configuration")?;
        // The user may have made the file a link: write to its target.
        let path = path.canonicalize().unwrap_or(path);
        let text = std::fs::read_to_string(&path);
        (path, text)
    } else {
        (workspace.path().join(configuration::FILE), workspace.text(configuration::FILE, MAX_FILE_BYTES))
    };
    if path.is_symlink() {
        let why = "it is a symbolic link, which is not followed. Use a regular file";
        return Err(Fail::Usage(format!("{} was not changed: {why}", path.display())));
    }
    let found = settings::found(&path.display().to_string(), written)?;
    let trusted = trusted.filter(|trusted| found.is_none() || trusted.has_config());
    let before = found.unwrap_or_default();
    let describe =
        |error: configuration::EditError| Fail::Other(format!("{} was not changed: {error}", path.display()));
    let mut after = configuration::set(&before, &key, &value).map_err(describe)?;
    let origin = if user { Origin::User(path.clone()) } else { Origin::Project(path.clone()) };
    let mut loaded = read(origin.clone(), &after)?;
    // The old file may be invalid, because this change may be its correction.
    if let Ok(before) = read(origin.clone(), &before) {
        options::check_required(&key, &before, &loaded)?;
    }
    for (key, value) in options::fill_required(&key, &value, &loaded, &workspace, &tools)? {
        after = configuration::set(&after, &key, &value).map_err(describe)?;
        loaded = read(origin.clone(), &after)?;
    }
    if user { write_private(&path, &after) } else { write(&path, &after) }?;
    if let Some(trusted) = trusted {
        trusted.keep_with_config(&workspace)?;
    }
    let mut err = anstream::stderr().lock();
    writeln!(err, "{key} is set in {}", clip(&path.display().to_string(), 400))?;
    drop(err);
    // An origin with higher precedence may override the new value.
    let now = settings::load(&workspace, Trust::decide_and_warn(&workspace)?)?;
    let counts = now.origin(&key);
    if counts.rank() > origin.rank() {
        writeln!(anstream::stderr(), "it has no effect here: {counts} overrides it")?;
    }
    settings::warn(&loaded)
}

/// Loads the text of one file, so that an invalid file is never written.
fn read(origin: Origin, text: &str) -> Result<Loaded, Fail> {
    Ok(Loaded::of([configuration::Layer::file(origin, text)?])?)
}
