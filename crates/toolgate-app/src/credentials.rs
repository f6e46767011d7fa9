//! Stored credentials of a project: the place of the store and of its key, and the logins of one caller.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;
use toolgate_config::{Config, CredentialKey, Environment};
use toolgate_store::credentials::{
    Credential, CredentialError, CredentialId, CredentialInfo, CredentialLock, CredentialStore,
    FileCredentials, KeySource, MemoryCredentials, StoreKey,
};
use toolgate_types::server::Transport;
use toolgate_types::{CallerId, ConfigString, ServerSpec};
use toolgate_upstream::credentials::{CredentialChangeError, ServerCredentials};
use toolgate_upstream::process::{Child, ChildSpec};
use toolgate_upstream::{LoginOptions, TokenSource};

use crate::project::StateFolder;

/// Time that the program of `key_command` has.
const KEY_COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// Output of it that is read.
const MAX_KEY_BYTES: usize = 4 << 10;

/// The credentials of a project cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error("there is no MCP server `{0}`; `toolgate servers` lists them")]
    UnknownServer(String),
    #[error(
        "MCP server `{0}` needs no login: it does not use HTTP, or its configuration contains a credential"
    )]
    NotNeeded(String),
    #[error("all callers of MCP server `{0}` share the credential of the owner")]
    Shared(String),
    #[error(transparent)]
    Change(#[from] CredentialChangeError),
    #[error("the program `{program}` of `credentials.key_command` gave no key: {reason}")]
    KeyCommand { program: String, reason: String },
    #[error(transparent)]
    Store(#[from] CredentialError),
}

impl CredentialsError {
    /// Returns a suggested fix.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint().map(str::to_owned),
            Self::Shared(_) => Some("add `auth: caller` to the server, or leave out `--as`".to_owned()),
            Self::Change(CredentialChangeError::NoPlace(_)) => Some(
                "add `credential` to the server; one with a token in its `headers`, or with `forward`, takes none"
                    .to_owned(),
            ),
            Self::Change(CredentialChangeError::Store(error)) => error.hint().map(str::to_owned),
            Self::KeyCommand { .. } => Some("run it by hand: it has to print 32 bytes in base64".to_owned()),
            Self::UnknownServer(_) | Self::NotNeeded(_) | Self::Change(_) => None,
        }
    }
}

/// Returns the state folder of the user, with the keys of credential stores.
pub fn user_state_folder(environment: &Environment) -> Option<PathBuf> {
    let state = environment.variables.get("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.filter(|path| path.is_absolute());
    let state = state.or_else(|| environment.home.as_ref().map(|home| home.join(".local/state")))?;
    Some(state.join("toolgate"))
}

/// Returns the folder of the tokens of earlier versions.
pub(crate) fn legacy_folder(user_state: Option<&Path>) -> Option<PathBuf> {
    user_state.map(|folder| folder.join("tokens"))
}

/// Stored credentials of a project.
pub struct ProjectCredentials {
    store: Arc<dyn CredentialStore>,
    /// The store, if it is in files.
    files: Option<FileCredentials>,
    legacy_folder: Option<PathBuf>,
}

impl ProjectCredentials {
    /// Opens the store of a project. Without a state folder of the user, and without a key in the configuration,
    /// credentials are kept in memory.
    ///
    /// # Errors
    /// If the key cannot be read, or does not open the store. Nothing was changed then.
    pub fn open(config: &Config, user_state: Option<&Path>) -> Result<Self, CredentialsError> {
        let legacy_folder = legacy_folder(user_state);
        let key = match &config.credential_key {
            CredentialKey::Default => {
                let Some(user_state) = user_state else {
                    let store = Arc::new(MemoryCredentials::default());
                    return Ok(Self { store, files: None, legacy_folder });
                };
                KeySource::DefaultFolder(user_state.join("keys"))
            }
            CredentialKey::Key(key) => {
                KeySource::Given(StoreKey::parse(key.expose(), "the value of `credentials.key`")?)
            }
            CredentialKey::KeyFile(path) => KeySource::File(path.clone()),
            CredentialKey::KeyCommand(command) => {
                KeySource::Given(run_key_command(command, &config.project)?)
            }
        };
        let folder = StateFolder::of(&config.project).path().join("credentials");
        let files = FileCredentials::open(folder, key)?;
        Ok(Self { store: Arc::new(files.clone()), files: Some(files), legacy_folder })
    }

    /// Returns the options of logins. `browser` is added by the front end.
    pub fn login_options(&self) -> LoginOptions {
        LoginOptions {
            store: Some(Arc::clone(&self.store)),
            legacy_folder: self.legacy_folder.clone(),
            ..LoginOptions::default()
        }
    }

    /// Describes the stored credentials.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn list(&self) -> Result<Vec<CredentialInfo>, CredentialsError> {
        Ok(self.store.list().await?)
    }

    /// Stores a static credential of a caller for a server.
    ///
    /// # Errors
    /// If the server takes none, or the store cannot be written.
    pub async fn set(
        &self,
        config: &Config,
        server: &str,
        caller: &CallerId,
        secret: &str,
    ) -> Result<(), CredentialsError> {
        let spec = find_server(config, server)?;
        check_caller(spec, caller)?;
        let credentials = ServerCredentials::new(Arc::new(spec.clone()), self.login_options());
        Ok(credentials.set_static(caller, secret).await?)
    }

    /// Removes the credential of a caller for a server; returns true if there was one. The server may have been removed
    /// from the configuration.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub async fn remove(&self, id: &CredentialId) -> Result<bool, CredentialsError> {
        Ok(self.store.remove(id).await?)
    }

    /// Replaces the key of the store; see [`FileCredentials::rekey`].
    ///
    /// # Errors
    /// If the store cannot be written, or is in memory.
    pub fn rekey(&self, new_key_file: Option<&Path>) -> Result<usize, CredentialsError> {
        let new_key = new_key_file.map(StoreKey::read_file).transpose()?;
        match &self.files {
            Some(files) => Ok(files.rekey(new_key)?),
            None => Err(CredentialError::KeyNotInFile.into()),
        }
    }
}

