use proptest::prelude::*;

use super::*;

const TYPE: &[u8] = b"multipart/form-data; boundary=XY";

/// Reads a form cut into pieces: each part's name and content.
fn read(body: &[u8], cuts: &[usize]) -> Result<Vec<(String, Vec<u8>)>, FormError> {
    let mut form = Form::new(Some(TYPE)).unwrap();
    let mut parts: Vec<(String, Vec<u8>)> = Vec::new();
    let (mut open, mut ended) = (false, false);
    let mut from = 0;
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (body.len() + 1)).collect();
    ends.sort_unstable();
    ends.push(body.len());
    for end in ends {
        form.feed(Bytes::copy_from_slice(&body[from..end]));
        from = end;
        while let Some(event) = form.next()? {
            match event {
                Event::Part(disposition) => {
                    assert!(!open && !ended);
                    open = true;
                    parts.push((disposition.name, Vec::new()));
                }
                Event::Data(data) => {
                    assert!(open && !data.is_empty());
                    parts.last_mut().unwrap().1.extend_from_slice(&data);
                }
                Event::PartEnd => {
                    assert!(open);
                    open = false;
                }
                Event::End => {
                    assert!(!open && !ended);
                    ended = true;
                }
            }
        }
    }
    form.finish()?;
    assert!(ended && !open);
    Ok(parts)
}

fn written(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, content) in parts {
        body.extend_from_slice(format!("--XY\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n").as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--XY--\r\n");
    body
}

#[test]
fn a_form_is_read_wherever_it_is_cut() {
    let content = b"one\r\n--X\r\r\n--XZ\r\n-\r\n--\r\n\r\n";
    let body = written(&[("file", content), ("empty", b""), ("path", b"a/b")]);
    let wanted = vec![
        ("file".to_owned(), content.to_vec()),
        ("empty".to_owned(), Vec::new()),
        ("path".to_owned(), b"a/b".to_vec()),
    ];
    assert_eq!(read(&body, &[]), Ok(wanted.clone()));
    for cut in 0..body.len() {
        assert_eq!(read(&body, &[cut]), Ok(wanted.clone()), "cut at {cut}");
    }
    let everywhere: Vec<usize> = (0..body.len()).collect();
    assert_eq!(read(&body, &everywhere), Ok(wanted));
}

#[test]
fn a_preamble_padding_and_an_epilogue_are_passed_over() {
    let body = b"before\r\n--XY \t\r\nContent-Disposition: form-data; name=a\r\n\r\nx\r\n--XY--after\r\n--XY\r\n";
    assert_eq!(read(body, &[]), Ok(vec![("a".to_owned(), b"x".to_vec())]));
    assert_eq!(read(b"--XY--", &[]), Ok(Vec::new()));
}

#[test]
fn what_is_no_form_is_told() {
    let long = format!("--XY\r\nX: {}\r\n\r\n", "x".repeat(PART_HEADER_BYTES_MAX));
    let many = vec![("a", &b""[..]); FORM_PARTS_MAX + 1];
    let cases: [(&[u8], FormError); 11] = [
        (b"", FormError::Truncated),
        (b"junk", FormError::Truncated),
        (b"--XY", FormError::Truncated),
        (b"--XY\r\nContent-Disposition: form-data; name=a\r\n", FormError::Truncated),
        (b"--XY\r\nContent-Disposition: form-data; name=a\r\n\r\nx", FormError::Truncated),
        (b"--XY\r\nContent-Disposition: form-data; name=a\r\n\r\nx\r\n--XY", FormError::Truncated),
        (b"--XYZ\r\n", FormError::BadDelimiter),
        (b"--XY-\r\n", FormError::BadDelimiter),
        (b"--XY\r\n\r\nx\r\n--XY--", FormError::BadDisposition),
        (long.as_bytes(), FormError::HeadersTooLong),
        (&written(&many), FormError::TooManyParts),
    ];
    for (body, wanted) in cases {
        assert_eq!(read(body, &[]), Err(wanted), "{:?}", String::from_utf8_lossy(body));
        let everywhere: Vec<usize> = (0..body.len()).collect();
        assert_eq!(read(body, &everywhere), Err(wanted), "byte by byte: {:?}", String::from_utf8_lossy(body));
    }
    for (kind, wanted) in [
        (None, FormError::NoForm),
        (Some("multipart/form-data; boundary="), FormError::BadBoundary),
        (Some("multipart/form-data; boundary=\"a\rb\""), FormError::BadBoundary),
    ] {
        assert_eq!(Form::new(kind.map(str::as_bytes)).err(), Some(wanted), "{kind:?}");
    }
    let endless = format!("multipart/form-data; boundary={}", "x".repeat(BOUNDARY_BYTES_MAX + 1));
    assert_eq!(Form::new(Some(endless.as_bytes())).err(), Some(FormError::BadBoundary));
}

/// Contents made of what delimiters are made of.
fn tricky() -> impl Strategy<Value = Vec<u8>> {
    let piece =
        prop::sample::select(vec![&b"\r"[..], b"\n", b"-", b"--", b"X", b"\r\n--X", b"\r\n--", b"Y", b"abc", b"\0"]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn contents_come_out_as_they_went_in(
        contents in prop::collection::vec(tricky(), 0..4),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let clean: Vec<Vec<u8>> = contents
            .into_iter()
            .filter(|content| memchr::memmem::find(&[&b"\r\n"[..], content].concat(), b"\r\n--XY").is_none())
            .collect();
        let parts: Vec<(&str, &[u8])> = clean.iter().map(|content| ("f", content.as_slice())).collect();
        let got = read(&written(&parts), &cuts);
        prop_assert_eq!(got, Ok(clean.iter().map(|content| ("f".to_owned(), content.clone())).collect()));
    }

    #[test]
    fn how_it_is_cut_changes_nothing(
        body in prop::collection::vec(
            prop::sample::select(vec![
                &b"--XY"[..], b"\r\n", b"\r\n--XY", b"--", b"Content-Disposition: form-data; name=a", b"\r\n\r\n", b"x", b" ",
            ]),
            0..30,
        ).prop_map(|pieces| pieces.concat()),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        prop_assert_eq!(read(&body, &cuts), read(&body, &[]));
    }
}
