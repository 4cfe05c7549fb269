//! A gateway's requests, byte for byte as it sends them: Otari's adapter (mozilla-ai/otari, `sandbox_backend`) and its
//! conformance script write through httpx, the head and the body of a request in two writes. What Otari reads in the
//! answers is asserted; what it ignores is not.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use ringfence_testkit::{Server, ServerOptions};
use serde_json::{Value, json};

/// One kept-alive connection, as an `httpx.AsyncClient` holds it for the length of a request to the gateway.
struct Adapter {
    stream: TcpStream,
    host: String,
}

impl Adapter {
    fn connect(server: &Server) -> Self {
        let host = server.address().to_string();
        Adapter { stream: TcpStream::connect(&host).unwrap(), host }
    }

    fn send(&mut self, method: &str, path: &str, body: Option<(&str, &[u8])>) -> (u16, Vec<u8>) {
        let entity = body.map_or(String::new(), |(kind, bytes)| {
            format!("Content-Length: {}\r\nContent-Type: {kind}\r\n", bytes.len())
        });
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n\
             Connection: keep-alive\r\nUser-Agent: python-httpx/0.28.1\r\n{entity}\r\n",
            self.host
        );
        self.stream.write_all(head.as_bytes()).unwrap();
        if let Some((_, bytes)) = body {
            self.stream.write_all(bytes).unwrap();
        }
        self.answer()
    }

    /// Reads one answer with a `Content-Length` (or none, for 204).
    fn answer(&mut self) -> (u16, Vec<u8>) {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            self.more(&mut bytes);
        };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
        assert!(!head.contains("content-encoding"), "not asked for in earnest, and not wanted: {head}");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |l| l.parse().unwrap());
        while bytes.len() < end + length {
            self.more(&mut bytes);
        }
        assert_eq!(bytes.len(), end + length, "nothing after the answer");
        (status, bytes.split_off(end))
    }

    fn more(&mut self, bytes: &mut Vec<u8>) {
        let mut buffer = [0; 16 << 10];
        let count = self.stream.read(&mut buffer).unwrap();
        assert!(count > 0, "closed after {}", String::from_utf8_lossy(bytes));
        bytes.extend_from_slice(&buffer[..count]);
    }

    fn json(&mut self, method: &str, path: &str, body: Option<&Value>, status: u16) -> Value {
        let text = body.map(ToString::to_string);
        let (got, bytes) = self.send(method, path, text.as_ref().map(|text| ("application/json", text.as_bytes())));
        assert_eq!(got, status, "{method} {path}: {}", String::from_utf8_lossy(&bytes));
        serde_json::from_slice(&bytes).unwrap_or(Value::Null)
    }

    /// One call of the model's tool, and the text that the adapter makes of its result for the model.
    fn call_tool(&mut self, session: &str, code: &str, timeout_seconds: u32) -> String {
        let body = json!({"tool": "code_execution", "input": {"code": code}, "timeout_seconds": timeout_seconds});
        let answer = self.json("POST", &format!("/sessions/{session}/exec"), Some(&body), 200);
        let block = &answer["result_block"];
        assert_eq!(block["type"], "code_execution_tool_result", "{answer}");
        let result = &block["content"];
        assert_eq!(result["type"], "code_execution_result", "{answer}");
        let text = |name: &str| result[name].as_str().unwrap().to_owned();
        let files: Vec<&str> =
            result["content"].as_array().unwrap().iter().map(|file| file["filename"].as_str().unwrap()).collect();
        let mut parts = Vec::new();
        for name in ["stdout", "stderr"] {
            parts.extend(Some(text(name)).filter(|text| !text.is_empty()).map(|text| format!("{name}={text}")));
        }
        parts.extend(Some(&result["return_code"]).filter(|code| **code != 0).map(|code| format!("return_code={code}")));
        parts.extend(Some(files).filter(|files| !files.is_empty()).map(|files| format!("files={}", files.join(","))));
        parts.join("|")
    }
}

