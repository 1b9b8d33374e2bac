// SPDX-License-Identifier: BSD-3-Clause
//! Answers which links a job uses, and which jobs use a link.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use axum::extract::{Extension, Json, Query, State};
use serde_json::{Value, json};

use super::api::{Answer, JobQuery, PortQuery, WebState, blocking, known_job};
use crate::fabric::counters::{Sample, XMIT_BYTES};
use crate::fabric::routes::{PortId, hosts, routes};
use crate::fabric::topology::Topology;
use crate::job::Job;
use crate::live::Live;
use crate::people::Who;

/// How many of a job's ports are named in the answer: the ports with the highest use.
const HOTTEST: usize = 15;

/// A copy of the fabric's state. Routes are followed in the copy, so that `Live` is not locked meanwhile.
struct Seen {
    topology: Arc<Topology>,
    fabric: Arc<crate::fabric::discover::Fabric>,
    ports: HashMap<PortId, Sample>,
}

impl Seen {
    fn of(live: &Live) -> Seen {
        let now = live.now();
        Seen { topology: now.topology.clone(), fabric: now.discovered.clone(), ports: now.ports.clone() }
    }

    /// Returns the ports through which messages between the nodes of a job are sent.
    fn routes(&self, job: &Job) -> BTreeSet<PortId> {
        routes(&self.fabric, &hosts(&self.topology, &job.nodes))
    }

    /// Returns how many bytes a second the nodes of a job send into the fabric now.
    fn sends(&self, job: &Job) -> f64 {
        let hosts = hosts(&self.topology, &job.nodes);
        let samples =
            self.ports.values().filter(|sample| hosts.contains(&sample.node) && sample.seconds > 0.0);
        samples.map(|sample| sample.since[XMIT_BYTES] as f64 / sample.seconds).sum()
    }
}

/// Answers with the links that a job uses, by their number in the topology, and with the ports among them
/// that have the highest use.
pub async fn of_job(
    State(web): WebState,
    Extension(who): Extension<Who>,
    Query(asked): Query<JobQuery>,
) -> Answer {
    let job = known_job(&web, &who, asked.source, asked.id).await?;
    blocking(move || {
        let seen = Seen::of(&web.live);
        let used = seen.routes(&job);
        let guid = |at: usize| seen.topology.nodes[at].number();
        let mut links = Vec::new();
        let mut ends = Vec::new();
        for (number, link) in seen.topology.links.iter().enumerate() {
            let both = [
                (link.from, link.from_port, link.to, link.to_port),
                (link.to, link.to_port, link.from, link.from_port),
            ];
            let sending = both.into_iter().filter(|(from, port, ..)| used.contains(&(guid(*from), *port)));
            let before = ends.len();
            ends.extend(sending.map(|(from, port, to, to_port)| {
                let sent = seen.ports.get(&(guid(from), port)).and_then(|sample| sample.sent);
                (sent, from, port, to, to_port)
            }));
            if ends.len() > before {
                links.push(number);
            }
        }
        ends.sort_by(|one, other| other.0.unwrap_or(-1.0).total_cmp(&one.0.unwrap_or(-1.0)));
        let name = |at: usize| &seen.topology.nodes[at].name;
        let hottest: Vec<Value> = ends
            .iter()
            .take(HOTTEST)
            .map(|(sent, from, port, to, to_port)| {
                json!({"node": name(*from), "port": port, "to": name(*to), "to_port": to_port, "sent": sent})
            })
            .collect();
        Ok(Json(json!({"version": seen.topology.version, "links": links, "hottest": hottest})))
    })
    .await
}

/// Answers with the running jobs whose messages go through a port. For each job it says how much the job's
/// nodes send into the fabric.
pub async fn of_port(
    State(web): WebState,
    Extension(who): Extension<Who>,
    Query(asked): Query<PortQuery>,
) -> Answer {
    let end = (asked.guid()?, asked.port);
    blocking(move || {
        let jobs: Vec<Job> = {
            let now = web.live.now();
            let runs =
                now.jobs.iter().filter(|job| job.end.is_none() && job.nodes.len() > 1 && who.sees(job));
            runs.cloned().collect()
        };
        let seen = Seen::of(&web.live);
        let mut found: Vec<(f64, &Job)> = jobs
            .iter()
            .filter(|job| seen.routes(job).contains(&end))
            .map(|job| (seen.sends(job), job))
            .collect();
        found.sort_by(|one, other| other.0.total_cmp(&one.0));
        let jobs: Vec<Value> = found
            .into_iter()
            .map(|(sends, job)| {
                json!({"id": job.id, "source": job.source, "user": job.user, "name": job.name,
                    "bytes_per_second": sends})
            })
            .collect();
        Ok(Json(json!({"jobs": jobs})))
    })
    .await
}
