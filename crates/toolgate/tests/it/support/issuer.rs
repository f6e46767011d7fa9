//! Token issuer on this machine: keys, metadata, and a count of its requests.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::{KeyPair, PKCS_ED25519, PKCS_RSA_SHA256, PublicKeyData as _};
use serde_json::{Value as Json, json};

/// The audience of its tokens.
pub(crate) const AUDIENCE: &str = "https://tools.example.com";

/// A signing key.
pub(crate) struct Signer {
    pub(crate) id: String,
    pub(crate) algorithm: Algorithm,
    pub(crate) pair: KeyPair,
    key: EncodingKey,
}

impl Signer {
    pub(crate) fn new(id: &str, algorithm: Algorithm) -> Self {
        let (pair, key) = match algorithm {
            Algorithm::RS256 => {
                // `jsonwebtoken` wants RSA keys in PKCS#1, which is wrapped in the PKCS#8.
                let pair = KeyPair::generate_for(&PKCS_RSA_SHA256).expect("a key");
                let der = pair.serialize_der();
                let key = EncodingKey::from_rsa_der(&der[26..]);
                (pair, key)
            }
            Algorithm::EdDSA => {
                let pair = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
                let key = EncodingKey::from_ed_der(&pair.serialize_der());
                (pair, key)
            }
            _ => {
                let pair = KeyPair::generate().expect("a key");
                let key = EncodingKey::from_ec_der(&pair.serialize_der());
                (pair, key)
            }
        };
        Self { id: id.to_owned(), algorithm, pair, key }
    }

    /// Returns the public key as JWK.
    pub(crate) fn jwk(&self) -> Json {
        if self.algorithm == Algorithm::EdDSA {
            let public = self.pair.subject_public_key_info();
            let x = URL_SAFE_NO_PAD.encode(&public[public.len() - 32..]);
            return json!({ "kty": "OKP", "crv": "Ed25519", "x": x, "kid": self.id, "use": "sig" });
        }
        let mut jwk = Jwk::from_encoding_key(&self.key, self.algorithm).expect("a key");
        jwk.common.key_id = Some(self.id.clone());
        serde_json::to_value(jwk).expect("JSON")
    }

    pub(crate) fn head(&self) -> Header {
        let mut head = Header::new(self.algorithm);
        head.kid = Some(self.id.clone());
        head
    }

    /// Signs a token with these claims.
    pub(crate) fn sign(&self, claims: &Json) -> String {
        self.sign_as(&self.head(), claims)
    }

    pub(crate) fn sign_as(&self, head: &Header, claims: &Json) -> String {
        encode(head, claims, &self.key).expect("it is signed")
    }
}

/// Returns the Unix time, shifted by some seconds.
pub(crate) fn now(more: i64) -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later");
    i64::try_from(now.as_secs()).expect("not yet") + more
}

/// A running issuer.
pub(crate) struct Issuer {
    pub(crate) url: String,
    state: Arc<State>,
}

struct State {
    url: String,
    keys: Mutex<Json>,
    /// Sent instead of the normal response.
    broken: Mutex<Option<String>>,
    request_count: AtomicUsize,
}

impl Issuer {
    pub(crate) fn start(signers: &[&Signer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://127.0.0.1:{}", listener.local_addr().expect("a local address").port());
        let state = Arc::new(State {
            url: url.clone(),
            keys: Mutex::default(),
            broken: Mutex::default(),
            request_count: AtomicUsize::new(0),
        });
        let issuer = Self { url, state: Arc::clone(&state) };
        issuer.show(signers);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                state.answer(stream);
            }
        });
        issuer
    }

    /// Replaces its keys.
    pub(crate) fn show(&self, signers: &[&Signer]) {
        let keys: Vec<_> = signers.iter().map(|signer| signer.jwk()).collect();
        *self.state.keys.lock().expect("one writes") = json!({ "keys": keys });
    }

    pub(crate) fn answer_with(&self, text: Option<&str>) {
        *self.state.broken.lock().expect("one writes") = text.map(ToOwned::to_owned);
    }

    /// Returns the number of requests.
    pub(crate) fn request_count(&self) -> usize {
        self.state.request_count.load(Ordering::SeqCst)
    }

    /// Returns valid claims.
    pub(crate) fn claims(&self, sub: &str, scope: &str) -> Json {
        json!({ "iss": self.url, "aud": AUDIENCE, "sub": sub, "scope": scope, "exp": now(300), "nbf": now(-5) })
    }
}

impl State {
    fn answer(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(&stream);
        let mut first = String::new();
        let _ = reader.read_line(&mut first);
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
            line.clear();
        }
        self.request_count.fetch_add(1, Ordering::SeqCst);
        let path = first.split(' ').nth(1).unwrap_or_default();
        let body = match path {
            "/keys" => Some(self.keys.lock().expect("one writes").clone()),
            "/.well-known/openid-configuration" => {
                Some(json!({ "issuer": self.url, "jwks_uri": format!("{}/keys", self.url) }))
            }
            _ => None,
        };
        let broken = self.broken.lock().expect("one writes").clone();
        let (status, body) = match (broken, body) {
            (Some(broken), _) => ("500 Broken", broken),
            (None, Some(body)) => ("200 OK", body.to_string()),
            (None, None) => ("404 Not Found", String::new()),
        };
        let head =
            format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        let _ = stream.write_all(format!("{head}{body}").as_bytes());
    }
}