#[test]
fn the_adapters_session_is_answered_as_it_reads_it() {
    let server = ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).start();
    let mut adapter = Adapter::connect(&server);
    let handle = adapter.json("POST", "/sessions", Some(&json!({})), 201);
    let session = handle["session_id"].as_str().unwrap().to_owned();

    assert_eq!(adapter.call_tool(&session, "x = 41", 60), "");
    assert_eq!(adapter.call_tool(&session, "print(x + 1)", 60), "stdout=42\n");
    let failed = adapter.call_tool(&session, "print('before')\n1/0", 60);
    assert!(failed.starts_with("stdout=before\n|stderr=Traceback"), "{failed}");
    assert!(failed.ends_with("ZeroDivisionError: division by zero\n|return_code=1"), "{failed}");
    assert_eq!(adapter.call_tool(&session, "open('a.txt', 'w').write('hi') and None", 60), "files=a.txt");
    let late = adapter.call_tool(&session, "import time\ntime.sleep(600)", 1);
    assert!(late.ends_with("return_code=124"), "{late}");
    assert_eq!(adapter.call_tool(&session, "print(x)", 60), "stdout=41\n");

    adapter.json("DELETE", &format!("/sessions/{session}"), None, 204);
    adapter.json(
        "POST",
        &format!("/sessions/{session}/exec"),
        Some(&json!({"tool": "code_execution", "input": {"code": "1"}})),
        404,
    );
}

/// A lease that the gateway holds between two requests of one conversation: seeded, listed, used, collected, resumed.
#[test]
fn a_session_is_seeded_collected_held_and_resumed() {
    let server = ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).start();
    let mut first = Adapter::connect(&server);
    let hints = json!({"image": "registry.example/pinned:1", "idle_timeout_seconds": 600});
    let handle = first.json("POST", "/sessions", Some(&hints), 201);
    // A handle that says so is one that the gateway does not release.
    assert_eq!(handle["idle_timeout_seconds"], 600);
    let session = handle["session_id"].as_str().unwrap().to_owned();
    let files = format!("/sessions/{session}/files");

    // The multipart body of httpx: fields first, then the file under the name that the user gave it.
    let name = "Zahlen für März.csv";
    let boundary = "9f2b8c1d4e5f60718293a4b5c6d7e8f9";
    let body = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n{name}\r\n--{boundary}\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\nContent-Type: text/csv\r\n\r\n\
         1,2,3\n\r\n--{boundary}--\r\n"
    );
    let kind = format!("multipart/form-data; boundary={boundary}");
    let (status, answer) = first.send("POST", &files, Some((&kind, body.as_bytes())));
    assert_eq!(status, 201, "{}", String::from_utf8_lossy(&answer));

    let seeded = listed(&mut first, &files);
    assert_eq!(seeded.keys().collect::<Vec<_>>(), [name]);
    let code = format!("total = sum(int(n) for n in open('{name}').read().split(','))\nprint(total)");
    assert_eq!(first.call_tool(&session, &code, 60), "stdout=6\n");
    assert_eq!(listed(&mut first, &files), seeded, "a file that was only read has not changed");
    let code = "import os\nos.mkdir('sub')\nopen('sub/out.txt', 'w').write(str(total)) and None";
    assert_eq!(first.call_tool(&session, code, 60), "files=sub/out.txt");
    let (status, content) = first.send("GET", &format!("{files}?path=sub%2Fout.txt"), None);
    assert_eq!((status, content.as_slice()), (200, b"6".as_slice()));
    drop(first);

    // Resumed by its id over another connection; the listing says whether it is still there.
    let mut second = Adapter::connect(&server);
    assert_eq!(listed(&mut second, &files), seeded);
    assert_eq!(second.call_tool(&session, "print(total)", 60), "stdout=6\n");
    let same_size = format!("open('{name}', 'w').write('3,2,1\\n') and None");
    second.call_tool(&session, &same_size, 60);
    assert_ne!(listed(&mut second, &files), seeded, "a change that keeps the size is seen by the time");
    let (status, _) = second.send("GET", &format!("{files}?path=..%2F..%2Fetc%2Fpasswd"), None);
    assert_eq!(status, 403);

    second.json("DELETE", &format!("/sessions/{session}"), None, 204);
    second.json("GET", &format!("{files}/list"), None, 404);
}

/// What the gateway keeps of a listing: for each file its size and its time.
fn listed(adapter: &mut Adapter, files: &str) -> BTreeMap<String, (u64, String)> {
    let listing = adapter.json("GET", &format!("{files}/list"), None, 200);
    let entries = listing["files"].as_array().unwrap().iter().filter(|entry| entry["is_dir"] != true);
    let entry = |entry: &Value| {
        let modified = entry["modified_at"].to_string();
        (entry["path"].as_str().unwrap().to_owned(), (entry["size_bytes"].as_u64().unwrap(), modified))
    };
    entries.map(entry).collect()
}
