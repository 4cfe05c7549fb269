//! Files in and out: ranges, preconditions, forms of every kind, archives, sizes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod common;

use std::io::Write;
use std::sync::atomic::Ordering;

use common::{Answer, FORM, TestServer, form, head};
use ringfence_server::DoorLimits;
use serde_json::json;

fn small_uploads() -> TestServer {
    TestServer::with(DoorLimits { upload_bytes_max: 100_000, ..DoorLimits::default() }, None)
}

#[test]
fn a_file_comes_back_as_it_went_in() {
    let server = TestServer::start();
    let session = server.session();
    let content: Vec<u8> = (0..3_000_000u32).flat_map(|number| number.to_le_bytes()).collect();
    let put = server.put(&session, "x", &content, Some("deep/er/caf\u{e9} \u{2603}.bin"));
    assert_eq!((put.status, put.json()), (201, json!({"path": "deep/er/café ☃.bin", "size_bytes": content.len()})));
    let path = format!("{session}/files?path=deep%2Fer%2Fcaf%C3%A9%20%E2%98%83.bin");
    let got = server.get(&path);
    assert_eq!(got.header("content-length"), Some(content.len().to_string().as_str()));
    assert!(got.whole && got.body == content);
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "sandbox; default-src 'none'"),
        ("accept-ranges", "bytes"),
        ("etag", "\"one\""),
        ("last-modified", "Thu, 06 Aug 2026 07:06:40 GMT"),
        ("content-type", "application/octet-stream"),
    ] {
        assert_eq!(got.header(name), Some(value), "{name}");
    }
    let described = server.ask("HEAD", &path, &[], b"");
    assert_eq!((described.status, described.header("content-length")), (200, got.header("content-length")));
}

