//! A future that goes on by itself when whoever waits for it goes away.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// Runs in its caller's task, without a hand-over between threads; dropped before its end, it becomes a task of its
/// own. Must be dropped within the runtime, or on its shutdown.
pub(crate) struct Detached<T: Send + 'static>(Option<Pin<Box<dyn Future<Output = T> + Send>>>);

impl<T: Send + 'static> Detached<T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Detached(Some(Box::pin(future)))
    }
}

impl<T: Send + 'static> Future for Detached<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // It is not polled again once it was ready.
        let Some(future) = &mut self.0 else { return Poll::Pending };
        let outcome = future.as_mut().poll(context);
        if outcome.is_ready() {
            self.0 = None;
        }
        outcome
    }
}

impl<T: Send + 'static> Drop for Detached<T> {
    fn drop(&mut self) {
        if let (Some(future), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(future);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn it_gives_its_value_to_who_waits() {
        assert_eq!(Detached::new(async { 7 }).await, 7);
    }

    #[tokio::test]
    async fn it_goes_on_when_nobody_waits() {
        let (go, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let detached = Detached::new({
            let (go, done) = (Arc::clone(&go), Arc::clone(&done));
            async move {
                go.notified().await;
                done.notify_one();
            }
        });
        let waits = tokio::spawn(detached);
        tokio::task::yield_now().await;
        waits.abort();
        assert!(waits.await.is_err());
        go.notify_one();
        done.notified().await;
    }
}
