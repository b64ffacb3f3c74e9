//! The listener of one filter.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// A system call that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoppedCall {
    id: u64,
    /// The thread that made the call, as its number in the listener's process namespace.
    pub thread: u32,
    /// The number of the call on this architecture.
    pub number: i32,
    /// The arguments. An address is one of the caller's memory.
    pub arguments: [u64; 6],
}

/// Receives and answers the calls that a filter stops. After the drop, these calls fail with `ENOSYS`.
#[derive(Debug)]
pub struct CallListener(OwnedFd);

impl CallListener {
    /// Stops `calls` of this thread and its later descendants. The thread itself must not make one of these calls, unless another thread
    /// answers it.
    ///
    /// The filter does not compare the architecture: use it together with one that does. A thread with a listener cannot get a second one.
    ///
    /// # Errors
    /// If the thread can still gain privileges (`no_new_privs` is missing), if it already has a listener, or if the kernel does
    /// not support listeners (before Linux 5.19).
    pub fn install(calls: &[u32]) -> io::Result<Self> {
        let mut program = vec![instruction(LOAD_WORD, 0, NUMBER_OFFSET)];
        let count = u8::try_from(calls.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // A match skips the comparisons that follow and the answer for other calls.
        program
            .extend(calls.iter().zip((1..=count).rev()).map(|(call, skipped)| instruction(IF_EQUAL, skipped, *call)));
        program.push(instruction(RETURN, 0, libc::SECCOMP_RET_ALLOW));
        program.push(instruction(RETURN, 0, libc::SECCOMP_RET_USER_NOTIF));
        let len = u16::try_from(program.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let filter = libc::sock_fprog { len, filter: program.as_mut_ptr() };
        // The second flag lets only fatal signals interrupt a call that was received. Otherwise a caller with frequent signals, such as a Go
        // program, would repeat its call without end.
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
        let operation = libc::SECCOMP_SET_MODE_FILTER;
        #[allow(unsafe_code, reason = "the request takes a pointer to the filter")]
        // SAFETY: `filter` points to `len` instructions that live until the call returns; the kernel copies them.
        let opened = unsafe { libc::syscall(libc::SYS_seccomp, operation, flags, &raw const filter) };
        let opened = RawFd::try_from(opened).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        #[allow(unsafe_code, reason = "the kernel returns a number")]
        // SAFETY: the kernel opened this descriptor for this call, so nothing else owns it. It is closed on exec.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(opened) }))
    }

    /// Waits for the next call. Returns `None` after the last thread with the filter has ended.
    ///
    /// # Errors
    /// If the kernel rejects the request.
    pub fn receive(&self) -> io::Result<Option<StoppedCall>> {
        loop {
            let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [polled] = polled;
            if polled.revents().contains(PollFlags::IN) {
                match self.received() {
                    // The caller was killed meanwhile.
                    Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                    received => return received.map(Some),
                }
            } else if polled.revents().intersects(PollFlags::HUP | PollFlags::ERR) {
                return Ok(None);
            }
        }
    }

    fn received(&self) -> io::Result<StoppedCall> {
        let data = libc::seccomp_data { nr: 0, arch: 0, instruction_pointer: 0, args: [0; 6] };
        let mut received = libc::seccomp_notif { id: 0, pid: 0, flags: 0, data };
        self.request(&mut received)?;
        let libc::seccomp_notif { id, pid: thread, data, .. } = received;
        Ok(StoppedCall { id, thread, number: data.nr, arguments: data.args })
    }

    /// Returns whether `call` still waits. If not, its thread may have ended, and its number may belong to another thread.
    pub fn is_waiting(&self, call: &StoppedCall) -> bool {
        self.request(&mut { call.id }).is_ok()
    }

    /// Ends `call` with this result: 0 or the error. Does nothing if its thread has ended.
    ///
    /// # Errors
    /// If the kernel rejects the request.
    pub fn answer(&self, call: &StoppedCall, result: Result<(), Errno>) -> io::Result<()> {
        let error = result.err().map_or(0, |error| error.raw_os_error().wrapping_neg());
        let mut answer = libc::seccomp_notif_resp { id: call.id, val: 0, error, flags: 0 };
        match self.request(&mut answer) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            answered => answered,
        }
    }

    fn request<R: ListenerRequest>(&self, value: &mut R) -> io::Result<()> {
        #[allow(unsafe_code, reason = "the request takes a pointer to its value")]
        // SAFETY: `value` is valid for reads and writes and has the type of the request; the kernel writes no more than its size, and
        // every bit pattern is a value of these types.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), R::NUMBER, &raw mut *value) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// The value of a request to a listener.
trait ListenerRequest {
    const NUMBER: libc::Ioctl;
}

impl ListenerRequest for libc::seccomp_notif {
    const NUMBER: libc::Ioctl = libc::SECCOMP_IOCTL_NOTIF_RECV;
}

impl ListenerRequest for libc::seccomp_notif_resp {
    const NUMBER: libc::Ioctl = libc::SECCOMP_IOCTL_NOTIF_SEND;
}

/// The id of a call, to ask whether it still waits.
impl ListenerRequest for u64 {
    const NUMBER: libc::Ioctl = libc::SECCOMP_IOCTL_NOTIF_ID_VALID;
}

/// Offset of the call's number in the input of a filter.
const NUMBER_OFFSET: u32 = 0;
/// `BPF_LD | BPF_W | BPF_ABS`.
const LOAD_WORD: u16 = 0x20;
/// `BPF_JMP | BPF_JEQ | BPF_K`.
const IF_EQUAL: u16 = 0x15;
/// `BPF_RET | BPF_K`.
const RETURN: u16 = 0x06;

fn instruction(code: u16, jt: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf: 0, k }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use rustix::process::{Pid, getpgid, getpid, getppid};
    use rustix::thread::set_no_new_privs;

    use super::*;

    const GETPGID: u32 = libc::SYS_getpgid as u32;
    const GETPPID: u32 = libc::SYS_getppid as u32;
    const UMASK: u32 = libc::SYS_umask as u32;

    /// The listener answers one call with 0 and another with an error. The control: a call that the filter does not name.
    #[test]
    fn listener_answers_chosen_calls_and_ends_with_their_threads() {
        let (send, listeners) = mpsc::channel();
        let caller = std::thread::spawn(move || {
            set_no_new_privs(true).unwrap();
            send.send(CallListener::install(&[GETPPID, GETPGID]).unwrap()).unwrap();
            // The kernel's own answers: this process has a parent, and a group.
            (getppid(), getpgid(Some(getpid())), getpid())
        });
        let listener = listeners.recv().unwrap();
        let mut seen = Vec::new();
        while let Some(call) = listener.receive().unwrap() {
            assert!(listener.is_waiting(&call));
            seen.push((call.number.cast_unsigned(), call.arguments[0]));
            listener.answer(&call, if seen.len() == 1 { Ok(()) } else { Err(Errno::ACCESS) }).unwrap();
            assert!(!listener.is_waiting(&call));
        }
        let this = getpid();
        assert_eq!(caller.join().unwrap(), (None::<Pid>, Err(Errno::ACCESS), this));
        let named = u64::try_from(this.as_raw_nonzero().get()).unwrap();
        assert_eq!((seen.len(), seen[0].0, seen[1]), (2, GETPPID, (GETPGID, named)));
    }

    #[test]
    fn second_listener_of_a_thread_is_refused() {
        let second = std::thread::spawn(|| {
            set_no_new_privs(true).unwrap();
            let _first = CallListener::install(&[UMASK]).unwrap();
            CallListener::install(&[UMASK]).map(drop).map_err(|error| error.raw_os_error())
        });
        assert_eq!(second.join().unwrap(), Err(Some(libc::EBUSY)));
    }
}
