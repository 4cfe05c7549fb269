//! Whose turn it is in one session. Pure. One call at a time, in the order in which they came.

use std::collections::VecDeque;

/// A call's number in its session.
pub(crate) type Ticket = u64;

/// The queue of one session.
#[derive(Debug)]
pub(crate) struct Queue {
    running: bool,
    waiting: VecDeque<Ticket>,
    waiting_max: usize,
    last: Ticket,
}

/// What a call that comes is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entered {
    /// It has the turn.
    Run,
    /// It waits.
    Wait(Ticket),
    /// Too many wait already.
    Full,
}

impl Queue {
    /// An empty queue, where at most `waiting_max` may wait behind the one that runs.
    pub(crate) fn new(waiting_max: usize) -> Self {
        Queue { running: false, waiting: VecDeque::new(), waiting_max, last: 0 }
    }

    /// A call comes.
    pub(crate) fn enter(&mut self) -> Entered {
        if !self.running {
            self.running = true;
            return Entered::Run;
        }
        if self.waiting.len() >= self.waiting_max {
            return Entered::Full;
        }
        self.last += 1;
        self.waiting.push_back(self.last);
        Entered::Wait(self.last)
    }

    /// The one that has the turn gives it up: who has it now.
    pub(crate) fn leave(&mut self) -> Option<Ticket> {
        let next = self.waiting.pop_front();
        self.running = next.is_some();
        next
    }

    /// One that waits gives up. `false` when it has the turn already, and so must [`leave`](Self::leave).
    pub(crate) fn give_up(&mut self, ticket: Ticket) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| *waiting != ticket);
        self.waiting.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_runs_and_the_others_follow_in_order() {
        let mut queue = Queue::new(2);
        assert_eq!(queue.enter(), Entered::Run);
        assert_eq!(queue.enter(), Entered::Wait(1));
        assert_eq!(queue.enter(), Entered::Wait(2));
        assert_eq!(queue.enter(), Entered::Full);
        assert_eq!(queue.leave(), Some(1));
        assert_eq!(queue.enter(), Entered::Wait(3));
        assert_eq!(queue.leave(), Some(2));
        assert_eq!(queue.leave(), Some(3));
        assert_eq!(queue.leave(), None);
        assert_eq!(queue.enter(), Entered::Run);
    }

    #[test]
    fn one_that_gives_up_is_passed_over() {
        let mut queue = Queue::new(9);
        queue.enter();
        queue.enter();
        queue.enter();
        assert!(queue.give_up(1));
        assert_eq!(queue.leave(), Some(2));
        assert!(!queue.give_up(2), "its turn had come");
        assert_eq!(queue.leave(), None);
    }

    #[test]
    fn without_a_queue_a_second_call_is_refused() {
        let mut queue = Queue::new(0);
        assert_eq!(queue.enter(), Entered::Run);
        assert_eq!(queue.enter(), Entered::Full);
        assert_eq!(queue.leave(), None);
        assert_eq!(queue.enter(), Entered::Run);
    }
}
