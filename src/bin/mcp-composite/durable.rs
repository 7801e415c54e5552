//! Runs tasks in Restate.

use std::{error::Error, net::SocketAddr, time::Duration};

use clap::Args;
use mcp_composite::{
    config::Config,
    restate::{RestateError, RestateServer},
};
use tokio::{net::TcpListener, time::sleep};
use tokio_util::sync::CancellationToken;

/// The default address of the endpoint that Restate calls.
const LISTEN: &str = "127.0.0.1:9080";
/// The default port of Restate's admin interface.
const ADMIN_PORT: u16 = 9070;
/// The pause after the endpoint could not be registered.
const PAUSE: Duration = Duration::from_secs(2);

/// The options for runs in Restate.
#[derive(Args, Debug)]
pub(crate) struct DurableOptions {
    /// Executes tasks in a durable engine: `restate=URL`, where the URL is that of the ingress of a
    /// Restate server, such as `restate=http://127.0.0.1:8080`. Runs then continue after this
    /// process has stopped. Registers this process with the server.
    #[arg(long = "durable", value_name = "restate=URL", value_parser = engine)]
    ingress: Option<String>,
    /// The address at which Restate calls this process. Only the Restate server may reach it,
    /// because its clients can run any composite as any caller.
    #[arg(long, value_name = "ADDRESS", requires = "ingress", default_value = LISTEN)]
    durable_listen: SocketAddr,
    /// The URL at which Restate reaches `--durable-listen`, such as that of a load balancer in
    /// front of several processes. Defaults to `http://` and the address.
    #[arg(long, value_name = "URL", requires = "ingress")]
    durable_url: Option<String>,
    /// The URL of Restate's admin interface. Defaults to port 9070 of the host of the ingress.
    #[arg(long, value_name = "URL", requires = "ingress")]
    durable_admin: Option<String>,
    /// The public key of the Restate server, `publickeyv1_…`. Requests that are not signed with it
    /// are rejected. Needed if `--durable-listen` can be reached by other machines.
    #[arg(long, value_name = "KEY", requires = "ingress")]
    durable_identity_key: Option<String>,
}

/// A Restate server that executes the tasks of this process.
pub(crate) struct Durable {
    restate: RestateServer,
    listen: SocketAddr,
    url: Option<String>,
    admin: String,
}

/// Makes the tasks of a configuration run in the engine of the options, if they name one.
///
/// # Errors
///
/// Returns an error if a URL or an address is not suitable.
pub(crate) fn apply(
    options: &DurableOptions,
    is_insecure: bool,
    config: Config,
) -> Result<(Config, Option<Durable>), Box<dyn Error>> {
    let Some(ingress) = &options.ingress else { return Ok((config, None)) };
    let listen = options.durable_listen;
    let mut restate = RestateServer::new(ingress)?;
    match &options.durable_identity_key {
        Some(key) => restate = restate.identity_key(key),
        None if !listen.ip().is_loopback() && !is_insecure => {
            return Err(format!(
                "`--durable-listen {listen}` can be reached by other machines: add \
                 `--durable-identity-key`, listen at 127.0.0.1, or add `--insecure`"
            )
            .into());
        }
        None => (),
    }
    let admin = match &options.durable_admin {
        Some(admin) => admin.clone(),
        None => {
            let mut url = reqwest::Url::parse(ingress).map_err(|_| RestateError::Url)?;
            url.set_port(Some(ADMIN_PORT)).map_err(|()| RestateError::Url)?;
            url.to_string()
        }
    };
    let config = config.task_registry(&restate.tasks());
    let url = options.durable_url.clone();
    Ok((config, Some(Durable { restate, listen, url, admin })))
}

/// Parses the name and the URL of an engine.
fn engine(text: &str) -> Result<String, &'static str> {
    let url = text.strip_prefix("restate=").filter(|url| RestateServer::new(url).is_ok());
    url.map(str::to_owned).ok_or("expected an engine and its URL, `restate=http://HOST:PORT`")
}

// === impl Durable ===

impl Durable {
    /// Serves the endpoint that Restate calls, and registers it.
    ///
    /// # Errors
    ///
    /// Returns an error if the address cannot be bound, or if the identity key is invalid.
    pub(crate) async fn serve(self, stop: &CancellationToken) -> Result<(), Box<dyn Error>> {
        let Self { restate, listen, url, admin } = self;
        let listener = TcpListener::bind(listen).await;
        let listener = listener.map_err(|error| format!("cannot listen at {listen}: {error}"))?;
        let address = listener.local_addr()?;
        let url = url.unwrap_or_else(|| format!("http://{address}"));
        let served = restate.serve(listener, stop.clone().cancelled_owned())?;
        let register = async {
            while let Err(error) = restate.register(&admin, &url).await {
                tracing::warn!(%error, "failed to register the endpoint {url}; retrying");
                sleep(PAUSE).await;
            }
            tracing::info!("Restate executes tasks at {url}");
        };
        tokio::select! {
            () = served => (),
            () = async { register.await; std::future::pending().await } => (),
        }
        // The program ends in its own order.
        std::future::pending().await
    }
}
