//! System calls that another thread answers, by the seccomp user notification of Linux (`seccomp_unotify(2)`).
//!
//! A filter on a thread stops chosen system calls of this thread and its descendants. A [`CallListener`] receives each call and answers it
//! in the place of the kernel.
//!
//! This is the only member with unsafe code: four requests to the kernel that no maintained crate offers without a C library.

#[cfg(target_os = "linux")]
mod listener;

#[cfg(target_os = "linux")]
pub use listener::{CallListener, StoppedCall};
