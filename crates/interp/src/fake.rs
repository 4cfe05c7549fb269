//! A keeper, an init and interpreters that run in threads of the test and do what the code that they are given says.
//!
//! Code of the interpreter: `print TEXT`, `raise TEXT`, `die STATUS`, `forge`, `shut`, `wrong`, `hang` (until SIGINT),
//! `stubborn` (until SIGKILL), `swarm` (the same, and what it started is slow to kill), `late TEXT` (written when the call is over). Commands of the shell: `say TEXT`,
//! `exit STATUS`, `hang`, `refuse`, `crowded` (is refused until others were killed), `hold TEXT` (a process in the background writes when the next command starts).

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ringfence_frame::init::{FromInit, ToInit};
use ringfence_frame::keeper::{FromKeeper, Limiter, Meters, ToKeeper};
use ringfence_op::{CallLimits, RootSpec};
use ringfence_sys::packet;
use rustix::event::{PollFd, PollFlags};

use crate::interp::{Interp, InterpConfig};
use crate::limits::KILL_ANSWER_WAIT_MAX;
use crate::memory::Memory;
use crate::pool::Renewal;

/// The test's end: what happened in the threads.
pub(crate) struct Fake {
    pub(crate) interp: Interp,
    /// `late` says here that it has written; the keeper, that it is asked for a cell of [`SLOW`], and to destroy one that
    /// was never made.
    pub(crate) written: Receiver<()>,
    keeper: Arc<OwnedFd>,
}

/// An image whose zygote never comes up.
pub(crate) const SLOW: u32 = 2;
/// What every shell calls itself.
const SHELL_PID: u32 = 9;

#[derive(Clone)]
struct Cell {
    id: u64,
    keeper: Arc<OwnedFd>,
    /// Where the interpreter that lives hears of signals.
    signals: Arc<Mutex<Option<Sender<i32>>>>,
    /// What the next killing is after forks as fast as it is killed.
    swarm: Arc<AtomicBool>,
    written: Sender<()>,
}

impl Fake {
    /// A pool of `pool_size` over a fake keeper; calls have an interrupt grace of 50 ms and 100 bytes of output.
    pub(crate) fn start(pool_size: usize) -> Fake {
        let (ours, theirs) = packet::pair().unwrap();
        let (tell, written) = channel();
        let keeper = Arc::new(theirs);
        let for_thread = Arc::clone(&keeper);
        thread::spawn(move || serve_keeper(for_thread, tell));
        let calls =
            CallLimits { interrupt_grace: Duration::from_millis(50), output_bytes_max: 100, ..CallLimits::default() };
        let memory = Arc::new(Memory::new(0));
        let config = InterpConfig {
            pool_size,
            pool_max: pool_size,
            memory,
            renewal: Renewal::default(),
            zygotes_apart: None,
            calls,
        };
        let interp = Interp::start(ours, Limiter::CgroupV2, &[root(true), root(false), root(true)], config).unwrap();
        Fake { interp, written, keeper }
    }

    /// The keeper dies.
    pub(crate) fn kill_keeper(&self) {
        rustix::net::shutdown(&*self.keeper, rustix::net::Shutdown::Both).unwrap();
    }
}

fn root(python: bool) -> RootSpec {
    let image = if python { "python" } else { "bare" };
    let python = python.then(|| "/usr/bin/python3".into());
    RootSpec { python, ..RootSpec::empty(image) }
}

