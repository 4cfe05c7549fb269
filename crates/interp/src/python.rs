//! A call of the interpreter.

use std::time::Duration;

use ringfence_frame::init::ToInit;
use ringfence_frame::worker::{Ended, Run};
use ringfence_op::{CallReport, Python, random_bytes};
use tokio::time::Instant;

use crate::cell::{Begun, Cell, Slot};
use crate::init_link::InitGone;
use crate::interrupt::Interrupts;
use crate::limits::{INTERRUPT_DELAY, INTERRUPT_GRACE_MAX};
use crate::verdict::{Ending, StopCause, Stopped};
use crate::worker::{Finish, Running, Worker};

/// How a call ended, the CPU time that its interpreter told, and whether the interpreter lives on.
struct Ran {
    ending: Ending,
    cpu_us: u64,
    keep: bool,
}

impl Cell {
    /// Runs code in the session's interpreter. Always gives a report: what a program does is never an error.
    ///
    /// The report comes within `timeout` and three seconds. At the timeout the program is interrupted; when it has
    /// not unwound after the grace it is killed, and the next call finds a new interpreter. What a caller's interrupt
    /// does is told at [`InterruptHandle`](crate::InterruptHandle).
    pub async fn run_python(&mut self, python: &Python, timeout: Duration) -> CallReport {
        let mut begun = self.begin(timeout);
        let (ending, cpu_us) = self.python(python, &mut begun).await.unwrap_or_else(|ending| (ending, 0));
        self.finish(begun, ending, cpu_us)
    }

    async fn python(&mut self, python: &Python, begun: &mut Begun) -> Result<(Ending, u64), Ending> {
        if self.died() {
            return Err(Ending::CellLost);
        }
        if matches!(self.slot, Slot::Never) {
            begun.streams.err.push(b"this session's image has no Python interpreter\n");
            return Err(Ending::NoInterpreter);
        }
        self.settle(begun).await?;
        let mut worker = self.ready_worker(begun).await?;
        if begun.interrupts.take() {
            self.slot = Slot::Ready(worker);
            return Err(Ending::Stopped { cause: StopCause::Asked, what: Stopped::NeverStarted });
        }
        let Ok(nonce) = random_bytes().map(|bytes| u64::from_ne_bytes(bytes).max(1)) else {
            self.slot = Slot::Ready(worker);
            return Err(Ending::NoInterpreter);
        };
        self.calls = self.calls.saturating_add(1);
        let count_cpu = !self.meters.count_cpu();
        let run = Run { nonce, call: self.calls, echo_last: python.echo_last, count_cpu, code: &python.code };
        let ran = self.run(&mut worker, run, begun).await?;
        if ran.keep {
            self.slot = Slot::Ready(worker);
        } else {
            self.replace_worker(&worker);
        }
        Ok((ran.ending, ran.cpu_us))
    }

    async fn run(&mut self, worker: &mut Worker, run: Run<'_>, begun: &mut Begun) -> Result<Ran, Ending> {
        let (deadline, timeout, since_ticks) = (begun.deadline, begun.timeout, begun.since_ticks);
        let Some(mut running) = worker.begin(run, &mut begun.streams) else {
            begun.streams.err.push(b"the source is longer than an interpreter takes\n");
            return Ok(Ran { ending: Ending::TooLong, cpu_us: 0, keep: true });
        };
        let (finish, interrupted) = self.see_out(&mut running, deadline, since_ticks, &mut begun.interrupts).await?;
        let cause = match finish {
            Finish::Deadline => StopCause::Timeout(timeout),
            Finish::Asked => StopCause::Asked,
            Finish::CellLost => return Err(Ending::CellLost),
            Finish::Done { return_code, ended, hints, cpu_us } => {
                running.drain();
                if interrupted {
                    self.after_init().await?;
                }
                let ending = match interrupted && ended == Ended::Interrupted {
                    true => Ending::Stopped { cause: StopCause::Asked, what: Stopped::Interrupted },
                    false => Ending::Done { return_code, ended, hints },
                };
                return Ok(Ran { ending, cpu_us, keep: true });
            }
            Finish::Died(death) => {
                running.drain();
                return Ok(Ran { ending: Ending::Died(death), cpu_us: 0, keep: false });
            }
            Finish::Violated => {
                self.kill_worker(running.worker()).await?;
                running.drain();
                return Ok(Ran { ending: Ending::Violated, cpu_us: 0, keep: false });
            }
        };
        self.stop(running, cause, since_ticks).await
    }

    /// Waits for the end of a call, and hands it its first interrupt: how it ended, and whether it was interrupted
    /// before. A second interrupt is [`Finish::Asked`].
    async fn see_out(
        &mut self,
        running: &mut Running<'_>,
        deadline: Instant,
        since_ticks: u64,
        interrupts: &mut Interrupts,
    ) -> Result<(Finish, bool), Ending> {
        let not_before = Instant::now() + INTERRUPT_DELAY;
        let finish = running.until(deadline, Some(interrupts)).await;
        if finish != Finish::Asked {
            return Ok((finish, false));
        }
        let finish = running.until(not_before.min(deadline), None).await;
        if finish != Finish::Deadline {
            return Ok((finish, false));
        }
        let interrupt = ToInit::Interrupt { pid: running.worker().cell_pid(), since_ticks };
        self.init.send(interrupt, &[]).await.map_err(|InitGone| Ending::CellLost)?;
        Ok((running.until(deadline, Some(interrupts)).await, true))
    }

    /// Interrupts; after the grace, kills. What the call has started is killed in both cases.
    async fn stop(&mut self, mut running: Running<'_>, cause: StopCause, since_ticks: u64) -> Result<Ran, Ending> {
        let pid = running.worker().cell_pid();
        let interrupt = ToInit::Signal { pid, signal: rustix::process::Signal::INT.as_raw() };
        self.init.send(interrupt, &[]).await.map_err(|InitGone| Ending::CellLost)?;
        let grace = Instant::now() + self.shared.calls.interrupt_grace.min(INTERRUPT_GRACE_MAX);
        let finish = running.until(grace, None).await;
        if let Finish::Done { cpu_us, .. } = finish {
            self.kill_since(since_ticks, pid).await?;
            running.drain();
            return Ok(Ran { ending: Ending::Stopped { cause, what: Stopped::Interrupted }, cpu_us, keep: true });
        }
        if finish == Finish::CellLost {
            return Err(Ending::CellLost);
        }
        self.kill_worker(running.worker()).await?;
        self.kill_since(since_ticks, 0).await?;
        running.drain();
        Ok(Ran { ending: Ending::Stopped { cause, what: Stopped::Killed }, cpu_us: 0, keep: false })
    }
}
