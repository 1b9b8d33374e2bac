// SPDX-License-Identifier: BSD-3-Clause
//! TLS of the web page. The certificate and its key come from two PEM files or from ACME (`acme.rs`). The two
//! files are read again when they have changed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How often the two files with the certificate and its key are checked for changes.
const LOOK_EVERY: Duration = Duration::from_secs(10);

pub enum Tls {
    Files(Files),
    /// The certificate comes from ACME, which puts each new certificate into this TLS configuration.
    Acme(Arc<ServerConfig>),
}

pub struct Files {
    certificate: PathBuf,
    key: PathBuf,
    now: Mutex<LoadedFiles>,
}

struct LoadedFiles {
    config: Arc<ServerConfig>,
    changed: [Option<SystemTime>; 2],
    looked: Instant,
}

impl Tls {
    pub async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        let config = match self {
            Tls::Files(files) => files.config(),
            Tls::Acme(config) => config.clone(),
        };
        TlsAcceptor::from(config).accept(stream).await
    }
}

impl Files {
    pub fn open(certificate: &Path, key: &Path) -> Result<Files, String> {
        let changed = changed(certificate, key);
        let now = LoadedFiles { config: read(certificate, key)?, changed, looked: Instant::now() };
        Ok(Files { certificate: certificate.into(), key: key.into(), now: Mutex::new(now) })
    }

    fn config(&self) -> Arc<ServerConfig> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.looked.elapsed() >= LOOK_EVERY {
            now.looked = Instant::now();
            let changed = changed(&self.certificate, &self.key);
            if changed != now.changed {
                // One of the two files may be new already, so both are read again at the next check.
                match read(&self.certificate, &self.key) {
                    Ok(config) => (now.config, now.changed) = (config, changed),
                    Err(why) => eprintln!("outboard monitor: the certificate of before stays: {why}"),
                }
            }
        }
        now.config.clone()
    }
}

fn changed(certificate: &Path, key: &Path) -> [Option<SystemTime>; 2] {
    [certificate, key].map(|path| std::fs::metadata(path).and_then(|file| file.modified()).ok())
}

pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn read(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, String> {
    let named = |path: &Path, why: String| format!("{}: {why}", path.display());
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(|all| all.collect::<Result<Vec<_>, _>>())
        .map_err(|why| named(certificate, why.to_string()))?;
    if chain.is_empty() {
        return Err(named(certificate, "it holds no certificate".into()));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|why| named(key, why.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|why| why.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|why| named(certificate, format!("with {}: {why}", key.display())))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
