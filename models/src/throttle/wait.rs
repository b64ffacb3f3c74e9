//! A call that waits for its turn.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::desk::{Claim, Polled};
use super::lanes::Ticket;
use super::pass::Pass;
use super::shared::Shared;

/// Waits until the call may start.
///
/// It may be dropped at any point, and each leaves the desk as if it had not been:
/// - before the first poll it is not at the desk;
/// - in the lanes of its first quota it leaves them, and if it was next the one after it is looked at;
/// - in those of a wider quota it gives back its places in the narrower ones too, and what was put by for it there;
/// - when it was called up and the drop crosses with the wake, its ticket still is at the desk: only a poll takes it. So it
///   gives everything back, and the desk calls up the next one;
/// - when a poll has taken the ticket there is a [`Pass`], whose drop gives back what it holds;
/// - when the desk was closed its ticket is gone, and there is nothing to give back.
#[derive(Debug)]
pub(super) struct Wait<'a> {
    shared: &'a Arc<Shared>,
    claim: Claim,
    ticket: Option<Ticket>,
}

impl<'a> Wait<'a> {
    pub(super) fn new(shared: &'a Arc<Shared>, claim: Claim) -> Self {
        Self { shared, claim, ticket: None }
    }
}

impl Future for Wait<'_> {
    type Output = Pass;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Pass> {
        let this = &mut *self;
        let (polled, _old_waker) = this.shared.at_desk_to_wait(|desk, now| {
            let ticket = *this.ticket.get_or_insert_with(|| desk.join(this.claim.clone(), now));
            // The waker comes first: a call that must wait after all may be called up again before the lock is released.
            let old = desk.wake_with(ticket, cx.waker());
            (desk.start(ticket, now), old)
        });
        let pass = match polled {
            Polled::Waits => return Poll::Pending,
            Polled::Starts(_waker) => Pass::new(Arc::clone(this.shared), this.claim.clone()),
            Polled::Closed => Pass::of_nothing(),
        };
        this.ticket = None;
        Poll::Ready(pass)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            drop(self.shared.at_desk(|desk, now| desk.leave(ticket, now)));
        }
    }
}
