//! A future that wakes itself is polled again at once.
//!
//! hyper wakes its own connection whenever a piece of a request's body is taken. To the runtime that is a task that
//! wants to run once more: it goes through the queue, and another thread is woken to help with it, which finds nothing
//! to do. One in the middle of the way of every call is worth avoiding.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::limits::SELF_WAKES_MAX;

/// Nobody polls: a wake is for the runtime.
const AWAY: u8 = 0;
/// It is being polled.
const INSIDE: u8 = 1;
/// It was woken while it was polled.
const AGAIN: u8 = 2;

/// Polls a future under a waker of its own.
#[derive(Default)]
pub(super) struct Steady {
    own: Option<(Arc<Own>, Waker)>,
}

struct Own {
    state: AtomicU8,
    task: Waker,
}

impl Steady {
    /// Polls, and again for as long as the future wakes itself, [`SELF_WAKES_MAX`] times at most: then others are let
    /// run before it.
    pub(super) fn poll<F: Future>(&mut self, mut future: Pin<&mut F>, cx: &Context<'_>) -> Poll<F::Output> {
        let (own, waker) = self.own_of(cx.waker());
        for _ in 0..SELF_WAKES_MAX {
            own.state.swap(INSIDE, Ordering::AcqRel);
            let polled = future.as_mut().poll(&mut Context::from_waker(waker));
            let stays = own.state.compare_exchange(INSIDE, AWAY, Ordering::AcqRel, Ordering::Acquire).is_ok();
            if polled.is_ready() || stays {
                own.state.store(AWAY, Ordering::Release);
                return polled;
            }
        }
        own.state.store(AWAY, Ordering::Release);
        own.task.wake_by_ref();
        Poll::Pending
    }

    /// The waker for this task; a task has the same one all its life.
    fn own_of(&mut self, task: &Waker) -> &(Arc<Own>, Waker) {
        if self.own.as_ref().is_some_and(|(own, _)| !own.task.will_wake(task)) {
            self.own = None;
        }
        self.own.get_or_insert_with(|| {
            let own = Arc::new(Own { state: AtomicU8::new(AWAY), task: task.clone() });
            (Arc::clone(&own), Waker::from(own))
        })
    }
}

impl Wake for Own {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Polled now: whoever polls sees it. Woken already: the same. Else it is for the runtime.
        if self.state.compare_exchange(INSIDE, AGAIN, Ordering::AcqRel, Ordering::Acquire) == Err(AWAY) {
            self.task.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Polls once a future that wakes itself at its first `wakes` polls, then is ready: what came, and how often the
    /// runtime was woken.
    fn polled(wakes: usize) -> (Poll<()>, usize, Steady, Arc<Counter>) {
        let counter = Arc::new(Counter::default());
        let waker = Waker::from(Arc::clone(&counter));
        let (mut steady, mut left) = (Steady::default(), wakes);
        let future = poll_fn(|cx| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        let polled = steady.poll(pin!(future), &Context::from_waker(&waker));
        let woken = counter.0.load(Ordering::SeqCst);
        (polled, woken, steady, counter)
    }

    #[test]
    fn what_wakes_itself_goes_on_without_the_runtime() {
        let (polled, woken, ..) = polled(SELF_WAKES_MAX - 1);
        assert_eq!((polled, woken), (Poll::Ready(()), 0));
    }

    #[test]
    fn what_never_stops_lets_others_run() {
        let (polled, woken, ..) = polled(usize::MAX);
        assert_eq!((polled, woken), (Poll::Pending, 1));
    }

    #[test]
    fn a_wake_from_outside_reaches_the_runtime() {
        let counter = Arc::new(Counter::default());
        let waker = Waker::from(Arc::clone(&counter));
        let (mut steady, mut kept) = (Steady::default(), None);
        let future = poll_fn(|cx| {
            kept = Some(cx.waker().clone());
            Poll::<()>::Pending
        });
        assert!(steady.poll(pin!(future), &Context::from_waker(&waker)).is_pending());
        assert_eq!(counter.0.load(Ordering::SeqCst), 0);
        kept.unwrap().wake();
        assert_eq!(counter.0.load(Ordering::SeqCst), 1);
    }
}
