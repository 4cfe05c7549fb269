//! A shell command: started anew for each call by the cell's init, with pipes of its own.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ringfence_frame::init::{COMMAND_BYTES_MAX, FromInit, ToInit};
use ringfence_op::{Bash, CallReport};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use tokio::time::Instant;

use crate::cell::{Begun, Cell, Slot};
use crate::init_link::InitGone;
use crate::limits::{READ_BYTES, SHELL_LATE_AFTER};
use crate::pipes::Pair;
use crate::verdict::{Death, Ending, StopCause, Stopped};
use crate::worker::written;

/// What the wait for the shell came to.
enum Waited {
    Ended(Ending, u64),
    Stop(StopCause),
}

impl Cell {
    /// Runs a shell command. Always gives a report.
    ///
    /// The call ends when the shell ends, also where processes in the background hold its pipes. At the timeout
    /// everything is killed that the command has started, whatever sessions and groups it made. What a caller's
    /// interrupt does is told at [`InterruptHandle`](crate::InterruptHandle).
    pub async fn run_bash(&mut self, bash: &Bash, timeout: Duration) -> CallReport {
        let mut begun = self.begin_beside(timeout);
        let (ending, cpu_us) = self.bash(bash, &mut begun).await.unwrap_or_else(|ending| (ending, 0));
        self.finish(begun, ending, cpu_us)
    }

    async fn bash(&mut self, bash: &Bash, begun: &mut Begun) -> Result<(Ending, u64), Ending> {
        if self.died() {
            return Err(Ending::CellLost);
        }
        self.settle(begun).await?;
        self.notice_death();
        if bash.command.contains('\0') {
            begun.streams.err.push(b"the command contains a NUL byte, which no shell can take\n");
            return Err(Ending::Shell(Death::Exited(2)));
        }
        let ran = self.spawn(bash, begun).await?;
        if !matches!(ran.0, Ending::NotStarted { errno } if errno == Errno::AGAIN.raw_os_error()) {
            return Ok(ran);
        }
        // What earlier calls left behind has used up the cell's processes: no command could ever be started again,
        // not even one that cleans up. It is killed, and said so where a good run does not look failed for it.
        self.kill_since(0, self.kept_pid()).await?;
        self.settle(begun).await?;
        begun.tell_aside("the session had too many processes; those that earlier calls had left behind were killed");
        self.spawn(bash, begun).await
    }

    /// Has init start the shell, and sees it to its end.
    async fn spawn(&mut self, bash: &Bash, begun: &mut Begun) -> Result<(Ending, u64), Ending> {
        let (pair, [out, err]) = Pair::new().map_err(|error| not_started(&error))?;
        let token = self.init.token();
        let script = if bash.command.is_empty() || bash.command.len() > COMMAND_BYTES_MAX {
            Some(script(&bash.command).map_err(|error| not_started(&error))?)
        } else {
            None
        };
        let command = if script.is_some() { &b""[..] } else { bash.command.as_bytes() };
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![out.as_fd(), err.as_fd()];
        descriptors.extend(script.as_ref().map(AsFd::as_fd));
        self.init.send(ToInit::Spawn { token, command }, &descriptors).await.map_err(|InitGone| Ending::CellLost)?;
        drop((out, err, script));
        let result = match self.wait(token, &pair, begun).await? {
            Waited::Ended(ending, cpu_us) => (ending, cpu_us),
            Waited::Stop(cause) => {
                self.kill_since(begun.since_ticks, self.kept_pid()).await?;
                (Ending::Stopped { cause, what: Stopped::Command }, 0)
            }
        };
        begun.streams.drain_to_end(&pair);
        self.leftovers.adopt(pair, &self.background);
        Ok(result)
    }

    /// Reads output until the shell ends or must be stopped. The first interrupt goes to the shell and its group.
    async fn wait(&self, token: u64, pair: &Pair, begun: &mut Begun) -> Result<Waited, Ending> {
        // First the moment from which on the command counts as lasting, then its deadline.
        let timer = tokio::time::sleep_until(begun.deadline.min(Instant::now() + SHELL_LATE_AFTER));
        tokio::pin!(timer);
        let mut watch = None;
        let (mut shell, mut asked, mut interrupted) = (None, false, false);
        loop {
            if let (Some(pid), true, false) = (shell, asked, interrupted) {
                let interrupt = ToInit::Interrupt { pid, since_ticks: begun.since_ticks };
                self.init.send(interrupt, &[]).await.map_err(|InitGone| Ending::CellLost)?;
                interrupted = true;
            }
            tokio::select! {
                biased;
                message = self.init.recv() => match message.map_err(|InitGone| Ending::CellLost)? {
                    FromInit::Spawned { token: of, pid } if of == token => shell = Some(pid),
                    FromInit::Exited { token: of, status, cpu_us } if of == token => {
                        return Ok(Waited::Ended(ended(Death::from_wait(status), interrupted), cpu_us));
                    }
                    FromInit::SpawnFailed { token: of, errno } if of == token => {
                        return Ok(Waited::Ended(Ending::NotStarted { errno }, 0));
                    }
                    _ => {}
                },
                () = written(watch.as_ref(), pair) => begun.streams.take(pair, watch.as_ref(), READ_BYTES),
                () = &mut timer => {
                    if timer.deadline() >= begun.deadline {
                        return Ok(Waited::Stop(StopCause::Timeout(begun.timeout)));
                    }
                    watch = Some(pair.watch().map_err(|error| not_started(&error))?);
                    timer.as_mut().reset(begun.deadline);
                }
                () = begun.interrupts.next() => match std::mem::replace(&mut asked, true) {
                    false => {}
                    true => return Ok(Waited::Stop(StopCause::Asked)),
                },
            }
        }
    }

    /// The interpreter outlives a shell command that is killed.
    fn kept_pid(&self) -> u32 {
        match &self.slot {
            Slot::Ready(worker) => worker.cell_pid(),
            _ => 0,
        }
    }
}

/// How a shell ended. One that the interrupt killed is told as interrupted; one that took it has its own status.
fn ended(death: Death, interrupted: bool) -> Ending {
    match death {
        Death::Signal(signal) if interrupted && signal == rustix::process::Signal::INT.as_raw() => {
            Ending::Stopped { cause: StopCause::Asked, what: Stopped::Shell }
        }
        _ => Ending::Shell(death),
    }
}

fn not_started(error: &std::io::Error) -> Ending {
    Ending::NotStarted { errno: error.raw_os_error().unwrap_or(0) }
}

/// A command that does not travel in a message.
fn script(command: &str) -> std::io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create("command", MemfdFlags::CLOEXEC)?);
    file.write_all(command.as_bytes())?;
    Ok(file.into())
}
