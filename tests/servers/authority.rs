//! Certificates for a single test.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};

use crate::support::processes;

/// An issuer of certificates, and the folder that contains them.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
}

/// The files of a certificate.
pub struct Signed {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Both in one file, as ZooKeeper requires.
    pub both: PathBuf,
    number: usize,
}

impl Authority {
    pub fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = processes::folder().join(format!("authority-{number}"));
        fs::create_dir_all(&folder).unwrap();
        let mut params = named(&format!("authority {number}"), &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        fs::write(folder.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Self { issuer: Issuer::new(params, key), folder }
    }

    /// Its own certificate.
    pub fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    pub fn signs(&self, names: &[&str]) -> Signed {
        self.sign(named("server", names))
    }

    pub fn signed_until_2020(&self, names: &[&str]) -> Signed {
        let mut params = named("server", names);
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
        self.sign(params)
    }

    pub fn signed_from_2090_on(&self, names: &[&str]) -> Signed {
        let mut params = named("server", names);
        params.not_before = date_time_ymd(2090, 1, 1);
        self.sign(params)
    }

    /// Its own certificate, with a list of the revoked ones.
    pub fn ca_that_revokes(&self, revoked: &Signed) -> PathBuf {
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2090, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: SerialNumber::from(revoked.serial_number()),
                revocation_time: date_time_ymd(2020, 1, 1),
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let path = self.folder.join("ca-that-revokes.pem");
        let list = list.signed_by(&self.issuer).unwrap().pem().unwrap();
        fs::write(&path, fs::read_to_string(self.ca()).unwrap() + &list).unwrap();
        path
    }

    fn sign(&self, mut params: CertificateParams) -> Signed {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        params.serial_number = Some(SerialNumber::from(serial_number(number)));
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        let write = |what: &str, text: &str| {
            let path = self.folder.join(format!("{number}-{what}.pem"));
            fs::write(&path, text).unwrap();
            path
        };
        let key = key.serialize_pem();
        Signed {
            both: write("both", &format!("{key}{cert}")),
            cert: write("cert", &cert),
            key: write("key", &key),
            number,
        }
    }
}

impl Signed {
    fn serial_number(&self) -> u64 {
        serial_number(self.number)
    }
}

/// Above zero, as RFC 5280 requires.
fn serial_number(number: usize) -> u64 {
    u64::try_from(number).unwrap() + 1
}

fn named(who: &str, names: &[&str]) -> CertificateParams {
    let mut params =
        CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).unwrap();
    params.distinguished_name.push(DnType::CommonName, who);
    params
}

/// A path as it is written in a URL and in a configuration.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
