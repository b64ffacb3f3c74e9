//! Settings of the server on which durability depends.

use std::borrow::Cow;

use tokio_postgres::Row;

use super::server_text::server_text;
use crate::error::EngineError;

/// A server setting that can make an acknowledged commit disappear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Fsync,
    SynchronousCommit,
    FullPageWrites,
}

const ALL: [Setting; 3] = [Setting::Fsync, Setting::SynchronousCommit, Setting::FullPageWrites];

/// Selects what [`ServerSettings::of`] reads.
macro_rules! settings {
    () => {
        "current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes'), \
         current_setting('synchronous_standby_names')"
    };
}
pub(super) use settings;

impl Setting {
    fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::SynchronousCommit => "synchronous_commit",
            Self::FullPageWrites => "full_page_writes",
        }
    }

    fn risk(self) -> &'static str {
        match self {
            Self::Fsync => "a crash of the server's machine may damage the database",
            Self::SynchronousCommit => "a crash of the server may lose what was acknowledged",
            Self::FullPageWrites => "a loss of power in mid-write may damage the database",
        }
    }

    pub(super) fn of(name: &str) -> Option<Self> {
        ALL.into_iter().find(|setting| setting.name() == name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerSettings {
    values: [String; 3],
    /// True if a commit waits for a standby.
    standby: bool,
}

impl ServerSettings {
    /// Reads columns from `at` on.
    pub(super) fn of(row: &Row, at: usize) -> Result<Self, tokio_postgres::Error> {
        let text = |ix: usize| row.try_get(at.saturating_add(ix)).map(server_text);
        Ok(Self { values: [text(0)?, text(1)?, text(2)?], standby: !text(3)?.is_empty() })
    }

    fn weak_settings(&self) -> impl Iterator<Item = (Setting, &str)> {
        let pairs = ALL.into_iter().zip(self.values.iter().map(String::as_str));
        pairs.filter(|(setting, value)| match setting {
            Setting::Fsync | Setting::FullPageWrites => *value != "on",
            // With a standby, any other value acknowledges commits that may be on one machine only.
            Setting::SynchronousCommit if self.standby => !matches!(*value, "on" | "remote_apply"),
            Setting::SynchronousCommit => *value == "off",
        })
    }

    /// Refuses the first weak setting that is not accepted.
    pub(super) fn check_accepted(&self, accepted: &[Setting]) -> Result<(), EngineError> {
        match self.weak_settings().find(|(setting, _)| !accepted.contains(setting)) {
            None => Ok(()),
            Some((setting, value)) => {
                Err(EngineError::Weak { setting: setting.name(), value: value.to_owned(), risk: setting.risk() })
            }
        }
    }

    /// Describes the failures that an acknowledged commit survives.
    pub(super) fn durability(&self, accepted: &[Setting]) -> Cow<'static, str> {
        let weak: Vec<String> = self
            .weak_settings()
            .map(|(setting, value)| format!("{} is {value}: {}", setting.name(), setting.risk()))
            .collect();
        if !weak.is_empty() {
            let how = if self.check_accepted(accepted).is_ok() { "as accepted" } else { "and not accepted" };
            return format!("weak, {how}: {}", weak.join("; ")).into();
        }
        let strong = "commit of PostgreSQL: what is acknowledged survives a crash of this process, of the server and of its machine";
        if self.standby { format!("{strong}, and is on a synchronous standby").into() } else { strong.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(values: [&str; 3], standby: bool) -> ServerSettings {
        ServerSettings { values: values.map(str::to_owned), standby }
    }

    #[test]
    fn weak_setting_is_refused_by_name_until_it_is_accepted() {
        let cases = [
            (["off", "on", "on"], "fsync"),
            (["on", "off", "on"], "synchronous_commit"),
            (["on", "on", "off"], "full_page_writes"),
        ];
        for (values, name) in cases {
            let weak = settings(values, false);
            let refused = weak.check_accepted(&[]).unwrap_err().to_string();
            assert!(
                refused.contains(&format!("{name} = off")) && refused.contains(&format!("accept_weak={name}")),
                "{refused}"
            );
            let accepted = [Setting::of(name).unwrap()];
            assert!(weak.check_accepted(&accepted).is_ok());
            for (accepted, how) in [(&accepted[..], "as accepted"), (&[], "and not accepted")] {
                let durability = weak.durability(accepted);
                assert!(durability.starts_with(&format!("weak, {how}: {name} is off")), "{durability}");
            }
        }
        assert!(
            settings(["off", "off", "on"], false).check_accepted(&[Setting::Fsync]).is_err(),
            "each setting is accepted separately"
        );
    }

    #[test]
    fn commit_that_skips_its_standby_is_weak() {
        for (value, alone, with_standby) in [
            ("on", true, true),
            ("remote_apply", true, true),
            ("remote_write", true, false),
            ("local", true, false),
            ("off", false, false),
        ] {
            let judged = |standby| settings(["on", value, "on"], standby).check_accepted(&[]).is_ok();
            assert_eq!((judged(false), judged(true)), (alone, with_standby), "{value}");
        }
        assert!(settings(["on"; 3], true).durability(&[]).ends_with("is on a synchronous standby"));
    }
}
