//! Messages, forms and the text of a request's head.

use ringfence_frame::worker::{FROM_WORKER_BYTES_MAX, FromWorker, HEADER_BYTES, Run, decode_from_worker, encode_run};
use ringfence_frame::{init, keeper, zygote};
use ringfence_server::fuzzing;

/// Every message of every link: what is decoded is encoded as something that decodes the same.
pub(crate) fn frames(data: &[u8]) {
    if let Ok(message) = keeper::ToKeeper::decode(data) {
        assert_eq!(keeper::ToKeeper::decode(&message.encode()), Ok(message));
    }
    if let Ok(message) = keeper::FromKeeper::decode(data) {
        assert_eq!(keeper::FromKeeper::decode(&message.encode()), Ok(message));
    }
    if let Ok(message) = zygote::FromZygote::decode(data) {
        assert_eq!(zygote::FromZygote::decode(&message.encode()), Ok(message));
    }
    if let Ok(message) = init::FromInit::decode(data) {
        assert_eq!(init::FromInit::decode(&message.encode()), Ok(message));
    }
    if let Ok(message) = init::ToInit::decode(data) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        assert_eq!(init::ToInit::decode(&bytes), Ok(message));
        if let init::ToInit::Signal { pid, .. } | init::ToInit::Interrupt { pid, .. } = message {
            assert!(pid > 1, "init itself is no target");
        }
    }
    worker(data);
}

/// The stream from a worker: a frame that is whole decodes the same with more behind it, and not before its end.
fn worker(data: &[u8]) {
    let mut rest = data;
    while let Ok(Some((message, taken))) = decode_from_worker(rest) {
        assert!(taken > HEADER_BYTES && taken <= HEADER_BYTES + FROM_WORKER_BYTES_MAX && taken <= rest.len());
        let (frame, after) = rest.split_at(taken);
        assert_eq!(decode_from_worker(frame), Ok(Some((message, taken))));
        for end in 0..taken {
            assert_eq!(decode_from_worker(frame.get(..end).unwrap_or_default()), Ok(None));
        }
        if let FromWorker::Done { nonce, .. } = message {
            run(nonce, frame);
        }
        rest = after;
    }
    if decode_from_worker(rest) == Ok(None) {
        assert!(rest.len() < HEADER_BYTES + FROM_WORKER_BYTES_MAX, "what is waited for has a bound");
    }
}

/// A frame to a worker says how long it is.
fn run(nonce: u64, code: &[u8]) {
    let code = String::from_utf8_lossy(code);
    let mut bytes = Vec::new();
    let encoded = encode_run(Run { nonce, call: 1, echo_last: false, count_cpu: true, code: &code }, &mut bytes);
    assert!(encoded.is_ok());
    let length = bytes.first_chunk().map(|length| u32::from_le_bytes(*length));
    assert_eq!(length.map(|length| length as usize + HEADER_BYTES), Some(bytes.len()));
}

/// A form: the `Content-Type` up to the first NUL, then a byte that says how it is cut, then the body. Cut or whole,
/// the same comes out, and never more than went in.
pub(crate) fn form(data: &[u8]) {
    let (content_type, rest) = cut(data);
    let Some((step, body)) = rest.split_first() else { return };
    let whole = fuzzing::form(content_type, [body]);
    for step in [1, usize::from(*step).max(1)] {
        let pieces = fuzzing::form(content_type, body.chunks(step));
        assert_eq!(whole, pieces, "cut into pieces of {step}");
    }
    if let Ok(parts) = whole {
        let content: usize = parts.iter().map(|(_, _, content)| content.len()).sum();
        assert!(content + parts.len() <= body.len());
        assert!(parts.len() <= ringfence_server::limits::FORM_PARTS_MAX);
    }
}

/// Query and range headers: lines of a request's head.
pub(crate) fn head(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Some(found) = fuzzing::query(text)
    {
        assert!(found.iter().flatten().map(String::len).sum::<usize>() <= data.len());
    }
    let mut lines = data.split(|byte| *byte == b'\n');
    let size = lines.next().and_then(|line| std::str::from_utf8(line).ok()?.parse().ok()).unwrap_or(100);
    let mut line = || lines.next().unwrap_or_default();
    if let Some((first, end)) = fuzzing::range([line(), line(), line(), line()], size) {
        assert!(first < end && end <= size, "{first}..{end} of {size}");
    }
}

/// What is before the first NUL, and what is after it.
pub(crate) fn cut(data: &[u8]) -> (&[u8], &[u8]) {
    let at = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (before, after) = data.split_at(at);
    (before, after.get(1..).unwrap_or_default())
}
