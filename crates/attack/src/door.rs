//! Attacks on the HTTP door: bytes that no client library sends, over connections of their own.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use ringfence_probe::{Address, Stream};
use serde::Deserialize;

use crate::catalogue::Tool;
use crate::limits::{
    DOOR_ANSWER_BYTES_MAX, DOOR_CONNECTIONS_MAX, DOOR_SENT_BYTES_MAX, DOOR_WAIT_MAX, DRIP_PAUSE, QUIET_AFTER,
};
use crate::target::{Session, is_healthy};

/// What is sent, and what must be answered. `{session}` is the id of a session, `{auth}` the line of the credential.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Door {
    /// The first bytes.
    pub(crate) send: String,
    /// Sent after them, `times` times.
    #[serde(default)]
    pub(crate) repeat: String,
    #[serde(default)]
    pub(crate) times: usize,
    /// The last bytes.
    #[serde(default)]
    pub(crate) end: String,
    /// How many connections do the same at once.
    #[serde(default = "one")]
    pub(crate) connections: usize,
    /// How the bytes go out and the answers are taken.
    #[serde(default)]
    pub(crate) manner: Manner,
    /// The statuses of all answers, in order. None: the connection ends without a word.
    pub(crate) answers: Vec<u16>,
    /// The server must end the connection, or must leave it open; unsaid, it may do either.
    #[serde(default)]
    pub(crate) closes: Option<bool>,
    /// What an answer must contain.
    #[serde(default)]
    pub(crate) says: String,
}

fn one() -> usize {
    1
}

/// How a connection behaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Manner {
    /// Sends all, reads all.
    #[default]
    Plain,
    /// Sends `send`, then one piece of `repeat` after the other with pauses, until the server ends it.
    Drip,
    /// Sends all and reads nothing while the others are looked at.
    Deaf,
    /// Sends all and reads nothing; when the others have been looked at it is gone.
    Gone,
}

/// One attack; the error is the finding.
pub(crate) fn attempt(address: &Address, door: &Door) -> Result<(), String> {
    let target = Session::lease(address)?;
    let mut neighbour = Session::lease(address)?;
    let auth = address.token().map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    let fill = |text: &str| text.replace("{session}", target.id()).replace("{auth}", &auth).into_bytes();
    let (first, piece, last) = (fill(&door.send), fill(&door.repeat), fill(&door.end));
    if first.len() + piece.len().saturating_mul(door.times) + last.len() > DOOR_SENT_BYTES_MAX {
        return Err("it would send more than an attack may".to_owned());
    }
    let mut streams = Vec::new();
    for _ in 0..door.connections.min(DOOR_CONNECTIONS_MAX) {
        let mut stream = address.open(DOOR_WAIT_MAX).map_err(|error| format!("no connection: {error}"))?;
        // A server that has heard enough may end it before all is sent; what it answered is still there.
        let _sent = match door.manner {
            Manner::Drip => stream.write_all(&first),
            Manner::Plain | Manner::Deaf | Manner::Gone => send(&mut stream, &first, &piece, door.times, &last),
        };
        streams.push(stream);
    }
    must_answer(&mut neighbour, "while it is attacked")?;
    for mut stream in streams {
        let heard = match door.manner {
            Manner::Drip => drip(&mut stream, &piece),
            Manner::Gone => continue,
            Manner::Plain | Manner::Deaf => hear(&mut stream),
        };
        judge(door, &heard)?;
    }
    must_answer(&mut neighbour, "afterwards")?;
    if is_healthy(address) { Ok(()) } else { Err("the server no longer answers GET /health".to_owned()) }
}

fn must_answer(neighbour: &mut Session, when: &str) -> Result<(), String> {
    let called = neighbour.run(Tool::Python, "print('neighbour')", 20)?;
    match called.stdout == "neighbour\n" {
        true => Ok(()),
        false => Err(format!("a neighbour suffered {when}: {}", called.whole)),
    }
}

