//! The filter of system calls: what Landlock does not know of.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

#[cfg(target_arch = "x86_64")]
const SOCKET: i64 = 41;
#[cfg(not(target_arch = "x86_64"))]
const SOCKET: i64 = 198;
/// Makes and connects sockets without a call that a filter sees.
const IO_URING_SETUP: i64 = 425;
/// The same calls by their other numbers, on x86-64.
const X32: i64 = 0x4000_0000;

const INET: u64 = 2;
const INET6: u64 = 10;
const NETLINK: u64 = 16;

/// "Permission denied", as for a file.
const EACCES: u32 = 13;

/// The filter for this machine: with `network`, sockets of the internet protocols and of the kernel's own can be made, else none.
pub(super) fn filter(network: bool) -> Result<BpfProgram, String> {
    let arch = std::env::consts::ARCH;
    let target = TargetArch::try_from(arch).map_err(|_| format!("there is no filter of system calls for {arch}"))?;
    let failed = |error: seccompiler::BackendError| format!("the filter of system calls cannot be made: {error}");
    let mut sockets = Vec::new();
    if network {
        let others = [INET, INET6, NETLINK]
            .map(|family| SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family));
        let others = others.into_iter().collect::<Result<Vec<_>, _>>().map_err(failed)?;
        sockets.push(SeccompRule::new(others).map_err(failed)?);
    }
    let mut rules = BTreeMap::new();
    for call in [SOCKET, SOCKET | X32] {
        rules.insert(call, sockets.clone());
    }
    for call in [IO_URING_SETUP, IO_URING_SETUP | X32] {
        rules.insert(call, Vec::new());
    }
    // Calls of another architecture end the process: their numbers mean something else.
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(EACCES), target);
    filter.and_then(BpfProgram::try_from).map_err(failed)
}

/// Binds this thread, and what it starts.
pub(super) fn apply(filter: &BpfProgram) -> Result<(), String> {
    apply_filter(filter).map_err(|error| format!("the filter of system calls does not hold: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_filter_for_this_machine() {
        for network in [false, true] {
            assert!(filter(network).is_ok_and(|filter| !filter.is_empty()));
        }
    }
}
