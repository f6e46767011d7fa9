//! `/v1/cluster`: the replicas, and whether they agree.

use serde_json::{Value as Json, json};
use toolgate_store::cluster::ClusterStatus;

use crate::auth::HttpError;
use crate::response::{self, Response};
use crate::route::AdmittedRequest;

pub(crate) async fn show(request: AdmittedRequest) -> Result<Response, HttpError> {
    let cluster = request.gateway.cluster.as_ref().ok_or_else(|| {
        HttpError::not_found("this gateway is not part of a cluster".to_owned())
            .hint("`cluster` in toolgate.yaml connects several replicas; see docs/cluster.md")
    })?;
    Ok(response::json(&describe(&cluster.members.status())))
}

/// Describes a cluster as one replica sees it.
fn describe(status: &ClusterStatus) -> Json {
    let disagreeing = status.disagreeing();
    json!({
        "replica": status.name,
        "agree": disagreeing.is_empty() && !status.name_taken,
        "disagreeing": disagreeing,
        "nameTaken": status.name_taken,
        "database": database(status),
        "replicas": status.replicas,
    })
}

/// Describes the database: if it is available, else since when and why it is not.
fn database(status: &ClusterStatus) -> Json {
    match &status.away_for {
        None => json!({ "available": true }),
        Some(away) => {
            let millis = u64::try_from(away.as_millis()).unwrap_or(u64::MAX);
            json!({ "available": false, "awayForMs": millis, "reason": status.reason })
        }
    }
}

/// Describes the cluster for a readiness check. Names and reasons are shown only with full access.
pub(crate) fn readiness(status: &ClusterStatus, is_full: bool) -> Json {
    let disagreeing = status.disagreeing();
    let mut document = json!({
        "agree": disagreeing.is_empty() && !status.name_taken,
        "database": database(status),
        "live": status.replicas.iter().filter(|replica| replica.live).count(),
    });
    if is_full {
        document["replica"] = json!(status.name);
        document["disagreeing"] = json!(disagreeing);
    } else if let Some(database) = document["database"].as_object_mut() {
        database.remove("reason");
    }
    document
}
