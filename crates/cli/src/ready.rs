//! The lines on standard output once sessions can be leased. Scripts may read them: `name: value`, the last one
//! `ready`.

use std::net::SocketAddr;
use std::path::Path;

/// What the lines tell.
#[derive(Debug)]
pub(crate) struct Ready<'a> {
    /// Where the server listens.
    pub(crate) address: SocketAddr,
    /// Whether callers must have a certificate; `None` is plain HTTP.
    pub(crate) tls: Option<bool>,
    /// The tier in force.
    pub(crate) tier: &'a str,
    /// How memory, processes and CPU are limited.
    pub(crate) limiter: &'a str,
    /// Who the cells' users are.
    pub(crate) ids: &'a str,
    /// The image and its Python.
    pub(crate) image: String,
    /// The file with the token, where callers must show one.
    pub(crate) token_file: Option<&'a Path>,
}

impl Ready<'_> {
    /// The text, a line each.
    pub(crate) fn text(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", reachable(self.address));
        format!(
            "ringfence {} listens\naddress: {url}\ntier: {}\nlimits: {}\nusers: {}\nimage: {}\ntry: {}\nready\n",
            env!("CARGO_PKG_VERSION"),
            self.tier,
            self.limiter,
            self.ids,
            self.image,
            self.try_line(&url),
        )
    }

    /// One line for a shell: leases a session and runs a program in it.
    fn try_line(&self, url: &str) -> String {
        let token = match self.token_file {
            None => String::new(),
            Some(path) => format!(" -H \"Authorization: Bearer $(cat {})\"", quoted(path)),
        };
        // What stands in capitals is a file of the operator's.
        let tls = match self.tls {
            None => "",
            Some(false) => " --cacert CA.pem",
            Some(true) => " --cacert CA.pem --cert CLIENT.pem --key CLIENT.key",
        };
        let post = format!("curl -sS{tls}{token} -H 'Content-Type: application/json'");
        let program = "'{\"tool\": \"code_execution\", \"input\": {\"code\": \"print(6 * 7)\"}}'";
        format!(
            "id=$({post} -d '{{}}' {url}/sessions | grep -o '[0-9a-f]\\{{32\\}}' | head -n 1); \
             {post} -d {program} {url}/sessions/$id/exec; echo"
        )
    }
}

/// An address that a client on this machine can connect to.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        let loopback = match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        };
        address.set_ip(loopback);
    }
    address
}

/// A path as one word of a shell's, inside double quotes and out.
fn quoted(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(address: &str, token_file: Option<&'static Path>) -> String {
        let address = address.parse().unwrap();
        let (tier, limiter, ids) = ("cell", "cgroup v2", "one each");
        Ready { address, tls: None, tier, limiter, ids, image: "bare".to_owned(), token_file }.text()
    }

    #[test]
    fn the_lines_name_an_address_that_can_be_reached() {
        assert!(ready("0.0.0.0:80", None).contains("\naddress: http://127.0.0.1:80\n"));
        assert!(ready("[::]:80", None).contains("\naddress: http://[::1]:80\n"));
        assert!(ready("10.0.0.1:80", None).ends_with("\nready\n"));
    }

    #[test]
    fn the_line_to_try_names_the_token_file_and_never_the_token() {
        let text = ready("127.0.0.1:80", Some(Path::new("/run/it's/token")));
        assert!(text.contains(r"$(cat '/run/it'\''s/token')"), "{text}");
    }
}
