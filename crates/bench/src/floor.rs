//! The machine's floor: a thread that answers every request with a fixed body, as little as HTTP can be.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"status\":\"ok\"}";

/// Starts the floor on a loopback port of its own; it lives as long as the process.
pub(crate) fn start() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::Builder::new().name("floor".to_owned()).spawn(move || {
        for stream in listener.incoming().flatten() {
            // A connection that fails has ended: nothing to tell anyone.
            let _ = thread::Builder::new().spawn(move || serve(stream));
        }
    })?;
    Ok(address)
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer)? > 0 {
        stream.write_all(ANSWER)?;
    }
    Ok(())
}