#[test]
fn parts_and_preconditions() {
    let server = TestServer::start();
    let session = server.session();
    server.fake.write(&session, "t.html", b"0123456789");
    let path = format!("{session}/files?path=t.html");
    let ask = |headers: &[(&str, &str)]| server.ask("GET", &path, headers, b"");
    let part = ask(&[("Range", "bytes=2-4")]);
    assert_eq!((part.status, part.body.as_slice()), (206, &b"234"[..]));
    assert_eq!((part.header("content-range"), part.header("content-length")), (Some("bytes 2-4/10"), Some("3")));
    assert_eq!(part.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(ask(&[("Range", "bytes=-3")]).body, b"789");
    assert_eq!(ask(&[("Range", "bytes=0-1,4-5")]).body, b"0123456789");
    let beyond = ask(&[("Range", "bytes=10-")]);
    beyond.refused(416);
    assert_eq!(beyond.header("content-range"), Some("bytes */10"));
    let known = ask(&[("If-None-Match", "\"one\"")]);
    assert_eq!((known.status, known.body.len(), known.header("etag")), (304, 0, Some("\"one\"")));
    assert_eq!(ask(&[("Range", "bytes=0-0"), ("If-Range", "\"other\"")]).status, 200);
    let head = server.ask("HEAD", &path, &[("Range", "bytes=0-0")], b"");
    assert_eq!((head.status, head.header("content-length")), (206, Some("1")));
}

#[test]
fn an_empty_file_is_a_file() {
    let server = TestServer::start();
    let session = server.session();
    assert_eq!(server.put(&session, "empty", b"", None).json(), json!({"path": "empty", "size_bytes": 0}));
    let got = server.get(&format!("{session}/files?path=empty"));
    assert_eq!((got.status, got.header("content-length"), got.body.len()), (200, Some("0"), 0));
}

#[test]
fn a_file_that_shrinks_is_cut_off_and_not_passed_for_whole() {
    let server = TestServer::start();
    let session = server.session();
    server.fake.write(&session, "shrinks", &[7; 1_000_000]);
    let got = server.get(&format!("{session}/files?path=shrinks"));
    assert_eq!((got.status, got.header("content-length")), (200, Some("1000000")));
    assert!(!got.whole && got.body.len() <= 500_000);
    server.is_well();
}

#[test]
fn a_file_is_had_by_its_id() {
    let server = TestServer::start();
    let session = server.session();
    server.fake.write(&session, "out/chart.png", b"png");
    let got = server.get(&format!("{session}/files?file_id=file_1"));
    assert_eq!((got.body.as_slice(), got.header("content-type")), (&b"png"[..], Some("image/png")));
    server.get(&format!("{session}/files?file_id=file_2")).refused(404);
    for query in
        ["", "?path=", "?file_id=", "?path=a&file_id=b", "?path=a&path=b", "?path=%ff", "?path=%zz", "?path=%00"]
    {
        let detail = server.get(&format!("{session}/files{query}")).refused(422);
        assert!(detail.contains("path"), "{query}: {detail}");
    }
    server.get(&format!("{session}/files?path={}", "x".repeat(5000))).refused(422);
    server.get(&format!("{session}/files?path={}", "a/".repeat(3000))).refused(422);
}

#[test]
fn lists_and_removals() {
    let server = TestServer::start();
    let session = server.session();
    server.put(&session, "a.csv", b"1", None);
    server.put(&session, "b", b"22", Some("d/e/b"));
    let names = |query: &str| -> Vec<String> {
        let listed = server.get(&format!("{session}/files/list{query}"));
        assert_eq!(listed.status, 200, "{query}");
        let files = listed.json()["files"].as_array().unwrap().clone();
        files.iter().map(|file| file["path"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(""), ["a.csv"]);
    assert_eq!(names("?path=."), ["a.csv"]);
    assert_eq!(names("?path=d%2fe"), ["d/e/b"]);
    assert_eq!(names("?recursive=true"), ["a.csv", "d/e/b"]);
    server.get(&format!("{session}/files/list?recursive=perhaps")).refused(422);
    let first = server.get(&format!("{session}/files/list")).json()["files"][0].clone();
    let wanted = json!({"path": "a.csv", "size_bytes": 1, "mime_type": "text/csv", "modified_at": 1_786_000_000.123});
    assert_eq!(first, wanted);
    assert_eq!(server.ask("DELETE", &format!("{session}/files?path=a.csv"), &[], b"").status, 204);
    assert_eq!(names(""), Vec::<String>::new());
    server.ask("DELETE", &format!("{session}/files"), &[], b"").refused(422);
}

/// Forms written by hand, each with the status it must meet.
#[test]
fn forms_of_every_kind() {
    const FILE: &str = "--XY\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nDATA\r\n";
    const UNNAMED: &str = "--XY\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nDATA\r\n";
    const PATH: &str = "--XY\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\nto/here\r\n";
    const EMPTY: &str = "--XY\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n\r\n";
    const OTHER: &str = "--XY\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nassistants\r\n";
    const END: &str = "--XY--\r\n";
    let long = format!("--XY\r\nX-Long: {}", "x".repeat(200_000));
    let large_field = format!("{OTHER}{}{END}", "x".repeat(100_000)).replace("assistants", &"y".repeat(100_000));
    let long_path = PATH.replace("to/here", &"p".repeat(20_000));
    let server = TestServer::start();
    let session = server.session();
    let put = |body: &str, kind: &str| {
        server.ask("POST", &format!("{session}/files"), &[("Content-Type", kind)], body.as_bytes())
    };
    for (parts, wanted) in [
        ([FILE, PATH, END].concat(), "to/here"),
        ([PATH, FILE, END].concat(), "to/here"),
        ([OTHER, FILE, OTHER, END].concat(), "f"),
        ([EMPTY, FILE, END].concat(), "f"),
        ([UNNAMED, PATH, END].concat(), "to/here"),
    ] {
        let answer = put(&parts, FORM);
        assert_eq!((answer.status, answer.json()), (201, json!({"path": wanted, "size_bytes": 4})), "{parts}");
    }
    for (body, kind) in [
        ([FILE, END].concat(), "application/json"),
        ([FILE, END].concat(), "multipart/form-data"),
        ([FILE, END].concat(), "multipart/form-data; boundary="),
        ([FILE, END].concat(), "multipart/form-data; boundary=other"),
        (String::new(), FORM),
        (END.to_owned(), FORM),
        ([PATH, END].concat(), FORM),
        ([FILE, FILE, END].concat(), FORM),
        ([PATH, PATH, FILE, END].concat(), FORM),
        ([UNNAMED, END].concat(), FORM),
        (FILE.to_owned(), FORM),
        (FILE.trim_end().to_owned(), FORM),
        (FILE.replace("\"file\"", "file\0").clone() + END, FORM),
        ("not a form at all".to_owned(), FORM),
        (long, FORM),
        (large_field, FORM),
        ([long_path.as_str(), FILE, END].concat(), FORM),
        ([FILE, &PATH.replace("to/here", "a\0b"), END].concat(), FORM),
        ([FILE, &PATH.replace("to/here", "."), END].concat(), FORM),
        ([FILE, &PATH.replace("to/here", &"x".repeat(5000)), END].concat(), FORM),
        (OTHER.repeat(17) + FILE + END, FORM),
    ] {
        let answer = put(&body, kind);
        assert!(matches!(answer.status, 400 | 422), "{}: {body:.300}", answer.status);
        answer.detail();
    }
    let bytes =
        [FILE.as_bytes(), b"--XY\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n\xff\r\n", END.as_bytes()]
            .concat();
    server.ask("POST", &format!("{session}/files"), &[("Content-Type", FORM)], &bytes).refused(422);
    assert_eq!(server.fake.files(&session).keys().collect::<Vec<_>>(), ["f", "to/here"]);
    assert_eq!(server.fake.uploads.load(Ordering::SeqCst), 0, "what was refused leaves nothing");
}

#[test]
fn a_file_over_the_cap_is_413_and_leaves_nothing() {
    let server = small_uploads();
    let session = server.session();
    server.put(&session, "kept", b"old", None);
    assert_eq!(server.put(&session, "exactly", &vec![1; 100_000], None).status, 201);
    // A little too large: known only when the file itself is read.
    server.put(&session, "kept", &vec![1; 100_001], None).refused(413);
    // Much too large: known from the announced length; the client sends all of it before it reads.
    server.put(&session, "kept", &vec![1; 290_000], None).refused(413);
    // The same, of unknown length.
    let mut stream = server.connect();
    let path = format!("{session}/files");
    stream.write_all(&head("POST", &path, &[("Content-Type", FORM), ("Transfer-Encoding", "chunked")])).unwrap();
    for piece in form("kept", &vec![1; 290_000], None).chunks(10_000) {
        stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).unwrap();
        stream.write_all(piece).unwrap();
        stream.write_all(b"\r\n").unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    Answer::read(&mut stream, false).refused(413);
    // The refused body was read to its end, so the connection goes on.
    stream.write_all(&head("GET", "/health", &[])).unwrap();
    assert_eq!(Answer::read(&mut stream, false).status, 200);
    let files = server.fake.files(&session);
    assert_eq!(files.keys().collect::<Vec<_>>(), ["exactly", "kept"]);
    assert_eq!(files["kept"].as_slice(), b"old");
    assert_eq!(server.fake.uploads.load(Ordering::SeqCst), 0);
}

#[test]
fn a_refused_upload_is_not_asked_for() {
    let server = small_uploads();
    let session = server.session();
    let path = format!("{session}/files");
    let mut stream = server.connect();
    let expecting = [("Content-Type", FORM), ("Content-Length", "999999999"), ("Expect", "100-continue")];
    stream.write_all(&head("POST", &path, &expecting)).unwrap();
    Answer::read(&mut stream, false).refused(413);
    // And one that is fine is.
    let body = form("f", b"x", None);
    let length = body.len().to_string();
    let mut stream = server.connect();
    let expecting = [("Content-Type", FORM), ("Content-Length", length.as_str()), ("Expect", "100-continue")];
    stream.write_all(&head("POST", &path, &expecting)).unwrap();
    let mut interim = [0; 25];
    std::io::Read::read_exact(&mut stream, &mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(&body).unwrap();
    assert_eq!(Answer::read(&mut stream, false).status, 201);
}

#[test]
fn a_path_that_is_refused_is_refused_before_the_file_is_read() {
    let server = TestServer::start();
    let session = server.session();
    let body = "--XY\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\nlink\r\n\
                --XY\r\nContent-Disposition: form-data; name=\"file\"; filename=f\r\n\r\n";
    let mut stream = server.connect();
    let headers = [("Content-Type", FORM), ("Content-Length", "1000000")];
    stream.write_all(&head("POST", &format!("{session}/files"), &headers)).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    Answer::read(&mut stream, false).refused(403);
}

#[test]
fn an_upload_that_breaks_off_leaves_nothing() {
    let server = TestServer::start();
    let session = server.session();
    let body = form("f", &vec![1; 500_000], None);
    let mut stream = server.connect();
    let length = body.len().to_string();
    let headers = [("Content-Type", FORM), ("Content-Length", length.as_str())];
    stream.write_all(&head("POST", &format!("{session}/files"), &headers)).unwrap();
    stream.write_all(&body[..400_000]).unwrap();
    while server.fake.uploads.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    drop(stream);
    while server.fake.uploads.load(Ordering::SeqCst) != 0 {
        std::thread::yield_now();
    }
    assert!(server.fake.files(&session).is_empty());
    server.is_well();
}

#[test]
fn archives_go_out_and_in() {
    let server = small_uploads();
    let session = server.session();
    server.fake.write(&session, "a", &vec![b'a'; 300_000]);
    let path = format!("{session}/archive");
    let got = server.get(&path);
    assert_eq!((got.status, got.header("content-type")), (200, Some("application/x-tar")));
    assert!(got.whole && got.body == vec![b'a'; 300_000]);
    let cut = server.get(&format!("{path}?path=cut"));
    assert!(cut.status == 200 && !cut.whole, "one that cannot be finished is no whole archive");
    server.get(&format!("{path}?path=link")).refused(403);
    server.get(&format!("{path}?path=..")).refused(403);

    let put = server.ask("PUT", &format!("{path}?path=in"), &[], &vec![b't'; 90_000]);
    assert_eq!((put.status, put.json()), (201, json!({"files": 1, "size_bytes": 90_000})));
    assert_eq!(server.fake.files(&session)["in/unpacked"].len(), 90_000);
    server.ask("POST", &path, &[], &vec![b't'; 150_000]).refused(413);
    server.ask("POST", &path, &[], &vec![b't'; 250_000]).refused(413);
    server.ask("POST", &format!("{path}?path=link"), &[], b"x").refused(403);
    let mut stream = server.connect();
    stream.write_all(&head("PUT", &format!("{path}?path=half"), &[("Content-Length", "1000")])).unwrap();
    stream.write_all(b"only so much").unwrap();
    drop(stream);
    server.is_well();
    assert!(!server.fake.files(&session).contains_key("half/unpacked"));
}
