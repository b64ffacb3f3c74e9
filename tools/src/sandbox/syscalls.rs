//! The system call filter. It denies actions that Landlock does not cover.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter, sock_filter,
};

/// System call numbers that differ between architectures.
#[cfg(target_arch = "x86_64")]
mod number {
    pub(super) const IOCTL: i64 = 16;
    pub(super) const FCNTL: i64 = 72;
    pub(super) const SOCKET: i64 = 41;
    pub(super) const SOCKETPAIR: i64 = 53;
    pub(super) const CLONE: i64 = 56;
    pub(super) const UNSHARE: i64 = 272;
    pub(super) const SETNS: i64 = 308;
    /// `chown`, `fchown`, `lchown`, `fchownat`.
    pub(super) const CHOWN: &[i64] = &[92, 93, 94, 260];
    /// All forms of `setxattr` and `removexattr`.
    pub(super) const ATTRIBUTES: &[i64] = &[188, 189, 190, 197, 198, 199];
    /// `add_key`, `request_key`, `keyctl`.
    pub(super) const KEY_RINGS: &[i64] = &[248, 249, 250];
    pub(super) const PRLIMIT: i64 = 302;
    pub(super) const SETPGID: i64 = 109;
    /// `setpriority`, `ioprio_set`.
    pub(super) const PRIORITIES: &[(i64, u64)] = &[(141, 0), (251, 1)];
    /// `sched_setparam`, `sched_setscheduler`, `sched_setaffinity`, `sched_setattr`.
    pub(super) const SCHEDULING: &[i64] = &[142, 144, 203, 314];
    /// All calls of System V shared memory, semaphores and queues except `shmdt`; `mq_open` and `mq_unlink`.
    pub(super) const SHARED: &[i64] = &[29, 30, 31, 64, 65, 66, 68, 69, 70, 71, 220, 240, 241];
    /// `chmod`, `fchmod`, `creat`, `mknod`, `fchmodat` and `mknodat`, each with the index of its mode argument.
    pub(super) const MODES: &[(i64, u8)] = &[(90, 1), (91, 1), (85, 1), (133, 1), (268, 2), (259, 2)];
    /// `open` and `openat`, each with the index of its flags argument; the mode follows.
    pub(super) const OPENS: &[(i64, u8)] = &[(2, 1), (257, 2)];
}
#[cfg(not(target_arch = "x86_64"))]
mod number {
    pub(super) const IOCTL: i64 = 29;
    pub(super) const FCNTL: i64 = 25;
    pub(super) const SOCKET: i64 = 198;
    pub(super) const SOCKETPAIR: i64 = 199;
    pub(super) const CLONE: i64 = 220;
    pub(super) const UNSHARE: i64 = 97;
    pub(super) const SETNS: i64 = 268;
    pub(super) const CHOWN: &[i64] = &[54, 55];
    pub(super) const ATTRIBUTES: &[i64] = &[5, 6, 7, 14, 15, 16];
    pub(super) const KEY_RINGS: &[i64] = &[217, 218, 219];
    pub(super) const PRLIMIT: i64 = 261;
    pub(super) const SETPGID: i64 = 154;
    pub(super) const PRIORITIES: &[(i64, u64)] = &[(140, 0), (30, 1)];
    pub(super) const SCHEDULING: &[i64] = &[118, 119, 122, 274];
    pub(super) const SHARED: &[i64] = &[180, 181, 186, 187, 188, 189, 190, 191, 192, 193, 194, 195, 196];
    /// `fchmod`, `fchmodat` and `mknodat`, each with the index of its mode argument.
    pub(super) const MODES: &[(i64, u8)] = &[(52, 1), (53, 2), (33, 2)];
    pub(super) const OPENS: &[(i64, u8)] = &[(56, 2)];
}
/// `io_uring` creates and connects sockets without calls that a filter sees.
const IO_URING_SETUP: i64 = 425;
/// `clone3` takes its flags from memory, which a filter cannot read.
const CLONE3: i64 = 435;
/// `openat2` takes its mode from memory too.
const OPENAT2: i64 = 437;
/// `fchmodat2`, with the index of its mode argument.
const FCHMODAT2: (i64, u8) = (452, 2);
/// `setxattrat`, `removexattrat`.
const ATTRIBUTES_AT: [i64; 2] = [463, 466];
const FILE_SETATTR: i64 = 469;
/// The newest reviewed call. The filter reports later calls, and the x32 numbers of x86-64, as missing.
const NEWEST_CALL: u32 = 469;