/// Waits for a packet; `None` at the end.
fn packet_of(socket: &OwnedFd, buffer: &mut [u8]) -> Option<(usize, Vec<OwnedFd>)> {
    loop {
        rustix::event::poll(&mut [PollFd::new(socket, PollFlags::IN)], None).ok()?;
        match packet::receive(socket.as_fd(), buffer) {
            Ok((0, _)) => return None,
            Ok(packet) => return Some(packet),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
}

fn say(keeper: &OwnedFd, message: FromKeeper, descriptors: &[OwnedFd]) {
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let _ = packet::send(keeper.as_fd(), &message.encode(), &descriptors);
}

fn serve_keeper(keeper: Arc<OwnedFd>, written: Sender<()>) {
    let mut cells: HashMap<u64, Cell> = HashMap::new();
    let mut next_pid = 100;
    let mut buffer = [0; 256];
    while let Some((length, descriptors)) = packet_of(&keeper, &mut buffer) {
        match ToKeeper::decode(&buffer[..length]).unwrap() {
            ToKeeper::MakeCell { image: SLOW, .. } => {
                let _ = written.send(());
            }
            ToKeeper::MakeCell { cell, .. } => {
                let (init, theirs) = packet::pair().unwrap();
                let made = Cell {
                    id: cell,
                    keeper: Arc::clone(&keeper),
                    signals: Arc::default(),
                    swarm: Arc::default(),
                    written: written.clone(),
                };
                let for_init = made.clone();
                thread::spawn(move || serve_init(&theirs, &for_init));
                cells.insert(cell, made);
                let workspace = File::open("/").unwrap().into();
                let message = FromKeeper::CellMade { cell, owner_id: 1, meters: Meters(0) };
                say(&keeper, message, &[init, workspace]);
            }
            ToKeeper::SpawnWorker { cell } => {
                next_pid += 1;
                let (at, pid) = (cells[&cell].clone(), next_pid);
                let (signal, signals) = channel();
                *at.signals.lock().unwrap() = Some(signal);
                say(&keeper, FromKeeper::WorkerStarted { cell, pid, zygote: 1, forks: 1 }, &[]);
                thread::spawn(move || {
                    let status = serve_worker(&at, descriptors, &signals);
                    say(&at.keeper, FromKeeper::WorkerDied { cell: at.id, pid, status }, &[]);
                });
            }
            ToKeeper::RestZygote { .. } | ToKeeper::RenewZygote { .. } => {}
            ToKeeper::DestroyCell { cell } => {
                if cells.remove(&cell).is_none() {
                    let _ = written.send(());
                }
                say(&keeper, FromKeeper::CellGone { cell }, &[]);
            }
        }
    }
}

fn serve_init(socket: &OwnedFd, cell: &Cell) {
    let mut buffer = vec![0; 256 << 10];
    let mut killed = false;
    let (mut hanging, mut held) = (None, None::<(File, String)>);
    let answer = |message: FromInit| drop(packet::send(socket.as_fd(), &message.encode(), &[]));
    while let Some((length, descriptors)) = packet_of(socket, &mut buffer) {
        match ToInit::decode(&buffer[..length]).unwrap() {
            ToInit::Spawn { token, command } => {
                let mut command = String::from_utf8(command.to_vec()).unwrap();
                let mut files = descriptors.into_iter().map(File::from);
                let (mut out, _err) = (files.next().unwrap(), files.next().unwrap());
                if let Some(mut script) = files.next() {
                    std::io::Seek::rewind(&mut script).unwrap();
                    script.read_to_string(&mut command).unwrap();
                }
                let (verb, rest) = command.split_once(' ').unwrap_or((&command, ""));
                let exited = |status: i32| FromInit::Exited { token, status, cpu_us: 5 };
                answer(FromInit::Spawned { token, pid: SHELL_PID });
                if let Some((mut pipe, text)) = held.take() {
                    pipe.write_all(text.as_bytes()).unwrap();
                }
                match verb {
                    "" => answer(exited(0)),
                    "say" => {
                        out.write_all(rest.as_bytes()).unwrap();
                        answer(exited(0));
                    }
                    "exit" => answer(exited(rest.parse::<i32>().unwrap() << 8)),
                    "refuse" => answer(FromInit::SpawnFailed { token, errno: 11 }),
                    "crowded" if !killed => answer(FromInit::SpawnFailed { token, errno: 11 }),
                    "crowded" => answer(exited(0)),
                    "hold" => {
                        answer(exited(0));
                        held = Some((out, rest.to_owned()));
                    }
                    "hang" => {
                        out.write_all(b"hanging\n").unwrap();
                        hanging = Some((token, out));
                    }
                    other => panic!("no command {other}"),
                }
            }
            ToInit::Signal { signal, .. } => {
                if let Some(to) = &*cell.signals.lock().unwrap() {
                    let _ = to.send(signal);
                }
            }
            ToInit::Interrupt { pid: SHELL_PID, .. } => {
                if let Some((hung, _out)) = hanging.take() {
                    answer(FromInit::Exited { token: hung, status: 2, cpu_us: 5 });
                }
            }
            ToInit::Interrupt { .. } => {
                if let Some(to) = &*cell.signals.lock().unwrap() {
                    let _ = to.send(2);
                }
            }
            ToInit::KillSince { token, .. } => {
                if let Some((hung, _out)) = hanging.take() {
                    answer(FromInit::Exited { token: hung, status: 9, cpu_us: 5 });
                }
                if cell.swarm.swap(false, Ordering::SeqCst) {
                    // Longer than an answer waits; whoever is born meanwhile is among those that are killed.
                    thread::sleep(KILL_ANSWER_WAIT_MAX + Duration::from_millis(300));
                    if let Some(to) = &*cell.signals.lock().unwrap() {
                        let _ = to.send(9);
                    }
                }
                killed = true;
                answer(FromInit::Killed { token, count: 1, all: false });
            }
        }
    }
}

/// Serves calls until it dies; its wait status.
fn serve_worker(cell: &Cell, descriptors: Vec<OwnedFd>, signals: &Receiver<i32>) -> i32 {
    let mut files = descriptors.into_iter();
    let mut frame = UnixStream::from(files.next().unwrap());
    let (mut out, mut err) = (File::from(files.next().unwrap()), File::from(files.next().unwrap()));
    frame.write_all(&[8, 0, 0, 0, 1, 129, 0, 0, 7, 0, 0, 0, 3, 11, 0, 0]).unwrap();
    let mut head = [0; 24];
    while frame.read_exact(&mut head).is_ok() {
        let length = u32::from_le_bytes(head[..4].try_into().unwrap()) as usize;
        let nonce = u64::from_le_bytes(head[8..16].try_into().unwrap());
        let mut code = vec![0; length - 16];
        frame.read_exact(&mut code).unwrap();
        let code = String::from_utf8(code).unwrap();
        let (verb, rest) = code.split_once(' ').unwrap_or((&code, ""));
        match verb {
            "print" => {
                out.write_all(rest.as_bytes()).unwrap();
                frame.write_all(&done(nonce, 0, 0)).unwrap();
            }
            "raise" => {
                err.write_all(rest.as_bytes()).unwrap();
                frame.write_all(&done(nonce, 1, 1)).unwrap();
            }
            "late" => {
                frame.write_all(&done(nonce, 0, 0)).unwrap();
                let _ = signals.recv_timeout(Duration::from_millis(20));
                out.write_all(rest.as_bytes()).unwrap();
                cell.written.send(()).unwrap();
            }
            "die" => return rest.parse::<i32>().unwrap() << 8,
            "forge" => frame.write_all(&[0xff; 64]).unwrap(),
            "wrong" => frame.write_all(&done(nonce ^ 1, 0, 0)).unwrap(),
            "twice" => {
                frame.write_all(&done(nonce, 0, 0)).unwrap();
                frame.write_all(&done(nonce, 0, 0)).unwrap();
            }
            "shut" => frame.shutdown(std::net::Shutdown::Both).unwrap(),
            "hang" | "stubborn" | "swarm" => loop {
                cell.swarm.store(verb == "swarm", Ordering::SeqCst);
                match (verb, signals.recv().unwrap()) {
                    (_, 9) => return 9,
                    ("hang", 2) => {
                        frame.write_all(&done(nonce, 1, 3)).unwrap();
                        break;
                    }
                    _ => {}
                }
            },
            other => panic!("no code {other}"),
        }
        if let Ok(9) = signals.try_recv() {
            return 9;
        }
    }
    signals.recv_timeout(Duration::from_secs(5)).unwrap_or(9)
}

fn done(nonce: u64, return_code: i32, ended: u8) -> Vec<u8> {
    let mut bytes = vec![24, 0, 0, 0, 1, 130, 0, 0];
    bytes.extend_from_slice(&nonce.to_le_bytes());
    bytes.extend_from_slice(&return_code.to_le_bytes());
    bytes.extend_from_slice(&[ended, 0, 0, 0]);
    bytes.extend_from_slice(&1500u64.to_le_bytes());
    bytes
}
