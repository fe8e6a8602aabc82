use std::io::Write as _;
use std::net::Ipv6Addr;

use smol_str::SmolStr;

use super::RequestHead;
use super::host::{canonical, host_header, is_default, is_future, reg_name, split};

/// A fully qualified name has at most 253 bytes; what is longer is an attempt to fill the store.
pub(super) const LONGEST: usize = 255;

/// Where a request goes to, as it says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Authority<'a> {
    host: &'a str,
    port: Option<u16>,
    scheme: Option<&'a str>,
}

impl<'a> Authority<'a> {
    pub(crate) fn of<R: RequestHead>(request: &'a R) -> Option<Self> {
        let (host, port) = match request.host() {
            Some(host) => (host, request.port()),
            None => host_header(request.headers())?,
        };
        Some(Self {
            host,
            port,
            scheme: request.scheme(),
        })
    }

    /// What a pattern says: a host, with a port or without.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (host, port) = split(text)?;
        Some(Self {
            host,
            port,
            scheme: None,
        })
    }

    /// The host in its one spelling, with the port unless that is the scheme's own.
    pub(super) fn key(self) -> Option<SmolStr> {
        canonical(self.host, self.port, self.scheme)
    }

    /// The host in its one spelling, as in the key, and without the port.
    pub(crate) fn spell(self, spelling: &mut Spelling) -> Option<&str> {
        spelling.write(self.host)
    }

    pub(crate) fn port(self) -> Option<u16> {
        self.port
    }

    /// Whether it goes to this port: if it names none, to that of its scheme; or to either of them, if the scheme
    /// is not known.
    pub(crate) fn is_at(self, port: u16) -> bool {
        match self.port {
            Some(named) => named == port,
            None => is_default(port, self.scheme),
        }
    }
}

/// Room for the one spelling of a host, so that it takes no allocation.
pub(crate) struct Spelling {
    text: [u8; LONGEST],
    length: usize,
}

impl Spelling {
    pub(crate) fn new() -> Self {
        Self {
            text: [0; LONGEST],
            length: 0,
        }
    }

    fn write(&mut self, host: &str) -> Option<&str> {
        if host.len() > LONGEST {
            return None;
        }
        let literal = host.strip_prefix('[');
        match literal {
            Some(literal) => {
                let address = literal.strip_suffix(']')?;
                match address.parse::<Ipv6Addr>() {
                    Ok(address) => self.format(format_args!("[{address}]"))?,
                    Err(_) if is_future(address) => self.lower_case(host),
                    Err(_) => return None,
                }
            }
            None => self.lower_case(reg_name(host)?),
        }
        str::from_utf8(&self.text[..self.length]).ok()
    }

    fn format(&mut self, text: std::fmt::Arguments<'_>) -> Option<()> {
        let mut left = &mut self.text[..];
        left.write_fmt(text).ok()?;
        self.length = LONGEST - left.len();
        Some(())
    }

    fn lower_case(&mut self, text: &str) {
        self.length = text.len();
        let space = &mut self.text[..text.len()];
        space.copy_from_slice(text.as_bytes());
        space.make_ascii_lowercase();
    }
}
