//! The headers of a form and of its parts.

use percent_encoding::percent_decode;

use super::FormError;

/// What a part says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Disposition {
    /// The field's name.
    pub(crate) name: String,
    /// The name of the file that it holds, as the client wrote it.
    pub(crate) filename: Option<String>,
}

/// The boundary of a `Content-Type`.
pub(super) fn boundary(content_type: &[u8]) -> Result<Vec<u8>, FormError> {
    let (kind, rest) = split_once(content_type, b';');
    if !kind.trim_ascii().eq_ignore_ascii_case(b"multipart/form-data") {
        return Err(FormError::NoForm);
    }
    let mut found = None;
    for (name, value) in Parameters(rest) {
        if name.eq_ignore_ascii_case(b"boundary") && found.replace(value).is_some() {
            return Err(FormError::BadBoundary);
        }
    }
    found.ok_or(FormError::NoForm)
}

/// The disposition among a part's headers: lines that end in CR LF.
pub(super) fn parse(headers: &[u8]) -> Result<Disposition, FormError> {
    let mut found = None;
    for line in headers.split(|byte| *byte == b'\n') {
        let (name, value) = split_once(line, b':');
        if name.trim_ascii().eq_ignore_ascii_case(b"content-disposition") && found.replace(value).is_some() {
            return Err(FormError::BadDisposition);
        }
    }
    let (kind, rest) = split_once(found.ok_or(FormError::BadDisposition)?, b';');
    if !kind.trim_ascii().eq_ignore_ascii_case(b"form-data") {
        return Err(FormError::BadDisposition);
    }
    let (mut name, mut plain, mut extended) = (None, None, None);
    for (key, value) in Parameters(rest) {
        let text = |value: Vec<u8>| String::from_utf8(value).map_err(|_| FormError::BadDisposition);
        let twice = match key.to_ascii_lowercase().as_slice() {
            b"name" => name.replace(text(value)?).is_some(),
            b"filename" => plain.replace(text(value)?).is_some(),
            b"filename*" => extended.replace(extended_text(&value).ok_or(FormError::BadDisposition)?).is_some(),
            _ => false,
        };
        if twice {
            return Err(FormError::BadDisposition);
        }
    }
    Ok(Disposition { name: name.ok_or(FormError::BadDisposition)?, filename: extended.or(plain) })
}

/// `UTF-8''caf%C3%A9` (RFC 8187).
fn extended_text(value: &[u8]) -> Option<String> {
    let mut parts = value.splitn(3, |byte| *byte == b'\'');
    let (charset, _language, text) = (parts.next()?, parts.next()?, parts.next()?);
    if !charset.eq_ignore_ascii_case(b"utf-8") {
        return None;
    }
    percent_decode(text).decode_utf8().ok().map(|text| text.into_owned())
}

/// `; key=value; key="value"`, as far as it can be read.
struct Parameters<'a>(&'a [u8]);

impl<'a> Iterator for Parameters<'a> {
    type Item = (&'a [u8], Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.0.trim_ascii_start();
            if rest.is_empty() {
                return None;
            }
            if let Some(rest) = rest.strip_prefix(b";") {
                self.0 = rest;
                continue;
            }
            let at = memchr::memchr2(b'=', b';', rest).unwrap_or(rest.len());
            let (key, after) = rest.split_at_checked(at)?;
            let Some(after) = after.strip_prefix(b"=") else {
                self.0 = after;
                continue;
            };
            let (value, after) = match after.trim_ascii_start().strip_prefix(b"\"") {
                Some(quoted) => quoted_text(quoted),
                None => {
                    let at = memchr::memchr(b';', after).unwrap_or(after.len());
                    let (value, after) = after.split_at_checked(at)?;
                    (value.trim_ascii().to_vec(), after)
                }
            };
            self.0 = after;
            return Some((key.trim_ascii(), value));
        }
    }
}

/// Up to the closing quote. Only `\"` and `\\` are escapes: browsers write a lone backslash as it is.
fn quoted_text(quoted: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut text = Vec::new();
    let mut rest = quoted;
    loop {
        match rest {
            [] => return (text, rest),
            [b'"', after @ ..] => return (text, after),
            [b'\\', escaped @ (b'"' | b'\\'), after @ ..] => {
                text.push(*escaped);
                rest = after;
            }
            [byte, after @ ..] => {
                text.push(*byte);
                rest = after;
            }
        }
    }
}

fn split_once(bytes: &[u8], at: u8) -> (&[u8], &[u8]) {
    match memchr::memchr(at, bytes).and_then(|index| bytes.split_at_checked(index)) {
        Some((before, [_, after @ ..])) => (before, after),
        _ => (bytes, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(line: &str) -> Result<(String, Option<String>), FormError> {
        parse(format!("\r\nContent-Type: a/b\r\n{line}\r\n\r\n").as_bytes()).map(|found| (found.name, found.filename))
    }

    #[test]
    fn dispositions_are_read() {
        let of = |name: &str, file: Option<&str>| Ok((name.to_owned(), file.map(str::to_owned)));
        let cases = [
            (r#"Content-Disposition: form-data; name="file"; filename="a b.csv""#, of("file", Some("a b.csv"))),
            (r#"content-disposition:form-data;NAME=file;filename=x"#, of("file", Some("x"))),
            (r#"Content-Disposition: form-data; name="path""#, of("path", None)),
            (r#"Content-Disposition: form-data; name="f"; filename="a\"b\\c;d""#, of("f", Some("a\"b\\c;d"))),
            (r#"Content-Disposition: form-data; name="f"; filename="C:\dir\x""#, of("f", Some("C:\\dir\\x"))),
            (r#"Content-Disposition: form-data; name="f"; filename="café ☃""#, of("f", Some("café ☃"))),
            (
                r#"Content-Disposition: form-data; name="f"; filename="caf_"; filename*=UTF-8''caf%C3%A9"#,
                of("f", Some("café")),
            ),
            (r#"Content-Disposition: form-data; flag; name="f"; x=1"#, of("f", None)),
        ];
        for (line, wanted) in cases {
            assert_eq!(named(line), wanted, "{line}");
        }
        for wrong in [
            "X: y",
            "Content-Disposition: attachment; name=\"f\"",
            "Content-Disposition: form-data",
            "Content-Disposition: form-data; name=a; name=b",
            "Content-Disposition: form-data; name=f; filename*=latin1''x",
            "Content-Disposition: form-data; name=f\r\nContent-Disposition: form-data; name=g",
        ] {
            assert_eq!(named(wrong), Err(FormError::BadDisposition), "{wrong}");
        }
        assert_eq!(parse(b"\r\nContent-Disposition: form-data; name=\"\xff\"\r\n\r\n"), Err(FormError::BadDisposition));
    }

    #[test]
    fn boundaries_are_read() {
        assert_eq!(boundary(b"multipart/form-data; boundary=abc"), Ok(b"abc".to_vec()));
        assert_eq!(boundary(b"Multipart/Form-Data; charset=x; BOUNDARY=\"a b\""), Ok(b"a b".to_vec()));
        for wrong in [&b"multipart/form-data"[..], b"application/json", b"", b"multipart/mixed; boundary=a"] {
            assert_eq!(boundary(wrong), Err(FormError::NoForm), "{wrong:?}");
        }
    }
}
