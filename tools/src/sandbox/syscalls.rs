//! The filter of system calls: what Landlock does not know of.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

/// Numbers of calls that differ between machines.
#[cfg(target_arch = "x86_64")]
mod number {
    pub(super) const SOCKET: i64 = 41;
    pub(super) const CLONE: i64 = 56;
    pub(super) const UNSHARE: i64 = 272;
    pub(super) const SETNS: i64 = 308;
    /// `chown`, `fchown`, `lchown`, `fchownat`.
    pub(super) const CHOWN: &[i64] = &[92, 93, 94, 260];
    /// Of `setxattr` and `removexattr` all forms.
    pub(super) const ATTRIBUTES: &[i64] = &[188, 189, 190, 197, 198, 199];
    /// `add_key`, `request_key`, `keyctl`.
    pub(super) const KEY_RINGS: &[i64] = &[248, 249, 250];
    pub(super) const PRLIMIT: i64 = 302;
    /// `setpriority`, `ioprio_set`.
    pub(super) const PRIORITIES: &[i64] = &[141, 251];
}
#[cfg(not(target_arch = "x86_64"))]
mod number {
    pub(super) const SOCKET: i64 = 198;
    pub(super) const CLONE: i64 = 220;
    pub(super) const UNSHARE: i64 = 97;
    pub(super) const SETNS: i64 = 268;
    /// `fchownat`, `fchown`.
    pub(super) const CHOWN: &[i64] = &[54, 55];
    /// Of `setxattr` and `removexattr` all forms.
    pub(super) const ATTRIBUTES: &[i64] = &[5, 6, 7, 14, 15, 16];
    /// `add_key`, `request_key`, `keyctl`.
    pub(super) const KEY_RINGS: &[i64] = &[217, 218, 219];
    pub(super) const PRLIMIT: i64 = 261;
    /// `setpriority`, `ioprio_set`.
    pub(super) const PRIORITIES: &[i64] = &[140, 30];
}
/// Makes and connects sockets without a call that a filter sees.
const IO_URING_SETUP: i64 = 425;
/// Takes its flags from memory, where a filter cannot look.
const CLONE3: i64 = 435;
/// `setxattrat`, `removexattrat`.
const ATTRIBUTES_AT: [i64; 2] = [463, 466];
/// The same calls by their other numbers, on x86-64.
const X32: i64 = 0x4000_0000;

/// Asks `clone` and `unshare` for a namespace of users, in which a command would have all capabilities.
const NEW_USER: u64 = 0x1000_0000;

const INET: u64 = 2;
const INET6: u64 = 10;
const NETLINK: u64 = 16;

/// "Permission denied", as for a file.
const EACCES: u32 = 13;
/// "No such call": libraries then make the older one.
const ENOSYS: u32 = 38;

/// The filters for this machine: with `network`, sockets of the internet protocols and of the kernel's own can be made, else none.
/// No namespace of users is made or entered, no owner or attribute of a file is changed, no key ring is reached, and limits and
/// priorities are set of the caller alone: Landlock does not know of these.
pub(super) fn filter(network: bool) -> Result<Vec<BpfProgram>, String> {
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
    let new_user = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(NEW_USER), NEW_USER);
    let new_user = vec![SeccompRule::new(vec![new_user.map_err(failed)?]).map_err(failed)?];
    let mut denied = vec![(number::SOCKET, sockets), (number::CLONE, new_user.clone()), (number::UNSHARE, new_user)];
    let whole =
        [number::CHOWN, number::ATTRIBUTES, &ATTRIBUTES_AT, number::KEY_RINGS, &[number::SETNS, IO_URING_SETUP]];
    // 0 is the caller itself.
    let others = |argument| {
        let other = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0).map_err(failed)?;
        SeccompRule::new(vec![other]).map(|rule| vec![rule]).map_err(failed)
    };
    denied.push((number::PRLIMIT, others(0)?));
    for call in number::PRIORITIES {
        denied.push((*call, others(1)?));
    }
    denied.extend(whole.into_iter().flatten().map(|call| (*call, Vec::new())));
    // Calls of another architecture end the process: their numbers mean something else.
    let program = |denied: Vec<(i64, Vec<SeccompRule>)>, errno| {
        let twice = |(call, rules): (i64, Vec<SeccompRule>)| [(call, rules.clone()), (call | X32, rules)];
        let rules: BTreeMap<_, _> = denied.into_iter().flat_map(twice).collect();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), target);
        filter.and_then(BpfProgram::try_from).map_err(failed)
    };
    Ok(vec![program(denied, EACCES)?, program(vec![(CLONE3, Vec::new())], ENOSYS)?])
}

/// Binds this thread, and what it starts.
pub(super) fn apply(filters: &[BpfProgram]) -> Result<(), String> {
    filters.iter().try_for_each(|filter| {
        apply_filter(filter).map_err(|error| format!("the filter of system calls does not hold: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_filter_for_this_machine() {
        for network in [false, true] {
            assert!(filter(network).is_ok_and(|filters| filters.iter().all(|filter| !filter.is_empty())));
        }
    }
}
