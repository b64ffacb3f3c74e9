//! HTTP clients: their TLS settings, and requests to checked addresses.

pub(crate) mod checked;
pub(crate) mod hosts;

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls_platform_verifier::BuilderVerifierExt as _;

pub use checked::{Resolver, SystemResolver};
pub use hosts::{BadHost, InternalHost};

/// Returns a TLS configuration with the `ring` provider for one client. Reads the system's root certificates only if they are `needed`:
/// local servers must work on systems without certificates.
///
/// # Errors
/// If the system's root certificates cannot be used.
pub fn tls(needed: bool) -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?;
    let mut config = match needed {
        true => builder.with_platform_verifier()?.with_no_client_auth(),
        false => builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth(),
    };
    // The client is built without HTTP/2.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
