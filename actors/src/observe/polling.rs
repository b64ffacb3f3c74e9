//! Adapter from readers with an asynchronous `next` to streams.

use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

/// A reader, or its pending read, which is kept between polls so that its waker stays registered.
pub(crate) struct Polled<R, T> {
    idle: Option<R>,
    reading: Option<BoxFuture<'static, (R, T)>>,
}

impl<R: Send + 'static, T: 'static> Polled<R, T> {
    pub(crate) fn new(reader: R) -> Self {
        Self { idle: Some(reader), reading: None }
    }

    /// Returns the reader, unless a read is pending.
    pub(crate) fn idle(&mut self) -> Option<&mut R> {
        self.idle.as_mut()
    }

    /// Continues the pending read, or starts one by `read`.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, read: impl FnOnce(R) -> BoxFuture<'static, (R, T)>) -> Poll<T> {
        let reading = self.idle.take().map(read).or_else(|| self.reading.take());
        let Some(mut reading) = reading else { return Poll::Pending };
        match reading.poll_unpin(cx) {
            Poll::Ready((reader, item)) => {
                self.idle = Some(reader);
                Poll::Ready(item)
            }
            Poll::Pending => {
                self.reading = Some(reading);
                Poll::Pending
            }
        }
    }
}