/// The bits of an `ioctl` request with its type.
const REQUEST_TYPE: u64 = 0xff00;
/// The bits of an `ioctl` request with its type and its direction.
const REQUEST_TYPE_AND_DIRECTION: u64 = 0xc000_ff00;
/// Request types that change a file even through a read-only descriptor: flags, projects and versions
/// (`FS_IOC_SETFLAGS`, `FS_IOC_FSSETXATTR`, `FS_IOC_SETVERSION`), `FS_IOC_ENABLE_VERITY`, attributes of FAT.
const SETTERS: [u64; 4] = [0x4000_6600, 0x4000_5800, 0x4000_7600, 0x4000_7200];
/// Single requests: `EXT4_IOC_MIGRATE`, `EXT4_IOC_ALLOC_DA_BLKS`, `FS_IOC_SET_ENCRYPTION_POLICY`, `FS_IOC_ADD_ENCRYPTION_KEY` and its
/// removal.
const SINGLE_SETTERS: [u64; 5] = [0x6609, 0x660c, 0x800c_6613, 0xc050_6617, 0xc040_6618];
/// Request types of F2FS and bcachefs, all denied.
const F2FS_AND_BCACHEFS: [u64; 2] = [0xf500, 0xbc00];
/// The request type of Btrfs, whose requests create and remove directories among other things.
const BTRFS: u64 = 0x9400;
/// Btrfs requests that all file systems support and that stay allowed: clone a file or a range, and deduplicate.
const BTRFS_ALLOWED: [u64; 3] = [0x4004_9409, 0x4020_940d, 0xc018_9436];

/// Commands of `fcntl` that block other processes when they open a file, or report accesses to files: `F_SETLEASE`, `F_NOTIFY`, and
/// `F_SETDELEG` of Linux 6.19.
const LEASES: [u64; 3] = [1024, 1026, 1040];

/// The flag of `clone` and `unshare` for a user namespace, in which a command would have all capabilities.
const NEW_USER: u64 = 0x1000_0000;

/// The setuid bit of a file mode: the program runs with the rights of its owner.
const SETUID: u64 = 0o4000;
/// Flags that create a file, so that the mode applies: `O_CREAT`, `O_TMPFILE`.
const CREATE_FLAGS: [u64; 2] = [0o100, 0o20_000_000];

/// The bits of a socket's type without its flags.
const SOCKET_TYPE: u64 = 0xf;
/// Datagram and raw sockets: one end of such a pair can be reconnected to another socket. Linux treats a raw Unix socket as a datagram
/// socket.
const RECONNECTABLE: [u64; 2] = [2, 3];

const UNIX: u64 = 1;
const INET: u64 = 2;
const INET6: u64 = 10;
const NETLINK: u64 = 16;

/// "Permission denied", the same error as for a file.
const EACCES: u32 = 13;
/// "Not supported", as on a file system without attributes: programs that copy files then leave them out.
const EOPNOTSUPP: u32 = 95;
/// "No such call": libraries then use the older call.
const ENOSYS: u32 = 38;

