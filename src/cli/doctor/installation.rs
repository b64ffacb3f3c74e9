//! The features of this build, and the capabilities of the system.

use std::path::PathBuf;

use subtend_journal::StoreSpec;
use subtend_tools::sandbox::{self, Places, SandboxStrength, Unsupported};

use super::{DoctorArea, Finding};

pub(super) fn check() -> Vec<Finding> {
    let providers = if cfg!(feature = "providers") {
        Finding::good(DoctorArea::Installation, "providers", "models of providers can be used")
    } else {
        let advice = "build with the feature `providers` to use other models";
        Finding::note(
            DoctorArea::Installation,
            "providers",
            "only the offline and the scripted model are built in",
            advice,
        )
    };
    let mut findings = vec![version(), engines(&built_in()), providers, sandbox(sandbox::probe())];
    if sandbox::probe().is_ok() {
        findings.push(grants(&sandbox::places(&std::env::current_dir().unwrap_or_default())));
    }
    findings.push(guard());
    findings
}

fn version() -> Finding {
    Finding::good(DoctorArea::Installation, "version", concat!("subtend ", env!("CARGO_PKG_VERSION")))
}

fn built_in() -> Vec<&'static str> {
    StoreSpec::engines().chain(cfg!(feature = "postgres").then_some("postgres")).chain(["memory"]).collect()
}

fn engines(built_in: &[&str]) -> Finding {
    let found = built_in.join(", ");
    if built_in == ["memory"] {
        let advice = "sessions are lost when the process ends: build with the feature `redb`";
        return Finding::bad(DoctorArea::Installation, "engines", found, advice);
    }
    Finding::good(DoctorArea::Installation, "engines", found)
}

/// Reports Landlock and seccomp. Without them, a shell command of a limited session is refused; it never runs unconfined.
fn sandbox(found: Result<SandboxStrength, Unsupported>) -> Finding {
    match found {
        Ok(SandboxStrength::FilesAndNetwork) => {
            let found = "commands can be confined to their files and kept off the network (Landlock, seccomp)";
            Finding::good(DoctorArea::Installation, "sandbox", found)
        }
        Ok(SandboxStrength::Files) => Finding::note(
            DoctorArea::Installation,
            "sandbox",
            "commands can be confined to their files (Landlock), and kept off the network by seccomp alone",
            "use Linux 6.7 or later for the network too",
        ),
        Err(Unsupported { why }) => Finding::note(
            DoctorArea::Installation,
            "sandbox",
            &*why,
            "sessions with limited files or network get no shell: allow all of both, or use Linux 6.7 or later",
        ),
    }
}

/// Reports the paths that the sandbox grants to a command in addition to its workspace.
fn grants(places: &Places) -> Finding {
    let list = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    let mut found = format!(
        "a command of a limited session reads and executes {} (in /etc only world-readable files); it writes {} and its own temporary \
         directory (HOME, TMPDIR); if a workspace has a protected path, such as subtend.yaml, it cannot create files directly in the top \
         directory, or in one that contains a denied path",
        list(&places.readable),
        list(&places.devices),
    );
    if !places.with_network.is_empty() {
        found.push_str(&format!("; with network access it also reads {}", list(&places.with_network)));
    }
    if places.left_out.is_empty() {
        return Finding::good(DoctorArea::Installation, "sandbox grants", found);
    }
    let left: Vec<String> = places.left_out.iter().map(|(path, why)| format!("{} ({why})", path.display())).collect();
    let advice = format!("these entries of PATH and toolchains are not granted: {}", left.join(", "));
    Finding::note(DoctorArea::Installation, "sandbox grants", found, advice)
}

fn guard() -> Finding {
    match super::super::guard::guard() {
        Ok(_) => Finding::good(DoctorArea::Installation, "guard", "commands of agents end with the process"),
        Err(error) => Finding::bad(
            DoctorArea::Installation,
            "guard",
            format!("the running program cannot be found: {error}"),
            "start the installed program: it runs itself as the guard of each command",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn missing_sandbox_and_missing_engine_are_distinct_findings() {
        assert_eq!(sandbox(Ok(SandboxStrength::FilesAndNetwork)).grade, Severity::Good);
        assert_eq!(sandbox(Err(Unsupported { why: "no Landlock".into() })).grade, Severity::Note);
        assert_eq!(engines(&["memory"]).grade, Severity::Bad);
        assert_eq!(engines(&["redb", "memory"]).grade, Severity::Good);
        assert!(built_in().contains(&"memory"));
    }

    #[test]
    fn doctor_lists_sandbox_grants() {
        let places = Places {
            readable: vec!["/usr".into(), "/home/a/.cargo/bin".into()],
            devices: vec!["/dev/null".into()],
            ..Places::default()
        };
        let found = "a command of a limited session reads and executes /usr, /home/a/.cargo/bin (in /etc only world-readable \
        files); it writes /dev/null and its own temporary directory (HOME, TMPDIR); if a workspace has a protected path, such as \
        subtend.yaml, it cannot create files directly in the top directory, or in one that contains a denied path";
        assert_eq!(grants(&places), Finding::good(DoctorArea::Installation, "sandbox grants", found));
        let left_out = vec![("/home/a".into(), "it contains the home directory".to_owned())];
        let noted = grants(&Places { left_out, with_network: vec!["/run/resolvconf".into()], ..places });
        let advice = "these entries of PATH and toolchains are not granted: /home/a (it contains the home directory)";
        let found = format!("{found}; with network access it also reads /run/resolvconf");
        assert_eq!(noted, Finding::note(DoctorArea::Installation, "sandbox grants", found, advice));
    }
}
