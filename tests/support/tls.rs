//! [`TlsServer`]: a server with a certificate made for it.

use std::fs;

use rcgen::generate_simple_self_signed;
use redis::{Client, ClientTlsConfig, TlsCertificates};

use crate::ports::spare_port;
use crate::redis_server::{RedisServer, installed};

/// A server that speaks TLS on one port, and for the tests themselves nothing else on another. It asks its
/// clients for certificates, too.
#[derive(Debug)]
pub struct TlsServer {
    pub server: RedisServer,
    tls_port: u16,
    certificate: String,
    key: String,
}

impl TlsServer {
    pub fn start(extra: &[&str]) -> Self {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let signed = generate_simple_self_signed(names).expect("a certificate");
        let (certificate, key) = (signed.cert.pem(), signed.signing_key.serialize_pem());
        let tls_port = spare_port();
        let server = RedisServer::start_as(installed(), |dir| {
            let file = dir.join("server.pem").display().to_string();
            fs::write(&file, certificate.clone() + &key).expect("a new file");
            let port = tls_port.to_string();
            let words = ["--tls-port", &port, "--tls-ca-cert-file", &file];
            let own = ["--tls-cert-file", &file, "--tls-key-file", &file];
            let words = [&words[..], &own, extra].concat();
            words.into_iter().map(str::to_owned).collect()
        });
        Self {
            server,
            tls_port,
            certificate,
            key,
        }
    }

    pub fn url(&self) -> String {
        format!("rediss://localhost:{}/", self.tls_port)
    }

    /// A client that trusts the server's certificate, and has it itself.
    pub fn client(&self) -> Client {
        let client_tls = ClientTlsConfig {
            client_cert: self.certificate.clone().into_bytes(),
            client_key: self.key.clone().into_bytes(),
        };
        let certificates = TlsCertificates {
            client_tls: Some(client_tls),
            root_cert: Some(self.certificate.clone().into_bytes()),
        };
        Client::build_with_tls(self.url(), certificates).expect("valid certificates")
    }
}