/// Returns the filters for this machine. With `network`, commands can create internet and netlink sockets. Otherwise, they can only create
/// pairs of sockets that stay connected to each other.
///
/// The filters deny what Landlock does not cover: user namespaces, changes of owners and attributes, setuid bits, key rings,
/// shared memory, semaphores and queues. They also deny changes to limits, priorities and scheduling of other processes, and joining
/// their process groups.
pub(super) fn filter(network: bool) -> Result<Vec<BpfProgram>, String> {
    let denied = denied_calls(network).map_err(build_error)?;
    let always = |calls: &[i64]| calls.iter().map(|call| (*call, Vec::new())).collect();
    let attributes: Vec<i64> = number::ATTRIBUTES.iter().chain(&ATTRIBUTES_AT).copied().collect();
    Ok(vec![
        program(denied, EACCES)?,
        program(always(&attributes), EOPNOTSUPP)?,
        program(always(&[CLONE3, OPENAT2]), ENOSYS)?,
        missing_above(NEWEST_CALL),
    ])
}

/// Returns a filter that denies `calls`.
pub(super) fn denied(calls: &[u32]) -> Result<BpfProgram, String> {
    program(calls.iter().map(|call| (i64::from(*call), Vec::new())).collect(), EACCES)
}

/// Returns a filter in which `calls` fail with `errno`. It kills a process that uses calls of another architecture, because their numbers
/// have other meanings.
fn program(calls: Vec<DeniedCall>, errno: u32) -> Result<BpfProgram, String> {
    let arch = std::env::consts::ARCH;
    let target = TargetArch::try_from(arch).map_err(|_| format!("no system call filter is available for {arch}"))?;
    let rules: BTreeMap<_, _> = calls.into_iter().collect();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), target);
    filter.and_then(BpfProgram::try_from).map_err(build_error)
}

fn build_error(error: BackendError) -> String {
    format!("cannot build the system call filter: {error}")
}

/// Returns a filter that reports every call above `newest` as missing, because its effect is unknown.
fn missing_above(newest: u32) -> BpfProgram {
    let instruction = |code, jf, k| sock_filter { code, jt: 0, jf, k };
    vec![
        // The first word of the filter's input is the number of the call.
        instruction(BPF_LD_W_ABS, 0, 0),
        instruction(BPF_JGT, 1, newest),
        instruction(BPF_RET, 0, SECCOMP_RET_ERRNO | ENOSYS),
        instruction(BPF_RET, 0, SECCOMP_RET_ALLOW),
    ]
}

const BPF_LD_W_ABS: u16 = 0x20;
const BPF_JGT: u16 = 0x25;
const BPF_RET: u16 = 0x06;
const SECCOMP_RET_ERRNO: u32 = 0x0005_0000;
const SECCOMP_RET_ALLOW: u32 = 0x7fff_0000;

/// A call and the conditions under which it is denied. Without conditions it is always denied.
type DeniedCall = (i64, Vec<SeccompRule>);