fn find_server<'a>(config: &'a Config, server: &str) -> Result<&'a ServerSpec, CredentialsError> {
    let spec = config.servers.iter().find(|spec| spec.name.as_str() == server);
    spec.ok_or_else(|| CredentialsError::UnknownServer(server.to_owned()))
}

fn check_caller(spec: &ServerSpec, caller: &CallerId) -> Result<(), CredentialsError> {
    if spec.auth.is_per_caller() || caller.as_str() == toolgate_types::Caller::OWNER {
        return Ok(());
    }
    Err(CredentialsError::Shared(spec.name.to_string()))
}

/// Returns the tokens of a caller for a server.
///
/// # Errors
/// If there is no such server, or it needs no login of this caller.
pub fn server_tokens(
    config: &Config,
    server: &str,
    caller: &CallerId,
    logins: &LoginOptions,
) -> Result<Arc<TokenSource>, CredentialsError> {
    let spec = find_server(config, server)?;
    check_caller(spec, caller)?;
    let credentials = ServerCredentials::new(Arc::new(spec.clone()), logins.clone());
    credentials.token_source(caller).ok_or_else(|| CredentialsError::NotNeeded(server.to_owned()))
}

/// The store of a cluster: it has none, because the replicas do not share credentials yet.
pub(crate) struct NoCredentials;

fn not_shared() -> CredentialError {
    io::Error::other("the replicas of a cluster do not share credentials yet").into()
}

impl CredentialStore for NoCredentials {
    fn get<'a>(&'a self, _: &'a CredentialId) -> BoxFuture<'a, Result<Option<Credential>, CredentialError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn put<'a>(&'a self, _: &'a CredentialId, _: Credential) -> BoxFuture<'a, Result<(), CredentialError>> {
        Box::pin(std::future::ready(Err(not_shared())))
    }

    fn remove<'a>(&'a self, _: &'a CredentialId) -> BoxFuture<'a, Result<bool, CredentialError>> {
        Box::pin(std::future::ready(Ok(false)))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<CredentialInfo>, CredentialError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn lock<'a>(&'a self, _: &'a CredentialId) -> BoxFuture<'a, Option<CredentialLock>> {
        Box::pin(std::future::ready(None))
    }
}

/// Returns true if a server may use stored credentials. Without one, the store is not opened.
pub(crate) fn uses_store(spec: &ServerSpec) -> bool {
    match &spec.transport {
        Transport::Stdio(_) => spec.auth.credential.is_some(),
        Transport::Websocket(_) => spec.auth.is_per_caller(),
        Transport::Http(_) | Transport::Sse(_) => true,
    }
}

/// Runs the program that prints the key.
fn run_key_command(command: &[ConfigString], folder: &Path) -> Result<StoreKey, CredentialsError> {
    let (program, args) = command.split_first().expect("the configuration requires a program");
    let mut spec = ChildSpec::new(program.clone(), folder);
    spec.args = args.to_vec();
    let shown = program.redacted().to_owned();
    let failed = |reason: String| CredentialsError::KeyCommand { program: shown.clone(), reason };
    // On its own thread, because the caller may be async or not.
    let run = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| error.to_string())?.block_on(key_output(&spec))
    });
    let output = run.join().unwrap_or_else(|_| Err("it could not be run".to_owned())).map_err(failed)?;
    Ok(StoreKey::parse(&output, "the output of `credentials.key_command`")?)
}

async fn key_output(spec: &ChildSpec) -> Result<String, String> {
    let mut child = Child::spawn(spec).map_err(|error| error.to_string())?;
    let stdout = child.stdout.take().expect("a new child has its stdout");
    let mut output = Vec::new();
    let run = async {
        let mut limited = stdout.take(MAX_KEY_BYTES as u64);
        limited.read_to_end(&mut output).await.map_err(|error| error.to_string())?;
        Ok::<_, String>(child.exit().await)
    };
    let exit = timeout(KEY_COMMAND_TIMEOUT, run).await;
    child.stop(Duration::ZERO).await;
    match exit {
        Err(_) => Err(format!("it did not end within {KEY_COMMAND_TIMEOUT:?}")),
        Ok(Err(error)) => Err(error),
        Ok(Ok(exit)) if !exit.is_success() => Err(format!("it {exit}")),
        // Not shown in an error: it may be a part of the key.
        Ok(Ok(_)) => String::from_utf8(output).map_err(|_| "its output is not UTF-8".to_owned()),
    }
}
