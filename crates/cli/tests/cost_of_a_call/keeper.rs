//! A keeper, an init and interpreters that are threads of this program: each call prints `2`, whatever the code.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use ringfence_frame::keeper::{FromKeeper, Meters, ToKeeper};
use ringfence_op::RootSpec;
use ringfence_sys::packet;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};

/// What each meter of a cell reads, in the order of its bits.
const METERS: [&str; 5] =
    ["123456789\n", "10485760\n", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", "max 0\n", "2\n"];
/// Hello of a worker: process 7, Python 3.11.
const HELLO: [u8; 16] = [8, 0, 0, 0, 1, 129, 0, 0, 7, 0, 0, 0, 3, 11, 0, 0];
/// Bytes of a Run frame before its source.
const RUN_HEAD_BYTES: usize = 24;

/// The image of every cell.
pub(crate) fn root() -> RootSpec {
    RootSpec { python: Some("/usr/bin/python3".into()), ..RootSpec::empty("bare") }
}

/// Starts it; every cell has a folder of its own under `folder` for its workspace. The daemon's end of its socket.
pub(crate) fn start(folder: &Path) -> OwnedFd {
    let (ours, theirs) = packet::pair().expect("a pair of sockets");
    let folder = folder.to_owned();
    thread::spawn(move || serve(&theirs, &folder));
    ours
}

fn serve(keeper: &OwnedFd, folder: &Path) {
    // Init speaks only when it is asked, and no call here asks it.
    let mut inits = HashMap::new();
    while let Some((message, descriptors)) = receive(keeper) {
        match message {
            ToKeeper::MakeCell { cell, .. } => {
                let (init, theirs) = packet::pair().expect("a pair of sockets");
                inits.insert(cell, theirs);
                let workspace = folder.join(cell.to_string());
                std::fs::create_dir(&workspace).expect("a workspace");
                let workspace = File::open(&workspace).expect("a workspace").into();
                let descriptors: Vec<OwnedFd> = [init, workspace].into_iter().chain(METERS.map(meter)).collect();
                // The owner of the files is whoever runs the test.
                let owner_id = rustix::process::getuid().as_raw();
                say(keeper, FromKeeper::CellMade { cell, owner_id, meters: Meters(0b1_1111) }, &descriptors);
            }
            ToKeeper::SpawnWorker { cell } => {
                say(keeper, FromKeeper::WorkerStarted { cell, pid: 100 + cell as u32, zygote: 1, forks: 1 }, &[]);
                thread::spawn(move || serve_worker(descriptors));
            }
            ToKeeper::DestroyCell { cell } => {
                inits.remove(&cell);
                say(keeper, FromKeeper::CellGone { cell }, &[]);
            }
            ToKeeper::RestZygote { .. } | ToKeeper::RenewZygote { .. } => {}
        }
    }
}

fn receive(keeper: &OwnedFd) -> Option<(ToKeeper, Vec<OwnedFd>)> {
    let mut buffer = [0; ringfence_frame::PACKET_BYTES];
    loop {
        poll(&mut [PollFd::new(keeper, PollFlags::IN)], None).ok()?;
        match packet::receive(keeper.as_fd(), &mut buffer) {
            Ok((0, _)) => return None,
            Ok((length, descriptors)) => {
                return Some((ToKeeper::decode(&buffer[..length]).expect("a message"), descriptors));
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
}

fn say(keeper: &OwnedFd, message: FromKeeper, descriptors: &[OwnedFd]) {
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    packet::send(keeper.as_fd(), &message.encode(), &descriptors).expect("the daemon hears");
}

fn meter(text: &str) -> OwnedFd {
    let mut file = File::from(memfd_create("meter", MemfdFlags::CLOEXEC).expect("a memory file"));
    file.write_all(text.as_bytes()).expect("a memory file takes it");
    file.into()
}

/// Serves calls until the daemon lets go of it.
fn serve_worker(descriptors: Vec<OwnedFd>) {
    let [frame, out, _err] = <[OwnedFd; 3]>::try_from(descriptors).expect("the worker's descriptors");
    let (mut frame, mut out) = (UnixStream::from(frame), File::from(out));
    if frame.write_all(&HELLO).is_err() {
        return;
    }
    let mut head = [0; RUN_HEAD_BYTES];
    while frame.read_exact(&mut head).is_ok() {
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let mut code = vec![0; length + 8 - RUN_HEAD_BYTES];
        frame.read_exact(&mut code).expect("the whole of a call");
        out.write_all(b"2\n").expect("the pipe is read");
        let mut done = vec![24, 0, 0, 0, 1, 130, 0, 0];
        done.extend_from_slice(&head[8..16]);
        // Returned 0, no hints.
        done.extend_from_slice(&[0; 8]);
        done.extend_from_slice(&1500u64.to_le_bytes());
        if frame.write_all(&done).is_err() {
            return;
        }
    }
}