fn denied_calls(network: bool) -> Result<Vec<DeniedCall>, BackendError> {
    let mut sockets = Vec::new();
    if network {
        let other = |family| SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family);
        sockets.push(SeccompRule::new([INET, INET6, NETLINK].map(other).into_iter().collect::<Result<_, _>>()?)?);
    }
    let has =
        |argument, bits| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits), bits);
    let single_rule = |condition| Ok::<_, BackendError>(vec![SeccompRule::new(vec![condition])?]);
    let new_user = single_rule(has(0, NEW_USER)?)?;
    let mut denied = vec![(number::SOCKET, sockets), (number::CLONE, new_user.clone()), (number::UNSHARE, new_user)];
    let other = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, UNIX);
    let reconnectable =
        |kind| SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(SOCKET_TYPE), kind);
    let pairs =
        RECONNECTABLE.map(reconnectable).into_iter().chain([other]).map(|condition| SeccompRule::new(vec![condition?]));
    denied.push((number::IOCTL, setters()?));
    let lease =
        |command| SeccompRule::new(vec![SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, command)?]);
    denied.push((number::FCNTL, LEASES.map(lease).into_iter().collect::<Result<_, _>>()?));
    denied.push((number::SOCKETPAIR, pairs.collect::<Result<_, _>>()?));
    let always = [&[number::SETNS, IO_URING_SETUP, FILE_SETATTR], number::CHOWN, number::KEY_RINGS, number::SHARED];
    denied.extend(always.into_iter().flatten().map(|call| (*call, Vec::new())));
    // These calls are allowed for process 0, which means the caller.
    let of_others =
        |argument| single_rule(SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0)?);
    for call in number::SCHEDULING.iter().chain(&[number::PRLIMIT]) {
        denied.push((*call, of_others(0)?));
    }
    // Group 0 is a new one of the process itself. In a group of others, a process could stop, and then end the last link of the group to
    // its session: the kernel sends SIGHUP to the whole group, and Landlock does not see that signal.
    denied.push((number::SETPGID, of_others(1)?));
    for (call, process) in number::PRIORITIES {
        // Here 0 means the caller only if the first argument selects a process. Otherwise it means a group or all processes of a user.
        let kind = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, *process)?;
        denied.push((*call, of_others(1)?.into_iter().chain(single_rule(kind)?).collect()));
    }
    for (call, mode) in number::MODES.iter().chain(&[FCHMODAT2]) {
        denied.push((*call, single_rule(has(*mode, SETUID)?)?));
    }
    for (call, flags) in number::OPENS {
        let creates_setuid = |bits| SeccompRule::new(vec![has(*flags, bits)?, has(flags.saturating_add(1), SETUID)?]);
        denied.push((*call, CREATE_FLAGS.map(creates_setuid).into_iter().collect::<Result<_, _>>()?));
    }
    Ok(denied)
}

/// Returns the `ioctl` requests that change a file without write permission. Landlock covers only requests to devices.
fn setters() -> Result<Vec<SeccompRule>, BackendError> {
    let request = |op, value| SeccompCondition::new(1, SeccompCmpArgLen::Dword, op, value);
    let masked = |mask, value| request(SeccompCmpOp::MaskedEq(mask), value);
    let mut btrfs = vec![masked(REQUEST_TYPE, BTRFS)?];
    for copy in BTRFS_ALLOWED {
        btrfs.push(request(SeccompCmpOp::Ne, copy)?);
    }
    let all = SETTERS.map(|setter| masked(REQUEST_TYPE_AND_DIRECTION, setter)).into_iter();
    let all = all.chain(SINGLE_SETTERS.map(|setter| request(SeccompCmpOp::Eq, setter)));
    let all = all.chain(F2FS_AND_BCACHEFS.map(|kind| masked(REQUEST_TYPE, kind)));
    let rules = all.map(|condition| SeccompRule::new(vec![condition?]));
    rules.chain([SeccompRule::new(btrfs)]).collect()
}

/// Restricts this thread and all its later children.
pub(super) fn apply(filters: &[BpfProgram]) -> Result<(), String> {
    filters.iter().try_for_each(|filter| {
        apply_filter(filter).map_err(|error| format!("cannot apply the system call filter: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The control: an older call works.
    #[test]
    fn system_call_newer_than_the_limit_is_missing() {
        use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
        use rustix::io::Errno;

        const STATX: u32 = if cfg!(target_arch = "x86_64") { 332 } else { 291 };
        let call = || statx(CWD, ".", AtFlags::empty(), StatxFlags::BASIC_STATS).map(drop);
        let calls = std::thread::spawn(move || {
            apply(&[missing_above(STATX)]).unwrap();
            let first = call();
            apply(&[missing_above(STATX - 1)]).unwrap();
            (first, call())
        });
        assert_eq!(calls.join().unwrap(), (Ok(()), Err(Errno::NOSYS)));
    }

    #[test]
    fn this_machine_has_a_syscall_filter() {
        for network in [false, true] {
            assert!(filter(network).is_ok_and(|filters| filters.iter().all(|filter| !filter.is_empty())));
        }
    }
}