fn send(stream: &mut Stream, first: &[u8], piece: &[u8], times: usize, last: &[u8]) -> io::Result<()> {
    stream.write_all(first)?;
    // In few writes: a server that answers early must not be missed between two of them.
    let many = piece.repeat(times);
    stream.write_all(&many)?;
    stream.write_all(last)
}

/// What came back, and whether the server ended the connection.
#[derive(Debug, Default)]
struct Heard {
    bytes: Vec<u8>,
    closed: bool,
}

/// Reads until the end, or until nothing more comes.
fn hear(stream: &mut Stream) -> Heard {
    let mut heard = Heard::default();
    let begun = Instant::now();
    while begun.elapsed() < DOOR_WAIT_MAX && !heard.closed && heard.bytes.len() < DOOR_ANSWER_BYTES_MAX {
        let quiet = if heard.bytes.is_empty() { DOOR_WAIT_MAX } else { QUIET_AFTER };
        if !take(stream, quiet, &mut heard) {
            break;
        }
    }
    heard
}

/// Goes on sending piece by piece until the server has had enough.
fn drip(stream: &mut Stream, piece: &[u8]) -> Heard {
    let mut heard = Heard::default();
    let begun = Instant::now();
    while begun.elapsed() < DOOR_WAIT_MAX && !heard.closed {
        take(stream, DRIP_PAUSE, &mut heard);
        if !heard.closed && stream.write_all(piece).is_err() {
            take(stream, DRIP_PAUSE, &mut heard);
            heard.closed = true;
        }
    }
    heard
}

/// One read; whether something came, the end included.
fn take(stream: &mut Stream, wait: Duration, heard: &mut Heard) -> bool {
    let mut buffer = [0; 16 << 10];
    // The one value that it refuses is zero.
    let _set = stream.set_read_timeout(wait);
    match stream.read(&mut buffer) {
        Ok(0) => heard.closed = true,
        Ok(read) => heard.bytes.extend_from_slice(buffer.get(..read).unwrap_or_default()),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => return false,
        // A reset: bytes of ours were left unread when it ended.
        Err(_) => heard.closed = true,
    }
    true
}

fn judge(door: &Door, heard: &Heard) -> Result<(), String> {
    let text = String::from_utf8_lossy(&heard.bytes);
    let start: String = text.chars().take(200).collect();
    let answers = statuses(&text);
    if answers != door.answers {
        return Err(format!("answered {answers:?} instead of {:?}: {start}", door.answers));
    }
    if door.closes.is_some_and(|closes| closes != heard.closed) {
        let was = if heard.closed { "ended" } else { "left open" };
        return Err(format!("the connection was {was}: {start}"));
    }
    if !text.contains(&door.says) {
        return Err(format!("it does not say '{}': {start}", door.says));
    }
    Ok(())
}

/// The statuses of the answers, one after the other; bodies here never look like one.
fn statuses(text: &str) -> Vec<u16> {
    let after = text.split("HTTP/1.").skip(1);
    after.filter_map(|rest| rest.get(2..5)?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let text = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 404 Not Found\r\n\r\n";
        assert_eq!(statuses(text), [200, 404]);
        assert!(statuses("rubbish").is_empty());
    }

    #[test]
    fn what_was_not_answered_right_is_a_finding() {
        let door: Door = toml::from_str("send = 'x'\nanswers = [400]\ncloses = true\nsays = 'framed'").unwrap();
        let heard = |text: &str, closed| Heard { bytes: text.as_bytes().to_vec(), closed };
        assert!(judge(&door, &heard("HTTP/1.1 400 Bad Request\r\n\r\nwrongly framed", true)).is_ok());
        assert!(judge(&door, &heard("HTTP/1.1 400 Bad Request\r\n\r\nwrongly framed", false)).is_err());
        assert!(judge(&door, &heard("HTTP/1.1 400 Bad Request\r\n\r\n", true)).is_err());
        assert!(judge(&door, &heard("HTTP/1.1 200 OK\r\n\r\nframed", true)).is_err());
        assert!(judge(&door, &heard("", true)).is_err());
    }
}
