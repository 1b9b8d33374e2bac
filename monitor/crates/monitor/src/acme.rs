// SPDX-License-Identifier: BSD-3-Clause
//! Certificates for the monitor's page by ACME (RFC 8555). The certificate authority connects to the page
//! over TLS (RFC 8737, tls-alpn-01), to see whether the page runs on the host that the certificate names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::StreamExt;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_acme::caches::DirCache;
use rustls_acme::{AcmeConfig, EventOk};
use serde::Deserialize;

/// The section `[acme]` of the configuration: how the page gets certificates from a certificate authority.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acme {
    /// The names by which browsers reach this host. The certificate authority connects to port 443 of each
    /// name.
    domains: Vec<String>,
    /// The addresses to which the certificate authority writes, such as `mailto:ops@site`.
    #[serde(default)]
    contact: Vec<String>,
    /// The URL at which the certificate authority lists its services (RFC 8555, section 7.1.1). The default
    /// is Let's Encrypt's.
    #[serde(default = "lets_encrypt")]
    directory: String,
    /// A PEM file with the root certificates by which the monitor checks the certificate authority's server.
    /// None for the root certificates that browsers trust.
    trusted: Option<PathBuf>,
}

fn lets_encrypt() -> String {
    rustls_acme::acme::LETS_ENCRYPT_PRODUCTION_DIRECTORY.into()
}

impl Acme {
    /// Checks the fields of the section `[acme]`. An error says what is wrong with a field.
    pub fn check(&self) -> Result<(), String> {
        if self.domains.is_empty() || self.domains.iter().any(String::is_empty) {
            return Err("acme.domains: the names of this host are needed".into());
        }
        if !self.directory.starts_with("https://") {
            return Err(format!("acme.directory: {:?} is no address as https://ca.site/dir", self.directory));
        }
        self.trusted.as_deref().map_or(Ok(()), |file| asker(file).map(|_| ()))
    }

    /// Returns the TLS configuration with which the page is served, and the work that requests certificates
    /// and renews them. Start this work only once the page is served, because the certificate authority
    /// connects at once. The certificates are kept in `folder`.
    pub fn open(&self, folder: &Path) -> Result<(Arc<ServerConfig>, Asking), String> {
        let mut asked = AcmeConfig::new(&self.domains);
        if let Some(file) = &self.trusted {
            asked = asked.client_tls_config(Arc::new(asker(file)?));
        }
        let mut state = asked
            .contact(&self.contact)
            .directory(&self.directory)
            .cache(DirCache::new(folder.to_path_buf()))
            .state();
        let mut config = ServerConfig::builder_with_provider(crate::tls::provider())
            .with_safe_default_protocol_versions()
            .map_err(|why| why.to_string())?
            .with_no_client_auth()
            .with_cert_resolver(state.resolver());
        config.alpn_protocols = vec![b"http/1.1".to_vec(), rustls_acme::acme::ACME_TLS_ALPN_NAME.to_vec()];
        let runtime =
            tokio::runtime::Builder::new_current_thread().build().map_err(|error| error.to_string())?;
        let asking = move || {
            runtime.block_on(async {
                while let Some(event) = state.next().await {
                    match event {
                        Ok(EventOk::DeployedNewCert) => println!("outboard monitor: ACME: a new certificate"),
                        Ok(_) => {}
                        Err(why) => eprintln!("outboard monitor: ACME: {why}; it is tried again"),
                    }
                }
            });
        };
        Ok((Arc::new(config), Box::new(asking)))
    }
}

/// The work that requests and renews certificates. It never ends, so it runs in a thread of its own.
pub type Asking = Box<dyn FnOnce() + Send>;

/// Makes the TLS configuration by which the monitor reaches a certificate authority that browsers do not
/// know. It trusts only the certificates in the PEM file `trusted`.
fn asker(trusted: &Path) -> Result<ClientConfig, String> {
    let named = |why: String| format!("{}: {why}", trusted.display());
    let mut roots = RootCertStore::empty();
    for one in CertificateDer::pem_file_iter(trusted).map_err(|why| named(why.to_string()))? {
        let one = one.map_err(|why| named(why.to_string()))?;
        roots.add(one).map_err(|why| named(why.to_string()))?;
    }
    if roots.is_empty() {
        return Err(named("it holds no certificate".into()));
    }
    let config = ClientConfig::builder_with_provider(crate::tls::provider())
        .with_safe_default_protocol_versions()
        .map_err(|why| why.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_in_the_section_is_named() {
        let check = |text: &str| toml::from_str::<Acme>(text).unwrap().check();
        assert_eq!(check("domains = ['head.site']"), Ok(()));
        for (text, word) in [
            ("domains = []", "acme.domains"),
            ("domains = ['head.site']\ndirectory = 'http://ca.site'", "acme.directory"),
            ("domains = ['head.site']\ntrusted = '/nowhere/ca.pem'", "/nowhere/ca.pem"),
        ] {
            assert!(check(text).unwrap_err().contains(word), "{word}");
        }
    }
}
