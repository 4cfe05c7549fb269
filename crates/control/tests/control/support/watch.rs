//! Everything that is logged while the cases run, at the finest level, looked through for secrets.

use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{ADMIN, PASSWORD};

/// Lines with a secret in them.
static FOUND: Mutex<Vec<String>> = Mutex::new(Vec::new());
static LINES: AtomicU64 = AtomicU64::new(0);

/// Begins to look, once for the whole program.
pub(crate) fn begin() {
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::TRACE);
    // The other test may have begun already.
    let _begun = subscriber.with_ansi(false).with_writer(|| Watcher).try_init();
}

/// Nothing was found, though much was logged.
pub(crate) fn nothing_found() {
    assert!(LINES.load(Ordering::SeqCst) > 300, "little was logged");
    let found = FOUND.lock().unwrap();
    assert!(found.is_empty(), "secrets in the log: {found:#?}");
}

struct Watcher;

impl Write for Watcher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.fetch_add(1, Ordering::SeqCst);
        let line = String::from_utf8_lossy(bytes);
        if is_secret(&line) {
            FOUND.lock().unwrap().push(line.into_owned());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The admin's token, the database's password, a token beyond its prefix, a private key, or a grant.
fn is_secret(line: &str) -> bool {
    let token = |prefix: &str| line.split(prefix).skip(1).any(|rest| rest.bytes().take_while(is_token).count() > 8);
    let fixed = [ADMIN, PASSWORD, "\"d\":", "eyJhbGciOi"];
    fixed.iter().any(|secret| line.contains(secret)) || ["rfgw_", "rfus_", "rfgt_"].into_iter().any(token)
}

fn is_token(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

#[test]
fn secrets_are_seen() {
    let token = format!("a rfgw_{} b", "x".repeat(43));
    for secret in [ADMIN, PASSWORD, token.as_str(), "{\"d\":\"x\"}", "eyJhbGciOiJFZERTQSJ9.e30.x"] {
        assert!(is_secret(&format!("INFO {secret} more")), "{secret}");
    }
    assert!(!is_secret("INFO answered method=POST route=\"/v1/tokens\" prefix=rfgw_AbCd"));
}
